#!/bin/sh
# Nothing is set: a program that is mostly idle is found to be interactive, though all are of one level yet. While it
# works, others that work without a rest have the shortest timeslices of the GPU; while it rests, all have the driver's own.
. "$(dirname "$0")/lib.sh"

start_default
app long linked --mode endless --bytes 16M --hold 1 --until "$dir/enough"
app chat linked --mode count --bytes 16M --hold 300 --pause 900 --iterations 1000
await_ready long
await_ready chat
at_level() {
    is_up && [ "$(app_number "$(pid_of "$1")" level)" = "$2" ]
}
for request in 1 2 3; do
    within "$patience" slices long=1 chat=0 || fail "chat is not found to be interactive"
    within "$patience" slices long=0 chat=0 || fail "chat counts while it rests"
done

# What is said stands above what is found.
"$ctl" set "$(pid_of chat)" class=batch > /dev/null || fail "mux-ctl set"
within "$patience" at_level chat 3 || fail "chat is at another level than 3"
for moment in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    take_status
    slices long=0 chat=0 || fail "chat counts though it is batch"
    sleep .1
done
touch "$dir/enough"
expect_pass long
kill "$(pid_of chat)"
await chat
expect_empty
stop_daemon

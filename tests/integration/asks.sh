#!/bin/sh
# Asking is not work. Programs that ask all the time for events, streams and memory, and have nothing on the GPU, are
# idle: another one has the GPU, and they take no turn from it.
. "$(dirname "$0")/lib.sh"
start_daemon --slice 3600s --idle 400ms --log-level debug # which tells turns
for what in events memory syncs records; do
    app "$what" linked --mode "asks-$what" --bytes 32M --pause 1 --until "$dir/enough"
    await_ready "$what"
done
are_idle() {
    for what in events memory syncs records; do
        has_state "$what" idle || return 1
    done
}
within "$patience" are_idle || fail "who only asks is not idle: $(grep -o '"state": *"[a-z]*"' "$dir/status.json" | tr '\n' ' ')"

# It needs the memory of all of them.
app works linked --bytes 144M --iterations 4 --seed 5
expect_pass works
for what in events memory syncs records; do
    [ "$(turns_of "$what")" -le 1 ] || fail "$what took $(turns_of "$what") turns"
done
touch "$dir/enough"
expect_pass events memory syncs records
expect_empty
stop_daemon

#!/bin/sh
# A program that had no work when it was parked, as its answer came late, wants no turn for that: none of its memory is
# moved to the GPU before it asks for it. With no grace everybody is late.
. "$(dirname "$0")/lib.sh"
start_mlfq --grace 0 --log-level debug
app first linked --bytes 96M --iterations 400 --seed 1 --go "$dir/go.first" --until "$dir/enough"
await_ready first
app still linked --bytes 96M --iterations 4 --seed 2 --go "$dir/go.still"
await_ready still
is_idle() {
    has_state still idle
}
within "$patience" is_idle || fail "still is not idle: $(app_of "$(pid_of still)")"

turns=$(turns_of still)
touch "$dir/go.first"
has_first() {
    has_state first running
}
within "$patience" has_first || fail "first has no turn"
grep -q "app 1 parked" "$dir/daemon.out" || skip "its answer was not late, so it was not parked: the test shows nothing"
sleep 1
touch "$dir/enough"
expect_pass first
sleep 1
[ "$(turns_of still)" = "$turns" ] || fail "still was given a turn"
has_state still idle || fail "still is not idle any more"
touch "$dir/go.still"
expect_pass still
[ "$(turns_of still)" -gt "$turns" ] || fail "still had no turn"
expect_empty
stop_daemon

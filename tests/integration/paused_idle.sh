#!/bin/sh
# A program that has nothing to do by the time that it is paused wants no turn: none of its memory is moved to the GPU
# before it asks for it, however much time there is.
. "$(dirname "$0")/lib.sh"
# On a busy machine a program whose work has just ended could be parked, and would want a turn for that.
export SIMCUDA_NO=channels
start_default --idle 2s --best-class latency --log-level debug
(
    export GPUMUX_CLASS=latency
    app first linked --bytes 96M --iterations 4 --seed 1 --go "$dir/go.first" --until "$dir/enough"
)
await_ready first
app still linked --bytes 96M --iterations 4 --seed 2 --go "$dir/go.still"
await_ready still
touch "$dir/go.first" # at once: still is not known to be idle yet

is_away() {
    has_state still idle && has_state first running
}
within "$patience" is_away || fail "still waits for a turn that it has no use for: $(app_of "$(pid_of still)")"
grep -q "app 1 is idle: it was paused" "$dir/daemon.out" || fail "still was idle before it was paused: the test shows nothing"
turns=$(turns_of still)
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

#!/bin/sh
# A program maps, unmaps and asks about its own handles while it is paused and its memory is out: nothing waits, and what
# it did is in place when it runs again.
. "$(dirname "$0")/lib.sh"

rounds() {
    n=$(cat "$dir/rounds" 2> /dev/null)
    echo "${n:-0}"
}

goes_on() {
    [ "$(rounds)" -ge "$1" ]
}

is_evicted() {
    is_up && evicted=$(app_number "$(pid_of one)" resident_bytes) &&
        [ "$evicted" -lt $((40 * 1048576 / shrink)) ]
}

start_daemon
# The other one goes on when the first is paused: then it needs the room.
app two linked --bytes 128M --allocs 4 --iterations 10 --seed 2 --go "$dir/go"
await_ready two
app one linked --mode mappers --threads 2 --bytes 96M --iterations 10 --seconds 3 --seed 1 --signal "$dir/rounds" \
    --until "$dir/enough"
await_ready one
"$ctl" pause "$(pid_of one)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state one paused || fail "it is not paused: $(app_of "$(pid_of one)")"
touch "$dir/go"
within "$patience" is_evicted || fail "it keeps its memory: $(app_of "$(pid_of one)")"
from=$(rounds)
within "$patience" goes_on $((from + 20)) || fail "it did $(rounds) rounds, $from of them before it was paused"
has_state one paused || fail "it is not paused any more"
say "$(($(rounds) - from)) rounds while paused"
"$ctl" resume "$(pid_of one)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
touch "$dir/enough"
expect_pass one two
expect_empty
stop_daemon

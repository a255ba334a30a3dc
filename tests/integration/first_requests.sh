#!/bin/sh
# Who comes back from a rest goes before who works without a pause, from its first request on: a program that was
# loaded before a batch program came answers five requests, though the turn of that one is never over. A third program,
# which never rested, waits for its turn all that time.
. "$(dirname "$0")/lib.sh"

waits_for_turn() {
    is_up && app_has "$(pid_of "$1")" '"state":"waiting".*"reason":"turn"'
}

has_turns() {
    [ "$(turns_of "$1")" -ge "$2" ]
}

patience=60 # of what is there within a second
# A busy machine makes no pause of a second between two kernels of the batch program, or it would give its turn back.
start_daemon --slice 1000s --idle 1s --log-level debug
app chat linked --bytes 96M --allocs 3 --iterations 5 --pause 1500 --seed 1 --go "$dir/go"
await_ready chat
app batch dlsym --bytes 96M --allocs 2 --iterations 4 --seed 2 --until "$dir/enough"
await_ready batch
app third proc --bytes 96M --allocs 2 --iterations 1 --seed 3
within "$patience" waits_for_turn third || fail "the third program has a turn: $(app_of "$(pid_of third)")"
touch "$dir/go"
expect_pass chat
has_turns chat 1 || fail "the GPU was not switched to it"
"$ctl" log > "$dir/log.out" || fail "mux-ctl log"
grep -q 'came back from a rest\|rested' "$dir/log.out" || fail "the log does not say why"
[ "$(turns_of third)" = 0 ] || fail "the third program had a turn"
touch "$dir/enough"
expect_pass batch third
expect_empty
stop_daemon

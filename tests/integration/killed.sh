#!/bin/sh
# Programs are killed again and again, at any point of a switch, also those that change little or nothing of their memory; others
# verify to the end, nothing is leaked, and nobody sees what another one left.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --bytes 96M --allocs 4 --iterations 2 --seed 1 --until "$dir/enough"
app two linked --mode byte --bytes 64M --allocs 2 --iterations 2 --seed 2 --until "$dir/enough"
# While it allocates, is moved, runs, is to make room, and waits; and a little later.
round=0
cases="verify,none verify,loading verify,draining byte,waiting zeros,running readonly,loading verify,draining verify,waiting"
[ "${GM_LINKED:-}" != 1 ] || cases="verify,none verify,loading byte,draining zeros,running" # a sanitizer is slow
for case in $cases; do
    app victim linked --mode "${case%,*}" --bytes 96M --allocs 6 --iterations 1000000 --seed $((100 + round))
    [ "$case" = verify,none ] || within "$patience" has_state victim "${case#*,}" || fail "the victim is never ${case#*,}"
    [ $round -lt 5 ] || sleep "0.0$round"
    kill -KILL "$(pid_of victim)"
    await victim
    [ "$code" = 137 ] || fail "the victim ended with $code: $line"
    check_daemon
    round=$((round + 1))
done
await_switches 10
expect_pass one two
expect_switches 10
expect_empty
stop_daemon

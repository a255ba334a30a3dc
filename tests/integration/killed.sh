#!/bin/sh
# Apps are killed again and again, at any point of a switch; two others verify to the end, and nothing is leaked.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --bytes 96M --allocs 4 --iterations 20 --seconds 8 --seed 1
app two linked --bytes 64M --allocs 2 --iterations 20 --seconds 8 --seed 2
round=0
while [ $round -lt 12 ]; do
    app victim linked --bytes 96M --allocs 6 --iterations 1000000 --seed $((100 + round))
    # not always at the same point: while it allocates, while it waits, while it runs, while it is moved
    sleep "0.$((round * 37 % 60 + 10))"
    kill -KILL "$(pid_of victim)"
    await victim
    [ "$code" = 137 ] || fail "the victim ended with $code: $line"
    check_daemon
    round=$((round + 1))
done
expect_pass one two
expect_switches 10
expect_empty
stop_daemon

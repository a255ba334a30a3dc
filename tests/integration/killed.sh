#!/bin/sh
# Apps are killed again and again, at any point of a switch; two others verify to the end, and nothing is leaked.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --bytes 96M --allocs 4 --iterations 20 --seed 1 --until "$dir/enough"
app two linked --bytes 64M --allocs 2 --iterations 20 --seed 2 --until "$dir/enough"
# While it allocates, is moved, runs, is to make room, and waits; and each a little later.
round=0
again="loading running draining waiting"
[ "${GM_LINKED:-}" != 1 ] || again= # a sanitizer makes each round four times as long
for state in none loading running draining waiting $again; do
    app victim linked --bytes 96M --allocs 6 --iterations 1000000 --seed $((100 + round))
    [ $state = none ] || within "$patience" has_state victim $state || fail "the victim is never $state"
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

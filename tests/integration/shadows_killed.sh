#!/bin/sh
# Programs that change little, and programs that change nothing, are killed again and again while they take turns, and
# so is the daemon: what is left verifies every byte, nothing is leaked, and nobody sees what another one left.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --mode byte --bytes 96M --allocs 4 --iterations 10 --seed 1 --until "$dir/enough"
app two linked --mode readonly --bytes 64M --allocs 2 --iterations 10 --seed 2 --until "$dir/enough"
round=0
while [ $round -lt 9 ]; do
    case $((round % 3)) in
    0) mode=byte ;;
    1) mode=zeros ;;
    2) mode=readonly ;;
    esac
    app victim linked --mode $mode --bytes 96M --allocs 6 --iterations 1000000 --seed $((100 + round))
    sleep "0.$((round * 37 % 60 + 20))"
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

round=0
while [ $round -lt 3 ]; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon
    orphan one linked --mode byte --bytes 96M --allocs 4 --iterations 10 --seconds 2 --seed 1
    orphan two linked --mode readonly --bytes 96M --allocs 2 --iterations 10 --seconds 2 --seed 2
    sleep "0.$((round * 31 % 60 + 30))"
    kill -KILL "$(pid_of daemon)"
    await daemon
    say "round $round:"
    expect_orphans one two
    round=$((round + 1))
done

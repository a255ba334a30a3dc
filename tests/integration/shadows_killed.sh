#!/bin/sh
# Programs that change little, and programs that change nothing, are killed again and again while they take turns, and
# so is the daemon: what is left verifies every byte, nothing is leaked, and nobody sees what another one left.
. "$(dirname "$0")/lib.sh"
without_keeper
start_daemon
app one linked --mode byte --bytes 96M --allocs 4 --iterations 10 --seed 1 --until "$dir/enough"
app two linked --mode readonly --bytes 64M --allocs 2 --iterations 10 --seed 2 --until "$dir/enough"
round=0
while [ $round -lt 6 ]; do
    case $((round % 3)) in
    0) mode=byte state=waiting ;;
    1) mode=zeros state=running ;;
    2) mode=readonly state=loading ;;
    esac
    app victim linked --mode $mode --bytes 96M --allocs 6 --iterations 1000000 --seed $((100 + round))
    await_ready victim
    within "$patience" has_state victim $state || fail "the victim is never $state"
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
    rm -f "$GPUMUX_SOCKET" "$dir/enough"
    start_daemon
    orphan one linked --mode byte --bytes 96M --allocs 4 --iterations 10 --seed 1 --until "$dir/enough"
    orphan two linked --mode readonly --bytes 96M --allocs 2 --iterations 10 --seed 2 --until "$dir/enough"
    kill_daemon_at "$((2 + round * 3))"
    await daemon
    say "round $round:"
    expect_orphans one two
    round=$((round + 1))
done

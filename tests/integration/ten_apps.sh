#!/bin/sh
# Ten apps at three times the budget, of all kinds of work.
. "$(dirname "$0")/lib.sh"
start_daemon --pinned 640M
for i in 1 2 3 4 5 6 7 8 9 10; do
    case $i in
    1 | 2 | 3 | 4) mode=verify ;;
    5) mode=sweep ;;
    6) mode=graph ;;
    7) mode=streams ;;
    8) mode=threads ;;
    9) mode=ptds ;;
    10) mode=churn ;;
    esac
    app "app$i" linked --mode "$mode" --bytes 48M --allocs $((i % 3 + 1)) --iterations 8 --seconds 4 --seed "$i" \
        --until "$dir/enough"
done
await_switches 20
for i in 1 2 3 4 5 6 7 8 9 10; do expect_pass "app$i"; done
expect_switches 20
expect_empty
stop_daemon

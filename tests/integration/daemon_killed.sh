#!/bin/sh
# The daemon is killed while apps run. What runs runs on, and what was swapped out is lost with the daemon: each
# app ends, with PASS or with a clean CUDA error, and never with wrong data.
. "$(dirname "$0")/lib.sh"
round=0
while [ $round -lt 4 ]; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon
    orphan one linked --bytes 96M --iterations 20 --seconds 2 --seed 1
    orphan two linked --bytes 96M --iterations 20 --seconds 2 --seed 2
    orphan three proc --mode threads --bytes 48M --iterations 20 --seconds 2 --seed 3
    sleep "0.$((round * 23 % 90 + 10))"
    kill -KILL "$(pid_of daemon)"
    await daemon
    say "round $round:"
    expect_orphans one two three
    round=$((round + 1))
done
# and a daemon that starts afterwards serves as ever
rm -f "$GPUMUX_SOCKET"
start_daemon
app later linked --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

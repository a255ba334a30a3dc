#!/bin/sh
# The daemon is killed while apps run. What runs runs on, and what was swapped out is lost with the daemon: each
# app ends, with PASS or with a clean CUDA error, and never with wrong data.
. "$(dirname "$0")/lib.sh"
without_keeper
round=0
while [ $round -lt 4 ]; do
    rm -f "$GPUMUX_SOCKET" "$dir/enough"
    start_daemon
    orphan one linked --bytes 96M --iterations 20 --seed 1 --until "$dir/enough"
    orphan two linked --bytes 96M --iterations 20 --seed 2 --until "$dir/enough"
    orphan three proc --mode threads --bytes 48M --iterations 20 --seed 3 --until "$dir/enough"
    kill_daemon_at "$((round * 2))"
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

#!/bin/sh
# The daemon is killed while programs use their own virtual memory management: each ends with PASS, on with the driver's
# own handles, or with a clean CUDA error, and never with wrong data. A program with everything in place goes on.
. "$(dirname "$0")/lib.sh"
without_keeper
round=0
while [ $round -lt 3 ]; do
    rm -f "$GPUMUX_SOCKET" "$dir/enough"
    start_daemon
    orphan one linked --mode vmm --bytes 96M --iterations 15 --seed 1 --until "$dir/enough"
    orphan two proc --mode vmm --bytes 80M --iterations 15 --seed 2 --until "$dir/enough"
    orphan three linked --mode mappers --threads 2 --bytes 48M --iterations 15 --seed 3 --until "$dir/enough"
    kill_daemon_at "$((round * 2))"
    await daemon
    say "round $round:"
    expect_orphans one two three
    round=$((round + 1))
done

# Alone, so with everything in place: it must go on.
rm -f "$GPUMUX_SOCKET"
start_daemon
app alone linked --mode vmm --bytes 96M --iterations 15 --seconds 2 --seed 4
app mappers linked --mode mappers --threads 2 --bytes 32M --iterations 15 --seconds 2 --seed 5
await_ready alone
await_ready mappers
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass alone mappers

# and a daemon that starts afterwards serves as ever
rm -f "$GPUMUX_SOCKET"
start_daemon
app later linked --mode vmm --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

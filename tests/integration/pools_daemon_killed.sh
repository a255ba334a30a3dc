#!/bin/sh
# The daemon is killed while programs allocate and free in streams. What runs may run on, with the driver's own
# memory from then on; a program whose memory was elsewhere ends with a clean error. Never with wrong data.
. "$(dirname "$0")/lib.sh"
without_keeper
round=0
while [ $round -lt 4 ]; do
    rm -f "$GPUMUX_SOCKET" "$dir/enough"
    start_daemon
    orphan one linked --mode async --bytes 96M --iterations 30 --seed 1 --until "$dir/enough"
    orphan two proc --mode aptds --bytes 96M --threads 2 --iterations 30 --seed 2 --until "$dir/enough"
    orphan alone linked --mode async --bytes 24M --threads 2 --iterations 30 --seed 3 --until "$dir/enough"
    kill_daemon_at "$((round * 2))"
    await daemon
    say "round $round:"
    expect_orphans one two alone
    round=$((round + 1))
done
# one program alone is whole when the daemon goes, and what it then takes is the driver's
rm -f "$GPUMUX_SOCKET"
start_daemon
app whole linked --mode async --bytes 96M --iterations 30 --seconds 2
await_ready whole
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass whole

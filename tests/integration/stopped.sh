#!/bin/sh
# An app is stopped for two seconds and goes on: it keeps its memory, and nobody hangs for good.
. "$(dirname "$0")/lib.sh"
start_daemon
app still linked --bytes 96M --iterations 20 --seconds 12 --seed 1
app other linked --bytes 96M --iterations 20 --seconds 12 --seed 2
await_ready still
await_ready other
for round in 1 2; do
    kill -STOP "$(pid_of still)"
    sleep 4
    check_daemon
    kill -CONT "$(pid_of still)"
    sleep 0.5
done
expect_pass still other
expect_switches 2
expect_empty
stop_daemon

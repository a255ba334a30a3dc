#!/bin/sh
# What programs call after main() has returned, while others want the GPU: exit handlers that run before the driver
# shuts down work as ever; those that run after it, and destructors, get the driver's own answer, in time, also when
# the gate is closed and the memory is away.
. "$(dirname "$0")/lib.sh"
start_daemon
app other linked --bytes 96M --iterations 100000 --seed 9
await_ready other
for round in 1 2 3; do
    for way in linked proc; do
        app "exits$round$way" "$way" --mode exits --bytes 96M --iterations 3 --seed "$round"
    done
    expect_pass "exits${round}linked" "exits${round}proc"
done
check_daemon
kill -KILL "$(pid_of other)"
await other
expect_switches 5
expect_empty
stop_daemon

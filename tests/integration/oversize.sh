#!/bin/sh
# Programs larger than the budget: refused by default, as on a real card; with --oversize host the rest is mapped in
# host memory and everything verifies, also beside another program, and nothing is left behind.
. "$(dirname "$0")/lib.sh"
start_daemon
app big linked --bytes 240M --allocs 2 --iterations 2 --seed 1
await big
[ "$code" != 0 ] || fail "a program got more than the budget"
expect_empty
stop_daemon

start_daemon --oversize host
app big linked --bytes 240M --allocs 2 --iterations 6 --seed 1
expect_pass big
expect_empty
app big linked --bytes 240M --allocs 3 --iterations 10 --seconds 4 --seed 2
app other linked --bytes 96M --allocs 2 --iterations 10 --seconds 4 --seed 3
app churn linked --mode churn --bytes 64M --iterations 10 --seed 4
expect_pass big other churn
expect_switches 2
app killed linked --bytes 240M --allocs 3 --iterations 1000 --seed 5
await_ready killed
kill -KILL "$(pid_of killed)"
expect_empty
app after linked --bytes 240M --allocs 3 --iterations 2 --seed 6
expect_pass after
expect_empty
stop_daemon

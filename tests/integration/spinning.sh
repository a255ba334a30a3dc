#!/bin/sh
# A kernel that waits for the host, far beyond the drain deadline: the app keeps its turn, the other one waits, and
# both end right.
. "$(dirname "$0")/lib.sh"
start_daemon
app spin linked --mode spin --bytes 96M --hold 2500 --iterations 2 --seed 1 --until "$dir/enough"
app other linked --bytes 96M --iterations 10 --seconds 3 --seed 2 --until "$dir/enough"
await_switches 2
expect_pass spin other
expect_switches 2
expect_empty
stop_daemon

#!/bin/sh
# Several threads with a stream each, and several on the per-thread default stream, beside each other.
. "$(dirname "$0")/lib.sh"
start_daemon
app created linked --mode threads --threads 6 --bytes 96M --iterations 24 --seconds 2 --seed 1 --until "$dir/enough"
app default linked --mode ptds --threads 6 --bytes 96M --iterations 24 --seconds 2 --seed 2 --until "$dir/enough"
app ring dlsym --mode streams --bytes 60M --iterations 10 --seconds 2 --seed 3 --until "$dir/enough"
await_switches 5
expect_pass created default ring
expect_switches 5
expect_empty
stop_daemon

#!/bin/sh
# Programs that allocate and free in streams share a GPU that is too small for both: every thread checks what its
# blocks hold, and every byte of them is swapped. Beside a program that has no pools, and with one thread's own
# default streams.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --mode async --bytes 104M --threads 4 --seconds 3 --iterations 6 --seed 1 --until "$dir/enough"
app two proc --mode aptds --bytes 104M --threads 3 --seconds 3 --iterations 6 --seed 2 --until "$dir/enough"
app three linked --bytes 64M --seconds 3 --iterations 6 --seed 3 --until "$dir/enough"
await_switches 4
expect_pass one two three
expect_switches 4
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"
expect_empty
stop_daemon

#!/bin/sh
# Pools when there is no more memory: free memory moves between pools and cuMemAlloc, streams wait for what others
# freed, and CUDA_ERROR_OUT_OF_MEMORY is the answer when nothing is left, alone and beside another program.
. "$(dirname "$0")/lib.sh"
start_daemon
app alone linked --mode short --bytes 160M --allocs 10 --iterations 2
expect_pass alone
app one proc --mode short --bytes 160M --allocs 5 --iterations 2 --seed 1 --until "$dir/enough"
app two linked --mode async --bytes 96M --seconds 2 --iterations 4 --seed 2 --until "$dir/enough"
await_switches 2
expect_pass one two
expect_switches 2
expect_empty
stop_daemon

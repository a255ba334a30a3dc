#!/bin/sh
# Beyond the budget an allocation fails with CUDA_ERROR_OUT_OF_MEMORY and the program goes on, alone and beside
# another; also when host memory, not the budget, is what runs out.
. "$(dirname "$0")/lib.sh"
start_daemon
app alone linked --mode oom --bytes 160M --allocs 10 --iterations 3
expect_pass alone
grep -q 'out of memory after' "$dir/alone.out" || fail "memory was never out"
app one linked --mode oom --bytes 160M --allocs 10 --iterations 3 --seconds 2 --seed 1
app two linked --bytes 96M --iterations 10 --seconds 2 --seed 2
expect_pass one two
expect_empty
stop_daemon
start_daemon --pinned 32M
app one linked --bytes 96M --iterations 5 --seconds 3 --seed 1
await_ready one
app two linked --mode oom --bytes 160M --allocs 20 --iterations 3 --seconds 1 --seed 2
expect_pass one two
expect_empty
stop_daemon

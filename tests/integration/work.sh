#!/bin/sh
# The other kinds of work: copies of every plain form, vector addition, matrix multiplication, sweeps, and memory
# that comes and goes, all beside each other.
. "$(dirname "$0")/lib.sh"
start_daemon
app copies linked --mode copies --bytes 72M --iterations 4 --seconds 2 --seed 1
app vector proc --mode vector --bytes 72M --iterations 3 --seconds 2 --seed 2 --until "$dir/enough"
app matmul linked --mode matmul --allocs 8 --iterations 1 --seconds 1 --seed 3
app sweep dlsym --mode sweep --bytes 72M --iterations 10 --seconds 2 --seed 4 --until "$dir/enough"
app churn linked --mode churn --bytes 96M --iterations 20 --seconds 2 --seed 5 --until "$dir/enough"
await_switches 5
expect_pass copies vector matmul sweep churn
expect_switches 5
expect_empty
stop_daemon

#!/bin/sh
# cuMemCreate beyond the budget answers CUDA_ERROR_OUT_OF_MEMORY and the program goes on, alone, beside another, and
# when host memory is what runs out.
. "$(dirname "$0")/lib.sh"
start_daemon
app alone linked --mode vmmoom --bytes 160M --allocs 10 --iterations 5
expect_pass alone
app one linked --mode vmmoom --bytes 160M --allocs 10 --iterations 5 --seconds 2 --seed 1
app two linked --mode vmm --bytes 96M --iterations 10 --seconds 2 --seed 2
expect_pass one two
expect_empty
stop_daemon
start_daemon --pinned 32M
app one linked --mode vmm --bytes 96M --allocs 1 --iterations 5 --seconds 3 --seed 1
await_ready one
app two linked --mode vmmoom --bytes 160M --allocs 20 --iterations 3 --seconds 1 --seed 2
# one may be told, too: it creates handles as it goes
for app in one two; do
    await $app
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*"cuMemCreate: error 2 CUDA_ERROR_OUT_OF_MEMORY"*)
        say "$app: $line" ;;
    *) fail "$app ended with $code: $line" ;;
    esac
done
expect_empty
stop_daemon

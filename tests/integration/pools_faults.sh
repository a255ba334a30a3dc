#!/bin/sh
# Driver calls that stream-ordered allocation makes fail, one at a time. The program passes, or is told of the error;
# never wrong data, a hang or a crash; the daemon goes on and is left with nothing.
. "$(dirname "$0")/lib.sh"
start_daemon --gpu-budget 64M --slice 30ms
for fault in cuEventCreate:1 cuEventRecord:9 cuEventQuery:1 cuEventQuery:3+ cuStreamGetCtx:1 cuStreamGetCtx:7 \
    cuStreamGetId:1 cuDeviceGetMemPool:3+ cuDeviceGetDefaultMemPool:1 cuMemPoolGetAttribute:1+ cuMemPoolTrimTo:1 \
    cuMemPoolDestroy:1 cuMemAddressReserve:2+; do
    export SIMCUDA_FAIL="$fault"
    app one linked --mode async --threads 2 --bytes 16M --iterations 20 --seed 1
    unset SIMCUDA_FAIL
    await one
    case $code,$line in
    "0,PASS "* | "3,FAIL "*" mismatches=0 "*": error 2 "* | "3,FAIL "*" mismatches=0 "*": error 999 "*)
        say "$fault: $line" ;;
    *) fail "$fault: ended with $code: $line" ;;
    esac
    expect_empty
done
app after linked --mode async --bytes 32M --iterations 10
expect_pass after
expect_empty
stop_daemon

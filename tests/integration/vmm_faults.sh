#!/bin/sh
# The driver refuses a program that uses its own virtual memory management one call: of its own, of what the daemon
# wants mapped, or of what is done later on its behalf. It gets an error or goes on; nobody has wrong data, nothing is
# left over, and others go on. One whose memory cannot be unmapped cannot share any more, and is told (is_lost).
. "$(dirname "$0")/lib.sh"
start_daemon --gpu-budget 64M --pinned 128M --slice 30ms
for fault in cuMemMap:1 cuMemMap:30 cuMemSetAccess:2 cuMemSetAccess:33 cuMemUnmap:1 cuMemUnmap:12 cuMemRelease:4 \
    cuMemAddressReserve:4 cuMemImportFromShareableHandle:3; do
    export SIMCUDA_FAIL="$fault"
    app one linked --mode vmm --bytes 36M --allocs 2 --iterations 8 --seed 1
    unset SIMCUDA_FAIL
    app two linked --bytes 36M --allocs 2 --iterations 8 --seed 2
    expect_pass two
    await one
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*": error 2 CUDA_ERROR_OUT_OF_MEMORY") ;;
    "1,FAIL "*" mismatches=0 "*": 2, expected "*) ;; # a wrong call got this error
    # Its own work was under way on memory of which the driver unmapped a part and refused the rest.
    "3,FAIL "*" mismatches=0 "*": error 700 CUDA_ERROR_ILLEGAL_ADDRESS" | \
        "3,FAIL "*" mismatches=0 "*" cuMemSetAccess: error 1 CUDA_ERROR_INVALID_VALUE") # ... or it maps memory there itself
        [ "$fault" = cuMemUnmap:12 ] || fail "$fault: $line" ;;
    *) is_lost || fail "$fault: ended with $code: $line" ;;
    esac
    say "$fault: ${line##*way=linked}"
    check_daemon
    expect_empty
done
stop_daemon

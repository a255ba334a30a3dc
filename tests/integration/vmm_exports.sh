#!/bin/sh
# Exporting a handle when that cannot be: the program is told, and has lost nothing.
. "$(dirname "$0")/lib.sh"
start_daemon

# At bad moments: beside a kernel that waits for the host, beside a capture. It is told, and nothing is lost.
app moments linked --mode exports --bytes 64M --seed 7
app other linked --bytes 128M --iterations 5 --seed 8
expect_pass moments other
grep -q '^beside a spinning kernel: 600, beside a capture: 900$' "$dir/moments.out" ||
    fail "it was told: $(head -n 1 "$dir/moments.out")"
expect_empty

# The driver has no memory for it, and then refuses one step after the other: an error, and everything as it was.
for fault in cuMemCreate:1 cuMemAddressReserve:7 cuMemcpyDtoD:1; do
    export SIMCUDA_FAIL="$fault"
    app short linked --mode sharers --threads 1 --bytes 32M --iterations 30 --seed 9
    unset SIMCUDA_FAIL
    await short
    case $code,$line in
    "0,PASS "*" mismatches=0 "* | "3,FAIL "*" mismatches=0 "*": error 2 CUDA_ERROR_OUT_OF_MEMORY" | \
        "3,FAIL "*" mismatches=0 "*": error 999 CUDA_ERROR_UNKNOWN") say "$fault: $line" ;;
    *) fail "$fault: ended with $code: $line" ;;
    esac
    expect_empty
done
stop_daemon

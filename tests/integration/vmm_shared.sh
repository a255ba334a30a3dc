#!/bin/sh
# Handles that may be exported are swapped like others until they are: then their memory stays where it is, the data
# with it, while other threads of the program work on it and the program takes turns with another.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --mode sharers --threads 2 --bytes 64M --iterations 20 --seconds 2 --seed 1
app two linked --bytes 128M --iterations 20 --seconds 2 --seed 2
expect_pass one two
expect_switches 3
expect_empty

app three proc --mode sharers --threads 4 --bytes 96M --iterations 20 --seconds 2 --seed 3
app four linked --mode vmm --bytes 80M --iterations 20 --seconds 2 --seed 4
expect_pass three four
expect_empty

# At bad moments: beside a kernel that waits for the host, beside a capture. It is told, and nothing is lost.
app moments linked --mode exports --bytes 64M --seed 7
app other linked --bytes 128M --iterations 20 --seconds 2 --seed 8
expect_pass moments other
grep -q '^beside a spinning kernel: 600, beside a capture: 900$' "$dir/moments.out" ||
    fail "it was told: $(head -n 1 "$dir/moments.out")"
expect_empty

# The driver has no memory for it, and then refuses one step after the other: an error, and everything as it was.
export GPUMUX_LOG="$dir/shim.log"
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

# The daemon goes while handles are exported.
app five linked --mode sharers --threads 2 --bytes 64M --iterations 20 --seconds 2 --seed 5
await_ready five
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass five
rm -f "$GPUMUX_SOCKET"

# Made real from the start: nothing of it is the daemon's.
start_daemon
GPUMUX_VMM_EXPORT=real
export GPUMUX_VMM_EXPORT
app six linked --mode sharers --threads 2 --bytes 64M --iterations 10 --seed 6
expect_pass six
expect_empty
stop_daemon

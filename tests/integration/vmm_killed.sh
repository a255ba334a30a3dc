#!/bin/sh
# The daemon is killed while programs use their own virtual memory management: each ends with PASS, on with the driver's
# own handles, or with a clean CUDA error, and never with wrong data. A program with everything in place goes on.
. "$(dirname "$0")/lib.sh"
round=0
while [ $round -lt 3 ]; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon
    app one linked --mode vmm --bytes 96M --iterations 15 --seconds 2 --seed 1
    app two proc --mode vmm --bytes 80M --iterations 15 --seconds 2 --seed 2
    app three linked --mode mappers --threads 2 --bytes 48M --iterations 15 --seconds 2 --seed 3
    sleep "0.$((round * 31 % 90 + 10))"
    kill -KILL "$(pid_of daemon)"
    await daemon
    for app in one two three; do
        await $app
        case $code,$line in
        "139,"* | "0,PASS "*" mismatches=0 "* | "3,FAIL "*"error 46 CUDA_ERROR_DEVICE_UNAVAILABLE"*) say "round $round: $app: $line" ;;
        *) fail "round $round: $app ended with $code: $line" ;;
        esac
    done
    round=$((round + 1))
done

# Alone, so with everything in place: it must go on.
rm -f "$GPUMUX_SOCKET"
start_daemon
app alone linked --mode vmm --bytes 96M --iterations 15 --seconds 2 --seed 4
app mappers linked --mode mappers --threads 2 --bytes 32M --iterations 15 --seconds 2 --seed 5
await_ready alone
await_ready mappers
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass alone mappers

# and a daemon that starts afterwards serves as ever
rm -f "$GPUMUX_SOCKET"
start_daemon
app later linked --mode vmm --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

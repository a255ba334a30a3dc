#!/bin/sh
# The daemon is killed while apps run. What runs may run on, and what was swapped out is lost with the daemon: each
# app ends, with PASS or with a clean CUDA error, and never with wrong data. One that was parked inside a kernel
# cannot be told: that kernel finds its memory gone, which on a simulated GPU ends the program (139).
. "$(dirname "$0")/lib.sh"
round=0
while [ $round -lt 4 ]; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon
    app one linked --bytes 96M --iterations 20 --seconds 2 --seed 1
    app two linked --bytes 96M --iterations 20 --seconds 2 --seed 2
    app three proc --mode threads --bytes 48M --iterations 20 --seconds 2 --seed 3
    sleep "0.$((round * 23 % 90 + 10))"
    kill -KILL "$(pid_of daemon)"
    await daemon
    for app in one two three; do
        await $app
        case $code,$line in
        "139,"* | "0,PASS "* | "3,FAIL "*"error 46 CUDA_ERROR_DEVICE_UNAVAILABLE"*) say "round $round: $app: $line" ;;
        *ABORTING*) # a sanitizer tells such an end in its own way
            grep -q "SEGV on unknown address" "$dir/$app.out" && grep -q "simcuda/kernels.c" "$dir/$app.out" ||
                fail "round $round: $app ended with $code: $line"
            ;;
        *) fail "round $round: $app ended with $code: $line" ;;
        esac
    done
    round=$((round + 1))
done
# and a daemon that starts afterwards serves as ever
rm -f "$GPUMUX_SOCKET"
start_daemon
app later linked --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

#!/bin/sh
# The daemon is killed while programs allocate and free in streams. What runs may run on, with the driver's own
# memory from then on; a program whose memory was elsewhere ends with a clean error, but for one that was parked inside a kernel
# (139: see daemon_killed.sh). Never with wrong data.
. "$(dirname "$0")/lib.sh"
round=0
while [ $round -lt 4 ]; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon
    app one linked --mode async --bytes 96M --iterations 30 --seconds 2 --seed 1
    app two proc --mode aptds --bytes 96M --threads 2 --iterations 30 --seconds 2 --seed 2
    app alone linked --mode async --bytes 24M --threads 2 --iterations 30 --seconds 2 --seed 3
    sleep "0.$((round * 23 % 90 + 10))"
    kill -KILL "$(pid_of daemon)"
    await daemon
    for app in one two alone; do
        await $app
        case $code,$line in
        "139,"* | "0,PASS "*" mismatches=0 "* | "3,FAIL "*"error 46 CUDA_ERROR_DEVICE_UNAVAILABLE"*)
            say "round $round: $app: $line" ;;
        *ABORTING*) # a sanitizer tells such an end in its own way
            grep -q "SEGV on unknown address" "$dir/$app.out" && grep -q "simcuda/kernels.c" "$dir/$app.out" ||
                fail "round $round: $app ended with $code: $line"
            ;;
        *) fail "round $round: $app ended with $code: $line" ;;
        esac
    done
    round=$((round + 1))
done
# one program alone is whole when the daemon goes, and what it then takes is the driver's
rm -f "$GPUMUX_SOCKET"
start_daemon
app whole linked --mode async --bytes 96M --iterations 30 --seconds 2
await_ready whole
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass whole

#!/bin/sh
# Each way of reaching the driver: linked, dlsym, and cuGetProcAddress as a static cudart asks. All are under the
# gate, or their results would be wrong; all are known to the daemon with all of their memory.
. "$(dirname "$0")/lib.sh"
start_daemon
for way in linked dlsym proc; do
    app "$way" "$way" --bytes 64M --iterations 10 --seconds 3 --seed 7 --until "$dir/enough"
done
# each at some time while it runs, since one may end before another begins
counted=
counts_all() {
    is_up || return 1
    for way in linked dlsym proc; do
        bytes=$(app_number "$(pid_of "$way")" total_bytes)
        [ "${bytes:-0}" -lt $((64 * 1024 / shrink * 1024)) ] || counted="$counted $way"
    done
    for way in linked dlsym proc; do
        case $counted in *"$way"*) ;; *) return 1 ;; esac
    done
}
within "$patience" counts_all || fail "the status counts the memory of no more than these:$counted"
await_switches 5
expect_pass linked dlsym proc
for way in linked dlsym proc; do
    for mode in ptds graph; do
        app "$way-$mode" "$way" --mode $mode --bytes 64M --iterations 10 --seed 8
    done
done
for way in linked dlsym proc; do expect_pass "$way-ptds" "$way-graph"; done
expect_switches 5
expect_empty
stop_daemon

#!/bin/sh
# Work that outlasts a turn: a kernel that counts until the host says so, and a queue of 16 kernels. Their counters lie
# all over the memory and are right at the end, whatever was moved between two kernels.
. "$(dirname "$0")/lib.sh"
start_daemon
app count dlsym --mode count --bytes 96M --hold 100 --iterations 6 --seconds 2 --signal "$dir/steps" \
    --until "$dir/enough"
app queue linked --mode queue --bytes 96M --hold 5 --iterations 6 --seconds 2 --until "$dir/enough"
await_switches 3
expect_pass count queue
expect_switches 3
[ "$(cat "$dir/steps")" -gt 0 ] || fail "mode count did not tell how far its kernel was"
expect_empty
stop_daemon

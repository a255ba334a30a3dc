#!/bin/sh
# Two apps that do not fit together share the GPU and verify all of their memory in every iteration.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --bytes 96M --allocs 5 --seconds 3 --iterations 10 --seed 1 --until "$dir/enough"
app two linked --bytes 96M --allocs 3 --seconds 3 --iterations 10 --seed 2 --until "$dir/enough"
knows_both() {
    is_up && [ "$(apps)" = 2 ]
}
within "$patience" knows_both || fail "$(apps) apps in the status, 2 expected"
app_has "$(pid_of one)" '"name":"gm_worker' || fail "the status does not name the first app"
await_switches 5
expect_pass one two
expect_switches 5
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"
expect_empty
stop_daemon

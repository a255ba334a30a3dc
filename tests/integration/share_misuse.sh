#!/bin/sh
# What sharing refuses, and that memory of the driver is the driver's to share, by option all of it.
. "$(dirname "$0")/lib.sh"

start_daemon
app misuse proc --mode misuse --bytes 8M --allocs 2
expect_pass misuse
expect_empty
check_daemon

# all of it the driver's: it counts as such, and is shared without the daemon
export GPUMUX_SHARING=real
app owner linked --mode share --bytes 24M --allocs 2 --iterations 4 --threads 2 --signal "$dir/meeting"
app one linked --mode open --signal "$dir/meeting" --go "$dir/go"
await_ready owner
await_ready one
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = 0 ] || fail "the daemon shares it"
[ "$(app_number "$(pid_of owner)" total_bytes)" = 0 ] || fail "gpumux backs it"
[ "$(app_number "$(pid_of owner)" small_bytes)" -ge "$((24 * 1048576 / shrink))" ] || fail "it is not counted"
# ... also with a program that knows nothing of gpumux
native two linked --mode open --signal "$dir/meeting"
touch "$dir/go"
expect_pass owner one two
expect_empty

# an unknown word counts as broker, and is said once
export GPUMUX_SHARING=maybe GPUMUX_LOG="$dir/shim.log"
app owner linked --mode share --bytes 8M --allocs 1 --iterations 1 --threads 1 --signal "$dir/third"
app one linked --mode open --signal "$dir/third" --go "$dir/later"
await_ready owner
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((8 * 1048576 / shrink))" ] || fail "the broker is not used"
touch "$dir/later"
expect_pass owner one
[ "$(grep -c 'GPUMUX_SHARING must be' "$dir/shim.log")" = 2 ] || fail "an unknown GPUMUX_SHARING is not said once each"
unset GPUMUX_SHARING GPUMUX_LOG
expect_empty
check_daemon
stop_daemon

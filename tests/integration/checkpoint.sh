#!/bin/sh
# A program that shares a GPU is refused a checkpoint before it is locked: it could not be restored. By itself, and by
# another program with the shim, which may have its own.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "the program cannot be preloaded with a sanitized shim"
whole='lock 0 checkpoint 0 restore 0 unlock 0'

# expect_checkpoint NAME LINE [PID]: by a program with the shim.
expect_checkpoint() {
    spawn "$1" env LD_PRELOAD="$shim" "$BUILD/tests/programs/gm_checkpoint" ${3:-}
    await "$1"
    [ "$code" = 0 ] && [ "$line" = "$2" ] || fail "$1: $line ($code)"
}

expect_checkpoint alone "$whole" # no daemon
spawn unshared sleep 1000 # without the daemon's page
unshared=$(pid_of unshared)
start_daemon
app shared linked --bytes 8M --iterations 3 --until "$dir/enough"
await_ready shared
expect_checkpoint itself 'lock 801 checkpoint 801'
expect_checkpoint another 'lock 801 checkpoint 801' "$(pid_of shared)"
expect_checkpoint outside "$whole" "$unshared"
expect_checkpoint nobody 'lock 1 checkpoint 1' 999999999
touch "$dir/enough"
expect_pass shared
expect_empty
stop_daemon

#!/bin/sh
# Memory never crosses users: who is another user and knows the name gets the answer of a name that is not there.
. "$(dirname "$0")/lib.sh"

need_stranger

start_daemon
chmod 666 "$GPUMUX_SOCKET"
touch "$dir/meeting" && chmod 666 "$dir/meeting"
app owner linked --mode share-stay --bytes 24M --allocs 1 --iterations 1 --threads 2 --signal "$dir/meeting" \
    --go "$dir/stays"
await_ready owner
chmod 666 "$dir/sim"/*

# he shares the GPU as anybody does
stranger_app plain --mode verify --bytes 24M --allocs 1 --iterations 2
expect_pass plain
stranger_app thief --mode open --signal "$dir/meeting"
await thief
case $code,$line in
3,*"cuIpcOpenMemHandle: error 1 "*) say "thief: $line" ;;
*) fail "another user's memory: code $code: $line" ;;
esac
grep -q 'uid 65534) may not open what uid 0 shares' "$dir/daemon.out" || fail "the daemon did not say why"
take_status
[ "$(app_number "$(pid_of owner)" shared_bytes)" = "$((24 * 1048576 / shrink))" ] || fail "it is not shared any more"
kill -KILL "$(pid_of owner)"
await owner
expect_empty
check_daemon
stop_daemon

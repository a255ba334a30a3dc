#!/bin/sh
# Memory and groups never cross users.
. "$(dirname "$0")/lib.sh"
need_stranger

# Memory never crosses users: who is another user and knows the name gets the answer of a name that is not there.
part memory
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

# A group is of one user: a program of another one that names it runs without gpumux, and one line says why.
part groups
"$ctl" run --group 'x
y' true 2> "$dir/bad.out" && fail "a name with a line break was taken"
say "$(cat "$dir/bad.out")"
export GPUMUX_GROUP=ours
app mine linked --bytes 24M --iterations 2 --until "$dir/enough"
await_ready mine
chmod 666 "$dir/daemon.out"
export GPUMUX_LOG="$dir/theirs.log"
touch "$GPUMUX_LOG"
chmod 666 "$GPUMUX_LOG"
stranger_app theirs --bytes 24M --iterations 2
expect_pass theirs
unset GPUMUX_LOG
grep -q 'the group "ours" has programs of another user' "$dir/theirs.log" ||
    fail "the program is not told: $(cat "$dir/theirs.log")"
say "$(tail -n 1 "$dir/theirs.log")"
touch "$dir/enough"
expect_pass mine
expect_empty
unset GPUMUX_GROUP

# the name is free again, and mux-ctl run gives it
chmod 755 "$dir"
spawn named env GPUMUX_LIB="$shim" "$ctl" run --group ours -- "$(worker linked)" --bytes 24M --iterations 2 --until \
    "$dir/named" --ready "$dir/named.ready"
await_ready named
is_up && app_has "$(pid_of named)" '"group":"ours"' || fail "mux-ctl run --group: no group"
touch "$dir/named"
expect_pass named
stop_daemon

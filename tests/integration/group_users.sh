#!/bin/sh
# A group is of one user: a program of another one that names it runs without gpumux, and one line says why.
. "$(dirname "$0")/lib.sh"
need_stranger
start_daemon
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

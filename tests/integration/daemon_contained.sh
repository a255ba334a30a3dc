#!/bin/sh
# A daemon in a container with process ids of its own does not see who is outside: it says so, and serves who is inside.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"
[ "$(id -u)" = 0 ] && contain="unshare --pid --fork --kill-child --mount-proc" ||
    contain="unshare --map-root-user --pid --fork --kill-child --mount-proc"
$contain true 2> /dev/null || skip "no process may have process ids of its own here"

# The daemon, and beside it a program that begins when $dir/inside.go is there.
spawn daemon $contain sh -c '
    "$0" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M &
    until [ -f "$1/inside.go" ]; do sleep 0.05; done
    LD_PRELOAD=$2 "$3" --bytes 24M --iterations 3
    echo $? > "$1/inside.code"
    wait' "$BUILD/daemon/gpumuxd" "$dir" "$shim" "$(worker linked)"
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"

why="gpumuxd cannot see this process, as it has process ids of its own: start gpumuxd on the machine itself"
! "$ctl" run --require -- true > "$dir/said" 2>&1 || fail "mux-ctl run started a program that is not served"
grep -qF "$why" "$dir/said" || fail "mux-ctl run says $(cat "$dir/said")"
export GPUMUX_LOG="$dir/outside.log"
app outside linked --bytes 24M --iterations 3
unset GPUMUX_LOG
expect_pass outside # unshared
grep -qF "$why" "$dir/outside.log" || fail "the shim says $(cat "$dir/outside.log")"

touch "$dir/inside.go"
within "$patience" test -f "$dir/inside.code" || fail "the program beside the daemon does not end"
[ "$(cat "$dir/inside.code")" = 0 ] || fail "the program beside the daemon ended with $(cat "$dir/inside.code")"
check_daemon

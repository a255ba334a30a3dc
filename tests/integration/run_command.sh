#!/bin/sh
# mux-ctl: run preloads the shim and keeps the program's exit code; status and its exit codes; version.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized shim cannot be preloaded"
"$ctl" status > "$dir/down.out" 2>&1
[ $? = 3 ] || fail "status without a daemon does not end with 3"
start_daemon
spawn run "$ctl" run -- "$(worker linked)" --bytes 96M --iterations 8 --seconds 4
is_known() {
    is_up && [ "$(apps)" = 1 ] && "$ctl" status > "$dir/table.out" && grep -q gm_worker "$dir/table.out"
}
within "$patience" is_known || fail "mux-ctl run: the program is not known to the daemon, or not named by the table"
expect_pass run
spawn run "$ctl" run -- "$(worker linked)" --mode none-such
await run
[ "$code" = 2 ] || fail "mux-ctl run ended with $code, the program with 2"
"$ctl" version > "$dir/version.out" || fail "version failed"
expect_empty
stop_daemon
came=$(grep -c 'app [0-9]*: pid' "$dir/daemon.out")
left=$(grep -c 'left$' "$dir/daemon.out")
[ "$came" -gt 0 ] && [ "$left" = "$came" ] || fail "$came programs came, and the log says $left times that one left"

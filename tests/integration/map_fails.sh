#!/bin/sh
# The driver refuses one program every mapping, for good: it waits, others get their turns as ever, and the log says so
# now and then, not all the time.
. "$(dirname "$0")/lib.sh"

# app_without_maps N NAME ARGUMENT...: from its N-th mapping on they are refused.
app_without_maps() {
    export SIMCUDA_FAIL="cuMemMap:$1+"
    without_name=$2
    shift 2
    app "$without_name" linked "$@"
    unset SIMCUDA_FAIL
}

lines() {
    wc -l < "$dir/daemon.out"
}

# expect_quiet: the log grows by fewer than 20 lines a second.
expect_quiet() {
    quiet_lines=$(lines)
    quiet_from=$(date +%s)
    sleep 3
    quiet_lines=$(($(lines) - quiet_lines))
    quiet_seconds=$(($(date +%s) - quiet_from))
    say "$quiet_lines lines logged in $quiet_seconds s"
    [ "$quiet_lines" -lt $((quiet_seconds * 20)) ] || fail "$quiet_lines lines in $quiet_seconds s"
}

# It has had turns when it starts to fail, and is one of those that take turns.
start_daemon
app_without_maps 20 bad --bytes 96M --iterations 100000 --seed 1
app good linked --bytes 96M --iterations 20 --seconds 2 --seed 2
app better linked --bytes 96M --iterations 20 --seconds 2 --seed 3
await good
await better
expect_pass good better
check_daemon
! has_ended bad || fail "bad ended: $(tail -n 1 "$dir/bad.out")"
kill -KILL "$(pid_of bad)"
expect_empty
stop_daemon

# It never had one, and its memory is staged while another one runs.
start_default
app good linked --bytes 96M --iterations 100000 --seed 2
await_ready good
app_without_maps 1 bad --bytes 96M --allocs 1 --iterations 100000 --seed 1
expect_quiet
for i in good bad; do kill -KILL "$(pid_of $i)"; done
expect_empty
stop_daemon

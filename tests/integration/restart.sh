#!/bin/sh
# The daemon is killed and another one comes: what was said of programs holds, whatever state they are in, and who has yet
# to come back is shown as lost.
. "$(dirname "$0")/lib.sh"

# A keeper where those of older versions are, as an upgrade finds it: a daemon uses it as long as it lives.
spawn keeper "$BUILD/daemon/gpumux-keeper" --socket "$GPUMUX_SOCKET.keeper"
within "$patience" test -S "$GPUMUX_SOCKET.keeper" || fail "no keeper"

restart() {
    kill -KILL "$(pid_of daemon)"
    await daemon
    start_daemon
    grep -q "restarted in .*: $1 programs of the daemon before may come back: .*; 0 live and cannot, 0 have ended, 0 are unknown" \
        "$dir/daemon.out" || fail "not all are taken over: $(cat "$dir/daemon.out")"
}

shows() {
    take_status
    app_has "$(pid_of "$1")" "$2"
}

start_daemon
[ -z "$(keepers)" ] || fail "there are two keepers"
orphan paused linked --bytes 96M --iterations 3 --seed 1 --until "$dir/enough"
orphan light linked --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
orphan stopped linked --bytes 96M --iterations 3 --seed 3 --until "$dir/enough"
within "$patience" has_switched 4 || fail "nobody takes turns"
"$ctl" pause "$(pid_of paused)" > /dev/null || fail "pause failed"
"$ctl" set "$(pid_of light)" weight=0.5 class=batch > /dev/null || fail "set failed"
stop stopped
# Totals go on under the next daemon, also of who has yet to come back.
totals() {
    take_status
    for app in paused light stopped; do
        for key in run_s wait_s; do echo "$app.$key $(app_of "$(pid_of $app)" | sed "s/.*\"$key\":\([0-9.e-]*\).*/\1/")"; done
    done
}
totals > "$dir/before"
awk '/run_s/ && $2 < 0.05 { exit 1 }' "$dir/before" || fail "nobody has run: $(cat "$dir/before")"
restart 3
totals > "$dir/after"
paste "$dir/before" "$dir/after" | awk '$4 < $2 { exit 1 }' || fail "totals go back: $(paste "$dir/before" "$dir/after")"
within "$patience" shows light '"state":"\(running\|idle\|loading\|waiting\)"' || fail "light does not come back"
within "$patience" shows paused '"state":"paused"' || fail "paused does not come back as such"
within "$patience" shows paused '"why":"[^"]*pausedby' || fail "it is not said who paused it"
shows light '"weight":0.5' && shows light '"class":"batch"' || fail "light has lost its settings"
shows stopped '"state":"lost"' || fail "stopped is not shown as lost"
shows stopped '"why":"hasnotcomebacksincethedaemonwasrestarted[0-9]*sago,andkeeps[0-9]*MiB:wakeorendpid'"$(pid_of stopped)\"" || fail "... nor why"
"$ctl" log | grep -q 'restart in [0-9.]* s; 3 programs of the daemon before may come back: gm_worker' || fail "the log has no restart"
"$ctl" log --json | grep -q '"kind":"restart".*"taken":3' || fail "... nor its JSON"
grep -q 'is back, [0-9.]* s after this daemon took it over' "$dir/daemon.out" || fail "nobody is said to be back"
"$ctl" metrics | grep -q "^gpumux_app_state{.*pid=\"$(pid_of stopped)\",.*state=\"lost\"} 1\$" || fail "... nor do the metrics have it"
is_named() { grep -q "gpumuxd: warning: app [0-9]* (pid $(pid_of stopped), gm_worker) has not come back since .* wake or end pid" "$dir/daemon.out"; }
within "$patience" is_named || fail "... nor does the log name it: $(cat "$dir/daemon.out")"

# An option that is too small costs nobody anything: the start fails, and the next one has all.
kill -KILL "$(pid_of daemon)"
await daemon
"$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 512M --max-apps 4 2> "$dir/small.out" &&
    fail "it starts with tables that are too small"
grep -q 'cannot start: .*--max-apps is lower than it was' "$dir/small.out" || fail "it is not said why: $(cat "$dir/small.out")"
start_daemon
restart 3 # nothing of the one that has not come is lost
kill -CONT "$(pid_of stopped)"
within "$patience" shows stopped '"state":"\(running\|idle\|loading\|waiting\)"' || fail "stopped does not come back"
within "$patience" shows paused '"state":"paused"' || fail "paused does not come back as such again"
"$ctl" resume "$(pid_of paused)" > /dev/null || fail "resume failed"
orphan later linked --bytes 96M --iterations 3 --seed 4 # it has a number of its own
expect_pass later
: > "$dir/enough"
expect_pass paused light stopped
for app in paused light stopped; do
    [ "$(grep -c 'gpumuxd is back' "$dir/$app.log")" -ge 1 ] || fail "$app was never taken over"
done
expect_empty
[ -z "$(keepers)" ] || fail "there are two keepers"
kill -KILL "$(pid_of keeper)"
await keeper
has_another() { grep -q 'another gpumux-keeper holds all' "$dir/daemon.out"; }
within "$patience" has_another || fail "no keeper comes in the place of one that was lost: $(cat "$dir/daemon.out")"
[ -n "$(keepers)" ] && [ "$(stat -c %a "$GPUMUX_SOCKET-keeper")" = 700 ] || fail "its folder: $(ls -l "$dir")"

# A daemon that meets one that is just ending waits for its end, and starts another one.
kill -KILL "$(pid_of daemon)"
await daemon
ending=$(keepers)
kill -STOP $ending # it takes connections, and does not answer
(sleep 0.5 && kill -KILL $ending) &
start_daemon
[ -n "$(keepers)" ] && [ "$(keepers)" != "$ending" ] || fail "there is no other keeper"
stop_daemon

# One that cannot hold what the daemon has costs a warning: there is nothing to lose yet.
spawn small sh -c 'ulimit -n 318 && exec "$0" --socket "$1"' "$BUILD/daemon/gpumux-keeper" "$GPUMUX_SOCKET-keeper/gpumux.sock"
within "$patience" test -S "$GPUMUX_SOCKET-keeper/gpumux.sock" || fail "no small keeper"
start_daemon
grep -q 'warning: gpumux-keeper .* does not hold what this daemon has: ' "$dir/daemon.out" || fail "nothing is said of it: $(cat "$dir/daemon.out")"
stop_daemon

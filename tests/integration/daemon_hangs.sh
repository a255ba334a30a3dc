#!/bin/sh
# A daemon that hangs is lost for who waits for it, after 10 s without a sign: each program ends, with PASS or with a
# clean CUDA error, and says why in its log. When the daemon goes on it serves as ever. A program that a daemon makes
# wait for longer than that, on purpose, waits.
. "$(dirname "$0")/lib.sh"
start_daemon
export GPUMUX_LOG="$dir/paused.log"
app paused linked --bytes 96M --iterations 20 --seed 1 --go "$dir/go"
await_ready paused
"$ctl" pause "$(pid_of paused)" > /dev/null || fail "pause failed"
touch "$dir/go"
sleep 12
! has_ended paused || fail "it did not wait: $(tail -n 1 "$dir/paused.out")"
"$ctl" resume "$(pid_of paused)" > /dev/null || fail "resume failed"
expect_pass paused
! grep -q 'no sign\|is lost' "$dir/paused.log" || fail "it gave the daemon up: $(cat "$dir/paused.log")"

unset GPUMUX_LOG
orphan one linked --bytes 96M --iterations 20 --seconds 1 --seed 2
orphan two proc --bytes 96M --iterations 20 --seconds 1 --seed 3
await_switches 6
stop daemon
for app in one two; do
    await $app
    grep -q 'the daemon was silent for' "$dir/$app.log" || fail "the log of $app does not say why: $(cat "$dir/$app.log")"
done
expect_orphans one two
kill -CONT "$(pid_of daemon)"
app later linked --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

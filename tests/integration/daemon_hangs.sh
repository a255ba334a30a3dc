#!/bin/sh
# A daemon that stands still costs nobody memory, however long: Ctrl-Z, Ctrl-S, a debugger. Who needs it waits, and says
# so in its log after 10 s; when the daemon goes on, everybody does, with all data right. Nor does a program that a daemon
# makes wait for longer than that, on purpose, take it for dead.
. "$(dirname "$0")/lib.sh"

# says NAME TEXT: its log does.
says() {
    grep -q "$2" "$dir/$1.log"
}

# It waits for work to end, which takes some 800 ms here, instead of parking it.
export SIMCUDA_NO=channels
start_daemon
orphan paused linked --bytes 96M --iterations 20 --seed 1 --go "$dir/go"
await_ready paused
"$ctl" pause "$(pid_of paused)" > /dev/null || fail "pause failed"
touch "$dir/go"

orphan queue linked --mode queue --bytes 32M --hold 50 --iterations 3 --until "$dir/enough"
orphan also linked --mode queue --bytes 32M --hold 50 --iterations 3 --until "$dir/enough"
orphan turns proc --bytes 136M --iterations 3 --seed 3 --until "$dir/enough"
within "$patience" has_switched 2 || fail "no switches"
# While two programs drain: both answer, and the daemon reads that after its own deadlines have passed.
drain() {
    has_state queue draining && app_has "$(pid_of also)" '"state":"draining"'
}
within "$patience" drain || fail "they never drain"
stop daemon
since=$(date +%s)
for app in paused queue also turns; do
    within "$patience" says $app "gpumuxd (pid $(pid_of daemon)) has not answered for [0-9]* s: waiting for it: its process is stopped" ||
        fail "the log of $app does not say that the daemon stands still: $(cat "$dir/$app.log")"
done
# Longer than any deadline of the daemon by itself.
until [ $(($(date +%s) - since)) -ge 15 ]; do sleep 0.2; done
for app in paused queue also turns; do
    ! has_ended $app || fail "$app ended without the daemon: $(tail -n 1 "$dir/$app.out")"
done
kill -CONT "$(pid_of daemon)"
for app in paused queue also turns; do
    within "$patience" says $app "gpumuxd (pid $(pid_of daemon)) answers again" || fail "$app does not say that it goes on"
done
within "$patience" grep -q 'the daemon did not run for' "$dir/daemon.out" || fail "the daemon does not say that it stood still"
! has_ended paused || fail "it did not wait: $(tail -n 1 "$dir/paused.out")"
"$ctl" resume "$(pid_of paused)" > /dev/null || fail "resume failed"
take_status
await_switches $(($(gpu switches) + 2))
expect_pass paused queue also turns
for app in paused queue also turns; do
    ! says $app 'is lost' || fail "$app gave the daemon up: $(cat "$dir/$app.log")"
done
! grep 'does not answer' "$dir/daemon.out" || fail "after its own sleep the daemon takes programs for late"
app later linked --bytes 96M --iterations 3
expect_pass later
expect_empty
stop_daemon

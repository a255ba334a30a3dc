#!/bin/sh
# A stopped program can still reach frames that it used once, and others after it: they end only when it goes on. They are
# not given up meanwhile: a program of the same user that fits beside what the stopped one keeps runs in them. One that
# needs other sizes waits, and the status says how much the stopped one keeps.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "smaller programs have frames of other sizes"

# Of five frames of 32 MiB each of the two uses three.
start_daemon
for seed in 1 2; do
    app "turns$seed" linked --bytes 96M --allocs 3 --iterations 10 --seed "$seed" --until "$dir/enough"
done
within "$patience" has_switched 12 || fail "they do not take turns"
kill -STOP "$(pid_of turns1)"
within "$patience" has_state turns1 stopped || fail "nobody knows that it is stopped"
kill -KILL "$(pid_of turns2)"
alone() { is_up && [ "$(apps)" = 1 ]; }
within "$patience" alone || fail "the other one is still there"
"$ctl" trim > "$dir/trim" || fail "nothing can be trimmed"
app later linked --bytes 64M --allocs 2 --iterations 3 --seed 3
within "$patience" has_ended later || fail "it does not run: $(app_of "$(pid_of later)")"
expect_pass later
app small linked --bytes 128M --allocs 64 --iterations 3 --seed 4 # does not fit beside two frames; it keeps two to five
is_told() { "$ctl" status | grep -Eq "needs .* MiB on the GPU: pid $(pid_of turns1) is stopped and keeps (64|96|128|160) MiB"; }
within "$patience" is_told || fail "the status does not say who keeps the GPU: $("$ctl" status)"
kill -CONT "$(pid_of turns1)"
touch "$dir/enough"
expect_pass small turns1
expect_empty
stop_daemon

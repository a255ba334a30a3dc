#!/bin/sh
# Managed memory around slices: when its program is paused it goes to the host, but for what the program wants to
# stay; when the program runs again it comes back. Beside a hog, with both in turn, nothing is lost.
. "$(dirname "$0")/lib.sh"

has_asked() {
    [ -f "$dir/signal.asked" ] || has_ended one
}

native alone linked --mode managed --bytes 64M --iterations 3
expect_pass alone
# Half of the deadline is what moving it may take.
start_daemon
app one linked --mode managed --bytes 128M --iterations 5 --signal "$dir/signal"
await_ready one
"$ctl" pause "$(pid_of one)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state one paused || fail "it is not paused"
touch "$dir/signal.ask"
within "$patience" has_asked || fail "it waits for an answer"
has_state one paused || fail "it was let go"
grep -q '^paused: first=-1 kept=0 own=-1$' "$dir/one.out" || fail "paused, it is: $(cat "$dir/one.out")"
"$ctl" resume "$(pid_of one)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
expect_pass one
grep -q '^running: first=0 kept=0 own=-1$' "$dir/one.out" || fail "running, it is: $(cat "$dir/one.out")"

# In turn with a hog, in every way; and with a context of its own, which is destroyed at the end.
for way in linked dlsym proc; do
    app "$way" "$way" --mode managed --bytes 192M --iterations 10 --seconds 1 --seed 3 --until "$dir/enough"
done
app own linked --mode managed --bytes 192M --iterations 10 --seconds 1 --own-context --seed 5 --until "$dir/enough"
app hog linked --bytes 120M --iterations 10 --seconds 1 --seed 4 --until "$dir/enough"
await_switches 5
expect_pass linked dlsym proc own hog
expect_switches 5

# The driver refuses what gpumux needs to move it: it stays where it is, and the program notices nothing.
export SIMCUDA_FAIL=cuStreamCreate:1+
app refused linked --mode managed --bytes 128M --iterations 10 --seconds 1 --seed 6
unset SIMCUDA_FAIL
app hog linked --bytes 120M --iterations 10 --seconds 1 --seed 7
expect_pass refused hog
expect_empty
stop_daemon

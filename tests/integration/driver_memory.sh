#!/bin/sh
# Memory that stays the driver's is counted by kind, and goes where it may.
. "$(dirname "$0")/lib.sh"

# What the driver takes by itself, for a module's variables and for local memory, is the program's: free memory is less by it, at
# once, and the daemon counts it. A context is nobody's.
part "of its own"
export SIMCUDA_CONTEXT_MEMORY=8M
mib=$((1 << 20))

# told NAME WHEN: MiB of free memory
told() {
    echo $(($(sed -n "s/^$2: free=//p" "$dir/$1.out") / mib))
}

# expect_taken NAME: natively, and under gpumux, with one context.
expect_taken() {
    before=$(told "$1" before)
    [ "$(told "$1" module)" = $((before - array)) ] && [ "$(told "$1" stack)" = $((before - array - 32)) ] &&
        [ "$(told "$1" after)" = "$before" ] || fail "$1: $(cat "$dir/$1.out")"
}

array=$((48 / shrink))
native alone linked --mode taken --bytes 48M
expect_pass alone
expect_taken alone
start_daemon
app one linked --mode taken --bytes 48M --signal "$dir/signal"
await_ready one
is_counted() {
    take_status && [ "$(app_number "$(pid_of one)" driver_bytes)" = $(((array + 32) * mib)) ]
}
within "$patience" is_counted || fail "the daemon counts $(app_number "$(pid_of one)" driver_bytes)"
[ "$(app_number "$(pid_of one)" unswappable_bytes)" -ge $(((array + 32) * mib)) ] || fail "it is not in the sum"
# a cap knows of it
"$ctl" set "$(pid_of one)" cap=32M > "$dir/set.out" 2>&1 && fail "a cap below it is taken"
touch "$dir/signal.end"
expect_pass one
expect_taken one
[ "$(told one context)" = "$(told one stack)" ] || fail "a context is counted: $(cat "$dir/one.out")"
expect_empty
stop_daemon
rm -f "$dir"/signal.*
# a driver that does not say: as if there were none of it
export SIMCUDA_NO=channels
start_daemon
app two linked --mode taken --bytes 48M
expect_pass two
[ "$(told two module)" = "$(told two before)" ] || fail "counted without being told: $(cat "$dir/two.out")"
expect_empty
stop_daemon
unset SIMCUDA_NO SIMCUDA_CONTEXT_MEMORY

# Managed memory around slices: when its program is paused it goes to the host, but for what the program wants to stay; when the
# program runs again it comes back. Beside a hog, with both in turn, nothing is lost.
part managed
has_asked() {
    [ -f "$dir/signal.asked" ] || has_ended one
}

native alone linked --mode managed --bytes 64M --iterations 3
expect_pass alone
# Half of the deadline is what moving it may take.
start_daemon
app one linked --mode managed --bytes 128M --iterations 3 --signal "$dir/signal"
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
    app "$way" "$way" --mode managed --bytes 192M --iterations 3 --seed 3 --until "$dir/enough"
done
app own linked --mode managed --bytes 192M --iterations 3 --own-context --seed 5 --until "$dir/enough"
app hog linked --bytes 120M --iterations 3 --seed 4 --until "$dir/enough"
await_switches 5
expect_pass linked dlsym proc own hog
expect_switches 5

# The driver refuses what gpumux needs to move it: it stays where it is, and the program notices nothing.
export SIMCUDA_FAIL=cuStreamCreate:1+
app refused linked --mode managed --bytes 128M --iterations 8 --seed 6
unset SIMCUDA_FAIL
app hog linked --bytes 120M --iterations 8 --seed 7
expect_pass refused hog
expect_empty

# Memory that stays the driver's is counted by kind: managed, arrays, of graphs, plain. What graphs do not use any more is given
# back when the program is paused, and it goes on all the same.
part "by kind"
number_of() {
    is_up && app_number "$(pid_of holder)" "$1"
}

# is_at KEY BYTES
is_at() {
    is_up && [ "$(app_number "$(pid_of holder)" "$1")" = "$2" ]
}

has_asked() {
    [ -f "$dir/signal.asked" ] || has_ended holder
}

native alone linked --mode unswappable --bytes 128M
expect_pass alone
rm -f "$dir"/signal.*
piece=$((128 * 1024 * 1024 / 8 / shrink / 2097152 * 2097152))
app holder linked --mode unswappable --bytes 128M --signal "$dir/signal"
await_ready holder
within "$patience" is_at managed_bytes $piece || fail "managed: $(number_of managed_bytes), not $piece"
within "$patience" is_at array_bytes $piece || fail "arrays: $(number_of array_bytes), not $piece"
within "$patience" is_at graph_bytes $piece || fail "of graphs: $(number_of graph_bytes), not $piece"
[ "$(number_of real_bytes)" = 0 ] || fail "there is none: $(cat "$dir/status.json")"
[ "$(number_of unswappable_bytes)" = $((3 * piece + $(number_of small_bytes))) ] || fail "the sum is wrong"
[ "$(number_of total_bytes)" = $piece ] || fail "it is counted as gpumux's own: $(number_of total_bytes)"
"$ctl" status > "$dir/table.out" && grep -q ' MiB unswappable' "$dir/table.out" || fail "the table does not tell"

"$ctl" pause "$(pid_of holder)" > "$dir/said" 2>&1 || fail "pause: $(cat "$dir/said")"
within "$patience" has_state holder paused || fail "it is not paused"
within "$patience" is_at graph_bytes 0 || fail "of graphs: $(number_of graph_bytes), trimmed when it was paused"
"$ctl" resume "$(pid_of holder)" > "$dir/said" 2>&1 || fail "resume: $(cat "$dir/said")"
touch "$dir/signal.ask"
within "$patience" has_asked || fail "it does not go on"
! has_ended holder || fail "$(tail -n 1 "$dir/holder.out")"
for key in managed_bytes array_bytes graph_bytes; do
    within "$patience" is_at $key 0 || fail "$key after all was freed: $(number_of $key)"
done
touch "$dir/signal.end"
expect_pass holder

# One that dies with all of it leaves nothing behind, and one with a context of its own loses it with the context.
rm -f "$dir"/signal.*
app holder linked --mode unswappable --bytes 128M --own-context --signal "$dir/signal"
await_ready holder
within "$patience" is_at array_bytes $piece || fail "arrays: $(number_of array_bytes), not $piece"
kill -KILL "$(pid_of holder)"
await holder
expect_empty
stop_daemon

#!/bin/sh
# What the driver takes by itself, for a module's variables and for local memory, is the program's: free memory is less by
# it, at once, and the daemon counts it. A context is nobody's.
. "$(dirname "$0")/lib.sh"
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
# a driver that does not say: as if there were none of it
export SIMCUDA_NO=channels
start_daemon
app two linked --mode taken --bytes 48M
expect_pass two
[ "$(told two module)" = "$(told two before)" ] || fail "counted without being told: $(cat "$dir/two.out")"
expect_empty
stop_daemon

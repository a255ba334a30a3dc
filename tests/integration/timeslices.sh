#!/bin/sh
# While a latency-critical program runs beside others, they have short timeslices of the GPU and it has the longest, as
# far as the driver lets them; otherwise each has the driver's own.
. "$(dirname "$0")/lib.sh"

endless() {
    endless_name=$1
    shift
    app "$endless_name" linked --mode endless --bytes 16M --hold 1 --signal "$dir/$endless_name.steps" \
        --until "$dir/$endless_name.enough" "$@"
}

# end NAME: an endless program ends well.
end() {
    : > "$dir/$1.enough"
    expect_pass "$1"
}

# slices NAME=US...: so says the status of each.
slices() {
    is_up || return 1
    for slices_of; do
        [ "$(app_number "$(pid_of "${slices_of%=*}")" timeslice_us)" = "${slices_of#*=}" ] || return 1
    done
}

expect_slices() {
    within "$patience" slices "$@" || fail "not so: $*"
}

export GPUMUX_LOG="$dir/shim.log"
start_mlfq
endless a --seed 1
await_ready a
expect_slices a=0
GPUMUX_CLASS=latency endless critical --seed 2
expect_slices critical=1000000 a=1
# b is there, without work: a is still the only one that keeps the GPU from others.
app b linked --mode cycle --bytes 8M --hold 600000
within "$patience" has_state b idle || fail "b does not become idle"
expect_slices critical=1000000 a=1 b=200
endless c --seed 3
expect_slices critical=1000000 a=200 b=200 c=200
end c
expect_slices critical=1000000 a=1 b=200

"$ctl" set "$(pid_of critical)" class=auto > /dev/null || fail "mux-ctl set"
expect_slices critical=0 a=0 b=0
"$ctl" set "$(pid_of critical)" class=interactive > /dev/null || fail "mux-ctl set"
expect_slices critical=1000000 a=1 b=200
"$ctl" pause "$(pid_of critical)" > /dev/null || fail "mux-ctl pause"
expect_slices a=0 b=0
"$ctl" resume "$(pid_of critical)" > /dev/null || fail "mux-ctl resume"
expect_slices critical=1000000 a=1 b=200
end critical
expect_slices a=0 b=0
end a
kill "$(pid_of b)"
await b
! grep 'does not take a timeslice' "$dir/shim.log" || fail "the driver has other timeslices"
stop_daemon

# The driver refuses, or the daemon is not to: the driver's own values.
rm -f "$dir"/*.enough
start_mlfq
SIMCUDA_SET_TIMESLICE=0x1b endless a --seed 1
lacks() {
    is_up && app_has "$(pid_of a)" '"features_off":\[[^]]*"timeslices"'
}
within "$patience" lacks || fail "the status does not say that a does without timeslices"
GPUMUX_CLASS=latency endless critical --seed 2
expect_slices critical=1000000 a=0
end a
end critical
stop_daemon

rm -f "$dir"/*.enough
start_mlfq --latency-mode off
endless a --seed 1
GPUMUX_CLASS=latency endless critical --seed 2
for running in a critical; do
    within "$patience" has_state $running running || fail "$running does not run"
done
take_status
slices critical=0 a=0 || fail "there are timeslices with --latency-mode off"
end a
end critical
stop_daemon

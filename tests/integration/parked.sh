#!/bin/sh
# Programs whose kernels never end by themselves share a GPU: each is stopped in the middle of its kernel, its memory
# goes and comes back, and the kernel goes on. So do programs with long queues, and one whose stream waits for the
# host. Where the driver does not stop channels, all is as it was: such a program keeps its turn.
. "$(dirname "$0")/lib.sh"
part parked

steps() {
    cat "$dir/$1.steps" 2> /dev/null || echo 0
}

# NAME's counter is beyond NUMBER.
is_beyond() {
    ! has_ended "$1" || return 0
    [ "$(steps "$1")" -gt "$2" ]
}

parks() {
    take_status
    app_number "$(pid_of "$1")" parks
}

start_daemon
app a linked --mode endless --bytes 96M --hold 1 --signal "$dir/a.steps" --until "$dir/enough" --seed 1
app b linked --mode endless --bytes 96M --hold 1 --signal "$dir/b.steps" --until "$dir/enough" --seed 2
for turn in 1 2 3 4; do
    for app in a b; do
        before=$(steps $app)
        within "$patience" is_beyond $app "$before" || fail "$app does not go on in turn $turn"
        ! has_ended $app || fail "$app has ended"
    done
done
within "$patience" has_switched 6
[ "$(parks a)" -ge 2 ] && [ "$(parks b)" -ge 2 ] || fail "they were not parked"
: > "$dir/enough"
expect_pass a b

app long linked --mode queue --bytes 96M --hold 17 --iterations 2 --seed 3
app other linked --mode count --bytes 96M --hold 17 --iterations 20 --seed 4
expect_pass long other
app values linked --mode values --bytes 80M --allocs 4 --hold 60 --iterations 6 --seed 5
app third linked --bytes 96M --iterations 30 --seed 6
expect_pass values third
expect_empty
take_status
[ "$(json_after totals drain_busy "$dir/status.json")" = 0 ] || fail "a drain was given up"
stop_daemon

# The driver refuses: the endless program keeps its turn until it ends.
part refused
export SIMCUDA_DISABLE_CHANNELS=0x1b
start_daemon
app a linked --mode endless --bytes 96M --hold 1 --signal "$dir/a.steps" --until "$dir/enough" --seed 1
within "$patience" is_beyond a 0 || fail "a does not begin"
app b linked --bytes 96M --iterations 3 --seed 2
is_kept() {
    take_status
    app_has "$(pid_of a)" '"why":"couldnotbepaused:itsGPUworkdidnotend"'
}
within "$patience" is_kept || fail "the status does not say that a keeps the GPU"
[ "$(parks a)" = 0 ] || fail "it was parked though the driver refuses"
: > "$dir/enough"
expect_pass a b
stop_daemon
unset SIMCUDA_DISABLE_CHANNELS

# Streams that wait for another thread, which has to cross the gate itself before it can let them go on: stream wait values, host
# functions and callbacks. Where the driver cannot park, draining such a program never ends by itself: at the deadline it keeps its
# turn, the status says why, and it goes on; between two such waits it yields. Nobody hangs, all data is right.
part "waits for the host"
export SIMCUDA_NO=channels

# Whether the status says of NAME that it could not be paused for TEXT, a pattern.
says() {
    is_up || return 1
    ! has_ended "$1" || return 0
    app_has "$(pid_of "$1")" "\"why\":\"couldnotbepaused:$2"
}

start_daemon
app other dlsym --bytes 96M --iterations 2 --seed 2 --until "$dir/enough"
await_ready other
for case in values,linked values,proc hostfuncs,linked; do
    mode=${case%,*}
    take_status
    given_up=$(json_after totals drain_busy "$dir/status.json")
    # On a busy machine the status may not be asked at the right moment: then once more.
    for try in 1 2 3 4 5; do
        app "$case" "${case#*,}" --mode "$mode" --bytes 80M --allocs 4 --hold 2500 --iterations 2 --seed 1
        await_ready "$case"
        within "$patience" says "$case" "\(itsGPUworkdidnotend\|acallintothedriverdidnotreturn\)" ||
            fail "the status does not say why $case cannot be paused"
        is_said=1
        ! has_ended "$case" || is_said=
        expect_pass "$case"
        [ -z "$is_said" ] || break
    done
    [ -n "$is_said" ] || fail "it ended $try times before the status said why it could not be paused"
    take_status
    [ "$(json_after totals drain_busy "$dir/status.json")" -gt "$given_up" ] || fail "$case: no drain was given up"
done
touch "$dir/enough"
expect_pass other
expect_empty
stop_daemon
unset SIMCUDA_NO

#!/bin/sh
# Streams that wait for another thread, which has to cross the gate itself before it can let them go on: stream wait
# values, host functions and callbacks. Draining such a program never ends by itself: at the deadline it keeps its
# turn, the status says why, and it goes on; between two such waits it yields. Nobody hangs, all data is right. So it
# is where the driver cannot park; where it can, the program yields in the middle of its wait (parked.sh).
. "$(dirname "$0")/lib.sh"
export SIMCUDA_NO=channels

# Whether the status says of NAME that it could not be paused for TEXT, a pattern.
says() {
    is_up || return 1
    ! has_ended "$1" || return 0
    app_has "$(pid_of "$1")" "\"why\":\"couldnotbepaused:$2"
}

for mode in values hostfuncs; do
    for way in linked proc; do
        start_daemon
        app other dlsym --bytes 96M --iterations 100000 --seed 2
        await_ready other
        # On a busy machine the status may not be asked at the right moment: then once more.
        for try in 1 2 3 4 5; do
            app "$mode-$way" "$way" --mode "$mode" --bytes 80M --allocs 4 --hold 2500 --iterations 3 --seed 1
            await_ready "$mode-$way"
            within "$patience" says "$mode-$way" "\(itsGPUworkdidnotend\|acallintothedriverdidnotreturn\)" ||
                fail "the status does not say why $mode cannot be paused"
            is_said=1
            ! has_ended "$mode-$way" || is_said=
            expect_pass "$mode-$way"
            [ -z "$is_said" ] || break
        done
        [ -n "$is_said" ] || fail "it ended $try times before the status said why it could not be paused"
        take_status
        [ "$(json_after totals drain_busy "$dir/status.json")" -ge 1 ] || fail "no drain was given up"
        kill -KILL "$(pid_of other)"
        await other
        expect_empty
        stop_daemon
    done
done

#!/bin/sh
# A program that is stopped while it waits for its turn: the others go on without it, and it goes on when continued.
. "$(dirname "$0")/lib.sh"
start_daemon --slice 1s
app one linked --bytes 96M --iterations 20 --seconds 12 --seed 1 --until "$dir/enough"
await_ready one
app two linked --bytes 96M --iterations 20 --seconds 12 --seed 2 --until "$dir/enough"
await_ready two

# Between a look at the status and the signal the turn may pass, and one that is stopped in its turn keeps the GPU.
# So what counts is a look after the stop: two waits and cannot move on, and one runs with all of its memory.
waits() {
    is_up && app_has "$(pid_of one)" '"state":"running"' && app_has "$(pid_of two)" '"state":"waiting"'
}
is_stopped_waiting() {
    waits || return 1
    stop two
    ! waits || return 0
    kill -CONT "$(pid_of two)"
    return 1
}
tries=0
until is_stopped_waiting; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || fail "two is never stopped while it waits"
    sleep 0.05
done
is_told() {
    is_up && app_has "$(pid_of two)" '"state":"stopped"'
}
within "$patience" is_told || fail "status does not say that two is stopped"
touch "$dir/enough"
await one
take_status
! app_has "$(pid_of two)" '"state":"running"' || fail "two had a turn although it was stopped"
kill -CONT "$(pid_of two)"
expect_pass one two
expect_empty
stop_daemon

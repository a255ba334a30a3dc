#!/bin/sh
# A program that is stopped while it waits for its turn: the others go on without it, and it goes on when continued.
. "$(dirname "$0")/lib.sh"
start_daemon --quantum 500ms
app one linked --bytes 96M --iterations 20 --seconds 6 --seed 1
await_ready one
app two linked --bytes 96M --iterations 20 --seconds 6 --seed 2
await_ready two
waits() {
    is_up && app_has "$(pid_of two)" '"state":"waiting"'
}
within 20 waits || fail "two does not wait"
kill -STOP "$(pid_of two)"
is_told() {
    is_up && app_has "$(pid_of two)" 'doesnotanswer'
}
within 20 is_told || fail "status does not say that two does not answer"
await one 40
kill -CONT "$(pid_of two)"
expect_pass one two
expect_empty
stop_daemon

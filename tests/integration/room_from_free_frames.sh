#!/bin/sh
# The only room is in free frames that no running program holds: they are destroyed at once, without waiting for
# an event that nobody will cause.
. "$(dirname "$0")/lib.sh"
start_daemon
app one linked --bytes 160M --allocs 5 --iterations 2 --seed 1
expect_pass one
app two linked --bytes 96M --allocs 48 --iterations 2 --seed 2
expect_pass two
expect_empty
stop_daemon

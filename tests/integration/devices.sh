#!/bin/sh
# Programs on two devices of which gpumux manages one: several contexts, each with its own thread, that come and
# go with what they hold, and copies from one device to the other, beside another program that makes them switch.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"
start_daemon
app two linked --mode devices --bytes 72M --allocs 3 --iterations 4 --seconds 2 --seed 1 --until "$dir/enough"
app other proc --bytes 96M --iterations 10 --seconds 2 --seed 2 --until "$dir/enough"
await_switches 3
expect_pass two other
expect_switches 3
expect_empty
stop_daemon

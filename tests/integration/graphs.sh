#!/bin/sh
# Graphs replayed, and captures that stay open for several slices, beside an app that wants the GPU.
. "$(dirname "$0")/lib.sh"
start_daemon
app graph linked --mode graph --bytes 96M --iterations 20 --seconds 3 --seed 1 --until "$dir/enough"
app capture linked --mode capture --bytes 96M --iterations 4 --hold 200 --seed 2 --until "$dir/enough"
app other linked --bytes 64M --iterations 10 --seconds 3 --seed 3 --until "$dir/enough"
await_switches 5
expect_pass graph capture other
expect_switches 5
expect_empty
stop_daemon

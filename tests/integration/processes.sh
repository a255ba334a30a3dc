#!/bin/sh
# fork before and after CUDA is up, and exec, beside an app that makes them switch.
. "$(dirname "$0")/lib.sh"
start_daemon
app other linked --bytes 96M --iterations 10 --seconds 4 --seed 9 --until "$dir/enough"
app fork linked --mode fork --bytes 48M --iterations 3 --seed 1
app exec linked --mode exec --bytes 48M --iterations 3 --seed 2
await_switches 2
expect_pass fork exec other
app forkproc proc --mode fork --bytes 48M --iterations 2 --seed 3
app own linked --own-context --bytes 96M --iterations 5 --seed 4
expect_pass forkproc own
expect_switches 2
expect_empty
stop_daemon

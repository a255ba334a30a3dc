#!/bin/sh
# A signal handler that calls CUDA, wherever it finds its thread: in a call, on the way in, or waiting at the gate. And
# children by fork, vfork and posix_spawn while other threads are in calls or wait.
. "$(dirname "$0")/lib.sh"
start_daemon
app signals linked --mode signals --bytes 96M --iterations 20 --seconds 3 --seed 1 --until "$dir/enough"
app children linked --mode children --threads 3 --bytes 48M --iterations 8 --seed 2
app other linked --bytes 96M --iterations 10 --seconds 3 --seed 3 --until "$dir/enough"
await_switches 3
expect_pass signals children other
expect_switches 3
expect_empty
stop_daemon

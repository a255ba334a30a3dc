#!/bin/sh
# The system refuses pinned memory, once and for long: nobody hangs, and when it is granted the rest goes on.
. "$(dirname "$0")/lib.sh"
for calls in 6 6,cuMemCreate:7,cuMemCreate:8; do
    SIMCUDA_FAIL="cuMemCreate:$calls" start_daemon
    app one linked --bytes 96M --allocs 3 --iterations 3 --seconds 3 --seed 1
    await_ready one
    app two linked --bytes 96M --allocs 3 --iterations 3 --seconds 3 --seed 2
    expect_pass one two
    expect_empty
    stop_daemon
done

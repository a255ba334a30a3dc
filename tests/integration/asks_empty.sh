#!/bin/sh
# A program that launches an empty kernel every 30 ms is not idle, but loses its turn when others wait, which it would keep
# for an hour. (On a busy machine the kernel is still there when the GPU is asked: this one is for a quiet one.)
. "$(dirname "$0")/lib.sh"
start_daemon --slice 3600s --patience 3600s --idle 400ms
app empty linked --mode empty --bytes 96M --pause 30 --until "$dir/enough"
await_ready empty
app works linked --bytes 96M --iterations 4 --seed 6
expect_pass works
touch "$dir/enough"
expect_pass empty
expect_empty
stop_daemon

#!/bin/sh
# Memory that a program has not written reads as zero, whoever had it before: many short programs beside two long ones,
# whose memory leaves the GPU for theirs. Each program fills what it gets, so that nothing is zero by chance.
. "$(dirname "$0")/lib.sh"

start_daemon --slice 20ms
for i in 1 2; do
    app "long$i" linked --bytes 96M --allocs 12 --iterations 1 --seed "$i" --until "$dir/enough"
done
for i in 1 2; do await_ready "long$i"; done
for round in 1 2; do
    app "fresh$round" proc --mode fresh --bytes 64M --allocs 8 --seed "$((10 + round))"
    app "large$round" linked --mode fresh --bytes 64M --allocs 1 --seed "$((20 + round))"
    app "handles$round" dlsym --mode handles --bytes 64M --allocs 16 --seed "$((30 + round))"
    expect_pass "fresh$round" "large$round" "handles$round"
done
await_switches 4
expect_pass long1 long2
expect_switches 4
expect_empty
stop_daemon

# As a real driver's, the simulated driver's memory is new each time.
native alone linked --mode fresh --bytes 64M --allocs 8
expect_pass alone
native alone linked --mode handles --bytes 64M --allocs 8
expect_pass alone

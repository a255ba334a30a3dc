#!/bin/sh
# A kernel on a device that gpumux does not manage, in its primary context, waits for the host and then reads memory of
# the managed device. The drain waits for it too: the memory stays in place until the kernel has ended, whoever waits.
export SIMCUDA_DEVICES=2
. "$(dirname "$0")/lib.sh"
start_daemon
app peer linked --mode peer --bytes 96M --hold 700 --iterations 3 --seed 1 --until "$dir/enough"
await_ready peer
app other proc --bytes 96M --iterations 10 --seed 2 --until "$dir/enough"
switched_or_died() {
    has_switched 2 || has_ended peer
}
within "$patience" switched_or_died
touch "$dir/enough"
expect_pass peer other
expect_switches 2
expect_empty
stop_daemon

#!/bin/sh
# Handles that may be exported are swapped like others until they are: then their memory stays where it is, the data
# with it, while other threads of the program work on it and the program takes turns with another.
. "$(dirname "$0")/lib.sh"
without_keeper
start_daemon
app one linked --mode sharers --threads 2 --bytes 64M --iterations 20 --seconds 2 --seed 1 --until "$dir/enough"
app two linked --bytes 128M --iterations 20 --seconds 2 --seed 2 --until "$dir/enough"
await_switches 3
expect_pass one two
expect_switches 3
expect_empty

app three proc --mode sharers --threads 4 --bytes 96M --iterations 20 --seconds 2 --seed 3
app four linked --mode vmm --bytes 80M --iterations 20 --seconds 2 --seed 4
expect_pass three four
expect_empty

# The daemon goes while handles are exported.
app five linked --mode sharers --threads 2 --bytes 64M --iterations 20 --seconds 2 --seed 5
await_ready five
kill -KILL "$(pid_of daemon)"
await daemon
expect_pass five
rm -f "$GPUMUX_SOCKET"

# Made real from the start: nothing of it is the daemon's.
start_daemon
GPUMUX_VMM_EXPORT=real
export GPUMUX_VMM_EXPORT
app six linked --mode sharers --threads 2 --bytes 64M --iterations 10 --seed 6
expect_pass six
expect_empty
stop_daemon

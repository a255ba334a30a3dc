#!/bin/sh
# More threads at once than the gate has places, and thousands that come and go, each of which submits work even from
# the destructor of a thread-specific value; threads that are cancelled, most of them while they wait at the gate,
# or in the call that gives a pool's memory back.
. "$(dirname "$0")/lib.sh"
start_daemon
threads=1100
[ "$shrink" = 1 ] || threads=200 # the thread sanitizer
app pool linked --mode pool --threads $threads --bytes 64M --iterations 2 --seed 1 --until "$dir/enough"
app cancel dlsym --mode cancel --bytes 64M --iterations 30 --seed 2 --until "$dir/enough"
app giver linked --mode cancel-pools --bytes 8M --iterations 20
app other linked --bytes 64M --iterations 10 --seconds 3 --seed 3 --until "$dir/enough"
await_switches 3
expect_pass giver pool cancel other
expect_switches 3
expect_empty
stop_daemon

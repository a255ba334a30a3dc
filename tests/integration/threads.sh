#!/bin/sh
# Programs of many threads and processes, which come and go, share a GPU that is too small for them: streams, pools, signals, fork,
# exit, several contexts. Each verifies its memory. These tests run under the sanitizers, too.
. "$(dirname "$0")/lib.sh"
start_daemon --pinned 640M

part "streams and pools"
app created linked --mode threads --threads 6 --bytes 96M --iterations 8 --seed 1 --until "$dir/enough"
app default linked --mode ptds --threads 6 --bytes 96M --iterations 8 --seed 2 --until "$dir/enough"
app ring dlsym --mode streams --bytes 60M --iterations 3 --seed 3 --until "$dir/enough"
# They allocate and free in streams; every byte of what they have is swapped.
app async linked --mode async --bytes 104M --threads 4 --iterations 3 --seed 1 --until "$dir/enough"
app aptds proc --mode aptds --bytes 104M --threads 3 --iterations 3 --seed 2 --until "$dir/enough"
expect_turns 10 created default ring async aptds
[ "$(gpu bytes_in)" -gt 0 ] && [ "$(gpu bytes_out)" -gt 0 ] || fail "nothing moved"

# A handler that calls CUDA finds its thread in a call, on the way in, or waiting at the gate. Children come by fork, vfork and
# posix_spawn while other threads are in calls or wait, before and after CUDA is up, and by exec.
part "signals and processes"
app signals linked --mode signals --bytes 96M --iterations 8 --seed 1 --until "$dir/enough"
app children linked --mode children --threads 3 --bytes 48M --iterations 8 --seed 2
app fork linked --mode fork --bytes 48M --iterations 3 --seed 1
app exec linked --mode exec --bytes 48M --iterations 3 --seed 2
app forkproc proc --mode fork --bytes 48M --iterations 2 --seed 3
app own linked --own-context --bytes 96M --iterations 3 --seed 4 --until "$dir/enough"
expect_turns 5 signals children fork exec forkproc own

# More threads at once than the gate has places, and thousands that come and go, each of which submits work even from the destructor
# of a thread-specific value; threads that are cancelled, most of them while they wait at the gate, or in the call that gives a
# pool's memory back.
part "more threads than places"
threads=1100
[ "$shrink" -lt 4 ] || threads=200 # the thread sanitizer
app pool linked --mode pool --threads $threads --bytes 64M --iterations 2 --seed 1 --until "$dir/enough"
app cancel dlsym --mode cancel --bytes 64M --iterations 15 --seed 2 --until "$dir/enough"
app giver linked --mode cancel-pools --bytes 8M --iterations 20
app other linked --bytes 64M --iterations 3 --seed 3 --until "$dir/enough"
expect_turns 3 pool cancel giver other

# What programs call after main() has returned: exit handlers that run before the driver shuts down work as ever; those that run
# after it, and destructors, get the driver's own answer, in time, also when the gate is closed and the memory is away.
part exits
app other linked --bytes 96M --iterations 1 --seed 9 --until "$dir/enough"
await_ready other
for round in 1 2 3; do
    for way in linked proc; do
        app "exits$round$way" "$way" --mode exits --bytes 96M --iterations 3 --seed "$round"
    done
    expect_pass "exits${round}linked" "exits${round}proc"
done
touch "$dir/enough"
expect_pass other
expect_empty

# Two devices of which gpumux manages one: several contexts, each with its own thread, that come and go with what they hold, and
# copies from one device to the other. And a kernel on the other device waits for the host and then reads memory of the managed one:
# the drain waits for it, too.
part devices
stop_daemon
export SIMCUDA_DEVICES=2
start_daemon
app two linked --mode devices --bytes 72M --allocs 3 --iterations 4 --seed 1 --until "$dir/enough"
app peer linked --mode peer --bytes 96M --hold 300 --iterations 2 --seed 1 --until "$dir/enough"
app other proc --bytes 96M --iterations 3 --seed 2 --until "$dir/enough"
expect_turns 4 two peer other
stop_daemon

#!/bin/sh
# A program beside gpumux takes so much that the device has less than the budget: programs take turns in what there is,
# and when the memory is free again the whole budget is used again.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
budget=$((160 << 20))
export SIMCUDA_MEMORY=256M

# The device has 112 MiB, less what contexts take.
is_short() {
    is_up && [ "$(gpu usable_bytes)" -le $((112 << 20)) ]
}
is_whole() {
    is_up && [ "$(gpu usable_bytes)" = $budget ]
}
# have_both: all of the memory of both is on the GPU.
have_both() {
    is_up && [ "$(gpu_tier gpu_bytes)" = $((144 << 20)) ]
}

start_daemon
native beside linked --bytes 144M --seed 9 --go "$dir/go.beside"
await_ready beside
for i in 1 2; do
    app "app$i" linked --bytes 72M --allocs "$i" --iterations 10 --seed "$i" --until "$dir/enough"
done
await_switches 2
expect_pass app1 app2
expect_switches 2
is_short || fail "$(gpu usable_bytes) bytes are usable, and the device has 112 MiB"
say "usable: $(gpu usable_bytes) bytes"
expect_empty

# One that fits the budget and not the device waits for its memory, and is told why.
is_told() {
    is_up && app_has "$(pid_of large)" "programsbesidegpumuxuseit"
}
app large linked --bytes 152M --allocs 2 --iterations 2 --seed 4
within "$patience" is_told || fail "nobody says why it waits"
kill "$(pid_of large)"
await large
expect_empty

# The same two, and this time the memory becomes free.
for i in 1 2; do
    app "app$i" linked --bytes 72M --allocs "$i" --iterations 10 --seed "$i" --go "$dir/go.app" --until "$dir/both"
done
for i in 1 2; do await_ready "app$i"; done
is_short || fail "$(gpu usable_bytes) bytes are usable, and the device has 112 MiB"
! have_both || fail "more is on the GPU than it has"
touch "$dir/go.beside"
expect_pass beside
within "$patience" is_whole || fail "only $(gpu usable_bytes) bytes are usable though nobody is beside"
touch "$dir/go.app"
within "$patience" have_both || fail "only $(gpu_tier gpu_bytes) bytes are on the GPU, though all fit"
touch "$dir/both"
expect_pass app1 app2
expect_empty
stop_daemon

# A budget that leaves contexts next to nothing is one that may not be there.
leaves='--gpu-budget leaves 6 of GPU 0.s 256 MiB for CUDA contexts'
! grep -q 'for CUDA contexts' "$dir/daemon.out" || fail "160 of 256 MiB leave enough"
start_daemon --gpu-budget 250M
grep -q -e "$leaves" "$dir/daemon.out" || fail "nobody says that contexts have no room"
stop_daemon

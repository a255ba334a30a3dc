#!/bin/sh
# Memory on the GPU and pinned memory follow what there is and what is needed, and go back to the system.
. "$(dirname "$0")/lib.sh"

# Memory that nobody uses goes back to the system, on the GPU and on the host: by itself within seconds, and at once by mux-ctl
# trim. Meanwhile status calls it "cached".
part "given back"
MiB=$((1 << 20))

# Bytes of frames that exist.
made() {
    echo $(($(gpu used_bytes) + $(gpu cached_bytes)))
}
is_given_back() {
    is_up && [ "$(made)" = 0 ] && [ "$(gpu_tier pinned_bytes)" -lt $((64 * MiB)) ]
}

start_daemon
for i in 1 2; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 3 --seed "$i" --until "$dir/enough"
done
await_switches 2
[ "$(gpu_tier pinned_bytes)" -gt 0 ] || fail "the programs took turns, and no memory is pinned"
expect_pass app1 app2
expect_empty
within 30 is_given_back || fail "nobody is there, and yet $(made) bytes of frames and $(gpu_tier pinned_bytes) of" \
    "pinned memory are kept: used $(gpu used_bytes), pinned in use $(gpu_tier pinned_used_bytes)"
# So others can have the whole device.
native beside linked --bytes 960M --iterations 1 --seed 3
expect_pass beside

# A machine may be so slow that it went by itself: try again.
for i in 1 2 3 4 5 6; do
    app short linked --bytes 96M --iterations 1 --seed "$i"
    expect_pass short
    take_status
    cached=$(gpu cached_bytes)
    "$ctl" status > "$dir/table.out"
    "$ctl" trim > "$dir/trim.out" || fail "mux-ctl trim ended with $?"
    [ "$(cat "$dir/trim.out")" = "given back: 0 of the GPU, 0 pinned, 0 paged" ] || break
done
[ "$(cat "$dir/trim.out")" = "given back: $((96 / shrink)) MiB of the GPU, 0 pinned, 0 paged" ] ||
    fail "mux-ctl trim says: $(cat "$dir/trim.out")"
[ "$cached" = $((96 * MiB / shrink)) ] || fail "status called $cached bytes cached"
grep -q "^  budget .*: 0 used, $((96 / shrink)) MiB cached, " "$dir/table.out" || fail "status: $(cat "$dir/table.out")"
is_given_back || fail "mux-ctl trim ended before the memory was free: $(made) bytes of frames"
grep -q "trim: $((96 / shrink)) MiB on the GPU, " "$dir/daemon.out" || fail "the log does not tell of the trim"
stop_daemon

# Pinned memory grows with need and a little ahead of it: 64 MiB that do not fit on the GPU take as much again, for the switches,
# and not all that may be pinned. It stays for as long as the programs are there, though nobody uses it.
part "by need"
MiB=$((1 << 20))
need=$((64 * MiB / shrink))
least=$((64 * MiB)) # ahead of any need
ahead=$((need > least ? need : least))
slab=$((32 * MiB))
wanted=$(((need + ahead + slab - 1) / slab * slab))

# As much is pinned as is needed.
is_pinned() {
    is_up && [ "$(gpu_tier pinned_bytes)" = $wanted ]
}
# Nothing is under way: three times the same, as the worker pins some slabs at a time.
stays_pinned() {
    for at in 1 2 3; do
        is_pinned || return 1
        sleep 0.3
    done
}

export SIMCUDA_NO_COUNTERS=1 # so nothing is tried on the host, which needs more there
start_daemon --pinned 4G --slice 1000s --idle 1000s
unset SIMCUDA_NO_COUNTERS
for i in 1 2; do
    app "app$i" linked --bytes 112M --allocs 1 --iterations 1000000 --seed "$i"
    [ "$i" = 2 ] || await_ready app1
done
has_both() {
    is_up && [ "$(gpu committed_bytes)" = $((224 * MiB / shrink)) ]
}
within "$patience" has_both || fail "$(gpu committed_bytes) bytes are committed"
within 30 stays_pinned || fail "$(gpu_tier pinned_bytes) bytes are pinned, and $wanted should be"
# Longer than what is not needed is kept.
sleep 5
is_pinned || fail "$(gpu_tier pinned_bytes) bytes are pinned now, and $wanted were"
[ "$(gpu_tier pinned_used_bytes)" -le $need ] || fail "$(gpu_tier pinned_used_bytes) bytes are in use"

# Nobody needs it any more.
for i in 1 2; do kill -KILL "$(pid_of "app$i")"; done
expect_empty
is_unpinned() {
    is_up && [ "$(gpu_tier pinned_bytes)" = 0 ]
}
within 30 is_unpinned || fail "$(gpu_tier pinned_bytes) bytes are pinned for nobody"
stop_daemon

need_size

# A budget that was not given follows what the GPU has. The daemon starts while another program holds most of the GPU; when that
# ends, programs get the rest. When one takes memory again the budget goes down, but never below what a program has been given,
# and up again after it. Log and status tell of each change, once.
part "the budget follows the GPU"
MiB=$((1 << 20))

# budget_is MIB: or up to 6 less, as programs take some memory beside what they ask for.
budget_is() {
    is_up && [ "$(gpu budget_bytes)" = "$(gpu usable_bytes)" ] && [ "$(gpu budget_bytes)" -le $(($1 * MiB)) ] &&
        [ "$(gpu budget_bytes)" -ge $((($1 - 6) * MiB)) ]
}
# expect_budget MIB WHEN
expect_budget() {
    within "$patience" budget_is "$1" || fail "$2: the budget is $(($(gpu budget_bytes) / MiB)) MiB, not $1"
}
changes() {
    grep -c 'the budget is .* MiB now' "$dir/daemon.out"
}

# The device has 1024 MiB, of which 64 stay free for contexts: 1024 - 600 - 64.
native before linked --bytes 600M --seed 1 --go "$dir/go.before"
await_ready before
spawn daemon "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" --pinned 512M --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
expect_budget 360 "beside a program of 600 MiB"
"$ctl" status > "$dir/table.out"
grep -q '^  budget  3.. MiB now, at most 960 MiB: ' "$dir/table.out" || fail "status: $(cat "$dir/table.out")"
touch "$dir/go.before"
expect_pass before
expect_budget 960 "after its end"
app large linked --bytes 800M --iterations 1 --seed 2
expect_pass large

# What it had is cached, and must not be where the other is to be.
is_trimmed() {
    is_up && [ "$(gpu used_bytes)" = 0 ] && [ "$(gpu cached_bytes)" = 0 ]
}
"$ctl" trim > "$dir/trim.out" || fail "mux-ctl trim ended with $?"
within "$patience" is_trimmed || fail "$(gpu cached_bytes) bytes are cached"

# An app is there while another program takes memory, and gives it back.
app app linked --bytes 200M --iterations 10 --seed 3 --go "$dir/go.app"
await_ready app
native beside linked --bytes 600M --seed 4 --go "$dir/go.beside"
await_ready beside
expect_budget 392 "beside a program of 600 MiB again" # half of the reserve stays free
native more linked --bytes 200M --seed 5 --go "$dir/go.more"
await_ready more
expect_budget 206 "beside 800 MiB: the app has that much"
touch "$dir/go.beside" "$dir/go.more"
expect_pass beside more
expect_budget 960 "after their end"
touch "$dir/go.app"
expect_pass app
expect_empty
expect_budget 960 "when all have ended"
n=$(changes)
[ "$n" -le 8 ] || fail "the log tells $n times of 4 or 5 changes"
stop_daemon

# A program beside gpumux takes so much that the device has less than the budget: programs take turns in what there is, and when
# the memory is free again the whole budget is used again.
part "less than the budget"
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
    app "app$i" linked --bytes 72M --allocs "$i" --iterations 3 --seed "$i" --until "$dir/enough"
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
    app "app$i" linked --bytes 72M --allocs "$i" --iterations 3 --seed "$i" --go "$dir/go.app" --until "$dir/both"
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

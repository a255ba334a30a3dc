#!/bin/sh
# Pinned memory grows with need and a little ahead of it: 64 MiB that do not fit on the GPU take as much again, for the
# switches, and not all that may be pinned. It stays for as long as the programs are there, though nobody uses it.
. "$(dirname "$0")/lib.sh"
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

start_daemon --pinned 4G --slice 1000s --idle 1000s
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

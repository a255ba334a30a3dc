#!/bin/sh
# Programs larger than the budget: refused by default, as on a real card; with --oversize host the rest is mapped on the
# host and everything verifies, also beside another program and when the pinned tier has grown to its cap before, and
# nothing is left behind. Together they get the budget and pinned memory less the streaming window of 64 MiB.
. "$(dirname "$0")/lib.sh"
pinned=$((512 * 1024 * 1024))

# Nothing is pinned for nobody.
is_whole() {
    is_up && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] && [ "$(gpu_tier pinned_bytes)" = 0 ]
}

# A part of it is mapped on the host, in pinned memory.
is_on_host() {
    is_up && [ "$(gpu_tier on_host_bytes)" -ge $((80 * 1024 * 1024 / shrink)) ] &&
        [ "$(gpu_tier pinned_used_bytes)" -ge "$(gpu_tier on_host_bytes)" ] &&
        [ "$(gpu_tier pinned_bytes)" -le "$pinned" ]
}

# Programs that do not fit together make the pinned tier grow to its cap: 320 MiB do not fit, and as much again is ahead.
is_grown() {
    is_up && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] && [ "$(gpu_tier pinned_bytes)" = "$pinned" ]
}
grow_pinned() {
    for i in 1 2 3 4; do
        app "grow$i" linked --bytes 120M --allocs 1 --iterations 100000 --seed "$i"
    done
    within "$patience" is_grown ||
        fail "the pinned tier has $(gpu_tier pinned_bytes) of $pinned bytes, cap $(gpu_tier pinned_cap_bytes)"
    for i in 1 2 3 4; do kill -KILL "$(pid_of "grow$i")"; done
    expect_empty
}

start_daemon
app big linked --bytes 240M --allocs 2 --iterations 2 --seed 1
await big
[ "$code" != 0 ] || fail "a program got more than the budget"
expect_empty
stop_daemon

# The tier was at its cap just before.
start_daemon --oversize host
for i in 1 2; do
    [ "$shrink" != 1 ] || grow_pinned
    app big linked --bytes 240M --allocs "$i" --iterations 1000 --seed "$i"
    await_ready big
    is_on_host || fail "pinned: $(gpu_tier pinned_used_bytes) bytes used of $(gpu_tier pinned_bytes), on host $(gpu_tier on_host_bytes)"
    kill -KILL "$(pid_of big)"
    expect_empty
    within "$patience" is_whole ||
        fail "$(gpu_tier pinned_bytes) bytes are pinned for nobody, cap $(gpu_tier pinned_cap_bytes)"
done
# The program needs all of it, and cannot have more.
app big linked --bytes 608M --allocs 4 --iterations 2 --seed 3
expect_pass big
expect_empty
stop_daemon

# What others were promised is not given away, though nothing of it is used yet: 420 MiB of theirs need all of the budget and
# 260 of the 512 MiB pinned, 64 stay free for moving, and the program would need 256.
is_promised() {
    is_up && [ "$(gpu committed_bytes)" = $((420 * 1024 * 1024)) ]
}
if [ "$shrink" = 1 ]; then
    start_daemon --oversize host --slice 1000s --idle 1000s
    for i in 1 2 3; do
        app "other$i" linked --bytes 140M --allocs 1 --iterations 100000 --seed "$i"
        [ "$i" != 1 ] || await_ready other1 # it runs, the others wait
    done
    within "$patience" is_promised || fail "$(gpu committed_bytes) bytes are promised"
    app big linked --bytes 416M --allocs 1 --iterations 1 --seed 5
    await big
    case $line in
    *" error 2 CUDA_ERROR_OUT_OF_MEMORY") ;;
    *) fail "a program got what others were promised: $line" ;;
    esac
    take_status
    [ "$(gpu_tier pinned_used_bytes)" = 0 ] && [ "$(gpu_tier pinned_cap_bytes)" = "$pinned" ] ||
        fail "$(gpu_tier pinned_used_bytes) bytes used of $(gpu_tier pinned_cap_bytes), and none should be, of all"
    for i in 1 2 3; do
        ! has_ended "other$i" || fail "other$i ended: $(tail -n 1 "$dir/other$i.out")"
        kill -KILL "$(pid_of "other$i")"
    done
    expect_empty
    stop_daemon
fi

start_daemon --oversize host
app big linked --bytes 240M --allocs 2 --iterations 6 --seed 1
expect_pass big
expect_empty
app big linked --bytes 240M --allocs 3 --iterations 10 --seconds 4 --seed 2 --until "$dir/enough"
app other linked --bytes 96M --allocs 2 --iterations 10 --seconds 4 --seed 3 --until "$dir/enough"
app churn linked --mode churn --bytes 64M --iterations 10 --seed 4
await_switches 2
expect_pass big other churn
expect_switches 2
app killed linked --bytes 240M --allocs 3 --iterations 1000 --seed 5
await_ready killed
kill -KILL "$(pid_of killed)"
expect_empty
app after linked --bytes 240M --allocs 3 --iterations 2 --seed 6
expect_pass after
expect_empty
stop_daemon

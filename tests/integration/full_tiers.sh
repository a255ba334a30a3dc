#!/bin/sh
# Every tier full to the last byte, but for the streaming window: switches go on, none comes to a stop, and every
# byte comes back right.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
mkdir "$dir/disk"

# 80 MiB of budget, 32 of pinned memory beside its window of 224, and the rest below: four apps of 48 MiB, in
# pieces of 48, 24, 16 and 12 MiB, which need all of it.
round() {
    round_name=$1
    shift
    rm -f "$dir/enough"
    start_daemon --gpu-budget 80M --pinned 256M "$@"
    for i in 1 2 3 4; do
        app "app$i" linked --bytes 48M --allocs "$i" --iterations 4 --seed "$i" --until "$dir/enough"
    done
    is_full() {
        is_up && [ "$(gpu committed_bytes)" = $((192 << 20)) ]
    }
    within "$patience" is_full || fail "$round_name: not all of it was allocated"
    app late linked --bytes 2M --allocs 1 --iterations 1 --seed 9
    await late
    [ "$code" != 0 ] || fail "$round_name: late was given memory that there is not"
    await_switches 8 # two turns of each
    for i in 1 2 3 4; do expect_pass "app$i"; done
    # What a program that gets no processor for a second has stays where it is.
    grep -q 'does not answer' "$dir/daemon.out" || ! grep -q 'cannot be brought in' "$dir/daemon.out" ||
        fail "$round_name: a switch came to a stop"
    expect_switches 8
    expect_empty
    stop_daemon
}

round paged --paged 80M
round disk --disk "$dir/disk:80M"
round both --paged 32M --disk "$dir/disk:48M"

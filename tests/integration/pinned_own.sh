#!/bin/sh
# Two programs as large as the budget, which fit without the disk: while it is full the turns go on through what is free of
# pinned memory, and so they do when it can be written again.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon_on_faulty_disk --pinned 256M
for i in 1 2; do
    app "app$i" linked --bytes 160M --allocs 1 --iterations 4 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
for _ in 1 2 3; do
    touch "$dir/full"
    is_up
    wanted=$(($(gpu switches) + 4))
    within "$patience" has_switched "$wanted" || fail "the disk is full, and nobody gets a turn without it"
    rm "$dir/full"
    take_status
    wanted=$(($(gpu switches) + 4))
    within "$patience" has_switched "$wanted" || fail "the disk works, and nobody gets a turn: $(tail -n 3 "$dir/daemon.out")"
done
touch "$dir/enough"
for i in 1 2; do expect_pass "app$i"; done
expect_empty
stop_daemon

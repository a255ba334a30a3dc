#!/bin/sh
# Two programs as large as the budget, and pinned memory that a full disk has left full of the one that comes next: once
# the disk can be written again, some of its own goes down, and the turns go on.
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
    within "$patience" is_told_of_disk || fail "status does not say that a lower tier fails"
    sleep 1
    rm "$dir/full"
    take_status
    wanted=$(($(gpu switches) + 4))
    within "$patience" has_switched "$wanted" || fail "the disk works, and nobody gets a turn: $(tail -n 3 "$dir/daemon.out")"
done
touch "$dir/enough"
for i in 1 2; do expect_pass "app$i"; done
expect_empty
stop_daemon

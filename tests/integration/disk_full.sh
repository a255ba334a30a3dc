#!/bin/sh
# A disk that is full in the middle of switches: chunks keep their old copy, apps wait with a reason, the log says
# so, and when there is room again everything goes on with no byte lost.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
mkdir "$dir/disk"
export GM_FAULTY_DISK="$dir/full"
spawn daemon env LD_PRELOAD="$BUILD/tests/programs/libgm_faulty_disk.so" "$BUILD/daemon/gpumuxd" \
    --socket "$GPUMUX_SOCKET" --gpu-budget 160M --pinned 288M --disk "$dir/disk:512M" --policy round-robin --quantum 50ms \
    --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
! has_ended daemon || fail "the daemon did not start"
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 10 --seconds 8 --seed "$i"
done
uses_disk() {
    is_up && [ "$(gpu_tier disk_used_bytes)" -gt 0 ]
}
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
is_told() {
    is_up && grep -q 'a lower tier fails' "$dir/status.json"
}
within "$patience" is_told || fail "status does not say that a lower tier fails"
grep -q 'No space left' "$dir/daemon.out" || fail "the log does not say that the disk is full"
sleep 2
check_daemon
rm "$dir/full"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

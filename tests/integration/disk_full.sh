#!/bin/sh
# A disk that is full in the middle of switches: chunks keep their old copy, the log says so, and turns go on through the
# memory that there is; when there is room again the disk is used as before, with no byte lost.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
start_daemon_on_faulty_disk
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 10 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" grep -q 'No space left' "$dir/daemon.out" || fail "the log does not say that the disk is full"
is_up
within "$patience" has_switched $(($(gpu switches) + 8)) || fail "nobody needs the disk, and nobody has turns"
check_daemon
rm "$dir/full"
take_status
lowered=$(json_after moved pinned_to_disk_bytes "$dir/status.json")
is_lowering() {
    is_up && [ "$(json_after moved pinned_to_disk_bytes "$dir/status.json")" -gt "$lowered" ]
}
within "$patience" is_lowering || fail "the disk works again, and is not used"
touch "$dir/enough"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

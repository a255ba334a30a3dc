#!/bin/sh
# The disk cannot be written, and without it there is too little room for everybody's turns: those wait, and keep what
# they have. The status says so while somebody waits for that, and the log says it once.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon_on_faulty_disk --paged 96M
for i in 1 2 3 4 5; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 4 --seed "$i" --until "$dir/enough"
done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" is_told_of_disk || fail "status does not say that a lower tier fails"

# Some 5 times the disk is tried again.
told=0
for _ in $(seq 50); do
    sleep 0.1
    ! is_told_of_disk || told=$((told + 1))
done
[ "$told" -ge 5 ] || fail "the disk is full, and in 50 looks $told say so"
[ "$(grep -c 'No space left' "$dir/daemon.out")" = 1 ] || fail "the log tells of the full disk more than once, or not"
check_daemon

# Nobody needs it any more, and it works again: nothing is said of it, though nothing is written either.
for i in 3 4 5; do kill -KILL "$(pid_of "app$i")"; done
rm "$dir/full"
is_not_told() {
    is_up && ! grep -q 'a lower tier fails' "$dir/status.json"
}
within "$patience" is_not_told || fail "status still says that a lower tier fails"
for _ in $(seq 20); do
    sleep 0.1
    take_status
    ! grep -q 'a lower tier fails' "$dir/status.json" || fail "status says again that a lower tier fails"
done
touch "$dir/enough"
for i in 1 2; do expect_pass "app$i"; done
expect_empty
stop_daemon

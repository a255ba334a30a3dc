#!/bin/sh
# 30 % of the writes to a disk fail, and so most copies of a chunk to it. Programs that can have their turns without it go on
# taking turns, and when it works again all end right.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
export GM_FAULTY_PERCENT=30
start_daemon_on_faulty_disk
for i in 1 2 3 4 5; do
    app "app$i" linked --bytes 96M --iterations 4 --seed "$i" --until "$dir/enough"
done
for i in 1 2 3 4 5; do await_ready "app$i"; done
within "$patience" uses_disk || fail "the disk was never used"
touch "$dir/full"
within "$patience" grep -q 'pinned memory to disk failed' "$dir/daemon.out" || fail "no write failed"
is_up
before=$(gpu switches)
has_rounds() {
    is_up && [ "$(gpu switches)" -gt $((before + 30)) ]
}
within 10 has_rounds || fail "$(($(gpu switches) - before)) switches while the disk fails: nobody has turns"
rm "$dir/full"
touch "$dir/enough"
for i in 1 2 3 4 5; do expect_pass "app$i"; done
expect_empty
stop_daemon

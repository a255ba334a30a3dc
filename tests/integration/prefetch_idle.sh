#!/bin/sh
# Programs that rest between their requests: while one computes and nobody waits, the memory of the one that is
# expected next is brought up from paged memory, so that its request finds it near.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon --pinned 288M --paged 512M --slice 10s --log-level debug
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 6 --pause 1500 --seconds 15 --seed "$i" \
        --until "$dir/enough"
    sleep 0.35
done

has_risen() {
    take_status
    [ "$(json_after moved paged_to_pinned_bytes "$dir/status.json")" -gt 0 ]
}
within "$patience" has_risen || fail "nothing came up from paged memory"
# Three times at least: of each program's first two requests nothing is known yet.
has_staged() {
    [ "$(grep -c 'staging for app ' "$dir/daemon.out")" -ge 3 ]
}
within "$patience" has_staged # told below
touch "$dir/enough"
for i in 1 2 3 4; do expect_pass "app$i"; done
staged=$(grep -c 'staging for app ' "$dir/daemon.out")
say "staged $staged times for the one that was expected"
[ "$staged" -ge 3 ] || fail "nothing was staged for programs that rest"
expect_empty
stop_daemon

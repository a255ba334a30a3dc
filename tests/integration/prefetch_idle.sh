#!/bin/sh
# Programs that rest between their requests: while one computes and nobody waits, the memory of the one that is
# expected next is brought up from paged memory, so that its request finds it near.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
start_daemon --pinned 288M --paged 512M --quantum 10s
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs 3 --iterations 6 --pause 1500 --seconds 15 --seed "$i"
    sleep 0.35
done

# So many bytes came up, and nobody was loaded or made to yield in between.
is_staged() {
    ! has_ended app1 || fail "nothing was staged"
    take_status
    before=$(json_after moved paged_to_pinned_bytes "$dir/status.json") switches=$(gpu switches)
    ! grep -q '"state":"loading"' "$dir/status.json" || return 1
    sleep 0.2
    take_status
    [ "$(gpu switches)" = "$switches" ] && ! grep -q '"state":"loading"' "$dir/status.json" &&
        [ "$(json_after moved paged_to_pinned_bytes "$dir/status.json")" -gt "$before" ]
}
within 60 is_staged || fail "nothing was staged"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

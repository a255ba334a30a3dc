#!/bin/sh
# A part of the disk cannot be read: programs with data there wait, the log and the status say so, and the others run
# to their end. Nothing was lost: when it can be read again, those that waited run to their end as well.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"
export GM_FAULTY_READ="$dir/bad" GM_FAULTY_BYTES=$((64 << 20))
start_daemon_on_faulty_disk

for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 10 --seconds 3 --seed "$i"
done
within "$patience" uses_disk $GM_FAULTY_BYTES || fail "the disk was not used enough"
touch "$dir/bad"

within "$patience" is_told_of_disk || fail "status does not say that a lower tier fails"
grep -q 'Input/output error' "$dir/daemon.out" || fail "the log does not say that the disk cannot be read"

# At most 64 of 384 MiB cannot be read: not everybody's.
left() {
    for i in 1 2 3 4; do has_ended "app$i" || echo "app$i"; done
}
some_ended() {
    [ "$(left | wc -l)" -lt 4 ]
}
only_those_told_of() {
    is_up || return 1
    for left_name in $(left); do
        app_has "$(pid_of "$left_name")" 'alowertierfails' || has_ended "$left_name" || return 1
    done
}
within "$patience" some_ended || fail "nobody runs to the end"
within "$patience" only_those_told_of || fail "left: $(left), not all of them with a reason"
check_daemon
say "ended beside the bad spot: $((4 - $(left | wc -l))) of 4"
rm "$dir/bad"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
stop_daemon

#!/bin/sh
# What mux-ctl tells about the tiers below pinned memory: bytes in them, memory that they hold, bytes moved there
# and back; as a table of at most 100 columns, the programs aside, and as JSON. Paged memory goes back to the system when nobody is left.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

moved() {
    json_after moved "$1" "$dir/status.json"
}

mkdir "$dir/disk"
start_daemon --pinned 288M --paged 64M --disk "$dir/disk:512M"
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 6 --seconds 4 --seed "$i"
done
both_are_used() {
    is_up && [ "$(gpu_tier paged_used_bytes)" -gt 0 ] && [ "$(gpu_tier disk_used_bytes)" -gt 0 ]
}
within "$patience" both_are_used || fail "paged memory and disk were not both used"
for _ in 1 2 3 4 5; do
    sleep 0.2
    "$ctl" status > "$dir/table.out" || fail "status failed"
    # Programs have a reason behind, and a switch on a busy machine has many parts.
    awk '/^APP/ { exit } length > 100 && !/^ *[a-z]* [0-9.]*, / { print; exit }' "$dir/table.out" > "$dir/wide.out"
    [ ! -s "$dir/wide.out" ] || fail "a line of the table is wider than 100 columns: $(cat "$dir/wide.out")"
    take_status
    [ "$(gpu_tier paged_bytes)" -ge "$(gpu_tier paged_used_bytes)" ] || fail "paged memory holds less than is in it"
done
grep -q '^          paged .* of 64 MiB (.* held), .* out to it, .* back$' "$dir/table.out" || fail "no line about paged memory"
grep -q '^          disk .* of 512 MiB, .* out to it, .* back$' "$dir/table.out" || fail "no line about the disk"
grep -q '^  last    to app .* GB/s$' "$dir/table.out" || fail "no rate of the last switch"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
for key in pinned_to_paged paged_to_pinned pinned_to_disk disk_to_pinned; do
    [ "$(moved "${key}_bytes")" -gt 0 ] || fail "nothing was moved: $key"
done
# what switches moved below is part of that
of_switches() {
    grep -o "\"$1\":[ ]*[0-9]*" "$dir/status.json" | awk -F: '{ sum += $2 } END { printf "%.0f", sum }'
}
for way in lowered raised; do
    [ "$(of_switches "bytes_$way")" -gt 0 ] || fail "no switch says what was $way"
done
[ "$(of_switches bytes_lowered)" -le $(($(moved pinned_to_paged_bytes) + $(moved pinned_to_disk_bytes))) ] ||
    fail "switches say that more was lowered than was"
[ "$(of_switches bytes_raised)" -le $(($(moved paged_to_pinned_bytes) + $(moved disk_to_pinned_bytes))) ] ||
    fail "switches say that more was raised than was"
# what came back was there before
[ "$(moved paged_to_pinned_bytes)" -le "$(moved pinned_to_paged_bytes)" ] || fail "more came back from paged memory than went there"
[ "$(moved disk_to_pinned_bytes)" -le "$(moved pinned_to_disk_bytes)" ] || fail "more came back from disk than went there"
is_given_back() {
    is_up && [ "$(gpu_tier paged_bytes)" = 0 ]
}
within "$patience" is_given_back || fail "nobody is left and paged memory holds $(gpu_tier paged_bytes) bytes"
stop_daemon
say "paged: $(moved pinned_to_paged_bytes) bytes out, $(moved paged_to_pinned_bytes) back;" \
    "disk: $(moved pinned_to_disk_bytes) out, $(moved disk_to_pinned_bytes) back"

#!/bin/sh
# All tiers, one below the other: every byte comes back right, the caps hold, nothing is left behind, and mux-ctl tells of it.
. "$(dirname "$0")/lib.sh"
need_size
mkdir "$dir/disk"

at_most() { # NAME BYTES CAP
    [ "$2" -le "$3" ] || fail "$1 holds $2 bytes, its cap is $3"
}
caps_hold() {
    take_status
    for tier in pinned paged disk; do
        at_most $tier "$(gpu_tier ${tier}_used_bytes)" "$(gpu_tier ${tier}_cap_bytes)"
    done
    at_most "the GPU" "$(gpu used_bytes)" "$(gpu budget_bytes)"
}

# Every tier is full to the last byte, but for the streaming window: 80 MiB of budget, 32 of pinned memory beside its window of 224, and
# the rest below. Four programs of 48 MiB, in pieces of 48, 24, 16 and 12, need all of it. Switches go on, and none comes to a stop.
full() {
    part "full: $*"
    start_daemon --gpu-budget 80M --pinned 256M "$@"
    for i in 1 2 3 4; do
        app "app$i" linked --bytes 48M --allocs "$i" --iterations 2 --seed "$i" --until "$dir/enough"
    done
    is_full() {
        is_up && [ "$(gpu committed_bytes)" = $((192 << 20)) ]
    }
    within "$patience" is_full || fail "not all of it was allocated"
    app late linked --bytes 2M --allocs 1 --iterations 1 --seed 9
    await late
    [ "$code" != 0 ] || fail "late was given memory that there is not"
    unused=$(for tier; do case $tier in --*) echo "${tier#--}" ;; esac; done)
    has_turned() {
        caps_hold
        unused=$(for tier in $unused; do [ "$(gpu_tier ${tier}_used_bytes)" -gt 0 ] || echo $tier; done)
        [ -z "$unused" ] && [ "$(gpu switches)" -ge 8 ] # two turns of each
    }
    within "$patience" has_turned || fail "never used: $unused; $(gpu switches) switches"
    touch "$dir/enough"
    for i in 1 2 3 4; do expect_pass "app$i"; done
    # What a program that gets no processor for a second has stays where it is.
    grep -q 'does not answer' "$dir/daemon.out" || ! grep -q 'cannot be brought in' "$dir/daemon.out" ||
        fail "a switch came to a stop"
    expect_switches 8
    expect_empty
    [ "$(gpu_tier paged_used_bytes)" = 0 ] && [ "$(gpu_tier disk_used_bytes)" = 0 ] || fail "bytes are left in paged memory or on disk"
    stop_daemon
    [ -z "$(ls -A "$dir/disk")" ] || fail "a file is left in the disk tier's folder"
}
full --paged 80M
full --disk "$dir/disk:80M"
full --paged 32M --disk "$dir/disk:48M"

# What mux-ctl tells about the tiers below pinned memory: bytes in them, memory that they hold, bytes moved there and back; as a table
# of at most 100 columns, the programs aside, and as JSON. Paged memory goes back to the system when nobody is left.
part told
moved() {
    json_after moved "$1" "$dir/status.json"
}

start_daemon --pinned 288M --paged 64M --disk "$dir/disk:512M"
for i in 1 2 3 4; do
    app "app$i" linked --bytes 96M --allocs "$i" --iterations 2 --seed "$i" --until "$dir/enough"
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
all_ways() {
    is_up || return 1
    for key in pinned_to_paged paged_to_pinned pinned_to_disk disk_to_pinned; do
        [ "$(moved "${key}_bytes")" -gt 0 ] || return 1
    done
}
within "$patience" all_ways || fail "nothing was moved: $key"
touch "$dir/enough"
for i in 1 2 3 4; do expect_pass "app$i"; done
expect_empty
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

#!/bin/sh
# All four tiers at once: what GPU and pinned memory cannot hold goes to paged memory, what that cannot to disk;
# every byte comes back right, the caps hold, and nothing is left behind.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

at_most() { # NAME BYTES CAP
    [ "$2" -le "$3" ] || fail "$1 holds $2 bytes, its cap is $3"
}

# round NAME OPTION...: four apps of 48 MiB, which need 192, on a budget of 80; 32 are pinned, beside a window of 224.
round() {
    round_name=$1
    shift
    start_daemon --gpu-budget 80M --pinned 256M "$@"
    for i in 1 2 3 4; do
        app "app$i" linked --bytes 48M --allocs "$i" --iterations 4 --seconds 1 --seed "$i"
    done
    most_paged=0
    most_disk=0
    until has_ended app1 && has_ended app2 && has_ended app3 && has_ended app4; do
        sleep 0.3
        take_status
        paged=$(gpu_tier paged_used_bytes)
        disk=$(gpu_tier disk_used_bytes)
        at_most "$round_name: pinned memory" "$(gpu_tier pinned_used_bytes)" "$(gpu_tier pinned_cap_bytes)"
        at_most "$round_name: paged memory" "$paged" "$(gpu_tier paged_cap_bytes)"
        at_most "$round_name: the disk" "$disk" "$(gpu_tier disk_cap_bytes)"
        at_most "$round_name: the GPU" "$(gpu used_bytes)" "$(gpu budget_bytes)"
        [ "$paged" -le "$most_paged" ] || most_paged=$paged
        [ "$disk" -le "$most_disk" ] || most_disk=$disk
    done
    for i in 1 2 3 4; do expect_pass "app$i"; done
    expect_switches 4
    expect_empty
    take_status
    [ "$(gpu_tier paged_used_bytes)" = 0 ] && [ "$(gpu_tier disk_used_bytes)" = 0 ] ||
        fail "$round_name: bytes are left in paged memory or on disk"
    stop_daemon
    say "$round_name: at most $most_paged bytes paged, $most_disk on disk"
}


round paged --paged 256M
[ "$most_paged" -gt 0 ] || fail "paged memory was never used"
mkdir "$dir/disk"
round disk --disk "$dir/disk:256M"
[ "$most_disk" -gt 0 ] || fail "the disk was never used"
round all --paged 32M --disk "$dir/disk:256M"
[ "$most_paged" -gt 0 ] && [ "$most_disk" -gt 0 ] || fail "paged memory and disk were not both used"
[ -z "$(ls -A "$dir/disk")" ] || fail "a file is left in the disk tier's folder"

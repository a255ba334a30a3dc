#!/bin/sh
# A disk tier larger than what is free: the daemon starts, and promises what is free, less 5 %, as that is now. Who was
# promised more waits with a reason when others fill the disk, and goes on when there is room; nobody loses a byte.
. "$(dirname "$0")/lib.sh"
[ "${GM_LINKED:-}" != 1 ] || skip "a sanitized daemon cannot have a library preloaded before its run-time"
[ "$shrink" = 1 ] || skip "what fits and what does not would be otherwise with smaller programs"

# free_is MIB: others leave so much.
free_is() {
    echo "$1" > "$dir/free.new"
    mv "$dir/free.new" "$dir/free"
}
# promises TEST MIB: what it promises of the disk.
promises() {
    is_up && [ "$(gpu_tier disk_cap_bytes)" "$1" $(($2 << 20)) ]
}

mkdir "$dir/disk"
free_is 400
export GM_FAULTY_FREE="$dir/free"
spawn daemon env LD_PRELOAD="$BUILD/tests/programs/libgm_faulty_disk.so" "$BUILD/daemon/gpumuxd" --socket "$GPUMUX_SOCKET" \
    --gpu-budget 96M --pinned 288M --disk "$dir/disk:2G" --slice 1s --idle 50ms
within "$patience" daemon_is_up_or_dead || fail "the daemon does not answer"
! has_ended daemon || fail "the daemon did not start: $(cat "$dir/daemon.out")"
grep -q "$dir/disk: 2 GiB asked for, 400 MiB free there now" "$dir/daemon.out" || fail "it does not say both: $(cat "$dir/daemon.out")"
within "$patience" promises -eq 352 || fail "it promises $(gpu_tier disk_cap_bytes) bytes" # 380, in whole slabs

# All of them need 480 MiB. There are 96 on the GPU, 288 of pinned memory, and what the disk got before it was full.
apps="one two three four five"
for name in $apps; do
    app "$name" linked --bytes 96M --allocs 1 --iterations 1 --seed ${#name} --until "$dir/enough"
done
is_promised() {
    is_up && [ "$(gpu committed_bytes)" = $((480 << 20)) ]
}
within "$patience" is_promised || fail "they were not promised all"
free_is 0
within "$patience" promises -lt 96 || fail "it still promises $(gpu_tier disk_cap_bytes) bytes"
is_told() {
    is_up && grep -q 'the disk has less room than --disk says' "$dir/status.json"
}
within "$patience" is_told || fail "status does not say that the disk lacks room"
touch "$dir/enough"
free_is 2000
# shellcheck disable=SC2086 # names
expect_pass $apps
expect_empty
stop_daemon

#!/bin/sh
# The driver refuses a large program one mapping, of what is in host memory for it: that is an ordinary out-of-memory,
# after which the program goes on, can have as much as ever, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "which mapping is one in host memory would be otherwise with smaller programs"

# had: what could be had, a line a round.
had() {
    grep -o 'after [0-9]*' "$dir/big.out" | cut -d' ' -f2
}

# 300 MiB are 11 mappings, so one of the second 300 fails: the first, when most of the rest is not made yet, or a later.
for call in cuMemMap:12 cuMemMap:15 cuMemMap:18 cuMemMap:22; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon --oversize host --pinned 512M
    export SIMCUDA_FAIL="$call"
    app big linked --mode oom --bytes 300M --allocs 1 --iterations 3 --pause 200 --seed 1
    unset SIMCUDA_FAIL
    await big
    [ "$code,${line%% *}" = 0,PASS ] || fail "$call: code $code: $line"
    expect_pass big
    [ "$(had | head -n 1)" = $((300 << 20)) ] || fail "$call: nothing failed"
    had | grep -qx $((600 << 20)) || fail "$call: it never had more again"
    expect_empty
    [ "$(gpu_tier pinned_cap_bytes)" = $((512 << 20)) ] || fail "$call: $(gpu_tier pinned_cap_bytes) bytes left to lend"
    ! grep -q 'refused: ' "$dir/daemon.out" || fail "$call: the session was ended"
    stop_daemon
done

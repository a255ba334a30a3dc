#!/bin/sh
# The driver refuses a large program one mapping, of new memory: that is an ordinary out-of-memory, after which the
# program goes on, can have as much as ever, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
[ "$shrink" = 1 ] || skip "which mapping fails would be another one with smaller programs"

# had: what could be had, a line a round.
had() {
    grep -o 'after [0-9]*' "$dir/big.out" | cut -d' ' -f2
}

# 300 MiB are 11 mappings. Of the second 300 the first fails, when most of the rest is not made yet, or a later one. Or
# a mapping of the first 300 fails in their new place, on the host, where they make way: that is tried again.
for call in cuMemMap:12 cuMemMap:15 cuMemMap:18 cuMemMap:22; do
    rm -f "$GPUMUX_SOCKET"
    start_daemon --oversize host --pinned 512M
    export SIMCUDA_FAIL="$call"
    app big linked --mode oom --bytes 300M --allocs 1 --iterations 3 --pause 200 --seed 1
    unset SIMCUDA_FAIL
    await big
    [ "$code,${line%% *}" = 0,PASS ] || fail "$call: code $code: $line"
    expect_pass big
    grep -q 'could not map' "$dir/daemon.out" || fail "$call: nothing failed"
    [ "$call" = cuMemMap:22 ] || [ "$(had | head -n 1)" = $((300 << 20)) ] || fail "$call: it got all"
    had | grep -qx $((600 << 20)) || fail "$call: it never had more again"
    expect_empty
    [ "$(gpu_tier pinned_cap_bytes)" = $((512 << 20)) ] || fail "$call: $(gpu_tier pinned_cap_bytes) bytes left to lend"
    ! grep -q 'refused: ' "$dir/daemon.out" || fail "$call: the session was ended"
    stop_daemon
done

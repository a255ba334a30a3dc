#!/bin/sh
# Invalid and double frees, copies out of range, wrong handles, calls at the wrong time, and the forms of older CUDA
# versions: a program gets from gpumux what it gets from the driver, call by call.
. "$(dirname "$0")/lib.sh"
program=$BUILD/tests/programs/gm_badcalls
gpu=$(cd "$(dirname "$0")/.." && pwd)/simcuda/badcalls.txt
spawn native "$program"
await native
[ "$code" = 0 ] || fail "without gpumux: $line"
grep -v '^#' "$gpu" > "$dir/gpu.txt" || fail "no answers of a GPU"
diff "$dir/gpu.txt" "$dir/native.out" > "$dir/differences.out" || fail "simcuda does not answer as a GPU did"
start_daemon
if [ "${GM_LINKED:-}" = 1 ]; then
    spawn managed "${program}_linked"
else
    spawn managed env LD_PRELOAD="$shim" "$program"
fi
await managed
[ "$code" = 0 ] || fail "with gpumux: code $code, $line"
grep -q 'gm_badcalls' "$dir/daemon.out" || fail "it was not managed"
diff "$dir/native.out" "$dir/managed.out" > "$dir/differences.out" ||
    fail "$(grep -c '^>' "$dir/differences.out") answers differ"
say "$(grep -c ': ' "$dir/native.out") answers are those of the driver"
expect_empty
stop_daemon

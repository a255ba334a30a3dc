#!/bin/sh
# tests/gpu/crosscheck.py on simcuda, which has a CUPTI of its own: no call of the test programs goes past the shim, and
# calls that go past it on purpose are caught.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
[ -f "$BUILD/tests/gpu/crosscheck/libgm_inject.so" ] || skip "built without CUPTI's headers"
gpu=$(cd "$(dirname "$0")/../gpu" && pwd)
timeout -k 5 1000 python3 -B "$gpu/crosscheck.py" "$BUILD" --simcuda --seconds 900 > "$dir/crosscheck.out" 2>&1
code=$?
tail -n 14 "$dir/crosscheck.out"
[ "$code" = 0 ] || fail "it ended with $code"
grep -q '^ok self-test ' "$dir/crosscheck.out" || fail "it was not shown that it can fail"

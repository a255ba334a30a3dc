#!/bin/sh
# tests/gpu/soak.py on simcuda: random programs come and go on one budget, some killed or stopped; nothing hangs, every
# result is right, nothing is left of them, and the daemon does not grow. A program that does not end in time is found.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
soak=$(cd "$(dirname "$0")/../gpu" && pwd)/soak.py
timeout -k 5 900 python3 -B "$soak" "$BUILD" --simcuda --seconds 10 --seed 5 --json "$dir/soak.json" \
    > "$dir/soak.out" 2>&1
code=$?
tail -n 6 "$dir/soak.out"
[ "$code" = 0 ] || fail "it ended with $code"
python3 -B - "$dir/soak.json" << 'END' || fail "what it wrote is not as it should be"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
assert len(result["samples"]) == 3 and not result["failures"]
assert sum(counts["passed"] for counts in result["programs"].values()) >= 3
assert all(one["tiers"]["gpu_bytes"] == 0 and one["fds"] > 0 for one in result["samples"])
END
timeout -k 5 500 python3 -B "$soak" "$BUILD" --simcuda --seconds 4 --deadline 0 --no-python > "$dir/hang.out" 2>&1
[ "$?" = 1 ] && grep -q '^FAIL .* hangs: ' "$dir/hang.out" || fail "a program that does not end was not found"

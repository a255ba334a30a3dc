#!/bin/sh
# tests/gpu's scripts on simcuda, which has all that they ask of a GPU.
. "$(dirname "$0")/lib.sh"

# tests/gpu/matrix.py on simcuda: the case that needs no framework is equal to native while it is switched.
part matrix
command -v python3 > /dev/null 2>&1 || skip "no python3"
[ "${GM_LINKED:-}" != 1 ] || skip "python cannot have a sanitized library preloaded"
gpu=$(cd "$(dirname "$0")/../gpu" && pwd)
timeout -k 5 500 python3 -B "$gpu/matrix.py" "$BUILD" --simcuda --seconds 400 --native-seconds 0 \
    --json "$dir/matrix.json" > "$dir/matrix.out" 2>&1
code=$?
tail -n 4 "$dir/matrix.out"
[ "$code" = 0 ] || fail "it ended with $code"
# What cannot have been switched has shown nothing: that is a failure, and the runner says so.
timeout -k 5 500 python3 -B - "$gpu" << 'END' || fail "a result that is wrong is not found"
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/python"]
import matrix
from harness import Failure

def case(native, spread=0.0, rounds=3):
    one = matrix.Case("x", "x.py")
    one.native = {"sums": native, "values": [1.0, 2.0], "spread": spread, "rounds": rounds}
    one.under = {"switched": [3, 3]}
    return one

def result(sums, values=(1.0, 2.0)):
    return {"sums": sums, "values": list(values)}

def fails(*arguments):
    try:
        matrix.Matrix.compare(*arguments)
    except Failure:
        return True
    return False

moved = {"switches": 6}
assert matrix.Matrix.compare(case([5]), [result([5]), result([5])], moved) == "equal"
assert fails(case([5]), [result([5]), result([6])], moved)
assert fails(case([5]), [result([5]), result([5, 6])], moved)
assert fails(case([5]), [result([5]), result([5])], {"switches": 0})
idle = case([5])
idle.under["switched"] = [3, 0]
assert fails(idle, [result([5]), result([5])], moved)
assert "own difference" in matrix.Matrix.compare(case([5, 6], .01), [result([7], (1.0, 2.02)), result([5])], moved)
assert fails(case([5, 6], .01), [result([7], (1.0, 2.2)), result([5])], moved)
END

# tests/gpu/soak.py on simcuda: random programs come and go on one budget, some killed or stopped; nothing hangs, every result is
# right, nothing is left of them, and the daemon does not grow. A program that does not end in time is found.
part soak
command -v python3 > /dev/null 2>&1 || skip "no python3"
soak=$gpu/soak.py
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

# tests/gpu/subsets.py on simcuda: what programs use at random is right, and in the end on the GPU.
part subsets
timeout -k 5 500 python3 -B "$gpu/subsets.py" "$BUILD" --simcuda --bytes 96M --piece 4M --touch 16M --budget 144M --phase 2 --phases 2 \
    --out "$dir" > "$dir/subsets.out" 2>&1
code=$?
tail -n 9 "$dir/subsets.out"
[ "$code" = 0 ] || fail "it ended with $code"
python3 -B - "$dir" << 'END' || fail "what it wrote is not as it should be"
import json, sys, xml.dom.minidom
with open(sys.argv[1] + "/subsets.json", encoding="utf-8") as file:
    result = json.load(file)
assert len(result["programs"]) == 2
for one in result["programs"]:
    assert [len(set(pieces)) for _, pieces in one["subsets"]] == [4, 4] and len(one["found"]) == 2, one["subsets"]
    assert len(one["samples"]) > 20 and all(used == 16 << 20 and needed >= 0 for _, used, _, needed, _, _ in one["samples"])
    xml.dom.minidom.parse(f"{sys.argv[1]}/{one['name']}.svg")
END

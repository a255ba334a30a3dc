#!/bin/sh
# tests/gpu/matrix.py on simcuda: the case that needs no framework is equal to native while it is switched.
. "$(dirname "$0")/lib.sh"
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

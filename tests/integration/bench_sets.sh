#!/bin/sh
# The benches of working sets over simcuda with small sizes: every cell runs, data is right, and what they write has the
# members that its reader needs. Speed is not looked at.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

# bench NAME ARGUMENT...: its result in $dir/NAME.json, its table in $dir/NAME.out.
bench() {
    bench_name=$1
    shift
    timeout 600 python3 -B "$benches/$bench_name.py" --build "$BUILD" --simcuda --link-bytes 32M --link-rounds 1 \
        --json "$dir/$bench_name.json" "$@" > "$dir/$bench_name.out" 2>&1 || {
        cat "$dir/$bench_name.out"
        fail "$bench_name"
    }
}

# How long hidden reads are slow.
python3 -B - "$benches" << 'END' || fail "what working.py makes of figures"
import sys
sys.path.insert(0, sys.argv[1])
import working

units = [(100 * i, 100 if i < 20 else 10, True) for i in range(1, 61)]
assert abs(working.until_found(units, 15) - 2) < .11, working.until_found(units, 15)
assert working.until_found(units, 5) is None
assert working.until_found([(10 * i, 10, True) for i in range(1, 10)], 15) == .01
END
bench working --pool 32M --piece 2M --touch 4M --hidden 4M --decoder 28M --budget 48M --beside-budget 36M \
    --quantum 100ms --warm 300ms --block 300ms --rounds 1 --found 500ms
python3 -B - "$dir/working.json" << 'END' || fail "the result of working"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
assert result["bench"] == "working" and result["is_verified"] is True and "outcome" not in result
fits = ["working-set", "committed"] if result["has_fit"] else [None]
cells = ["three", "beside", "three-one", "beside-one", "hidden", "blind"]
assert [(row["cell"], row["fit"]) for row in result["rows"]] == [(cell, fit) for cell in cells for fit in fits]
for row in result["rows"]:
    assert row["is_right"] and len(row["shares"]) == (2 if row["cell"].startswith("beside") else 3), row["cell"]
    assert all(rate > 0 for block in row["native"] for rate in block), row["cell"]
    assert row["bytes"] >= 0 and len(row["status"]["apps"]) == len(row["shares"]), row["cell"]
    assert ("hidden_ms" in row) == (row["cell"] in ("hidden", "blind")), row["cell"]
assert not result["left_out"] and len(result["goals"]) >= 9, result["goals"]
END
python3 -B "$benches/summary.py" --keep "$dir/working.json" > "$dir/summary.out" || fail "summary.py"
grep -q '^working .*three, .*of native' "$dir/summary.out" || fail "the summary says nothing of the first cell"
say "the cells of working sets"

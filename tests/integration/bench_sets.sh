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

units = [(100 * i, 100 if i < 20 else 10) for i in range(1, 61)]
assert abs(working.until_found(units, 15) - 2) < .11, working.until_found(units, 15)
assert working.until_found(units, 5) is None
assert working.until_found(units + [(6000 + 100 * i, 100) for i in range(1, 10)], 15) is None # it is slow again
assert working.until_found([(10 * i, 10) for i in range(1, 10)], 15) == .01
END
bench working --pool 32M --piece 2M --touch 4M --hidden 4M --decoder 28M --budget 48M --beside-budget 36M --hidden-budget 24M \
    --turn 100ms --warm 300ms --block 300ms --rounds 1 --found 500ms
python3 -B - "$dir/working.json" << 'END' || fail "the result of working"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
assert result["bench"] == "working" and result["is_verified"] is True and "outcome" not in result
cells = ["three", "beside", "three-one", "beside-one", "hidden", "blind"]
assert [row["cell"] for row in result["rows"]] == cells
for row in result["rows"]:
    assert row["is_right"] and len(row["shares"]) == (2 if row["cell"].startswith("beside") else 3), row["cell"]
    assert all(rate > 0 for block in row["native"] for rate in block), row["cell"]
    assert row["bytes"] >= 0 and len(row["status"]["apps"]) == len(row["shares"]), row["cell"]
    assert ("hidden_ms" in row) == (row["cell"] in ("hidden", "blind")), row["cell"]
assert not result["left_out"] and len(result["goals"]) >= 9, result["goals"]
END
# Those that run only when they are asked for.
python3 -B - "$benches" << 'END' || fail "what the cells of working.py make of figures"
import sys
sys.path.insert(0, sys.argv[1])
import programs, sides, working

row = {"native": [[100, 50]], "course": [[90, 20]] * 2 + [[95, 40], [95, 50]] + [[100, 50]] * 4}
assert working.until_settled(row, 4000) == 2, working.until_settled(row, 4000)
assert working.until_settled({**row, "course": row["course"][:5]}, 4000) is None
assert working.show_times([1, None, .5], 9000) == "1.0 s (median), not in 9 s (worst) of 3"
assert sides.course(0, [[(100, 1), (300, 1), (400, 1)]], 400, 2) == [[5], [10]]

class Program: # units of 10 ms, of which a turn of 20 ms is late by 5
    now = 1e6
    def units(self, ms):
        units = [(Program.now + 15, 15), (Program.now + 25, 10)]
        Program.now += 25
        return {"list": units}
programs.time.monotonic = lambda: Program.now / 1000
begun, lists = programs.work_in_turns([Program(), Program()], 50, 20)
assert lists[0] == lists[1] == [(1e6 + ended, ms) for ended, ms in ((15, 15), (25, 10), (40, 15), (50, 10))], lists
END
bench working --pool 32M --piece 2M --touch 4M --hidden 4M --budget 48M --hidden-budget 24M --framework-budget 48M --turn 100ms \
    --warm 300ms --block 300ms --rounds 1 --found 500ms --times 2 --move 600ms --moves 2 \
    --cells round-one,end-one,middle-one,stripes-one,moving-one,latency-one,hidden,jax,torch
python3 -B - "$dir/working.json" << 'END' || fail "the result of the other cells of working"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    rows = json.load(file)["rows"]
assert [row["cell"] for row in rows] == [
    "round-one", "end-one", "middle-one", "stripes-one", "moving-one", "latency-one", "hidden",
    "hidden", "jax", "torch"]
for row in rows:
    assert row["is_right"] and len(row["shares"]) == (2 if row["cell"] in ("jax", "torch") else 3), row["cell"]
    assert len(row["course"]) == 4 and ("back_s" in row) == (row["cell"] == "moving-one"), row["cell"]
assert len(rows[4]["back_s"]) == 6 and min(map(len, rows[5]["request_ms"].values())) > 0 and rows[6]["native"] == rows[7]["native"]
END

# What the ideal is, where arithmetic tells: three programs of 8 GiB that hand the GPU to each other, at 50 GB/s.
python3 -B - "$benches" << 'END' || fail "the ideal"
import sys
sys.path.insert(0, sys.argv[1])
import ideal, sides

assert sides.trace_of([[(2, 1), (4, 1), (11, 1)], [(3, 1), (7, 1)]], [6, 20]) == [
    [0, 2], [1, 1], [1, 1], [0, 1]]

GIB = 2**30
link = {"h2d": 50, "d2h": 50, "both": 80}
def found(budget, turn_ms, dirty=0, clean=8 * GIB, pass_ms=0, apps=3):
    return ideal.in_turns([ideal.App(clean, dirty, pass_ms)] * apps, turn_ms, int(budget * GIB), link)
def near(one, other):
    assert abs(one - other) < .02 * other, (one, other)
whole_ms = 8 * GIB / 50e6
for turn_ms in (100, 1000): # all of it crosses between two turns
    near(found(8, turn_ms)["share"], turn_ms / (turn_ms + whole_ms))
near(found(8, 100, clean=0, dirty=8 * GIB)["share"], 100 / (100 + 8 * GIB / 40e6)) # and as much goes out
near(found(8, 100, pass_ms=10)["share"], 100 / (100 + whole_ms - 10))
near(found(12, 1000)["share"], 1000 / (1000 + whole_ms / 2)) # half of the next is there
near(found(16, 200)["share"], 1)                             # all of the next
near(found(16, 100)["share"], 100 / (100 + (whole_ms - 100) / 2)) # the link is too slow for that
near(found(16, 1000)["bytes_in"] / GIB, 36 * 8)
assert found(16, 1000)["bytes_out"] == 0 and found(7, 100) is None
apps, turns = [ideal.App(8 * GIB, 0, 0)] * 3, [(0, 100), (1, 100), (0, 100), (0, 100), (1, 50), (2, 0)] * 4
one = ideal.simulate(apps, turns, 16 * GIB, link, counted=(6, 18)) # the third comes twice, and each time another goes
assert one["bytes_in"] / GIB == 32 and one["work_ms"] == 900, one
assert found(24, 100)["bytes_in"] == 0 and found(24, 100)["share"] == 1
END
bench multi --programs app --piece 4M --decoder 16M --cnn 16M --kernel 16M --pair-budget 32M --warm 100ms --block 200ms \
    --rounds 1 --turns 100ms \
    --cells decoders-150-100ms,more-300-100ms,micro-100-100ms,mixed-200-100ms,pairs-flow-150-100ms-cap
cp "$dir/multi.json" "$dir/before.json"
bench multi --programs app --piece 4M --kernel 16M --warm 100ms --block 200ms --rounds 1 --turns 100ms --sets micro \
    --cells micro-100-100ms,micro-150-100ms --known "$dir/before.json"
# A cell that fails, as the device is too small for its budget, costs the others nothing.
python3 -B "$benches/multi.py" --build "$BUILD" --simcuda --link-bytes 32M --link-rounds 1 --programs app --piece 4M \
    --kernel 16M --pair-budget 3G --warm 100ms --block 200ms --rounds 1 --turns 100ms --sets pairs,micro \
    --cells pairs-flow-75-100ms-cap,micro-100-100ms --json "$dir/failed.json" > "$dir/failed.out" 2>&1
[ $? = 1 ] || fail "multi with a cell that fails did not end with 1"
python3 -B - "$dir/failed.json" << 'END' || fail "the result of multi with a cell that fails"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
assert [row["cell"] for row in result["rows"] if "ideal" in row] == ["micro-100-100ms"], result["rows"]
assert [name for name, why in result["left_out"] if why.startswith("FAILED")] == ["pairs-flow-75-100ms-cap"]
END
python3 -B - "$dir/before.json" "$dir/multi.json" << 'END' || fail "the result of multi"
import json, sys
one, other = (json.load(open(name, encoding="utf-8")) for name in sys.argv[1:])
assert [row["cell"] for row in one["rows"]] == ["decoders-150-100ms", "more-300-100ms", "mixed-200-100ms", "micro-100-100ms", "pairs-flow-150-100ms-cap"]
assert [row["cell"] for row in other["rows"]] == ["micro-150-100ms"] and len(other["known"]) == 5
for row in one["rows"] + other["rows"]:
    assert row["is_right"] and row["share"] > 0 and 0 < row["ideal"]["share"] <= 1, row["cell"]
    assert row["over"] > 100 or row["bytes"] == 0, (row["cell"], row["bytes"]) # what is cold need not move
    assert (row["ideal"]["rate"] > 0) == (row["over"] > 100), row["cell"]
assert one["rows"][4]["footprints"][0][:2] == [0, 8 << 20], one["rows"][4]["footprints"] # of 16 MiB
assert len(one["rows"][1]["shares"]) == 6 and not one["left_out"], one["left_out"]
END

say "the cells of working sets"

# Three programs that together have twice the budget and need a quarter of it: they run together and nothing moves.
SIMCUDA_MEMORY=4G bench working --cells three --pool 256M --piece 32M --touch 32M --budget 384M --turn 200ms --warm 6s --block 1s --rounds 1
python3 -B - "$dir/working.json" << 'END' || fail "programs whose needs fit do not run together"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    (row,) = json.load(file)["rows"]
assert row["switches"] == 0 and row["bytes"] == 0, (row["switches"], row["bytes"] >> 20)
END
say "programs run together by what they need"

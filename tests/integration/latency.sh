#!/bin/sh
# bench/latency over simcuda with short windows: every row has figures or says why not, and what it makes of them is
# right. Speed is not looked at.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

python3 -B - "$benches" << 'END' || fail "what it makes of figures"
import sys
sys.path.insert(0, sys.argv[1])
import latency

def near(found, wanted):
    assert abs(found - wanted) < 1e-6, (found, wanted)

# Arrivals: the same for the same seed, at the right rate, and not all alike.
for pattern in ("constant", "poisson", "bursty"):
    of = latency.arrivals(100, pattern, 200, 7)
    assert of == latency.arrivals(100, pattern, 200, 7) != latency.arrivals(100, pattern, 200, 8), pattern
    assert of == sorted(of) and -1e6 * latency.LEAD_S <= of[0] and of[-1] < 200e6, pattern
    assert 18000 < len(of) < 22000, (pattern, len(of))
    assert any(at >= 0 for at in latency.arrivals(.5, pattern, .1, 7)), pattern
def crowded(pattern):
    """The share of arrivals with five more in the 20 ms behind."""
    of = latency.arrivals(100, pattern, 200, 7)
    return sum(later - at < 20e3 for at, later in zip(of, of[5:])) / len(of)
assert crowded("constant") == 0 and crowded("bursty") > 4 * crowded("poisson") > 0

# Units: those that the edges of the window cut count as far as they are inside.
near(latency.done_within([-500e3, 500e3, 900e3, 1300e3], 1), .5 + 1 + .25)
near(latency.done_within([-2e6, 3e6], 1), .2)
near(latency.done_within([-2e6, -1e6], 1), 0)

# Requests before the window do not count; a rate is of those that ended in it.
one = latency.latencies([(-10, 500), (0, 100), (10, 300), (999e3, 2000)], 1)
assert (one["count"], one["rate"], one["p50_us"], one["max_us"]) == (3, 3, 300, 2000), one
near(one["mean_us"], 800)

# Rows: against the window of the same round, and then the median.
def window(us, rate, best_effort):
    return {"latency": [{"count": 1, "mean_us": us, "p50_us": us, "p99_us": 2 * us, "max_us": 3 * us, "rate": rate}],
            "best_effort": best_effort, "hints": 0, "unanswered": 0}
rounds = [{"alone": window(us, 100, []), "native": window(2 * us, 100, [50]),
           "hint": window(us + add, 100, [50 - add / 4])}
          for us, add in ((1000, 10), (2000, 40), (1000, 20))]
row = latency.row_of("hint", rounds)
assert (row["mean_us"], row["p50_us"], row["p99_us"]) == (20, 20, 40), row
near(row["of_alone"], 1.02)
near(row["best_effort"], .9)
near(row["total"], .95)
assert latency.row_of("alone", rounds)["mean_us"] == 1000 and "total" not in latency.row_of("alone", rounds)
goals = [(goal["measured"], goal["is_met"]) for goal in latency.judge({"workload": "T", "rows": [row]})]
assert goals == [(20, True), (40, True), (row["best_effort"], False)], goals

# What a machine does not offer.
class Daemon:
    def __init__(self, *off):
        self.off = off
    def status(self):
        return {"apps": [{"features_off": ["fast-gate"]}, {"features_off": list(self.off)}, {}]}
def lacks(mode, *off):
    world = latency.World.__new__(latency.World)
    world.name, world.daemon = mode, Daemon(*off)
    return world.lacks()
assert lacks("timeslice") is lacks("hint", "timeslices") is lacks("hint", "parking") is lacks("off", "parking") is None
assert "timeslices" in lacks("timeslice", "timeslices")
assert "parking and timeslices" in lacks("hint", "parking", "timeslices")
END

run() {
    timeout 600 python3 -B "$benches/latency.py" --build "$BUILD" --simcuda --json "$dir/latency.json" "$@" \
        > "$dir/latency.out" 2>&1
    code=$?
}

run --workloads T,E --window 300ms --rounds 2
[ "$code" = 0 ] || fail "it ended with $code"
python3 -B - "$dir/latency.json" << 'END' || fail "the result is not as it should be"
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
assert result["unit_us"]["resnet50"] > 0
assert result["bench"] == "latency" and result["is_verified"] is True and "outcome" not in result
assert [one["workload"] for one in result["workloads"]] == ["T", "E"]
names = {"alone", "native", "gate", "timeslices", "park", "hint", "hint-1"}
for one in result["workloads"]:
    rows = {row["row"]: row for row in one["rows"]}
    assert {"alone", "native", "gate"} <= set(rows), rows
    assert set(rows) | set(one["not_offered"]) == names and not set(rows) & set(one["not_offered"]), one["not_offered"]
    assert all(one["not_offered"].values()) and len(one["rounds"]) == 2
    for done in one["rounds"]: # the same arrivals, and everybody took part
        counts = {row: [program["count"] for program in window["latency"]] for row, window in done.items()}
        assert len(counts["alone"]) == len(one["latency"]), counts
        assert all(of == counts["alone"] for of in counts.values()), counts
        for row, window in done.items():
            assert all(program["mean_us"] > 0 for program in window["latency"]), (row, window)
            assert len(window["best_effort"]) == (0 if row == "alone" else len(one["best_effort"])), (row, window)
            assert all(rate > 0 for rate in window["best_effort"]), (row, window)
            assert (window["hints"] > 0) == (row == "park" or row.startswith("hint-")), (row, window)
    assert rows["native"]["best_effort"] == rows["native"]["total"] == rows["alone"]["of_alone"] == 1
    assert rows["gate"]["best_effort"] > 0 and rows["gate"]["total"] > 0, rows["gate"]
END
say "$(grep '^ *gate' "$dir/latency.out" | head -n 1)"
python3 -B "$benches/summary.py" "$dir/latency.json" > "$dir/summary.out" || fail "summary.py"
grep -q '^ *gate  *mean .* total ' "$dir/summary.out" || fail "the summary has no row gate"

# With the models in PyTorch, where there is one, tiny and on the processor.
if python3 -c 'import torch' 2> /dev/null; then
    run --programs cpu --workloads T,Y,Z --rows native --rounds 1 --rate 5 --window 1s
    [ "$code" = 0 ] || fail "with models it ended with $code"
fi

run --workloads T,X
{ [ "$code" = 2 ] && grep -q 'X is none of T, A' "$dir/latency.out"; } ||
    fail "a workload that there is not: it ended with $code"

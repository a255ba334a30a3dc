#!/bin/sh
# The benches run over simcuda with small sizes: they end well, what they write is JSON with the members that its
# reader needs, and all data was verified. Speed is not looked at.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)
export SIMCUDA_WITHOUT=cuCheckpointProcessRestore # simcuda suspends nothing, so there is nothing to measure

# result NAME COMMAND...: run it with its result in $dir/NAME.json.
result() {
    result_name=$1
    shift
    measure "$@" || fail "$result_name ended with $code"
}

measure() {
    rm -f "$dir/$result_name.json"
    timeout 900 "$@" --json "$dir/$result_name.json" > "$dir/$result_name.out" 2>&1
    code=$?
    [ "$code" = 0 ] || return 1
    say "$result_name: $(sed -n 1p "$dir/$result_name.out")"
}

# script NAME ARGUMENT...
script() {
    try_script "$@" || fail "$result_name ended with $code"
}

try_script() {
    result_name=$1
    shift
    measure python3 -B "$benches/$result_name.py" --build "$BUILD" --link-bytes 32M --link-rounds 1 --gap 60ms "$@"
}

size() {
    shrunk "$1"
}

# What a result must be: python3 check.py FOLDER NAME...
cat > "$dir/check.py" << 'END'
import json, os, sys

def load(name):
    with open(os.path.join(sys.argv[1], name + ".json"), encoding="utf-8") as file:
        result = json.load(file)
    assert result.get("set", result["bench"]) == name and result["is_verified"] is True and "outcome" not in result, name
    assert result["machine"]["processors"] > 0 and result["command"], name
    assert result["machine"]["gpu"], name
    assert result["date"].endswith("Z") and "commit" in result, name
    return result

def verified(turns, what):
    assert turns, what
    for turn in turns:
        assert turn["mismatches"] == 0 and turn["passes"] >= 1 and turn["first_ms"] > 0, (what, turn)

def check_link():
    link = load("link")
    assert [piece["piece"] for piece in link["pieces"]] == [4 << 20, 8 << 20, 16 << 20]
    assert all(piece[way]["median"] > 0 for piece in link["pieces"] for way in ("h2d", "d2h", "both"))

def check_rows(name, rows):
    """A set of switch.py."""
    result = load(name)
    assert [row["row"] for row in result["rows"]] == rows and len(result["link"]) == 2 and result["table"], name
    for row in result["rows"]:
        verified(row["warm"], row["row"])
        verified(row["turns"], row["row"])
        assert row["a_turn"]["bytes_in"] > 0 and row["parts"]["total_ms"]["median"] > 0, row["row"]
        for turn in row["turns"]:
            parts = turn["parts"]
            assert turn["switches"] >= 1 and (not parts or parts["copy_ms"] <= parts["total_ms"]), turn
    return {row["row"]: row for row in result["rows"]}, result

def check_switch():
    rows, switch = check_rows("switch", ["rewrite", "read"])
    assert 2 <= len(rows["rewrite"]["turns"]) < 1000 and switch["seconds"] < 850 and len(switch["goals"]) == 5
    rewrite, read = (rows[name]["moved"] for name in ("rewrite", "read"))
    assert rewrite["bytes_out"] > 0 and rewrite["hash_ms"] > 0 and read["hash_ms"] > 0, rewrite
    assert read["bytes_out"] <= .05 * read["bytes_clean"], read
    assert switch["peer"]["is_available"] is False # it is taken away

def check_tiers():
    rows, _ = check_rows("tiers", ["all pinned", "1/3 pinned", "1/5 pinned", "disk"])
    used = {name: [row["tiers"].get(f"{tier}_used_bytes", 0) > 0 for tier in ("paged", "disk")] for name, row in rows.items()}
    assert used == {"all pinned": [False, False], "1/3 pinned": [True, False], "1/5 pinned": [True, False],
                    "disk": [False, True]}, used

def check_hash():
    hash = load("hash")
    assert [piece["piece"] for piece in hash["pieces"]] == [2 << 20, 8 << 20, 32 << 20]
    assert all(piece["kernel"]["median"] > 0 for piece in hash["pieces"])

def check_oversize():
    oversize = load("oversize")
    assert oversize["bytes_on_host"] > 0
    assert all(oversize["sweeps"][work]["rate"]["median"] > 0 for work in ("verify", "rewrite"))
    assert [what["kind"] for what in oversize["models"]] == ["decode", "train", "resident"]
    for what in oversize["models"]:
        assert what["app"]["count"] == 2 and what["of_native"] > 0, what
        assert all(what[rate]["min"] > 0 for rate in ("read", "write", "rewrite", "resident")), what
        is_larger = what["kind"] != "resident"
        assert (what["on_host"] > 0) == is_larger and (what["bound_ms"] > 0) == is_larger, what

def check_interactive():
    interactive = load("interactive")
    assert [one["interval_s"] for one in interactive["cases"]] == [.3, .6, 2]
    for one in interactive["cases"]:
        assert len(one["ms"]) == 4 and min(one["ms"]) > 0 and one["alone_ms"] > 0 and one["switch_ms"] > 0, one
        assert one["units"] > 0 or one["interval_s"] < 2, one
        assert one["known_ms"]["count"] == 2 and (one["switches"] > 0 or one["interval_s"] == 2), one
    assert interactive["goals"]

def check_starts():
    starts = load("starts")
    assert [(one["cell"], one["way"]) for one in starts["rows"]] == [
        (cell, way) for cell in ("alone", "together", "chain") for way in ("native", "own", "gpumux")]
    for one in starts["rows"]:
        for found in one["found"]:
            steps = [found[step + "_ms"] for step in ("main", "init", "context", "open", "memory", "kernel", "end")]
            assert steps[0] > 0 and steps == sorted(steps), one

def check_overhead():
    overhead = load("overhead")
    assert not overhead["absent"], overhead["absent"]
    assert [line["case"] for line in overhead["lines"]] == ["launch-1", "launch-8", "graph-20"], overhead["lines"]
    for line in overhead["lines"]:
        assert line["starts"] == 2 and line["rounds"] == 6 and line["noise"] >= 0, line
        assert line["least"] <= line["ratio"] <= line["most"] and line["native_ns"] > 0, line

def check_stopped():
    with open(os.path.join(sys.argv[1], "stopped.json"), encoding="utf-8") as file:
        stopped = json.load(file)
    assert stopped["is_verified"] is False and "stopped" in stopped["outcome"], stopped.get("outcome")

for name in sys.argv[2:]:
    globals()["check_" + name]()
END

# paced NAME: a bench whose times are as short as a machine with nothing else to do allows; NAME_at PACE runs it with
# times so many times as long. On a busy machine it may do less than can be told of, and then is given more.
paced() {
    for pace in 1 5 20; do
        if ! "$1_at" $pace; then
            grep -q 'more time' "$dir/$1.out" || break
        elif python3 -B "$dir/check.py" "$dir" "$1" > "$dir/check.out" 2>&1; then
            return
        fi
    done
    [ "$code" = 0 ] || fail "$1 ended with $code"
    fail "the result of $1 is not as it should be: $(tail -n 1 "$dir/check.out")"
}

result link "$BUILD/bench/link" --bytes 32M --rounds 2 --from 4M --to 16M
result copy "$BUILD/bench/copy" --bytes 32M --rounds 1 --workers 2
switch_at() {
    try_script switch --sizes "$(size 48M),$(size 64M)" --budget "$(size 80M)" --piece "$(size 24M)" --turns 500 --warm 1 \
        --seconds "$((5 * $1))" --peer checkpoint --peer-turns 1
}
script starts --size "$(size 64M)" --piece "$(size 16M)" --chain 2 --rounds 1
result hash "$BUILD/bench/hash" --bytes 128M --rounds 1
# With tiers below it, pinned memory of 224 MiB is what the daemon wants as a window, so this is the least.
script switch --set tiers --sizes 132M,132M,132M --budget 136M --piece 24M --turns 2 --warm 4 --work 10ms --disk "$dir"
mv "$dir/switch.json" "$dir/tiers.json"
paced switch
script oversize --size "$(size 96M)" --budget "$(size 64M)" --pinned 128M --sweeps 2 --layer 4M --decode 80M/64M \
    --train 80M/64M --resident 64M --workspace 4M --host 16M --warm 500ms --rounds 2 --repeats 1
# The scheduler's times are as short as these turns: a program that never rests is soon known as such.
interactive_at() {
    try_script interactive --programs app --piece "$(size 24M)" --option slice=150ms --requests 4 \
        --sizes "$(size 48M),$(size 64M)" --budget "$(size 80M)" --intervals 300ms,600ms --chat "$(size 24M),$(size 24M)"
}
paced interactive
script overhead --only launch-1,launch-8,graph-20 --turn 2ms --budget "$(size 512M)" --rounds 3 --starts 2
result marking python3 -B "$benches/overhead.py" --build "$BUILD" --marking --only launch-1,graph-20 --turn 2ms \
    --budget "$(size 512M)" --rounds 3 --starts 1
# Their models in PyTorch, where there is one, tiny and on the processor; where not, that is said.
if python3 -c 'import torch' 2> /dev/null; then
    result models python3 -B "$benches/interactive.py" --build "$BUILD" --programs cpu --link-bytes 32M \
        --link-rounds 1 --sizes 4M,4M --budget 6M --tokens 8 --intervals 300ms --requests 3
    [ "${GM_LINKED:-}" = 1 ] || # which cannot be preloaded
        result overhead-models python3 -B "$benches/overhead.py" --build "$BUILD" --programs cpu --turn 10ms \
            --only decode,load --model-bytes 64M --model-dir "$dir" --budget 512M --rounds 3 --starts 1
elif [ "${GM_LINKED:-}" != 1 ]; then
    python3 -B "$benches/interactive.py" --build "$BUILD" --programs torch --link-bytes 32M --link-rounds 1 \
        --sizes 4M,4M --budget 6M > "$dir/models.out" 2>&1
    code=$?
    { [ "$code" = 77 ] && grep -q 'not available: no PyTorch' "$dir/models.out"; } ||
        fail "without PyTorch a bench that needs it ended with $code"
fi

# What bench/oversize takes for a bound.
python3 -B - "$benches" << 'END' || fail "the bound of oversize"
import sys
sys.path.insert(0, sys.argv[1])
import oversize

token = [(i, True, False) for i in range(10)]
assert oversize.fixed_places(token, 7, 1, 1) == 3
step = oversize.uses_of_step(6)
assert [oversize.fixed_places(step, room, 1, 1) for room in (12, 9, 0)] == [0, 6, 36]
END

# One that is stopped, as by a time limit, says so in its result, and nothing of it is left. It has to have begun, for
# which a busy machine may need longer.
for limit in 6 30 150; do
    timeout -k 60 $limit python3 -B "$benches/switch.py" --build "$BUILD" --sizes "$(size 48M),$(size 64M)" \
        --budget "$(size 80M)" --piece "$(size 24M)" --turns 100000 --link-bytes 32M --link-rounds 1 \
        --json "$dir/stopped.json" > "$dir/stopped.out" 2>&1
    code=$?
    [ ! -f "$dir/stopped.json" ] || break
done
[ "$code" = 124 ] || fail "a bench without a limit ended with $code by itself"

python3 -B "$dir/check.py" "$dir" link switch hash oversize tiers interactive starts overhead stopped ||
    fail "a result is not as it should be"
for result_name in link copy switch hash oversize tiers interactive starts overhead stopped; do
    set -- "$@" "$dir/$result_name.json"
done
shift
python3 -B "$benches/summary.py" "$@" > "$dir/summary.out" || fail "summary.py"
grep -q '^row .*of link' "$dir/summary.out" && grep -q '^pieces: ' "$dir/summary.out" || fail "the summary lacks a table"

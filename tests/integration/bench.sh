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
    assert result["bench"] == name and result["is_verified"] is True and "outcome" not in result, name
    assert result["machine"]["processors"] > 0 and result["command"], name
    assert bool(result["machine"]["gpu"]) == (name != "disk"), name
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

def check_disk():
    disk = load("disk")
    assert [step["threads"] for step in disk["steps"]] == [2]
    assert all(disk["steps"][0][way]["median"] > 0 for way in ("write", "read", "both"))

def check_switch():
    switch = load("switch")
    verified(switch["turns"], "switch")
    assert 2 <= len(switch["turns"]) < 1000 and switch["seconds"] < 850 and len(switch["link"]) >= 2
    for turn in switch["turns"]:
        assert turn["switches"] >= 1 and turn["bytes_in"] > 0 and turn["ideal_ms"] > 0, turn
        assert turn["parts"]["bytes_in"] <= turn["bytes_in"] and turn["parts"]["total_ms"] > 0, turn
        assert turn["parts"]["copy_ms"] <= turn["parts"]["total_ms"], turn
    assert switch["peers"]["checkpoint"]["is_available"] is False # it is taken away
    assert switch["peers"]["restart"]["ratio"] > 0

def check_hash():
    hash = load("hash")
    assert [piece["piece"] for piece in hash["pieces"]] == [2 << 20, 8 << 20, 32 << 20]
    assert all(piece["kernel"]["median"] > 0 for piece in hash["pieces"])

def check_oversize():
    oversize = load("oversize")
    assert "OUT_OF_MEMORY" in oversize["refused"] and oversize["bytes_on_host"] > 0
    assert all(oversize["sweeps"][work]["rate"]["median"] > 0 for work in ("verify", "rewrite"))
    assert [what["kind"] for what in oversize["models"]] == ["decode", "train", "resident"]
    for what in oversize["models"]:
        assert what["app"]["count"] == 2 and what["of_native"] > 0, what
        assert all(what[rate]["min"] > 0 for rate in ("read", "write", "rewrite", "resident")), what
        is_larger = what["kind"] != "resident"
        assert (what["on_host"] > 0) == is_larger and (what["bound_ms"] > 0) == is_larger, what
        assert what["fixed_ms"] >= what["bound_ms"] - 1e-9, what

def check_tiers():
    tiers = load("tiers")
    assert [run["name"] for run in tiers["runs"]] == ["uncapped", "4/7 pinned", "disk"]
    for run in tiers["runs"]:
        verified(run["warm"], run["name"])
        verified(run["turns"], run["name"])
        assert run["most"]["pinned_used_bytes"] <= run["options"]["pinned"], run["name"]
        assert run["bound_ms"] > 0 and run["over_bound"] > 0 and run["slowest"] in ("link", "paged", "disk", "both"), run["name"]
        assert run["stall_ms"] >= run["first_ms"]["max"], run["name"]
    assert tiers["runs"][0]["needed_ms"]["paged"] == 0 and tiers["runs"][0]["of_uncapped"] == 1
    assert tiers["runs"][1]["most"]["paged_used_bytes"] > 0 and tiers["runs"][1]["needed_ms"]["paged"] > 0
    assert tiers["runs"][2]["most"]["disk_used_bytes"] > 0 and tiers["runs"][2]["most"]["paged_used_bytes"] == 0
    assert tiers["runs"][2]["needed_ms"]["disk"] > 0

def check_interactive():
    interactive = load("interactive")
    assert [setting["policy"] for setting in interactive["settings"]] == ["default", "rr-300ms", "rr-1s"]
    for setting in interactive["settings"]:
        assert setting["rate"] > 0 and len(setting["one_switch"]) >= 1 and len(setting["alone"]) >= 1, setting["policy"]
        assert all(turn["switches"] >= 1 and turn["bytes_in"] > 0 for turn in setting["one_switch"]), setting["policy"]
        assert [one["interval_s"] for one in setting["intervals"]] == [.3, .6], setting["policy"]
        for one in setting["intervals"]:
            assert one["response_ms"]["min"] > 0 and one["over_floor"] > 0, one
            assert one["since_due_ms"]["mean"] >= one["response_ms"]["mean"] - 1, one
    assert len(interactive["new"]["requests"]) == 3 and interactive["goals"]

def check_batch():
    batch = load("batch")
    assert [one["name"] for one in batch["members"]] == ["decoder", "training", "convolutions"]
    assert all(one["rate"] > 0 and one["alone"][0]["is_native"] for one in batch["members"])
    assert batch["together"]["slices"] and sum(batch["together"]["all"]["done"]) > 0
    assert 0 < batch["together"]["all"]["total"] < 2 and len(batch["goals"]) == 7
    assert abs(sum(batch["together"]["all"]["time_shares"]) - 3) < 1e-6, batch["together"]["all"]
    if batch["together"]["rounds"]:
        assert abs(sum(batch["together"]["rounds"]["time_shares"]) - 3) < 1e-6, batch["together"]["rounds"]

def check_pipeline():
    pipeline = load("pipeline")
    assert [one["pipeline"] for one in pipeline["pipelines"]] == ["expand", "workers"]
    for one in pipeline["pipelines"]:
        assert one["trips"] == 2 and one["bytes_in"] > 0 and one["link_ms"] > 0 and one["of_reference"] > 0, one
        assert all(stage["first_ms"]["min"] > 0 and stage["alone_ms"] > 0 for stage in one["stages"]), one

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

# What bench/batch takes for a turn and a whole round, with slices of 16 s and switches of 1 s.
python3 -B - "$benches" << 'END' || fail "whole rounds"
import sys
sys.path.insert(0, sys.argv[1])
import batch

def rounds(text, first=0):
    """Of "A16 B11- ...": a slice of A for 16 s, one of B that idleness ended. Where whole rounds are, and their count."""
    slices, at, left = [], 0, []
    for part in text.split():
        pid, took = ord(part[0]), float(part[1:].rstrip("-"))
        slices.append({"pid": pid, "at_s": at, "total_ms": 1000, "left": left})
        at += took + 1
        left = [{"pid": pid, "why": "idle" if part.endswith("-") else "turn"}]
    return batch.whole_rounds(slices, 16, first)

def expect(text, wanted, first=0):
    assert rounds(text, first) == wanted, (text, rounds(text, first))

expect("A16 B16 C16 A16", (0, 3, 1))
expect("A16 B16 C16 A16 B16 C16 A1", (0, 6, 2)) # the last is in progress
expect("A16 B16 C16 A16 B16 C4", (0, 3, 1))
expect("B16 C16 A11- B2", None) # interrupted, and not over
expect("A16 B16 C11- A16 B16 C5 A16", (2, 6, 1)) # from the first C: before it A and B have one more
expect("A16 B16 C11- A16 B16 C21 A16 B16 C16 A1", (0, 9, 3)) # the rest is added to the next turn
expect("A16 B16 C11- A16 C5 B16 C16 A1", (0, 7, 2)) # a turn and its rest are one
expect("A16 B16 C11- A16 C3- B16 C2 A16 B16 C16 A1", (2, 10, 2)) # three parts of one turn
expect("A11- B16 A21 B1", None) # the rest and the next turn: one turn more than B
expect("A11- B16 A21 B16 A1", (0, 4, 2))
expect("A15- B16 A16 B16 A1", (0, 4, 2)) # too little is left to go on
expect("A11- B16 A16 B16 A1", (0, 4, 2)) # what was left is lost: the shares of the time tell
expect("C11- A16 B16 C5 A16 B16 C16 A1", (4, 7, 1), first=1) # a rest that began before is no turn
END

result link "$BUILD/bench/link" --bytes 32M --rounds 2 --from 4M --to 16M
result copy "$BUILD/bench/copy" --bytes 32M --rounds 1 --workers 2
result disk "$BUILD/bench/disk" --dir "$dir" --bytes 64M --rounds 1 --threads 2
switch_at() {
    try_script switch --sizes "$(size 48M),$(size 64M)" --budget "$(size 80M)" --piece "$(size 24M)" --turns 500 --warm 1 \
        --seconds "$((5 * $1))" --peer checkpoint --peer restart --peer-turns 1
}
paced switch
result hash "$BUILD/bench/hash" --bytes 128M --rounds 1
script oversize --size "$(size 96M)" --budget "$(size 64M)" --pinned 128M --sweeps 2 --layer 4M --decode 80M/64M \
    --train 80M/64M --resident 64M --activation 2M --workspace 4M --host 16M --warm 500ms --rounds 2 --repeats 1
# With tiers below it, pinned memory of 224 MiB is what the daemon wants as a window, so this is the least.
script tiers --sizes 132M,132M,132M --budget 136M --piece 24M --fractions 4/7 --rounds 1 --warm 1 --work 10ms \
    --disk "$dir" --disk-pinned 224M --disk-paged 0 --disk-rounds 1 --copies "$dir/copy.json" --disk-bytes 64M
# The scheduler's times are as short as these turns: a program that never rests is soon known as such.
small="--programs app --piece $(size 24M) --option slice=150ms"
# shellcheck disable=SC2086 # a list of options
interactive_at() {
    try_script interactive $small --sizes "$(size 48M),$(size 64M)" --budget "$(size 80M)" --intervals 300ms,600ms \
        --windows "$((1500 * $1))ms,$((2 * $1))s" --round-robin 300ms,1s --warm "$1s" --level-within "$((4 * $1))s" \
        --floors 2 --rest 500ms --new 3
}
# shellcheck disable=SC2086
batch_at() {
    try_script batch $small --gap 150ms --sizes "$(size 64M),$(size 64M),$(size 64M)" --budget "$(size 80M)" \
        --together "$((4 * $1))s" --more "$((6 * $1))s" --alone "$((500 * $1))ms"
}
paced interactive
paced batch
# shellcheck disable=SC2086
script pipeline $small --sizes "$(size 64M),$(size 64M),$(size 64M)" --budget "$(size 80M)" --trips 2 --blocks 1
script overhead --only launch-1,launch-8,graph-20 --turn 2ms --budget "$(size 512M)" --rounds 3 --starts 2
result marking python3 -B "$benches/overhead.py" --build "$BUILD" --marking --only launch-1,graph-20 --turn 2ms \
    --budget "$(size 512M)" --rounds 3 --starts 1
# Their models in PyTorch, where there is one, tiny and on the processor; where not, that is said.
if python3 -c 'import torch' 2> /dev/null; then
    result models python3 -B "$benches/pipeline.py" --build "$BUILD" --programs cpu --link-bytes 32M \
        --link-rounds 1 --sizes 3M,3M,3M --budget 5M --tokens 8 --steps 8 --trips 1 --blocks 1
    result batch-models python3 -B "$benches/batch.py" --build "$BUILD" --programs cpu --link-bytes 32M \
        --link-rounds 1 --sizes 4M,4M,4M --budget 6M --together 2s --more 1s --settle 1s --alone 500ms
    [ "${GM_LINKED:-}" = 1 ] || # which cannot be preloaded
        result overhead-models python3 -B "$benches/overhead.py" --build "$BUILD" --device cpu --turn 10ms \
            --only decode,load,load-again --model-bytes 64M --model-dir "$dir" --budget 512M --rounds 3 --starts 1
elif [ "${GM_LINKED:-}" != 1 ]; then
    python3 -B "$benches/pipeline.py" --build "$BUILD" --programs torch --link-bytes 32M --link-rounds 1 \
        --sizes 3M,3M,3M --budget 5M > "$dir/models.out" 2>&1
    code=$?
    { [ "$code" = 77 ] && grep -q 'not available: no PyTorch' "$dir/models.out"; } ||
        fail "without PyTorch a bench that needs it ended with $code"
fi

# What bench/oversize takes for a bound: of all ways to keep intervals, the one that saves most.
python3 -B - "$benches" << 'END' || fail "Belady's bound"
import random
import sys
sys.path.insert(0, sys.argv[1])
import oversize

def most_saved(intervals, end, capacity):
    best = 0
    for chosen in range(1 << len(intervals)):
        kept = [one for i, one in enumerate(intervals) if chosen >> i & 1]
        if all(sum(start <= at < stop for start, stop, _ in kept) <= capacity for at in range(end)):
            best = max(best, sum(saves for _, _, saves in kept))
    return best

random.seed(1)
for _ in range(60):
    end = random.randint(2, 8)
    starts = [random.randrange(end) for _ in range(random.randint(1, 8))]
    intervals = [(start, random.randint(start + 1, end), random.randint(1, 9)) for start in starts]
    for capacity in (1, 2, 3):
        found = oversize.most_saved(intervals, end, capacity)
        assert abs(found - most_saved(intervals, end, capacity)) < 1e-6, (intervals, end, capacity, found)
token = [(i, True, False) for i in range(10)]
assert oversize.belady(token, 7, 1, 1) == 3 and oversize.fixed_places(token, 7, 1, 1) == 3
step = oversize.uses_of_step(6)
assert oversize.belady(step, 12, 1, 1) == 0 and oversize.belady(step, 0, 1, 1) == 36
assert 0 < oversize.belady(step, 9, 1, 1) <= oversize.fixed_places(step, 9, 1, 1) == 6
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

python3 -B "$dir/check.py" "$dir" link disk switch hash oversize tiers interactive batch pipeline overhead stopped ||
    fail "a result is not as it should be"
for result_name in link copy disk switch hash oversize tiers interactive batch pipeline overhead stopped; do
    set -- "$@" "$dir/$result_name.json"
done
shift
python3 -B "$benches/summary.py" "$@" || fail "summary.py"

#!/bin/sh
# bench/mixes over simcuda with small programs: every side runs on three GPUs and on one, all programs compute what they do alone,
# an earlier result is not measured again, and a wrong result is found. Speed is not looked at.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

# What an MPS leaves behind is ended, and nothing else.
cp "$(command -v sleep)" "$dir/nvidia-cuda-mps-server"
for who in mine other; do
    spawn "$who" env CUDA_MPS_PIPE_DIRECTORY="$dir/$who/pipe" "$dir/nvidia-cuda-mps-server" 600
done
within "$patience" grep -q nvidia "/proc/$(pid_of mine)/comm" && within "$patience" grep -q nvidia "/proc/$(pid_of other)/comm"
python3 -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import mixes; mixes.end_mps(sys.argv[2])' "$benches" "$dir/mine" || fail "end_mps"
await mine
[ "$code" = 137 ] && kill -0 "$(pid_of other)" || fail "end_mps ended the wrong one"

# Who goes where, natively.
python3 -B - "$benches" << 'END' || fail "the policies"
import sys
sys.path.insert(0, sys.argv[1])
import mixes

class Fake:
    def __init__(self, size, warps):
        self.size, self.warps, self.gpu = size, warps, None
    def go(self, gpu):
        self.gpu = gpu

def sent(pick, *programs):
    queue = mixes.Queue(pick, 2, 10)
    for program in programs:
        queue.arrive(program)
    queue.start()
    return queue, [program.gpu for program in programs]

programs = [Fake(6, 5), Fake(6, 9), Fake(4, 1), Fake(5, 1), Fake(4, 1), Fake(1, 0)]
queue, where = sent(mixes.pick_case, *programs)
assert where == [0, 1, 0, None, 1, None], where # the fourth fits nowhere, and the fifth passes
queue.end(programs[0])
assert [program.gpu for program in programs] == [0, 1, 0, 0, 1, 0]
queue, where = sent(mixes.pick_alone, *[Fake(1, 1) for _ in range(3)])
assert where == [0, 1, None], where
for mix, (count, ratio) in mixes.MIXES.items():
    kinds = [kind for kind, _ in mixes.programs_of(mix, 2**30)]
    large = sum(kind in dict(mixes.LARGE) for kind in kinds)
    assert len(kinds) == count and abs(large - count * ratio / (ratio + 1)) < 1, (mix, large)
END

# When all links are busy, and what moves then.
python3 -B - "$benches" << 'END' || fail "the windows of links"
import sys
sys.path.insert(0, sys.argv[1])
import links
copies = [(0, "in", 0, 10, 100), (0, "out", 5, 15, 100), (1, "in", 0, 20, 200), (1, "out", 0, 20, 400), (1, "out", 20, 20, 1)]
assert [round(x, 12) for x in links.busy_windows(copies, 4)] == [5e-9, 250], links.busy_windows(copies, 4)
assert links.busy_windows(copies, 5) == (0, 0)
times = {"up_to_s": [.001, .002], "counts": [98, 1, 1], "most_s": .007}
assert [links.quantile(times, part) for part in (.5, .98, .99, .999)] == [1, 1, 2, 7]
END

mixes() {
    timeout 300 python3 -B "$benches/mixes.py" --build "$BUILD" --simcuda --alone 30ms "$@" > "$dir/mixes.out" 2>&1
}
PATH=$BUILD/tests/simcuda:$PATH # a fake MPS
export PATH
SIMCUDA_DEVICES=3 mixes --card 32M --cells W1-sa,W1-case-mps,W1-fit-mps --json "$dir/one.json" || fail "mixes: $(cat "$dir/mixes.out")"
SIMCUDA_DEVICES=3 mixes --card 32M --cells W1-sa,W1-now --known "$dir/one.json" --json "$dir/two.json" ||
    fail "mixes with --known: $(cat "$dir/mixes.out")"
mixes --card 64M --gpus 1 --cells W1-fit --json "$dir/single.json" || fail "mixes on one GPU: $(cat "$dir/mixes.out")"
python3 -B - "$benches" "$dir" << 'END' || fail "the results of mixes: $(cat "$dir/mixes.out")"
import json, sys
sys.path.insert(0, sys.argv[1])
import mixes
import rig
one, two, single = (json.load(open(f"{sys.argv[2]}/{name}.json", encoding="utf-8")) for name in ("one", "two", "single"))
assert [row["cell"] for row in one["rows"]] == ["W1-sa", "W1-case-mps", "W1-fit-mps"]
assert [row["cell"] for row in two["rows"]] == ["W1-now"] and [row["cell"] for row in two["known"]] == ["W1-sa", "W1-case-mps", "W1-fit-mps"]
assert not one["left_out"] + two["left_out"] and two["n_gpus"] == 3 and len(two["profiles"]) == 7
assert [row["cell"] for row in single["rows"]] == ["W1-fit"] and single["n_gpus"] == 1
for row in one["rows"] + two["rows"] + single["rows"]:
    assert not row["failed"] and len(row["programs"]) == 16, row["cell"]
    assert 0 < row["mean_s"] < row["total_s"], row["cell"]
    used = {program["gpu"] for program in row["programs"]}
    assert used == ({0, 1, 2} if row in one["rows"] + two["rows"] else {0}), (row["cell"], used)
    if row["side"] == "sa": # one after the other on each GPU
        for gpu in used:
            its = [program for program in row["programs"] if program["gpu"] == gpu]
            assert all(later["began_s"] >= earlier["ended_s"] for earlier, later in zip(its, its[1:])), its

class Ended:
    name, failed, size, kind, began, ended_at = "x", None, 1, "x", 0, 1
    answer = {"sum": 1}
try:
    mixes.conclude_cell(type("", (), {"gpus": []}), {}, [Ended], 0, {("x", 1): {"sum": 2}})
    sys.exit("wrong data is not found")
except rig.Failure:
    pass
END

say "programs of a mix on three GPUs and on one"

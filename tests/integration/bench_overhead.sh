#!/bin/sh
# What bench/overhead is made of: its statistics on numbers that are made up, how it divides time and cores, and that
# a run does what it says: turns in a balanced order, threads on the cores that were chosen, all in the result.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

python3 -B - "$benches" << 'END' || fail "statistics, shares or cores"
import math, os, random, sys, time
sys.path.insert(0, sys.argv[1])
import cores, paired, shares

def check(is_right, *what):
    if not is_right:
        raise SystemExit(f"wrong: {what}")

# The orders: who follows whom, over the end of a cycle too, and who is in which place.
pairs = [one[at:at + 2] for one in paired.ORDERS for at in (0, 1)]
pairs += [(one[2], next_one[0]) for one, next_one in zip(paired.ORDERS, paired.ORDERS[1:] + paired.ORDERS[:1])]
check(all(pairs.count((a, b)) == (0 if a == b else 3) for a in range(3) for b in range(3)), pairs)
check(all([one[place] for one in paired.ORDERS].count(a) == 2 for a in range(3) for place in range(3)))

chance = random.Random(7)
def generation(rounds, cost, noise=.02, own=(1, 1)):
    """A host whose speed changes from round to round, processes with their own, and a third at so much cost."""
    found = []
    for _ in range(rounds):
        speed = math.exp(chance.gauss(0, .4))
        found.append(tuple(1e6 * speed * factor * math.exp(chance.gauss(0, noise)) for factor in (*own, cost)))
    return found

def has(found, name, value):
    return found[name]["low"] <= value <= found[name]["high"]

# A cost of 1 % is seen through a host that changes by tens of percent, and none where there is none.
for cost in (1.01, 1):
    found = paired.compare([generation(600, cost) for _ in range(3)])
    check(has(found, "ratio", cost) and has(found, "total", cost), cost, found)
    check(has(found, "native", 1) and has(found, "native_total", 1), found)
    check(all(one["high"] - one["low"] < .008 for name, one in found.items() if "total" not in name), found)
    check(has(found, "ratio", 1) == (cost == 1), found)

# What is different between processes is in the interval, and not taken for a cost that is certain.
found = paired.compare([generation(600, 1, own=own) for own in ((1.04, 1), (1, 1.04), (1, 1))])
check(found["native"]["low"] < .97 and found["native"]["high"] > 1.03, found)

# Stalls of one in a hundred rounds: no median shows them, the total does.
stalled = [generation(600, 1, noise=.005) for _ in range(3)]
stalled = [[(a, b, 60 * other if number % 100 == 50 else other) for number, (a, b, other) in enumerate(group)]
           for group in stalled]
found = paired.compare(stalled)
check(found["ratio"]["median"] < 1.002 and found["total"]["value"] > 1.3 and found["total"]["low"] > 1.1, found)

# Totals of something else, for times that are themselves medians.
plain = [[(1., 1., 1.)] * 100]
found = paired.compare(plain, [[(1., 1., 1.5)] * 100])
check(found["ratio"]["high"] == 1 and math.isclose(found["total"]["low"], 1.5), found)

# Few rounds are drawn by themselves, one generation of two rounds has an interval; many cost no more than a bound.
found = paired.compare([[(1, 1, 1), (1, 1, 2)]])
check(math.isclose(found["ratio"]["low"], 1) and math.isclose(found["ratio"]["high"], 2), found)
drawn = []
summarize, paired.summarize = paired.summarize, lambda blocks: drawn.append(len(blocks)) or summarize(blocks)
paired.compare([generation(4001, 1)])
check(len(drawn) == 1 + paired.DRAWS // 4001 and set(drawn) == {667}, len(drawn), set(drawn))
paired.summarize = summarize

# Time: the cost of what is to come comes off first, and what is left is divided by weight.
now = [100.]
plan = shares.Shares(lambda: now[0], ["start", "fast", "slow"] * 2, {"start": 10, "fast": 0, "slow": 5},
                     {"fast": 1, "slow": 3})
plan.began("start")
plan.took("start", 4)
now[0] -= 4
plan.began("fast")
check(plan.seconds("fast") == (96 - 4 - 5 - 5) / 8, plan.seconds("fast"))
now[0] -= plan.seconds("fast")
plan.began("slow")
now[0] -= 20 # instead of 5
plan.took("slow", 20)
spent = (now[0] - 4 - 20) * 3 / 7
check(plan.seconds("slow") == spent, plan.seconds("slow"))
now[0] -= spent
plan.drop("slow") # its package is missing
plan.began("start")
plan.began("fast")
check(math.isclose(plan.seconds("fast"), now[0]), plan.seconds("fast"))
now[0] = -1
check(plan.seconds("fast") == 0)
check(shares.Shares(lambda: math.inf, ["a"], {"a": 1}, {"a": 1}).seconds("a") == math.inf)
for seconds, cost, wanted in ((math.inf, 15, 3), (20, 15, 1), (60, 15, 2), (80, 15, 3), (90, 15, 3), (90, 2, 12),
                              (395, 38, 3), (10000, 15, 12)):
    check(shares.generations_for(seconds, cost) == wanted, seconds, cost, shares.generations_for(seconds, cost))

# Cores: not the home, another in each generation, as long as there are others; and given back.
some = cores.Cores()
before = os.sched_getaffinity(0)
with some.at_home():
    check(some.why_not or os.sched_getaffinity(0) == {some.all[0]})
check(os.sched_getaffinity(0) == before)
some.all, some.why_not = list(range(4, 20)), None
check([some.of(number, 3)[0] for number in range(3)] == [5, 10, 15])
check(all(sorted(some.of(number, 5)) == list(range(5, 20)) for number in range(5)))
some.all = [0, 1]
check([some.of(number, 3) for number in range(3)] == [[1]] * 3)
check(cores.Cores(is_wanted=False).of(0, 1) == [] and "no-pin" in cores.Cores(is_wanted=False).why_not)
END

# The program of calls: where its threads are.
calls=$BUILD/bench/bench_calls
for list in x 1, 1,,2 -- 99999999; do
    "$calls" --cores "$list" < /dev/null > "$dir/wrong.out" 2>&1
    code=$?
    [ "$code" = 2 ] || fail "--cores $list ended with $code"
done
python3 -B - "$calls" << 'END' || fail "threads on cores"
import os, subprocess, sys

allowed = sorted(os.sched_getaffinity(0))

def sets(pid):
    """By thread: where it may run."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            found[int(thread)] = os.sched_getaffinity(int(thread))
        except ProcessLookupError: # it ended
            pass
    return found

def is_seen(cores, request, wanted):
    """
    Are as many threads as the request asks for on those sets of cores at some moment, some on each? (A sanitizer's
    own thread may come with them, and is where it likes.) And the main thread on the first core?
    """
    options = ["--cores", ",".join(map(str, cores))] if cores else []
    wanted = {frozenset(one) for one in wanted}
    with subprocess.Popen([sys.argv[1], *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"ready\n"
        before, is_right = sets(one.pid), False
        assert before[one.pid] == set(cores[:1] or allowed), before
        os.set_blocking(one.stdout.fileno(), False)
        for _ in range(20):
            one.stdin.write(request.encode() + b"\n")
            one.stdin.flush()
            answer = b""
            while not answer.endswith(b"\n"):
                now = [frozenset(where) for thread, where in sets(one.pid).items() if thread not in before]
                right = [where for where in now if where in wanted]
                is_right = is_right or (len(right) >= int(request.split()[1]) and set(right) == wanted)
                answer += one.stdout.read() or b""
            assert b"unit_ns=" in answer, answer
            if is_right:
                break
        one.stdin.close()
        return is_right

last = allowed[-1]
assert is_seen([last], "launch 1 100", [[last]])
assert is_seen([], "launch 1 100", [allowed])
assert is_seen([last], "launch 3 100", [allowed])   # too few cores for these threads
if len(allowed) > 1:
    assert is_seen([last, allowed[0]], "launch 2 100", [[last], [allowed[0]]])
    assert not is_seen([last], "launch 1 20", [[allowed[0]]])
END

# Whole runs: more than a cycle, pinned if that is possible, and not.
cat > "$dir/check.py" << 'END'
import json, os, sys
with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
is_pinned, names, generations, rounds = sys.argv[2] == "pinned", sys.argv[3].split(","), *map(int, sys.argv[4:6])
assert result["is_verified"] is True and not any(result["moved"].values()) and not result["absent"], result["absent"]
pinning, allowed = result["pinning"], sorted(os.sched_getaffinity(0))
assert len(pinning["cores"]) == generations, pinning
if is_pinned and len(allowed) > 1:
    assert pinning["is_pinned"] is True and pinning["why_not"] is None and pinning["home"] == allowed[0], pinning
    assert all(cores and set(cores) <= set(allowed[1:]) for cores in pinning["cores"]), pinning
else:
    assert pinning["is_pinned"] is False and pinning["why_not"] and not any(pinning["cores"]), pinning
assert [case["case"] for case in result["cases"]] == names
for case in result["cases"]:
    assert [one["generation"] for one in case["generations"]] == list(range(generations)), case["case"]
    for one in case["generations"]:
        count = len(one["orders"])
        assert count == rounds if rounds else count >= 2, (case["case"], count)
        assert one["orders"] == [number % 6 for number in range(count)], one["orders"]
        assert set(one["turns"]) == {"native A", "native B", "gpumux"}
        for turns in one["turns"].values():
            assert turns and all(len(values) == count and min(values) > 0 for values in turns.values()), turns
for line in result["lines"]:
    assert line["total"]["low"] <= line["total"]["value"] <= line["total"]["high"], line
    assert line["rounds"] == sum(len(one["orders"]) for case in result["cases"] if case["case"] == line["case"]
                                 for one in case["generations"]), line
assert all("of all time" in goal["goal"] for goal in result["goals"])
END
# overhead NAME PINNED CASES GENERATIONS ROUNDS OPTION...; ROUNDS 0: those that there is time for
overhead() {
    run=$1 pinned=$2 cases=$3 generations=$4 rounds=$5
    shift 5
    timeout 900 python3 -B "$benches/overhead.py" --build "$BUILD" --only "$cases" --budget 256M \
        --json "$dir/$run.json" "$@" > "$dir/$run.out" 2>&1 || fail "$run ended with $?"
    python3 -B "$dir/check.py" "$dir/$run.json" "$pinned" "$cases" "$generations" "$rounds" || fail "result of $run"
    grep -q 'of all time' "$dir/$run.out" || fail "$run does not show the total"
}
overhead cycle pinned launch-1,launch-8,alloc-1M 2 7 --programs calls --turn 1ms --generations 2 --rounds 7
overhead loose loose launch-1,graph-20 1 2 --programs calls --turn 1ms --generations 1 --rounds 2 --no-pin
overhead timed pinned launch-1,alloc-4K 3 0 --programs calls --turn 1ms --generations 3 --seconds 6
if python3 -c 'import torch' 2> /dev/null; then
    overhead models pinned decode 1 7 --programs cpu --model-turn 5ms --generations 1 --rounds 7
fi

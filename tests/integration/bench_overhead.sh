#!/bin/sh
# What bench/overhead is made of: its statistics on numbers that are made up, how it divides time and cores, and that
# a run does what it says: turns in a balanced order, threads on the cores that were chosen, all in the result.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

python3 -B - "$benches" << 'END' || fail "statistics, shares or cores"
import contextlib, io, math, os, random, sys, types
sys.path.insert(0, sys.argv[1])
import cores, figures, overhead, paired, shares, summary

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
    found = paired.compare([[generation(600, cost)] for _ in range(5)])
    check(has(found, "ratio", cost) and has(found, "total", cost), cost, found)
    check(has(found, "native", 1) and has(found, "native_total", 1), found)
    check(all(one["high"] - one["low"] < .008 for name, one in found.items() if "total" not in name), found)
    check(has(found, "ratio", 1) == (cost == 1), found)

# The interval holds the truth in 95 of 100, of few generations too, whose processes differ and whose rounds have
# outliers, all to one side; and the ratio is in it.
for count, times in ((3, 400), (5, 200), (10, 100), (40, 40)):
    hits = 0
    for number in range(times):
        cost = (1, 1.005)[number % 2]
        own = [[math.exp(chance.gauss(0, .012)) for _ in range(3)] for _ in range(count)]
        groups = [[[tuple(time * factor * (chance.paretovariate(2) if chance.random() < .1 else 1)
                          for time, factor in zip(one, factors)) for one in generation(6, cost)]] for factors in own]
        found = paired.compare(groups)["ratio"]
        check(found["low"] <= found["median"] <= found["high"], found)
        hits += found["low"] <= cost <= found["high"]
    check(hits >= .92 * times, count, hits, times)

# Student's t: its density over 0 to each bound, by Simpson's rule.
for freedom, bound in enumerate(paired.STUDENT, 1):
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    steps = [(1 + (bound * at / 1000)**2 / freedom)**(-(freedom + 1) / 2) for at in range(1001)]
    part = scale * bound / 3000 * (steps[0] + steps[-1] + 4 * sum(steps[1:-1:2]) + 2 * sum(steps[2:-1:2]))
    check(abs(part - .475) < 4e-5, freedom, bound, part)

# What is different between processes is in the interval, and not taken for a cost that is certain, however many
# rounds each has.
found = paired.compare([[generation(600, 1, own=own)] for own in ((1.04, 1), (1, 1.04), (1, 1))])
check(found["native"]["low"] < .97 and found["native"]["high"] > 1.03, found)

# Where a load came to lie is in the generation's value no more than by its part, however many rounds it has.
found = paired.compare([[generation(rounds, 1, noise=.005, own=own)
                         for rounds, own in ((60, (1.04, 1)), (600, (1, 1.04)))] for _ in range(3)])
check(has(found, "native", 1) and found["native"]["high"] < 1.005, found)
check(found["native_total"]["high"] < .98, found) # that is by time

# Stalls of one in a hundred rounds: no median shows them, the total does.
stalled = [generation(600, 1, noise=.005) for _ in range(3)]
stalled = [[[(a, b, 60 * other if number % 100 == 50 else other) for number, (a, b, other) in enumerate(group)]]
           for group in stalled]
found = paired.compare(stalled)
check(found["ratio"]["median"] < 1.002 and found["total"]["value"] > 1.3 and found["total"]["low"] > 1.1, found)

# Totals of something else, for times that are themselves medians.
plain = [[[(1., 1., 1.)] * 100]] * 2
found = paired.compare(plain, [[[(1., 1., 1.5)] * 100]] * 2)
check(found["ratio"]["high"] == 1 and math.isclose(found["total"]["low"], 1.5), found)

# One generation has no interval, however many rounds.
found = paired.compare([[generation(600, 1)]])
check(all(one["low"] is None and one["high"] is None for one in found.values()), found)

# Whole cycles count; what has none does not, unless that is half of all.
check(paired.whole_cycles([[list(range(count))] for count in (13, 5, 6)]) ==
      ([[list(range(12))], [list(range(6))]], True))
check(paired.whole_cycles([[[1] * 7], [[1] * 2]]) == ([[[1] * 7], [[1] * 2]], False))
half = [[[1] * 7, [1] * 2], [[1] * 3], [[1] * 6]]
check(paired.whole_cycles(half) == (half, False))
check(paired.whole_cycles([*half, [[1] * 8, [1] * 6]]) == ([[[1] * 6], [[1] * 6], [[1] * 6] * 2], True))
def rounds(seconds, share, most=math.inf):
    """Of so many seconds each."""
    number = 0
    while overhead.is_going_on(number, number * seconds, share, most):
        number += 1
    return number
for wanted, *given in ((12, 1, 17), (18, 1, 18), (6, 1, 11.9), (6, 1, 5.5), (4, 1, 4), (2, 1, 0), (12, 1, math.inf, 13),
                       (6, 1, math.inf, 7), (4, 1, math.inf, 4), (2, 1, math.inf, 1)):
    check(rounds(*given) == wanted, wanted, given, rounds(*given))

# Outcomes. A line of three generations around the ratio, and of A to B, in percent.
def line(case, percents, native=(-.1, 0, .1), rounds=6, metric="unit_ns"):
    return overhead.line_of({"case": case, "generations": [
        {"generation": number, "orders": list(range(rounds)), "turns": {
            lane: {key: [1e4 * math.exp(log / 100)] * rounds for key in (
                "unit_ns", "hook_ratio", "hook_mean_ratio", "alloc_ns", "alloc_mean_ns", "more_ns", "more_mean_ns")}
            for lane, log in zip((*overhead.NATIVE, "gpumux"), (two / 2, -two / 2, one))}}
        for number, (one, two) in enumerate(zip(percents, native))]}, metric)
for wanted, given in (
        (True, line("decode", (-.1, 0, .1))),
        (None, line("decode", (-1, 0, 1))),                         # it may be above
        (None, line("decode", (-.1, 0, .1), (-1, 0, 1))),           # the noise would hide what is above
        (False, line("decode", (-1, .6, 2.3))),                     # measured above, if not surely
        (False, line("decode", (.6, .6, .6))),
        (False, line("decode", (.3, .31, .32), (-.01, 0, .01))),    # below the limit, and beyond the noise
        (False, line("decode", (-.6, -.61, -.62))),                 # as far below native
        (None, line("decode", (-.1, 0, .1), rounds=5)),             # not balanced
        (False, line("decode", (.5, .6, .7), rounds=5)),
        (None, line("decode", (0,), (0,))),                         # one generation
        (False, line("decode", (.6,), (0,))),
        (True, line("launch-1", (.5, .6, .7), (-2, 0, 2))),         # noise is not in this one
        (None, line("launch-1", (.2, .6, 1))),
        (False, line("launch-1", (1, 1.1, 1.2))),
        (True, line("hook-1", (.5, .6, .7), metric="hook_ratio")),
        (False, line("hook-1", (1, 1.1, 1.2), metric="hook_ratio")),
        (True, line("hook-8", (.5, .6, .7), metric="hook_ratio")),
        (True, line("hook-resnet18", (.28, .3, .32), (-2, 0, 2), metric="hook_ratio")),
        (None, line("hook-resnet18", (.1, .3, .5), metric="hook_ratio")),
        (False, line("hook-resnet18", (.5, .6, .7), metric="hook_ratio")),
        (True, line("alloc-4M", (-300, -290, -280), (-30, 0, 30), metric="alloc_ns")),
        (None, line("alloc-4M", (-1, 0, .9), metric="alloc_ns")),
        (False, line("alloc-4M", (-1, .5, 1), (-30, 0, 30), metric="alloc_ns"))):
    goal = overhead.goal_of(given)
    check(goal["is_met"] is wanted, wanted, goal, given)
    told = list(summary.about_overhead({"lines": [given], "absent": {}, "goals": [goal]}))
    check(told[1:-1] == ([] if wanted else [told[1]]), told)
    check(wanted or told[1].startswith(figures.outcome(goal) + ": "), told)
    check(told[-1] == ("1 of 1 goals met", "0 of 1 goals met", "0 of 1 goals met, 1 not decided")[
        (True, False, None).index(wanted)], told)
    check(("not balanced" in told[0]) != given["is_balanced"], told)
check(overhead.goal_of(line("alloc-2M", (1, 2, 3), metric="alloc_ns")) is None)
check(overhead.goal_of(line("grow-4M", (-30, -29, -28), metric="more_ns"))["is_met"] is True)
check(overhead.goal_of(line("grow-4M", (1, 2, 3), metric="more_ns"))["is_met"] is False)
check(overhead.goal_of(line("burst-4M", (1, 2, 3), metric="more_ns")) is None)

# What fits: of the simulated GPU as much as it has, of another what there always was; what is given stays.
def fitted(memory=None, **given):
    args = types.SimpleNamespace(**{"simcuda": False, "programs": "all", "alloc": None, "budget": None, "rounds": None,
                                    "seconds": 0, "forked": False, "loads": 1,
                                    "third": "gpumux", **given})
    overhead.fit(types.SimpleNamespace(args=args, environment={"SIMCUDA_MEMORY": memory} if memory else {}))
    return args.programs, args.alloc[-1], args.grow, args.budget, args.rounds
check(fitted() == ("all", "8G", ["4M", "20M", "128M", "512M"], 40 * 2**30, 120), fitted())
check(fitted(simcuda=True) == ("calls", "128M", [], 2**29, 6), fitted(simcuda=True))
check(fitted("256M", simcuda=True, seconds=5) == ("calls", "32M", [], 2**27, None))
check(fitted(simcuda=True, programs="cpu", alloc=["8G"], budget=5, rounds=7) == ("cpu", "8G", [], 5, 7))

check([name for name in ("alloc", "grow", "grow-4M", "burst-1G", "launch-1") if overhead.is_of_memory(name)] ==
      ["grow-4M", "burst-1G"])

# Several results are one sample: the generations of all, each its own; of one kind alone.
dates = iter(range(100))
def result(*lines, generations=1, gpu="one", command=(), third="gpumux", **more):
    return {"bench": "overhead", "machine": {"gpu": gpu}, "command": list(command), "commit": "c",
            "date": next(dates), "is_verified": True, "absent": {}, **more, "pinning": {"cores": [[]] * generations}, "cases": [
                {"case": name, "generations": [{"generation": number, "orders": [0] * 6, "turns": {
                    lane: {"unit_ns": [1000. * share] * 6}
                    for lane, share in (("native A", 1), ("native B", 1), (third, cost))}}
                    for number, cost in enumerate(costs)]} for name, costs in lines],
            "lines": [{"ns": {"native A": 1, "native B": 1, third: 1}}]}
def pooled(*results):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        overhead.together(results)
    return [row.split() for row in said.getvalue().splitlines()]
rows = pooled(result(("decode", (1, 1.01)), generations=2), result(("decode", (1.02,)), ("training", (1.1,))))
check([row[:2] for row in rows if row[0] in ("decode", "training")] == [["decode", "18"], ["training", "6"]], rows)
wanted = paired.interval("median", [math.log(cost) for cost in (1, 1.01, 1.02)])
check([row[6:9] for row in rows if row[0] == "decode"] == [[f"{one:.4f}" for one in wanted.values()]], rows, wanted)
check(sum(row[0] == "goal:" for row in rows) == 2, rows)
rows = pooled(*[result(("decode", (1.02,)), third="native C", settings={"third": "native"}) for _ in range(2)])
check(not any(row[0] == "goal:" for row in rows) and "C" in rows[1], rows)
pooled(result(("launch-1", (1,))), result(("launch-1", (1,)), command=["--forked"])) # those are of models alone
some = result(("decode", (1,)), settings={"third": "gpumux", "forked": False, "turn": 10})
of_old = result(("decode", (1,)))
of_old["cases"] = [{"case": "decode", "rounds": []}]
for other, why in ((result(("decode", (1,)), gpu="two"), "differ in GPU"),
                   (result(("decode", (1,)), command=["--forked"]), "differ in forked"),
                   (result(("decode", (1,)), settings={"third": "gpumux", "turn": 20}), "differ in turn"),
                   (result(("decode", (1,)), third="alone", settings={"third": "alone"}), "differ in third"),
                   (result(("training", (1,)), third="alone", settings={"third": "alone"}), "differ in the third process"),
                   (result(("decode", (1,)), is_verified=False), "not whole"), (of_old, "not whole"),
                   (some, "there twice")):
    try:
        pooled(some, other)
    except overhead.r.Failure as failure:
        check(why in str(failure), failure)
    else:
        check(False, other)

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
for seconds, cost, wanted in ((math.inf, 15, 3), (20, 15, 1), (60, 15, 2), (80, 15, 3), (90, 15, 3), (90, 2, 13),
                              (395, 38, 3), (10000, 15, 40)):
    check(shares.generations_for(seconds, cost) == wanted, seconds, cost, shares.generations_for(seconds, cost))

# Loads: what is asked of the processes, in order, and what of the plan is left; a case that is absent comes no more.
class Lane(overhead.Models):
    """Answers at once; loading for the first time takes a second, then a tenth, and a round .01 s."""
    def __init__(self, pid, asked, absent):
        process = types.SimpleNamespace(stdin=types.SimpleNamespace(close=lambda: None))
        super().__init__(types.SimpleNamespace(process=process, end=lambda: None), is_hooked=False)
        self.pid, self.asked, self.absent, self.name, self.known = pid, asked, absent, None, set()
    def begin_load(self, name):
        self.name = name
        self.asked.append(name)
    def end_load(self):
        now[0] += .1 if self.name in self.known else 1
        self.known.add(self.name)
        return overhead.r.Absent("none") if self.name in self.absent else {"bytes": 1, "sum": 1}
    def turn(self, name, work):
        now[0] += .01
        return {"unit_ns": 1e6, "own_ns": 1e6, "hook_ratio": 1., "jump_ratio": 1., "sum": 1}
daemon = types.SimpleNamespace(status=lambda: {"apps": [{"pid": 2}]}) # the third
def generated(only, loads, absent=(), generations=3, seconds=60.):
    """What the first process is asked, in which rounds of each load, and what is still planned behind it."""
    now[0] = 0.
    args = types.SimpleNamespace(loads=loads, rounds=None, model_turn=20, seconds=seconds, forked=False, programs="all",
                                 third="gpumux")
    rig = types.SimpleNamespace(args=args, left=lambda: seconds - now[0], result={"absent": {}})
    at, cases = types.SimpleNamespace(all=[0], at_home=contextlib.nullcontext), {one: [] for one in only}
    plan, asked = overhead.shares_of(rig, [(overhead.Models, only)], at, generations), []
    for number in range(generations):
        plan.began("Models")
        plan.took("Models", 0)
        overhead.generate(rig, [Lane(*one, absent) for one in enumerate((asked, [], []))],
                          [{"case": name, "generations": loads} for name, loads in cases.items()
                           if name not in rig.result["absent"]], at, daemon, plan, number)
    return asked, [[(one["generation"], one["load"], len(one["orders"])) for one in loads]
                   for loads in cases.values()], plan.coming
overhead.time = types.SimpleNamespace(monotonic=lambda: now[0])
asked, loads, coming = generated(["decode", "hook-decode"], 2)
check(asked == ["decode", "hook-decode"] * 6 and not coming, asked, coming)
check([[one[:2] for one in case] for case in loads] ==
      [[(number, load) for number in range(3) for load in range(2)]] * 2, loads)
asked, loads, coming = generated(["decode", "hook-decode", "training"], 2, absent=("decode",))
check(asked == ["decode"] + ["hook-decode", "training"] * 6 and not coming, asked, coming)
# Each has as many rounds as the others, though the first of a process is slow to load.
_, (loads,), _ = generated(["decode"], 4, generations=6)
check(.8 < min(one[2] for one in loads[4:]) / max(one[2] for one in loads[4:]), loads)

# An app of the daemon is the third process, if it is under gpumux, and nobody else.
for third, apps, is_right in (("gpumux", [2], True), ("gpumux", [], False), ("gpumux", [1, 2], False),
                              ("alone", [], True), ("alone", [2], False), ("native", [7], True)):
    rig = types.SimpleNamespace(args=types.SimpleNamespace(third=third, programs="all"))
    daemon = types.SimpleNamespace(status=lambda: {"apps": [{"pid": pid} for pid in apps]})
    try:
        overhead.check_apps(rig, daemon, [Lane(pid, [], []) for pid in range(3)])
    except overhead.r.Failure as failure:
        check(not is_right, failure)
    else:
        check(is_right, third, apps)

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
is_pinned, names = sys.argv[2] == "pinned", sys.argv[3].split(",")
generations, rounds = map(int, sys.argv[4:6])
command = result["command"]
loads = int(command[command.index("--loads") + 1]) if "--loads" in command else 1
third = command[command.index("--third") + 1] if "--third" in command else "gpumux"
third = "native C" if third == "native" else third
assert not result["goals"] if third != "gpumux" else result["goals"], result["goals"]
assert result["is_verified"] is True and not any(result["moved"].values()) and not result["absent"], result["absent"]
pinning, allowed = result["pinning"], sorted(os.sched_getaffinity(0))
assert len(pinning["cores"]) == generations, pinning
if is_pinned and len(allowed) > 1:
    assert pinning["is_pinned"] is True and pinning["why_not"] is None and pinning["home"] == allowed[0], pinning
    assert all(cores and set(cores) <= set(allowed[1:]) for cores in pinning["cores"]), pinning
else:
    assert pinning["is_pinned"] is False and pinning["why_not"] and not any(pinning["cores"]), pinning
assert [case["case"] for case in result["cases"]] == names
sys.path.insert(0, sys.argv[6])
import paired
whole = {}
for case in result["cases"]:
    counts = [(one["generation"], one["load"]) for one in case["generations"]]
    assert counts == [(number, load) for number in range(generations) for load in range(loads)], (case["case"], counts)
    orders = [one["orders"] for one in case["generations"]]
    whole[case["case"]] = paired.whole_cycles([orders[at:at + loads] for at in range(0, len(orders), loads)])
    for one in case["generations"]:
        count = len(one["orders"])
        assert count == rounds if rounds else count >= 2, (case["case"], count)
        assert one["orders"] == [number % 6 for number in range(count)], one["orders"]
        assert list(one["turns"]) == ["native A", "native B", third], one["turns"]
        for turns in one["turns"].values():
            assert turns and all(len(values) == count and min(values) > 0 for values in turns.values()), turns
for line in result["lines"]:
    counted, is_balanced = whole[line["case"]]
    assert (line["generations"], line["loads"]) == (len(counted), sum(map(len, counted))), line
    assert line["rounds"] == sum(len(one) for loads_of_one in counted for one in loads_of_one), line
    assert line["is_balanced"] is is_balanced and (not rounds or is_balanced is (rounds >= 6)), line
    if len(counted) > 1:
        assert line["total"]["low"] <= line["total"]["value"] <= line["total"]["high"], line
    else:
        assert line["total"]["low"] is line["ratio"]["high"] is line["noise"] is line["is_within_noise"] is None, line
assert all("of all time" in goal["goal"] for goal in result["goals"])
assert rounds >= 6 and generations > 1 or not rounds or not any(goal["is_met"] for goal in result["goals"])
END
# overhead NAME PINNED CASES GENERATIONS ROUNDS OPTION...; ROUNDS 0: those that there is time for
overhead() {
    run=$1 pinned=$2 cases=$3 generations=$4 rounds=$5
    shift 5
    timeout 900 python3 -B "$benches/overhead.py" --build "$BUILD" --only "$cases" \
        --json "$dir/$run.json" "$@" > "$dir/$run.out" 2>&1 || fail "$run ended with $?"
    python3 -B "$dir/check.py" "$dir/$run.json" "$pinned" "$cases" "$generations" "$rounds" "$benches" ||
        fail "result of $run"
    grep -q 'of all time' "$dir/$run.out" || fail "$run does not show the total"
}
# sum_of_rounds RUN...: those of launch-1 that count
sum_of_rounds() {
    for run in "$@"; do
        python3 -B -c 'import json, sys
print(next(line["rounds"] for line in json.load(open(sys.argv[1]))["lines"] if line["case"] == "launch-1"))' "$dir/$run.json"
    done | awk '{sum += $1} END {print sum}'
}
overhead cycle pinned launch-1,launch-8,hook-1,hook-8,alloc-4M 2 12 --programs calls --turn 1ms --generations 2 --rounds 13 --budget 256M
overhead loose loose launch-1,graph-20 1 2 --programs calls --turn 1ms --generations 1 --rounds 2 --no-pin --budget 256M
grep -q 'not balanced: graph-20' "$dir/loose.out" || fail "rounds that are not balanced are not told"
overhead timed pinned launch-1,alloc-4K 3 0 --programs calls --turn 1ms --generations 3 --seconds 6 --budget 256M
overhead growth pinned grow-4M,burst-4M 1 6 --programs calls --generations 1 --rounds 6 --budget 640M
python3 -B - "$dir/growth.json" "$benches" << 'END' || fail "the pieces are others than the bench counts with"
import json, sys
sys.path.insert(0, sys.argv[2])
import overhead
for case in json.load(open(sys.argv[1]))["cases"]:
    for turns in case["generations"][0]["turns"].values():
        assert set(turns["count"]) == {overhead.grown(2**22) // 2**22}, turns["count"]
END
# By itself on the simulated GPU.
overhead alone pinned launch-1,alloc-128M 3 6 --simcuda
# Others than gpumux: check_hooked sees that the hooks are there or not, and without a daemon nothing is its app.
told() {
    python3 -B "$benches/summary.py" "$dir/$1.json"
}
overhead third pinned launch-1,hook-1 1 6 --programs calls --turn 1ms --generations 1 --rounds 6 --third native --budget 256M
overhead bare pinned hook-1,launch-1 1 6 --programs calls --turn 1ms --generations 1 --rounds 6 --third alone --budget 256M
python3 -B "$benches/summary.py" "$dir/cycle.json" "$dir/loose.json" "$dir/timed.json" "$dir/alone.json" \
    "$dir/third.json" "$dir/bare.json" || fail "summary of the runs"
told bare | grep -q 'launch-1 of the third, alone: ' && ! told bare | grep -q 'goals met' || fail "whose is it: $(told bare)"
told third | grep -q 'hook-1.* of the third, native C: ' || fail "whose is it: $(told third)"
! told alone | grep -q 'of the third' || fail "whose is it: $(told alone)"
# Several generations of calls at once, as where there are more cores; each has processes of its own.
timeout 900 python3 -B - "$benches" --build "$BUILD" --only hook-1,launch-1 --programs calls --turn 1ms --generations 5 \
    --rounds 6 --budget 256M --json "$dir/several.json" << 'END' > "$dir/several.out" 2>&1 || fail "several ended with $?"
import sys
sys.path.insert(0, sys.argv.pop(1))
import overhead
overhead.at_once = lambda kind, cores: 3
overhead.r.main("overhead", overhead.__doc__, overhead.add_options, overhead.run, overhead.conclude)
END
python3 -B "$dir/check.py" "$dir/several.json" pinned hook-1,launch-1 5 6 "$benches" || fail "several generations at once"
python3 -B "$benches/summary.py" --together "$dir/cycle.json" "$dir/timed.json" > "$dir/together.out" ||
    fail "several runs together"
grep -q "^launch-1 .* $(sum_of_rounds cycle timed) " "$dir/together.out" || fail "rounds together: $(cat "$dir/together.out")"
for options in "--only launch-1,decode" "--programs calls" --simcuda; do
    # shellcheck disable=SC2086 # several
    python3 -B "$benches/overhead.py" --build "$BUILD" --third vmm $options > "$dir/wrong.out" 2>&1 &&
        fail "$options with memory of PyTorch"
    grep -q '^overhead: FAILED: .*--third vmm' "$dir/wrong.out" || fail "$options with --third vmm: $(cat "$dir/wrong.out")"
done
for wrong in "$dir/none.json" "$dir/check.py" ""; do
    python3 -B "$benches/summary.py" --together ${wrong:+"$wrong"} > "$dir/wrong.out" 2>&1 && fail "together of '$wrong'"
    [ "$(wc -l < "$dir/wrong.out")" = 1 ] && grep -q '^summary: ' "$dir/wrong.out" || fail "together of '$wrong': $(cat "$dir/wrong.out")"
done
# A result that another version made: one line, and nothing of it taken for what it is not.
echo '{"bench": "tiers", "runs": [{}]}' > "$dir/other.json"
python3 -B "$benches/summary.py" "$dir/other.json" > "$dir/wrong.out" 2>&1 && fail "a result of another version"
[ "$(wc -l < "$dir/wrong.out")" = 1 ] && grep -q '^summary: .*another version of bench/tiers' "$dir/wrong.out" ||
    fail "a result of another version: $(cat "$dir/wrong.out")"
# Forked from one, which may have nothing to fork for.
mkdir "$dir/none"
echo 'raise ImportError("none here")' > "$dir/none/torch.py"
PYTHONPATH=$dir/none timeout 300 python3 -B "$benches/overhead.py" --build "$BUILD" --only decode,launch-1 --programs cpu --forked \
    --turn 1ms --generations 1 --rounds 2 --no-pin --budget 256M > "$dir/none.out" 2>&1 || fail "without PyTorch, forked, it ended with $?"
why='no PyTorch'
[ "${GM_LINKED:-}" != 1 ] || why='what a sanitizer built'
grep -q "not measured: models: $why" "$dir/none.out" || fail "without PyTorch, forked, it said $(tail -1 "$dir/none.out")"
python3 -B "$benches/overhead.py" --build "$BUILD" --programs calls --forked > "$dir/none.out" 2>&1 && fail "calls cannot be forked"
grep -q 'overhead: FAILED: --forked is for models' "$dir/none.out" || fail "forked calls: $(tail -1 "$dir/none.out")"
python3 -B "$benches/overhead.py" --build "$BUILD" --programs calls --loads 2 > "$dir/none.out" 2>&1 && fail "calls are loaded once"
grep -q 'overhead: FAILED: --loads is for models' "$dir/none.out" || fail "loads of calls: $(tail -1 "$dir/none.out")"
if [ "${GM_LINKED:-}" != 1 ] && python3 -c 'import torch' 2> /dev/null; then
    loaded=$(printf 'load %s\n' decode decode hook-decode hook-decode decode-graphs hook-decode decode |
        python3 -B "$benches/python/units.py" --device cpu | sed -n 's/^loaded .*is_new=\([01]\).*/\1/p; s/^absent .*/-/p' | tr -d '\n')
    [ "$loaded" = 1101-11 ] || fail "which loads made a new model: $loaded"
    overhead models pinned decode,hook-decode 2 6 --programs cpu --model-turn 5ms --generations 2 --rounds 7 --budget 256M
    overhead forked pinned decode,resnet18 2 6 --programs cpu --forked --loads 3 --model-turn 5ms --generations 2 --rounds 7 --budget 256M
fi

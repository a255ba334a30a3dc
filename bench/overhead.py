#!/usr/bin/env python3
"""bench/overhead: what gpumux costs a program when everything fits: native against gpumux.

Three processes of the same program live beside each other and take turns of a fraction of a second: two natively, A
and B, and one under a daemon whose budget holds all of it. While one works the others wait, so nothing but time is
between the turns that are compared, and whatever drifts (clock rates, temperature, the host) hits all three; who
comes first in a round changes from round to round. What belongs to a process and not to gpumux (where its memory
came to lie, on which cores it runs) would look like a cost in processes that live on, so all three are started anew
in each generation.

Of each round: the ratio of gpumux to native (the geometric mean of A and B), and that of A to B, which is the same
measurement with nothing to be found. Given are the medians of both, and the interval of 95 % of the median by a
bootstrap over the generations and the rounds in each. The noise is how far from 1 the interval of A to B reaches; a
ratio is within it if its interval meets [1/noise, noise].

Measured are the calls of the driver (bench/bench_calls: empty kernels by one thread and by eight, replays of a graph,
allocating and freeing memory of different sizes, again and again, and for the first time in a turn), and models in
PyTorch (bench/python/units.py): inference of one image, decoding, eager and with CUDA graphs, and training. The results
of the models have to be the same in all three processes, and nothing may be switched or moved.
"""

import argparse
import math
import random
import sys

import rig as r
from actors import under

LANES = ("native A", "native B", "gpumux")
LAUNCHES = ("launch-1", "launch-8")
GRAPHS = ("graph-20",)
SIZES = ("4K", "64K", "1M", "2M", "4M", "32M", "128M", "512M", "2G", "8G")
MODELS = ("resnet18", "resnet50", "resnet101", "resnet152", "decode", "decode-graphs", "training")
AT_MOST = 1.005         # of native, of everything
AT_MOST_LAUNCHES = 1.01 # and of launches
RESAMPLES = 1000
METRICS = {"unit_ns": "", "first_ns": " first alloc", "alloc_ns": " alloc", "free_ns": " free"}
ALLOC_METRICS = ("first_ns", "alloc_ns", "free_ns")


def names(text):
    return [part for part in text.split(",") if part]


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def add_options(parser):
    parser.add_argument("--programs", choices=("all", "calls", "cpu"), default="all",
                        help="all: calls and the models in PyTorch on the GPU; calls: no PyTorch; cpu: tiny models on "
                             "the processor, to try this out (all; calls with --simcuda)")
    parser.add_argument("--only", type=names, metavar="NAME,...",
                        help="of " + ", ".join(LAUNCHES + GRAPHS + ("alloc-SIZE",) + MODELS))
    parser.add_argument("--alloc", type=names, default=list(SIZES), metavar="SIZE,...",
                        help=f"sizes that are allocated ({','.join(SIZES)})")
    parser.add_argument("--generations", type=count, default=2, metavar="N", help="starts of the processes (2)")
    parser.add_argument("--rounds", type=count, default=30, metavar="N",
                        help="of each case in a generation, at most, and at least 2 (30)")
    parser.add_argument("--turn", type=r.milliseconds, default=60, metavar="TIME", help="of a call (60ms)")
    parser.add_argument("--model-turn", type=r.milliseconds, default=250, metavar="TIME", help="of a model (250ms)")
    parser.add_argument("--budget", type=r.size, default=40 * 2**30, metavar="SIZE", help="of the daemon (40G)")


class Calls:
    """Driver calls, by bench_calls."""

    models = False

    def __init__(self, rig, lane, daemon):
        is_linked = daemon and rig.is_linked
        self.process = r.Process(rig, f"calls-{lane}".replace(" ", "-"),
                                 [rig.at("bench/bench_calls" + ("_linked" if is_linked else ""))],
                                 under(rig, daemon, is_preloaded=not rig.is_linked))

    def await_ready(self):
        self.process.await_line("ready", 60)

    def begin_load(self, name):
        pass

    def end_load(self):
        return None

    def turn(self, name, rig):
        kind, what = name.split("-")
        return self.process.ask(f"{kind} {what} {rig.args.turn:g}", 120)


class Models:
    """Models in PyTorch, by units.py."""

    models = True

    def __init__(self, rig, lane, daemon):
        command = [sys.executable, "-B", "-u", f"{rig.here}/python/units.py"]
        if rig.args.programs == "cpu":
            command += ["--device", "cpu"]
        self.process = r.Process(rig, f"models-{lane}".replace(" ", "-"), command, under(rig, daemon))

    def answer(self, seconds):
        line = self.process.line(seconds)
        if line.startswith("absent "):
            raise r.Absent(line.partition(" ")[2])
        return self.process.understand(line)

    def await_ready(self):
        self.answer(180)

    def begin_load(self, name):
        self.process.send(f"load {name}")

    def end_load(self):
        """Absent, when all have answered: else the next answer would be taken for another."""
        try:
            return self.answer(180)
        except r.Absent as absent:
            return absent

    def turn(self, name, rig):
        del name
        self.process.send(f"run {rig.args.model_turn:g}")
        return self.answer(180)


def measure(rig, case, lanes, until, generation):
    """Rounds of a case until then, at least two in all of a generation: each by lane."""
    for lane in lanes:
        lane.begin_load(case["case"])
    loaded = [lane.end_load() for lane in lanes]
    for one in loaded:
        if isinstance(one, r.Absent):
            raise one
    if loaded[0] and len({one["sum"] for one in loaded}) != 1:
        raise r.Failure(f"{case['case']}: results differ: {[one['sum'] for one in loaded]}")
    for lane in lanes:
        lane.turn(case["case"], rig) # not counted: the first of everything
    number = 0
    while number < 2 or (number < rig.args.rounds and rig.left() > until):
        first = number % len(lanes)
        turns = [None] * len(lanes)
        for index in range(first, first + len(lanes)):
            turns[index % len(lanes)] = lanes[index % len(lanes)].turn(case["case"], rig)
        if "sum" in turns[0] and len({turn["sum"] for turn in turns}) != 1:
            raise r.Failure(f"{case['case']}: results differ: {[turn['sum'] for turn in turns]}")
        case["rounds"].append({"generation": generation, "first": LANES[first],
                               **{lane: {key: value for key, value in turn.items() if key != "sum"}
                                  for lane, turn in zip(LANES, turns)}})
        number += 1


def wanted(rig):
    """The cases of each kind of program, in order."""
    calls = [*LAUNCHES, *GRAPHS, *(f"alloc-{size}" for size in rig.args.alloc)]
    models = [] if rig.args.programs == "calls" else list(MODELS)
    if rig.args.only:
        known = calls + list(MODELS)
        for name in rig.args.only:
            if name not in known and not name.startswith("alloc-"):
                raise r.Failure(f"there is no case {name}")
            if name in MODELS and not models:
                raise r.Failure(f"case {name} is a model, which --programs {rig.args.programs} leaves out")
        calls = [name for name in rig.args.only if name in calls or name.startswith("alloc-")]
        models = [name for name in rig.args.only if name in models]
    return [(Calls, calls), (Models, models)]


def run(rig):
    args = rig.args
    if args.simcuda and args.programs == "all":
        args.programs = "calls"
    kinds = wanted(rig)
    cases = {name: {"case": name, "rounds": []} for _, group in kinds for name in group}
    rig.result.update(cases=list(cases.values()), absent={})
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=2**27, idle="100ms", policy=None, quantum=None)
    # A turn of a model is longer, and making one takes time too.
    shares = {name: args.model_turn + 1000 if kind.models else args.turn + 300
              for kind, group in kinds for name in group}
    left = sum(shares.values()) * args.generations
    start = rig.left() if math.isfinite(rig.left()) else 0
    spendable = .92 * start
    for generation in range(args.generations):
        for kind, group in kinds:
            group = [name for name in group if name not in rig.result["absent"]]
            if not group or (kind is Models and rig.result["absent"].get("models")):
                continue
            lanes = [kind(rig, lane, daemon if lane == "gpumux" else None) for lane in LANES]
            try:
                for lane in lanes:
                    lane.await_ready()
            except r.Absent as absent:
                if args.only or args.programs == "cpu":
                    raise
                rig.result["absent"]["models"] = str(absent)
                continue
            for name in group:
                left -= shares[name]
                until = start - spendable * (1 - left / (sum(shares.values()) * args.generations)) if start else 0
                try:
                    measure(rig, cases[name], lanes, until, generation)
                except r.Absent as absent:
                    rig.result["absent"][name] = str(absent)
            for lane in lanes:
                lane.process.end()
    gpu = daemon.gpu()
    rig.result["moved"] = {key: gpu[key] for key in ("switches", "bytes_in", "bytes_out")}
    if any(rig.result["moved"].values()):
        raise r.Failure(f"everything fits, and yet something moved: {rig.result['moved']}")
    daemon.stop()


def ratios(rounds, metric):
    """By generation: of each round the logarithm of gpumux to native and of A to B."""
    found = {}
    for one in rounds:
        a, b, under = (math.log(one[lane][metric]) for lane in LANES)
        found.setdefault(one["generation"], []).append((under - (a + b) / 2, a - b))
    return list(found.values())


def interval(groups, which):
    """The median of all and the interval of 95 % of it: generations and rounds drawn again."""
    chance = random.Random(1)
    middle = r.median([one[which] for group in groups for one in group])
    medians = []
    for _ in range(RESAMPLES):
        drawn = []
        for group in chance.choices(groups, k=len(groups)):
            drawn += [one[which] for one in chance.choices(group, k=len(group))]
        medians.append(r.median(drawn))
    medians.sort()
    return {"median": math.exp(middle), "low": math.exp(medians[int(.025 * RESAMPLES)]),
            "high": math.exp(medians[int(.975 * RESAMPLES)])}


def line_of(case, metric):
    """What a metric of a case comes to."""
    groups = ratios(case["rounds"], metric)
    ratio, noise = interval(groups, 0), interval(groups, 1)
    bound = max(noise["high"], 1 / noise["low"])
    return {"case": case["case"], "metric": metric, "rounds": len(case["rounds"]), "ratio": ratio, "native": noise,
            "noise": bound, "ns": {lane: r.median([one[lane][metric] for one in case["rounds"]]) for lane in LANES},
            "is_within_noise": ratio["low"] <= bound and ratio["high"] >= 1 / bound,
            "is_above": ratio["median"] > AT_MOST, "is_surely_above": ratio["low"] > AT_MOST}


def goal_of(line):
    """None where nothing is wanted: small allocations, which are the plain driver's, and the first of a turn."""
    kind, _, what = line["case"].partition("-")
    if line["metric"] == "first_ns":
        return None
    ratio = line["ratio"]["median"]
    if kind == "alloc":
        if r.size(what) <= 2**21:
            return None
        text, most, is_met = "no slower", 1, ratio <= 1 or line["is_within_noise"]
    elif kind == "launch":
        text, most, is_met = "of native", AT_MOST_LAUNCHES, ratio <= AT_MOST_LAUNCHES
    else:
        text, most, is_met = "of native, within noise", AT_MOST, ratio <= AT_MOST and line["is_within_noise"]
    metric = METRICS[line["metric"]]
    return {"goal": f"{line['case']}{metric}: {text} (noise {100 * (line['noise'] - 1):.2f} %)", "measured": ratio,
            "wanted": most, "is_share": True, "is_met": is_met}


def show_ns(value):
    for unit, name in ((1e6, "ms"), (1e3, "us")):
        if value >= unit:
            return f"{value / unit:.3f} {name}"
    return f"{value:.0f} ns"


def conclude(rig):
    lines = []
    for case in rig.result.get("cases", []):
        if case["rounds"]:
            metrics = ALLOC_METRICS if case["case"].startswith("alloc-") else ("unit_ns",)
            lines += [line_of(case, metric) for metric in metrics]
    rig.result["lines"] = lines
    if not lines:
        return
    print(f"overhead: native against gpumux, everything fits; {rig.args.generations} generations; intervals of 95 % by "
          "bootstrap")
    rows = []
    for line in lines:
        metric = METRICS[line["metric"]]
        native = math.sqrt(line["ns"]["native A"] * line["ns"]["native B"])
        ratio = line["ratio"]
        rows.append([line["case"] + metric, line["rounds"], show_ns(native), show_ns(line["ns"]["gpumux"]),
                     f"{ratio['median']:.4f}", f"{ratio['low']:.4f}", f"{ratio['high']:.4f}",
                     f"{line['native']['median']:.4f}", f"{100 * (line['noise'] - 1):.2f} %",
                     "yes" if line["is_within_noise"] else "no",
                     "surely" if line["is_surely_above"] else "yes" if line["is_above"] else "no"])
    r.table(["case", "rounds", "native", "gpumux", "ratio", "from", "to", "A to B", "noise", "within noise",
             f"above {AT_MOST}"], rows)
    for name, why in rig.result["absent"].items():
        print(f"not measured: {name}: {why}")
    goals = rig.result["goals"] = [goal for goal in map(goal_of, lines) if goal]
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("overhead", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""bench/latency: latency-critical programs beside best-effort ones, when all of them fit on the GPU, and when they do not.

A latency-critical program answers requests one after the other. They arrive when they arrive, however fast it is, and a
request's latency counts from its arrival. A best-effort program works without a pause. The rows:

    alone       the latency-critical programs alone, without gpumux: what latencies are compared with
    native      all programs together, without gpumux: what rates are compared with
    gate        under gpumux, with --latency-mode=off: no timeslices, nobody is parked
    timeslices  --latency-mode=timeslice: the GPU's own timeslices, by class; several best-effort programs take short turns
    park        --latency-mode=hint: best-effort programs are parked when a request arrives (gpumux_expect)
    hint        the same mode: gpumux finds out by itself when a request will come
    hint-1      the same mode; the program calls gpumux_expect 1 ms ahead

A row that this build or this machine does not offer says so. The columns:

    mean, p50, p99   what a request takes longer than alone, in us (in the row "alone": what it takes)
    of alone         its mean in percent of that alone
    best-effort      the rate of the best-effort programs in percent of that in the row "native"
    total            each program's rate over its rate in the row "native": the mean of all programs

Each --latency-mode has a daemon and processes of its own; two rows have processes without gpumux. All stay until the
end; those whose turn it is not wait for a line of input and use no GPU time. The rows of a workload take turns, in
windows of about a second, --rounds times, with the same arrivals in all rows of a round. A window is compared with
those of its round; the table shows medians over the rounds. Each request's result is compared with the right one.

Workloads that begin with O do not fit: the best-effort program alone takes nearly all of the budget, which is 6 or 12 GiB. Only
those of one budget can be measured together.

The programs are models in PyTorch (python/serving.py); with --simcuda or --programs app stand-ins in C (serving.c).
"""

import collections
import os
import random
import sys
import time

import rig as r

Workload = collections.namedtuple("Workload", "what latency best_effort")

# Those of GPreempt (USENIX ATC'25) in shape: its pairs and sets, with the models that python/serving.py has. T and the
# chats are ours; the chats are for --class found, with windows of 8 s.
# Latency-critical programs are (model, requests a second, pattern).
WORKLOADS = {
    "T": Workload("ResNet-50, 100 a second; training", [("resnet50", 100, "constant")], ["training"]),
    "A": Workload("VGG-19, 100 a second; ResNet-152", [("vgg19", 100, "constant")], ["resnet152"]),
    "B": Workload("VGG-19, 220 a second; ResNet-152", [("vgg19", 220, "constant")], ["resnet152"]),
    "C": Workload("VGG-19, 100 a second; four models", [("vgg19", 100, "constant")],
                  ["resnet152", "resnet50", "vgg19", "bert"]),
    "D": Workload("three models, 20 a second each; three models",
                  [(model, 20, "constant") for model in ("resnet50", "vgg19", "bert")], ["resnet152", "vgg19", "bert"]),
    "E": Workload("as D, at random (Poisson)",
                  [(model, 20, "poisson") for model in ("resnet50", "vgg19", "bert")], ["resnet152", "vgg19", "bert"]),
    "REAL": Workload("as D, in bursts as in a trace",
                     [(model, 20, "bursty") for model in ("resnet50", "vgg19", "bert")],
                     ["resnet152", "vgg19", "bert"]),
    "Y": Workload("VGG-19, 100 a second; stencil, kernels of 17 ms", [("vgg19", 100, "constant")], ["stencil"]),
    "Z": Workload("VGG-19, 100 a second; BFS and PageRank", [("vgg19", 100, "constant")], ["bfs", "pagerank"]),
    "CHAT": Workload("128 tokens of a chat every 2 s; training", [("chat", .5, "constant")], ["training"]),
    "CHAT2": Workload("128 tokens of a chat every 2 s; training, ResNet-152", [("chat", .5, "constant")],
                      ["training", "resnet152"]),
    **{f"O{gib}{letter}": Workload(f"ResNet-152, 20 a second; {what}, {gib} GiB", [("resnet152", 20, "constant")],
                                   [f"{model}x{images}"])
       for gib, letter, what, model, images in (
           (6, "I", "inference of ResNet-152", "resnet152", 640), (6, "T", "training of it", "training", 18),
           (12, "I", "inference of ResNet-152", "resnet152", 1280), (12, "T", "training of it", "training", 40))},
}
OVER = {name: int(name[1:-1]) * 2**30 for name in WORKLOADS if name[0] == "O"} # with this budget
CHATS = ("CHAT", "CHAT2")

Row = collections.namedtuple("Row", "name world ahead_us is_beside")
ROWS = (Row("alone", "native", 0, False), Row("native", "native", 0, True), Row("gate", "off", 0, True),
        Row("timeslices", "timeslice", 0, True), Row("park", "hint", 1, True), Row("hint", "hint", 0, True),
        Row("hint-1", "hint", 1000, True))
WORLDS = ("native", "off", "timeslice", "hint")
UNCHANGED = ("timeslices", "hint") # rows that gpumux can have of unmodified programs
# One of these of a program's features, whose names (common/features.def) begin so.
NEEDS = {"timeslice": ("timeslice",), "hint": ("timeslice", "park")}

# What the project wants: of a workload the row, the figure, and the most (of shares the least).
GOALS = (("T", None, "mean_us", 100), ("T", None, "p99_us", 250), ("T", None, "best_effort", .95),
         ("Y", None, "mean_us", 250), ("Y", None, "p99_us", 400), ("Y", None, "best_effort", .9),
         ("Y", "hint-1", "mean_us", 130))

LEAD_S = .25       # of a window, not counted: everybody works, and is warm
LEAST_WINDOW_S = .3
BURST = (.1, 2.5)  # s on average, and times the rate; then
CALM = (.3, .5)    # so that the rate is right on average
# Best-effort programs rest in the windows of other rows, which makes them look interactive. With so little time at the
# best level they are known in time, and a chat still stays there.
FOUND_SLICE = "300ms"
FIGURES = ("mean_us", "p50_us", "p99_us")


def add_options(parser):
    parser.add_argument("--workloads", type=r.some_of(WORKLOADS), metavar="NAME,...",
                        help="of " + ", ".join(f"{name} ({one.what})" for name, one in WORKLOADS.items()) +
                        " (all but the chats and those that do not fit; with --class found the chats)")
    rows = [row.name for row in ROWS]
    parser.add_argument("--rows", type=r.some_of(rows), metavar="NAME,...", default=rows,
                        help="of those above; alone and native are always there (all)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="windows of each row (3)")
    parser.add_argument("--window", type=r.milliseconds, default=1250, metavar="TIME",
                        help="of a row, at most; shorter if --seconds is short (1250ms)")
    parser.add_argument("--rate", type=float, metavar="N", help="requests a second, in all workloads")
    parser.add_argument("--class", dest="which_class", choices=("set", "found"), default="set",
                        help="set: latency-critical programs ask for the class latency; found: gpumux has to find "
                        "them (set)")
    parser.add_argument("--budget", type=r.size, metavar="SIZE",
                        help="of each daemon: what all programs of a workload need, if they are to fit (14G; of stand-ins "
                        "128M; of workloads that do not fit 6G or 12G)")
    parser.add_argument("--programs", choices=("torch", "app", "cpu"), metavar="KIND",
                        help="torch: models in PyTorch; app: stand-ins in C (what --simcuda takes); cpu: tiny models "
                        "on the processor, which do not use the daemon: to try the bench out")


def constant(rate, begin, end, chance):
    at = begin + chance.random() / rate # several programs do not ask at the same moments
    while at < end:
        yield at
        at += 1 / rate


def poisson(rate, begin, end, chance):
    at = begin + chance.expovariate(rate)
    while at < end:
        yield at
        at += chance.expovariate(rate)


def bursty(rate, begin, end, chance):
    """Bursts and calm in turn, both of random lengths."""
    is_burst = False
    while begin < end:
        long, times = BURST if is_burst else CALM
        until = min(end, begin + chance.expovariate(1 / long))
        yield from poisson(rate * times, begin, until, chance)
        begin, is_burst = until, not is_burst


PATTERNS = {"constant": constant, "poisson": poisson, "bursty": bursty}


def arrivals(rate, pattern, seconds, seed):
    """
    When requests arrive, in us after a window's begin, the same for the same seed. Those before it do not count; at
    least one is in it, or the window would tell nothing.
    """
    chance = random.Random(seed)
    while True:
        found = [1e6 * at for at in PATTERNS[pattern](rate, -LEAD_S * .8, seconds, chance)]
        if found and found[-1] >= 0:
            return found


def done_within(ends, seconds):
    """Units of a program that worked without a pause, with the parts of those that the window's edges cut."""
    within = 0
    for begin, end in zip(ends, ends[1:]):
        part = min(end, 1e6 * seconds) - max(begin, 0)
        if part > 0:
            within += part / (end - begin)
    return within


def latencies(pairs, seconds):
    """Of (arrival, us): what a program's window comes to."""
    took = [us for at, us in pairs if at >= 0]
    ended = sum(0 <= at + us < 1e6 * seconds for at, us in pairs)
    return {"count": len(took), "rate": ended / seconds, "mean_us": r.mean(took), "p50_us": r.percentile(took, .5),
            "p99_us": r.percentile(took, .99), "max_us": max(took)}


def read_numbers(path):
    with open(path, encoding="ascii") as file:
        lines = [[float(part) for part in line.split()] for line in file]
    os.unlink(path)
    return lines


class Program:
    """A process that can be any of the models of its kind."""

    PATIENCE = 180 # s at most, for PyTorch to come and a model to be made

    def __init__(self, rig, world, number, is_latency):
        kind = rig.result["programs"]
        self.rig, self.world = rig, world
        self.name = f"{world.name}-{'latency' if is_latency else 'best-effort'}-{number + 1}"
        environment = r.under(rig, world.daemon, is_preloaded=not rig.is_linked) if kind != "cpu" else {}
        if world.daemon and is_latency and rig.args.which_class == "set":
            environment["GPUMUX_CLASS"] = "latency"
        if kind == "app":
            linked = "_linked" if world.daemon and rig.is_linked else ""
            command = [rig.at("bench/bench_serving" + linked)]
        elif world.daemon and rig.is_linked and kind == "torch":
            raise r.Absent("what a sanitizer built cannot be preloaded into Python")
        else:
            command = [sys.executable, "-B", "-u", f"{rig.here}/python/serving.py",
                       "--device", "cpu" if kind == "cpu" else "cuda"]
        self.process = r.Process(rig, self.name, command, environment)
        self.file = os.path.join(rig.work, self.name)
        self.model = "none"
        self.has_hint = None

    def answer(self):
        line = self.process.line(max(5, min(self.PATIENCE, self.rig.left())))
        if line.startswith("absent "):
            raise r.Absent(line.partition(" ")[2])
        return self.process.understand(line)

    def take_opened(self):
        if self.has_hint is None:
            self.has_hint = bool(self.answer()["expects"])

    def begin_make(self, model):
        self.model = model
        self.process.send(f"make {model} {self.rig.sizes.get(model, 0)}")

    def take_made(self):
        answer = self.answer()
        self.rig.sizes.setdefault(self.model, answer["size"])
        if "unit_us" in answer:
            self.rig.result["unit_us"].setdefault(self.model, answer["unit_us"])

    def begin_serve(self, begin, seconds, ahead_us, at_us):
        path = self.file + ".arrivals"
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{at:.1f}\n" for at in at_us)
        self.process.send(f"serve {begin} {seconds:.4f} {ahead_us} {self.file} {path}")

    def begin_work(self, begin, seconds):
        self.process.send(f"work {begin} {seconds:.4f} {self.file}")

    def take_window(self):
        """The answer, and the numbers that it is about."""
        return self.answer(), read_numbers(self.file)


class World:
    """A daemon, or none, and the programs there. It is where some rows are measured."""

    def __init__(self, rig, name):
        self.rig, self.name = rig, name
        self.latency, self.best_effort = [], []
        self.daemon = None
        if name != "native":
            budget = rig.args.budget or (2**27 if rig.result["programs"] == "app" else 14 * 2**30)
            budget = OVER.get(rig.args.workloads[0], budget) if not rig.args.budget else budget
            pinned = budget + 2**32 if rig.args.workloads[0] in OVER else 2**28
            self.daemon = r.Daemon(rig, "daemon-" + name, gpu_budget=budget, pinned=pinned,
                                   best_class="latency", latency_mode=name, idle="100ms", turn=None,
                                   slice=FOUND_SLICE if rig.args.which_class == "found" else None)

    def have(self, workload):
        """Start what is lacking."""
        for programs, wanted, is_latency in ((self.latency, workload.latency, True),
                                             (self.best_effort, workload.best_effort, False)):
            programs += [Program(self.rig, self, number, is_latency) for number in range(len(programs), len(wanted))]

    def everybody(self):
        return self.latency + self.best_effort

    def parts(self, workload):
        """Each program and its model in that workload; "none" beyond."""
        for programs, wanted in ((self.latency, [model for model, _, _ in workload.latency]),
                                 (self.best_effort, workload.best_effort)):
            yield from zip(programs, wanted + ["none"] * (len(programs) - len(wanted)))

    def lacks(self):
        """Why these rows cannot be had on this machine; None if they can."""
        if not self.daemon or self.name not in NEEDS:
            return None
        off = features_off(self.daemon.status())
        lacking = [name for name in off if name.startswith(NEEDS[self.name])]
        has_all_off = all(any(name.startswith(need) for name in off) for need in NEEDS[self.name])
        return "this machine lacks " + " and ".join(lacking) if has_all_off else None

    def check_apps(self):
        """Who is under gpumux is its app, and nobody else."""
        if self.rig.result["programs"] != "cpu" and self.daemon:
            apps = {app["pid"] for app in self.daemon.status()["apps"]}
            lacking = [one.name for one in self.everybody() if one.model != "none" and one.process.pid not in apps]
            if lacking:
                raise r.Failure(f"no app of the daemon: {', '.join(lacking)}")


def features_off(status):
    """The names of what some program does without."""
    return sorted({name for app in status["apps"] for name in app.get("features_off", ())})


class Bench:
    def __init__(self, rig):
        self.rig, self.args = rig, rig.args
        self.rows = [row for row in ROWS if row.name in self.args.rows or row.name in ("alone", "native")]
        self.absent = rig.result["absent"] = {} # by world, and by row
        self.worlds = {}

    def open_worlds(self):
        for name in WORLDS:
            if any(row.world == name for row in self.rows):
                self.open_world(name)

    def open_world(self, name):
        try:
            self.worlds[name] = World(self.rig, name)
        except r.Absent as absent:
            self.absent[name] = str(absent)
        except r.Failure as failure:
            if name not in NEEDS: # one that knows the option ends if it cannot have the mode
                raise
            self.absent[name] = str(failure)

    def prepare(self, workload):
        """All programs have their models. Those natively first: they find out sizes. One world after the other: two
        daemons know nothing of each other, and best-effort programs of both would share the GPU in slices of 1 us."""
        for world in self.worlds.values():
            world.have(workload)
        for world in self.worlds.values():
            for one in world.everybody():
                one.take_opened()
        for is_none in (True, False): # first those that give memory back
            for world in self.worlds.values():
                asked = [(one, model) for one, model in world.parts(workload)
                         if (model == "none") == is_none and one.model != model]
                for one, model in asked:
                    one.begin_make(model)
                for one, _ in asked:
                    one.take_made()
        for name, world in self.worlds.items():
            world.check_apps()
            why = world.lacks()
            if why:
                self.absent[name] = why

    def end(self):
        programs = [one.process for world in self.worlds.values() for one in world.everybody()]
        for one in programs: # all at once: PyTorch takes its time
            one.process.stdin.close()
        for one in programs:
            one.end()
        for world in self.worlds.values():
            if world.daemon:
                world.daemon.stop()

    def why_not(self, row):
        world = self.worlds.get(row.world)
        if row.world in self.absent:
            return self.absent[row.world]
        if row.ahead_us and not all(one.has_hint for one in world.latency):
            return "this libgpumux.so has no gpumux_expect"
        return None

    def window(self, row, workload, schedules, seconds):
        """A turn of a row: {"latency": [...], "best_effort": [rate...], "hints": N, "unanswered": N}."""
        world = self.worlds[row.world]
        latency = world.latency[:len(workload.latency)]
        best_effort = world.best_effort[:len(workload.best_effort) if row.is_beside else 0]
        begin = time.monotonic_ns() + round(LEAD_S * 1e9)
        for one in best_effort:
            one.begin_work(begin, seconds)
        for one, at_us in zip(latency, schedules):
            one.begin_serve(begin, seconds, row.ahead_us, at_us)
        served = [one.take_window() for one in latency]
        worked = [one.take_window() for one in best_effort]
        return {"latency": [latencies(pairs, seconds) for _, pairs in served],
                "best_effort": [done_within([at for at, in ends], seconds) / seconds for _, ends in worked],
                "hints": sum(answer["hints"] for answer, _ in served),
                "unanswered": sum(answer["requests"] - answer["served"] for answer, _ in served)}

    def measure(self, name, until):
        """A workload's windows, all rows in turn: [{row: window}], a round each."""
        workload = WORKLOADS[name]
        if self.args.rate:
            workload = workload._replace(latency=[(model, self.args.rate, pattern) for model, _, pattern in workload.latency])
        self.prepare(workload)
        rows = [row for row in self.rows if self.why_not(row) is None]
        time_left = until - time.monotonic()
        seconds = min(self.args.window / 1000, time_left / (self.args.rounds * len(rows)) - LEAD_S - .05)
        seconds = max(seconds, LEAST_WINDOW_S)
        one = {"workload": name, "what": workload.what, "window_s": seconds, "rounds": [],
               "latency": workload.latency, "best_effort": workload.best_effort,
               "not_offered": {row.name: self.why_not(row) for row in self.rows if self.why_not(row)}}
        self.rig.result["workloads"].append(one)
        for number in range(self.args.rounds):
            if number and time.monotonic() + len(rows) * (seconds + LEAD_S) > until + 5:
                break
            schedules = [arrivals(rate, pattern, seconds, f"{name} {index} {number}")
                         for index, (_, rate, pattern) in enumerate(workload.latency)]
            turns = rows[number % len(rows):] + rows[:number % len(rows)] # what drifts hits all rows alike
            done = {row.name: self.window(row, workload, schedules, seconds) for row in turns}
            one["rounds"].append(done)


def run(rig):
    args = rig.args
    if not args.workloads:
        args.workloads = [name for name in WORKLOADS if (name in CHATS) == (args.which_class == "found") and name not in OVER]
    if len({OVER.get(name) for name in args.workloads}) > 1:
        raise r.Failure("workloads of different budgets are measured one after the other")
    rig.result.update(programs=args.programs or ("app" if args.simcuda else "torch"), workloads=[], unit_us={})
    rig.sizes = rig.result["sizes"] = {}
    bench = Bench(rig)
    bench.open_worlds()
    for number, name in enumerate(args.workloads):
        left = rig.left() - 4 # to end everything
        if number and left < 10:
            print(f"latency: no time was left for {', '.join(args.workloads[number:])}")
            break
        bench.measure(name, time.monotonic() + left / (len(args.workloads) - number))
    bench.end()


def mean_over(windows, key, base):
    """Of each program of a window, that figure less the one of the same program in the other; the mean of all."""
    return r.mean([one[key] - other[key] for one, other in zip(windows, base)])


def ratios(values, base):
    return [one / other for one, other in zip(values, base) if other]


def row_of(name, rounds):
    """What a row comes to: medians over the rounds of what its windows are against those of the same round."""
    found = {"row": name, "count": sum(one["count"] for done in rounds for one in done[name]["latency"]),
             "hints": sum(done[name]["hints"] for done in rounds),
             "unanswered": sum(done[name]["unanswered"] for done in rounds)}
    each = collections.defaultdict(list)
    for done in rounds:
        mine, alone, native = (done[which] for which in (name, "alone", "native"))
        for key in FIGURES:
            each[key].append(mean_over(mine["latency"], key, alone["latency"]) if name != "alone" else
                             r.mean([one[key] for one in alone["latency"]]))
        each["of_alone"].append(r.mean([one["mean_us"] / other["mean_us"]
                                        for one, other in zip(mine["latency"], alone["latency"])]))
        each["max_us"].append(max(one["max_us"] for one in mine["latency"]))
        if name != "alone":
            shares = ratios(mine["best_effort"], native["best_effort"])
            if shares:
                each["best_effort"].append(r.mean(shares))
                each["total"].append(r.mean(shares + ratios([one["rate"] for one in mine["latency"]],
                                                            [one["rate"] for one in native["latency"]])))
    found.update({key: r.median(values) for key, values in each.items()})
    return found


def judge(table):
    """The goals of a workload. Of rows in which nothing is changed, the one that holds up p99 least is judged."""
    rows = {row["row"]: row for row in table["rows"]}
    offered = [rows[name] for name in UNCHANGED if name in rows]
    for workload, name, key, wanted in GOALS:
        row = rows.get(name) if name else min(offered, key=lambda one: one["p99_us"], default=None)
        if workload != table["workload"] or row is None or key not in row:
            continue
        is_share = key == "best_effort"
        what = {"mean_us": "added mean, us", "p99_us": "added p99, us", "best_effort": "best-effort rate"}[key]
        yield {"goal": f"{workload}, {row['row']}: {what}", "measured": row[key], "wanted": wanted,
               "is_share": is_share, "is_met": row[key] >= wanted if is_share else row[key] <= wanted}


def show(one):
    """Of a workload (pictures.py reads these lines where they are kept)."""
    print(f"latency {one['workload']}: {one['what']}; {len(one['rounds'])} rounds of {one['window_s']:.2f} s a row")
    for row in one["rows"]:
        sign = "" if row["row"] == "alone" else "+"
        line = (f"    {row['row']:11}mean {row['mean_us']:{sign}.0f} us, p50 {row['p50_us']:{sign}.0f}, p99 "
                f"{row['p99_us']:{sign}.0f}; {r.percent(row['of_alone'])} of alone")
        if "total" in row:
            line += f"; best-effort {r.percent(row['best_effort'])}, total {r.percent(row['total'])}"
        print(line + (f"; {row['unanswered']} requests were not answered within a second" if row["unanswered"] else ""))
    for name, why in one["not_offered"].items():
        print(f"    {name:11}not offered: {why}")


def conclude(rig):
    result = rig.result
    tables = [one for one in result.get("workloads", ()) if one["rounds"]]
    for one in tables:
        one["rows"] = [row_of(row.name, one["rounds"]) for row in ROWS if row.name in one["rounds"][0]]
    result["goals"] = [goal for one in tables for goal in judge(one)] if result.get("programs") == "torch" else []
    for one in tables:
        show(one)
    if not tables:
        return
    if result["programs"] != "torch":
        print("the programs were stand-ins: this shows that the bench works, not how fast gpumux is")
    r.show_goals(result["goals"])


if __name__ == "__main__":
    r.main("latency", __doc__, add_options, run, conclude)

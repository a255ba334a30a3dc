#!/usr/bin/env python3
"""bench/overhead: what gpumux costs a program when everything fits: native against gpumux.

Three processes of the same program live beside each other and take turns of some milliseconds: two natively, A and
B, and one under a daemon whose budget holds all of it. While one works the others wait, so nothing but time is
between the turns that are compared, and whatever drifts (clock rates, temperature, the host) hits all three. What
makes a host noisy, and what is done about it:

- Its speed changes by a factor of two within a second. Turns are much shorter than that, and there are as many rounds
  as --seconds allows. Behind another process caches are cold, so the first units of a turn are not counted, and who
  follows whom is balanced (ORDERS in paired.py).
- A core can be slow for as long as a process lives, which would look like a cost of gpumux in one generation and like
  a gain in the next. So the thread that works is on the same core in all three, as only one of them works at a time;
  on another core in each generation, and never on the one on which the bench itself is. Pinned is that thread and
  what it starts later and waits for, such as autograd's; the driver's threads, those of gpumux and the imports run
  where they like. Eight threads get eight cores, the same in all three, if there are so many. Where there is one
  core, or no permission, and with --no-pin, nothing is pinned, and the result says so ("pinning").
- What belongs to a process and not to gpumux (where its memory came to lie) would look like a cost, too, so all
  three are started anew in each generation. And as a library more moves everything by the same in each start, where
  threads' stacks and the heap lie within a page is drawn (bench/calls.c), and before each load of a model what else is
  on the heap. With --loads N models are loaded N times in each generation, and their objects lie elsewhere each time;
  what the driver, PyTorch and gpumux have made meanwhile stays where it is.

Of each round: the ratio of gpumux to A and to B, and that of A to B, which is the same measurement with nothing to be
found. Of a load count the medians (for gpumux to native the geometric mean of two), of a generation and of all of them
the geometric mean, with the interval of 95 % by Student's t over the generations (paired.py). The noise is how far from
1 the interval of A to B reaches; a ratio is within it if its interval meets [1/noise, noise]. Beside it stands the
ratio of the total times of all rounds, which rare long stalls cannot hide from; it is noisier, as the stalls of the
host are in it as well.

A load ends on a whole cycle of ORDERS, if there is time for one; what there is beyond (of a run that was stopped) is
not counted, nor is a load without one. Where half of a case's loads have none, all its rounds are counted, and the
result says that they are not balanced.

A goal is missed if the ratio that was measured is above its limit, however wide the interval, or if it should be
within the noise and is not. It is met if the whole interval is at most the limit, and the noise, where the ratio
should be within it, is so as well: a noise that is wider would let pass what the limit would not. All else is not
decided: the run cannot tell a ratio above the limit from one that is fine, and more generations might. So is what
would be met of one generation, which has no interval, and of rounds that are not balanced.

Processes of one program differ by some percent, and a launch costs tens of nanoseconds of some thousand more. So beside
launches by one thread ("launch-1") stands what the hook itself costs them ("hook-1"): in one process, burst by burst,
launches by the entry point that the program has against launches by the driver's own, each burst to the end of its
last kernel, as "launch-1" has it: where the GPU takes longer than who submits, a hook costs nothing in both. The ratio
of the two is what a round has of a process, and natively it is 1. What else gpumux may do to a process (its threads,
where memory lies, what waiting for a burst costs) is in both and cancels; it is in "launch-1" alone. "hook-8" is the
same of eight threads at once, each burst to the end of the slowest.

So it is with models ("hook-resnet18" and so on): some units with the hooks, some past them, in one process
(bench/python/hooks.py), which tells far smaller costs than processes that are compared. The way past a hook is a jump,
which has a cost as well; a third way, with a second jump, tells it, and it is taken off ("/ driver's own"; beside it
"/ past hooks", where it is not, a bound from below). What this leaves out is in the models' own cases alone, as above,
and in calls that keep the books of memory, which cross the shim in every way.

With --forked the three processes of a model are forked from one that has imported PyTorch with gpumux preloaded, and
has made no CUDA call. So where their code lies and all that they had before, in which pages of the machine too, is
the same in all three, which else makes processes differ by some percent. The native ones first take gpumux out
(hooks.take_out): what it exports becomes a jump to what it stands before, so that who asks for an entry point of the
driver gets the driver's own. What is in the comparison is all that gpumux does, but for being loaded.

With --third another process is compared with A and B, to find out what a cost is made of: a third native one (what the
bench itself finds where there is nothing), one with the library and without a daemon (the hooks are there, and memory
is the driver's), or a native one whose memory PyTorch maps itself by the driver's VMM (memory as gpumux has it, and no
hooks).

Several runs of the same code are one larger sample: python3 bench/summary.py --together FILE...

Measured are the calls of the driver (bench/bench_calls: empty kernels by one thread and by eight, replays of a graph,
allocating and freeing memory of different sizes, again and again, and for the first time in a turn; and more and more
of it, each piece filled before the next is allocated, "grow", as when a model is loaded, or not, "burst"), and models
in PyTorch (bench/python/units.py): inference of one image, decoding, eager and with CUDA graphs, and training. The
results of the models have to be the same in all three processes, and nothing may be switched or moved.
"""

import argparse
import math
import sys
import time

import rig as r
from actors import forked, under
from cores import Cores
from paired import ORDERS, compare, whole_cycles
from shares import Shares, generations_for

NATIVE = ("native A", "native B")
# The third process by what --third says: its name.
THIRDS = {"gpumux": "gpumux", "native": "native C", "alone": "alone", "vmm": "vmm"}
HOOKED = ("gpumux", "alone")
LANE_COUNT = 3
LAUNCHES = ("launch-1", "launch-8")
HOOKS = ("hook-1", "hook-8")
GRAPHS = ("graph-20",)
SIZES = ("4K", "64K", "1M", "2M", "4M", "32M", "128M", "512M", "2G", "8G")
GROWTHS = ("4M", "20M", "128M", "512M") # 20M is a segment of PyTorch's for smaller tensors
GROWN_MOST, GROWN_LEAST, GROWN_BYTES = 32, 3, 4 * 2**30 # pieces at once, as in calls.c
OF_MEMORY = ("alloc", "grow", "burst")
MODELS = ("resnet18", "resnet50", "resnet101", "resnet152", "decode", "decode-graphs", "training")
MODEL_HOOKS = tuple(f"hook-{name}" for name in MODELS)
AT_MOST = 1.005         # of native, of everything
AT_MOST_LAUNCHES = 1.01 # and of launches
METRICS = {"unit_ns": "", "hook_ratio": " / driver's own", "jump_ratio": " / past hooks", "first_ns": " first alloc",
           "alloc_ns": " alloc", "free_ns": " free", "more_ns": ""}
ALLOC_METRICS = ("first_ns", "alloc_ns", "free_ns")
CASE_METRICS = {"alloc": ALLOC_METRICS, "grow": ("more_ns",), "burst": ("more_ns",),
                **dict.fromkeys(HOOKS, ("hook_ratio",)),
                **dict.fromkeys(MODEL_HOOKS, ("hook_ratio", "jump_ratio"))} # by kind or case
TIMES = {"hook_ratio": "unit_ns", "jump_ratio": "unit_ns"} # what is shown beside a metric that is no time
TOTALS = {"alloc_ns": "alloc_mean_ns", "free_ns": "free_mean_ns", "more_ns": "more_mean_ns",
          "hook_ratio": "hook_mean_ratio"} # of what totals are made, if it was told, else of the metric
ROUNDS = 120            # where time does not end them
SIM_ROUNDS = 6          # ... nor speed is looked at
LEAST_ROUNDS = 2
MEMORY = 80 * 2**30     # of the GPU that this is made for
SIM_MEMORY = "1G"       # of the simulated one, where its environment says nothing
LEAST_UNITS = 2         # of a model in a turn
THREADS = 8             # of the case with most
MOST_AT_ONCE = 5        # generations
SPENT = .92             # of --seconds; the rest is to conclude and to clean up


def names(text):
    return [part for part in text.split(",") if part]


def grown(size):
    """Bytes that bench_calls holds at once in pieces of that size."""
    return max(min(GROWN_MOST * size, GROWN_BYTES), GROWN_LEAST * size)


def is_of_memory(name):
    kind, _, size = name.partition("-")
    return kind in OF_MEMORY and size != ""


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def add_options(parser):
    parser.add_argument("--programs", choices=("all", "calls", "cpu"), default="all",
                        help="all: calls and the models in PyTorch on the GPU; calls: no PyTorch; cpu: tiny models on "
                             "the processor, to try this out (all; calls with --simcuda)")
    parser.add_argument("--only", type=names, metavar="NAME,...",
                        help="of " + ", ".join(LAUNCHES + HOOKS + GRAPHS + tuple(
                            f"{kind}-SIZE" for kind in OF_MEMORY) + MODELS + MODEL_HOOKS))
    parser.add_argument("--alloc", type=names, metavar="SIZE,...",
                        help=f"sizes that are allocated ({','.join(SIZES)}; with --simcuda those of a quarter of its "
                             "memory at most)")
    parser.add_argument("--generations", type=count, metavar="N",
                        help="starts of the processes (by --seconds: 3 or more if that leaves time to measure)")
    parser.add_argument("--loads", type=count, default=1, metavar="N",
                        help="of each model in a generation (1); of the same time there are fewer generations")
    parser.add_argument("--rounds", type=count, metavar="N",
                        help=f"of each case in a load, at most, and at least {LEAST_ROUNDS}; from "
                             f"{len(ORDERS)} on multiples of that (as many as there is time for; without --seconds "
                             f"{ROUNDS}, with --simcuda {SIM_ROUNDS})")
    parser.add_argument("--turn", type=r.milliseconds, default=10, metavar="TIME", help="of a call (10ms)")
    parser.add_argument("--model-turn", type=r.milliseconds, default=20, metavar="TIME",
                        help=f"of a model, and at least {LEAST_UNITS} units (20ms); with hooks and past them each of "
                             "ten in a row a quarter of it, and at least one unit")
    parser.add_argument("--forked", action="store_true",
                        help="the three processes of a model are forked from one that has PyTorch imported and the "
                             "library preloaded, which the native ones take out")
    parser.add_argument("--third", choices=THIRDS, default="gpumux",
                        help="what is compared with A and B. gpumux: a program under it. Where a cost of that may come "
                             "from: native: a third one like A and B, what the bench finds where there is nothing; "
                             "alone: one with the library and no daemon, which has the hooks and not the memory; "
                             "vmm: a native model with memory that PyTorch maps itself (expandable segments) (gpumux)")
    parser.add_argument("--no-pin", action="store_true", help="let every thread run on any core")
    parser.add_argument("--budget", type=r.size, metavar="SIZE",
                        help="of the daemon (40G; with --simcuda half of its memory)")


def fit(rig):
    """Into the options what was not given, by the memory of the simulated GPU, or of the smallest real one."""
    args, memory = rig.args, MEMORY
    if args.simcuda:
        memory = r.size(rig.environment.get("SIMCUDA_MEMORY", SIM_MEMORY))
        if args.programs == "all":
            args.programs = "calls"
    if args.programs == "calls" and (args.forked or args.loads > 1):
        option = "--forked" if args.forked else "--loads"
        raise r.Failure(f"{option} is for models, and there are none among calls: leave one of both out")
    if args.third == "vmm" and args.programs != "all":
        raise r.Failure("--third vmm is for models on a GPU: leave --programs and --simcuda out")
    args.alloc = args.alloc or [size for size in SIZES if r.size(size) <= memory // 4]
    args.budget = args.budget or memory // 2
    args.grow = [size for size in GROWTHS if grown(r.size(size)) <= args.budget // 8]
    if not args.rounds and not args.seconds:
        args.rounds = SIM_ROUNDS if args.simcuda else ROUNDS


def lane_names(rig):
    """Of the three processes."""
    return (*NATIVE, THIRDS[rig.args.third])


def surroundings(rig, lane, daemon):
    """The environment of a process, which one with a linked shim needs in part."""
    if lane == "gpumux":
        return under(rig, daemon, is_preloaded=not rig.is_linked)
    return {"LD_PRELOAD": rig.shim} if lane == "alone" and not rig.is_linked else {}


def check_hooked(name, answer, is_hooked):
    """An answer that may say whether the shim was there; it should have been, or not."""
    if bool(answer.pop("is_hooked", is_hooked)) != is_hooked:
        raise r.Failure(f"{name}: " + ("its launches do not pass the shim" if is_hooked else
                                       "something stands before the driver of a native process"))
    return answer


class Calls:
    """Driver calls, by bench_calls."""

    start_s, load_s, again_s = 2, .1, .1 # about, until they were measured: to start, a process' first load, and others
    bytes = 2**28                        # of host memory, about
    parent = None

    @staticmethod
    def loads(rig):
        """In a generation."""
        del rig
        return 1

    def __init__(self, rig, lane, daemon, cores):
        self.is_hooked = lane in HOOKED
        command = [rig.at("bench/bench_calls" + ("_linked" if self.is_hooked and rig.is_linked else ""))]
        if cores:
            command += ["--cores", ",".join(map(str, cores[:THREADS]))]
        self.process = r.Process(rig, f"calls-{lane}".replace(" ", "-"), command, surroundings(rig, lane, daemon))
        self.pid = self.process.pid

    @classmethod
    def start(cls, rig, order, daemon, cores):
        return {lane: cls(rig, lane, daemon, cores) for lane in order}

    @staticmethod
    def weight(name):
        return {"alloc": 1, "grow": 4}.get(name.partition("-")[0], 2)

    @staticmethod
    def work(rig, name, first=None):
        """What a turn does, by what the first did."""
        del name, first
        return f"{rig.args.turn:g}"

    def await_ready(self):
        self.process.await_line("ready", 60)
        self.turn("hook-1", 0) # checks what its launches pass

    def begin_load(self, name):
        pass

    def end_load(self):
        return None

    def turn(self, name, work):
        kind, what = name.split("-")
        return check_hooked(name, self.process.ask(f"{kind} {what} {work}", 120), self.is_hooked)


class Models:
    """Models in PyTorch, by units.py."""

    start_s, load_s, again_s = 12, 4, 1.5 # it imports; and makes its context with its first model
    bytes = 2**31

    @staticmethod
    def loads(rig):
        return rig.args.loads

    def __init__(self, process, is_hooked, parent=None):
        self.process, self.is_hooked, self.parent = process, is_hooked, parent
        self.pid = None

    @classmethod
    def start(cls, rig, order, daemon, cores):
        if rig.is_linked:
            raise r.Absent("what a sanitizer built cannot be preloaded into Python")
        command = [sys.executable, "-B", "-u", f"{rig.here}/python/units.py"]
        if rig.args.programs == "cpu":
            command += ["--device", "cpu"]
        if cores:
            command += ["--core", str(cores[0])]
        if rig.args.forked:
            parent, children = forked(rig, "models", command, {lane: "native" if lane.startswith("native") else lane
                                                               for lane in order}, under(rig, daemon))
            return {lane: cls(child, lane in HOOKED, parent) for lane, child in children.items()}
        return {lane: cls(r.Process(rig, f"models-{lane}".replace(" ", "-"),
                                    command + (["--vmm"] if lane == "vmm" else []), surroundings(rig, lane, daemon)),
                          lane in HOOKED) for lane in order}

    @staticmethod
    def weight(name):
        del name
        return 4

    @staticmethod
    def work(rig, name, first=None):
        """
        Units of a turn, and before them those that are not counted: the same of all, so that they stay in step. By
        each way past the hooks or not few units and none before them: another way always came before, so what that
        costs is in all.
        """
        is_hook = name in MODEL_HOOKS
        least, turn = (1, rig.args.model_turn / 4) if is_hook else (LEAST_UNITS, rig.args.model_turn)
        units = max(least, round(turn * 1e6 / r.median([one["unit_ns"] for one in first]))) if first else least
        return f"{units} {0 if is_hook else 1 if units < 4 else 2}"

    def answer(self, seconds):
        line = self.process.line(seconds)
        if line.startswith("absent "):
            raise r.Absent(line.partition(" ")[2])
        return self.process.understand(line)

    def await_ready(self):
        self.pid = self.answer(180)["pid"]

    def begin_load(self, name):
        self.process.send(f"load {name}")

    def end_load(self):
        """Absent, when all have answered: else the next answer would be taken for another."""
        try:
            return self.answer(180)
        except r.Absent as absent:
            return absent

    def turn(self, name, work):
        self.process.send(f"{'hook' if name in MODEL_HOOKS else 'run'} {work}")
        return check_hooked(name, self.answer(180), self.is_hooked)


def check_sums(case, answers):
    if answers[0] and "sum" in answers[0] and len({one["sum"] for one in answers}) != 1:
        raise r.Failure(f"{case['case']}: results differ: {[one['sum'] for one in answers]}")


def step(name, number):
    """Of the plan, by the number of the load: the first takes longer than those that follow in the same processes."""
    return f"{name} again" if number > 0 else name


def drop(shares, name):
    for number in (0, 1):
        shares.drop(step(name, number))


def load_cost(kind, group, name, number):
    """Seconds, about. hook-MODEL takes the model that is there."""
    is_there = name.startswith("hook-") and name.removeprefix("hook-") in group
    return 0 if is_there else kind.again_s if number > 0 else kind.load_s


def load(case, lanes):
    """The case into all of them, at once."""
    for lane in lanes:
        lane.begin_load(case["case"])
    loaded = [lane.end_load() for lane in lanes]
    for one in loaded:
        if isinstance(one, r.Absent):
            raise one
    check_sums(case, loaded)


def check_apps(rig, daemon, lanes):
    """The one under gpumux is an app of the daemon, and the others are not."""
    if isinstance(lanes[0], Models) and rig.args.programs == "cpu": # where nobody makes a CUDA call
        return
    apps = {app["pid"] for app in daemon.status()["apps"]}
    for name, lane in zip(lane_names(rig), lanes):
        if (lane.pid in apps) != (name == "gpumux"):
            raise r.Failure(f"{name}: it is " + ("an app of the daemon" if lane.pid in apps else
                                                 "no app of the daemon"))


def is_going_on(number, spent, share, most):
    """
    After so many rounds, in so much of the share of the time: another one? A cycle is begun if it is going to fit,
    and then is a whole one; only the first ends with the time.
    """
    cycle = len(ORDERS)
    if number < LEAST_ROUNDS:
        return True
    if number < cycle:
        return number < most and spent < share
    return number % cycle != 0 or (number + cycle <= most and spent * (number + cycle) / number <= share)


def measure(rig, case, lanes, daemon, shares, which):
    """A load of a case, of the generation and number in `which`: rounds while its share lasts, and at least a few."""
    name, planned, begun = case["case"], step(case["case"], which["load"]), time.monotonic()
    shares.began(planned)
    load(case, lanes)
    check_apps(rig, daemon, lanes)
    first = [lane.turn(name, lanes[0].work(rig, name)) for lane in lanes] # not counted: the first of everything
    work = lanes[0].work(rig, name, first)
    shares.took(planned, time.monotonic() - begun)
    found = {**which, "work": work, "orders": [],
             "turns": {lane: {key: [] for key in first[0] if key != "sum"} for lane in lane_names(rig)}}
    case["generations"].append(found)
    begun, share, number = time.monotonic(), shares.seconds(planned), 0
    while is_going_on(number, time.monotonic() - begun, share, rig.args.rounds or math.inf):
        turns = [None] * len(lanes)
        for index in ORDERS[number % len(ORDERS)]:
            turns[index] = lanes[index].turn(name, work)
        check_sums(case, turns)
        found["orders"].append(number % len(ORDERS))
        for times_of, turn in zip(found["turns"].values(), turns):
            for key, values in times_of.items():
                values.append(turn[key])
        number += 1
    check_apps(rig, daemon, lanes)


def wanted(rig):
    """The cases of each kind of program, in order."""
    calls = [*LAUNCHES, *HOOKS, *GRAPHS, *(f"alloc-{size}" for size in rig.args.alloc),
             *(f"{kind}-{size}" for kind in ("grow", "burst") for size in rig.args.grow)]
    models = [] if rig.args.programs == "calls" else [
        name for pair in zip(MODELS, MODEL_HOOKS) for name in pair if name in MODELS or not rig.args.forked]
    if rig.args.only:
        known = [*calls, *MODELS, *MODEL_HOOKS]
        for name in rig.args.only:
            if name not in known and not is_of_memory(name):
                raise r.Failure(f"there is no case {name}")
            if name in MODEL_HOOKS and rig.args.forked:
                raise r.Failure(f"case {name} has its own way past the hooks, which --forked leaves out")
            if name in MODELS + MODEL_HOOKS and not models:
                raise r.Failure(f"case {name} is a model, which --programs {rig.args.programs} leaves out")
        calls = [name for name in rig.args.only if name in calls or is_of_memory(name)]
        models = [name for name in rig.args.only if name in models]
        if calls and rig.args.third == "vmm":
            raise r.Failure(f"case {calls[0]} is a call, which --third vmm leaves out")
    if rig.args.third == "vmm":
        calls = []
    return [(Calls, calls), (Models, models)]


def shares_of(rig, kinds, cores, generations):
    """Of the time, for all generations."""
    kept = (1 - SPENT) * rig.args.seconds
    steps, costs, weights = [], {}, {}
    for kind, group in kinds:
        if group:
            loads = [(name, number) for number in range(kind.loads(rig)) for name in group]
            steps += [kind.__name__, *(step(*one) for one in loads)]
            costs.update({kind.__name__: kind.start_s / at_once(kind, cores),
                          **{step(*one): load_cost(kind, group, *one) for one in loads}})
            weights.update({step(name, number): kind.weight(name) for name, number in loads})
    return Shares(lambda: rig.left() - kept, steps * generations, costs, weights)


def at_once(kind, cores):
    """
    How many generations of a kind of program to start together: as many as there are cores and memory for that, and
    few enough that nobody waits for long.
    """
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), 0)
    return max(1, min(MOST_AT_ONCE, len(cores.all) // LANE_COUNT, available // (LANE_COUNT * kind.bytes)))


def start(rig, kind, daemon, shares, generations):
    """The programs of these generations, together: {generation: lanes}. Absent, if what they need is."""
    begun, found = time.monotonic(), {}
    for generation in generations:
        shares.began(kind.__name__)
        order = [lane_names(rig)[index] for index in ORDERS[generation % len(ORDERS)]] # the first finds another machine
        lanes = kind.start(rig, order, daemon, rig.result["pinning"]["cores"][generation])
        found[generation] = [lanes[lane] for lane in lane_names(rig)]
    try:
        for lanes in found.values():
            for lane in lanes:
                lane.await_ready()
    except r.Absent: # and one that is not goes on
        for lanes in found.values():
            for lane in lanes:
                lane.process.process.stdin.close()
        raise
    shares.took(kind.__name__, (time.monotonic() - begun) / len(found))
    return found


def generate(rig, lanes, cases, cores, daemon, shares, generation):
    """One generation of a kind of program, which is started: measured in all of its cases, ended."""
    for number in range(lanes[0].loads(rig)):
        for case in cases:
            if case["case"] in rig.result["absent"]:
                continue
            try:
                with cores.at_home():
                    measure(rig, case, lanes, daemon, shares, {"generation": generation, "load": number})
            except r.Absent as absent:
                rig.result["absent"][case["case"]] = str(absent)
                drop(shares, case["case"])
    for lane in lanes: # all at once
        lane.process.process.stdin.close()
    for lane in lanes:
        lane.process.end()
    for parent in {lane.parent for lane in lanes if lane.parent}:
        parent.end()


def run(rig):
    args = rig.args
    fit(rig)
    kinds = wanted(rig)
    cases = {name: {"case": name, "generations": []} for _, group in kinds for name in group}
    rig.result.update(cases=list(cases.values()), absent={}, settings={
        key: getattr(args, key) for key in ("third", "forked", "programs", "turn", "model_turn", "no_pin")})
    cores = Cores(not args.no_pin)
    cost = sum(kind.start_s / at_once(kind, cores) +
               sum(load_cost(kind, group, name, number) for number in range(kind.loads(rig)) for name in group)
               for kind, group in kinds if group)
    generations = args.generations or generations_for(rig.left(), cost)
    rig.result["pinning"] = {"is_pinned": not cores.why_not, "why_not": cores.why_not,
                             "home": None if cores.why_not else cores.all[0],
                             "cores": [cores.of(one, generations)[:THREADS] for one in range(generations)]}
    shares = shares_of(rig, kinds, cores, generations)
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=2**27, idle="100ms", policy=None, quantum=None)
    started = {kind: {} for kind, _ in kinds}
    for generation in range(generations):
        for kind, group in kinds:
            group = [name for name in group if name not in rig.result["absent"]]
            if not group or (kind is Models and rig.result["absent"].get("models")):
                continue
            try:
                if generation not in started[kind]:
                    last = min(generations, generation + at_once(kind, cores))
                    started[kind] = start(rig, kind, daemon, shares, range(generation, last))
            except r.Absent as absent:
                rig.result["absent"]["models"] = str(absent)
                shares.drop(kind.__name__)
                for name in group:
                    drop(shares, name)
                continue
            generate(rig, started[kind][generation], [cases[name] for name in group], cores, daemon, shares,
                     generation)
    if not any(one["orders"] for case in cases.values() for one in case["generations"]):
        raise r.Absent("; ".join(f"{name}: {why}" for name, why in rig.result["absent"].items()))
    gpu = daemon.gpu()
    rig.result["moved"] = {key: gpu[key] for key in ("switches", "bytes_in", "bytes_out")}
    if any(rig.result["moved"].values()):
        raise r.Failure(f"everything fits, and yet something moved: {rig.result['moved']}")
    daemon.stop()


def times(case, *metrics):
    """By generation and load: of each round the time in each process, by the first of the metrics that was told."""
    groups = [one for one in case["generations"] if one["orders"]]
    metric = next(metric for metric in metrics if all(metric in one["turns"][NATIVE[0]] for one in groups))
    found = {}
    for one in groups:
        found.setdefault(one["generation"], []).append(list(zip(*(lane[metric] for lane in one["turns"].values()))))
    return list(found.values())


def line_of(case, metric):
    """What a metric of a case comes to."""
    rounds, is_balanced = whole_cycles(times(case, metric))
    totals, _ = whole_cycles(times(case, TOTALS.get(metric, metric), metric))
    shown, _ = whole_cycles(times(case, TIMES.get(metric, metric)))
    found = compare(rounds, totals)
    ratio, native = found["ratio"], found["native"]
    noise = is_within = is_surely_above = None # of one generation
    if len(rounds) > 1:
        noise = max(native["high"], 1 / native["low"])
        is_within = ratio["low"] <= noise and ratio["high"] >= 1 / noise
        is_surely_above = ratio["low"] > AT_MOST
    return {"case": case["case"], "metric": metric, "generations": len(rounds), "loads": sum(map(len, rounds)),
            "rounds": sum(len(one) for loads in rounds for one in loads),
            "is_balanced": is_balanced, **found, "noise": noise,
            "ns": {lane: r.median([one[index] for loads in shown for group in loads for one in group])
                   for index, lane in enumerate(case["generations"][0]["turns"])},
            "is_within_noise": is_within, "is_above": ratio["median"] > AT_MOST, "is_surely_above": is_surely_above}


def is_met(line, most, is_in_noise):
    """At most so much of native and, if is_in_noise, within the noise? None: not decided."""
    ratio = line["ratio"]
    if ratio["median"] > most or (is_in_noise and line["is_within_noise"] is False):
        return False
    if not line["is_balanced"] or line["generations"] < 2:
        return None
    return True if max(ratio["high"], line["noise"] if is_in_noise else 0) <= most else None


def goal_of(line):
    """None where nothing is wanted: small allocations, which are the plain driver's, the first of a turn, pieces that
    nobody fills, and what is only a bound."""
    kind, _, what = line["case"].partition("-")
    if line["metric"] in ("first_ns", "jump_ratio") or kind == "burst":
        return None
    if is_of_memory(line["case"]):
        if r.size(what) <= 2**21:
            return None
        text, most, is_in_noise = "no slower", 1, False
    elif line["case"] in LAUNCHES + HOOKS + MODEL_HOOKS:
        most = AT_MOST if line["case"] in MODEL_HOOKS else AT_MOST_LAUNCHES
        text, is_in_noise = "of native", False
    else:
        text, most, is_in_noise = "of native, within noise", AT_MOST, True
        if line["is_within_noise"] is False and line["ratio"]["median"] < 1:
            text += ", and is faster than that"
    metric, ratio, total = METRICS[line["metric"]], line["ratio"], line["total"]
    return {"goal": f"{line['case']}{metric}: {text} ({show_share(ratio['median'])}, {show_span(ratio)}; noise "
                    f"{show_noise(line)}; of all time {show_share(total['value'])}, {show_span(total)})",
            "measured": ratio["median"], "wanted": most, "is_share": True,
            "is_met": is_met(line, most, is_in_noise)}


def show_share(value):
    return "-" if value is None else f"{100 * value:.2f} %"


def show_span(found):
    return f"{show_share(found['low'])} to {show_share(found['high'])}" if found["low"] else "interval unknown"


def show_noise(line):
    return show_share(line["noise"] and line["noise"] - 1)


def show_ns(value):
    for unit, name in ((1e6, "ms"), (1e3, "us")):
        if value >= unit:
            return f"{value / unit:.3f} {name}"
    return f"{value:.0f} ns"


def lines_of(cases):
    """What those that were measured come to."""
    lines = []
    for case in cases:
        if any(one["orders"] for one in case["generations"]):
            name = case["case"]
            metrics = CASE_METRICS.get(name, CASE_METRICS.get(name.partition("-")[0], ("unit_ns",)))
            lines += [line_of(case, metric) for metric in metrics]
    return lines


def third_of(line):
    """The name of the process that was compared with A and B."""
    return next(reversed(line["ns"]))


def goals_of(lines):
    """None where the third process is not under gpumux: then there is nothing to reach."""
    return [goal for goal in map(goal_of, lines) if goal] if third_of(lines[0]) == THIRDS["gpumux"] else []


def show(lines, goals, absent):
    rows = []
    for line in lines:
        metric = METRICS[line["metric"]]
        native = math.sqrt(line["ns"][NATIVE[0]] * line["ns"][NATIVE[1]])
        ratio, total = line["ratio"], line["total"]
        rows.append([line["case"] + metric, line["rounds"], show_ns(native), show_ns(line["ns"][third_of(line)]),
                     *(r.number(ratio[key], 4) for key in ("median", "low", "high")),
                     *(r.number(total[key], 4) for key in ("value", "low", "high")),
                     r.number(line["native"]["median"], 4), show_noise(line),
                     {True: "yes", False: "no", None: "-"}[line["is_within_noise"]],
                     "surely" if line["is_surely_above"] else "yes" if line["is_above"] else "no"])
    r.table(["case", "rounds", "native", third_of(lines[0]), "ratio", "from", "to", "of all time", "from", "to",
             "A to B", "noise", "within noise", f"above {AT_MOST}"], rows)
    for name in dict.fromkeys(line["case"] for line in lines if not line["is_balanced"]):
        print(f"not balanced: {name}: too few loads have a whole cycle of {len(ORDERS)} rounds")
    for name, why in absent.items():
        print(f"not measured: {name}: {why}")
    r.show_goals(goals)


def conclude(rig):
    result, args = rig.result, rig.args
    lines = result["lines"] = lines_of(result.get("cases", []))
    if not lines:
        return
    pinning = result["pinning"]
    print(f"overhead: native against {third_of(lines[0])}, everything fits; {len(pinning['cores'])} generations; "
          "intervals of 95 % by Student's t over them; " +
          ("on cores " + ", ".join(str(cores[0]) for cores in pinning["cores"])
           if pinning["is_pinned"] else f"not pinned: {pinning['why_not']}") +
          ("; models forked from one" if args.forked else "") +
          (f"; models loaded {args.loads} times in each" if args.loads > 1 else ""))
    result["goals"] = goals_of(lines)
    show(lines, result["goals"], result["absent"])


def kind_of(result, name):
    """What the results of a case must agree in; results until 2026-11-23 do not say all of it."""
    settings = result.get("settings", {"third": "gpumux", "forked": "--forked" in result["command"]})
    return {"GPU": result["machine"]["gpu"],
            **{key: value for key, value in settings.items() if name in MODELS + MODEL_HOOKS or key != "forked"}}


def together(results):
    """
    Print what several results come to, of the same code and kind of machine: all generations of a case, which are the
    sample whenever they were made. Failure, if they are not of one kind, or not several, or not whole.
    """
    cases, kinds, known, absent, number = {}, {}, set(), {}, 0
    for result in results:
        if not all("generations" in case for case in result["cases"]) or not result["is_verified"]:
            raise r.Failure(f"the result of {result['date']} is not whole, or of the time before there were generations")
        if (result["date"], str(result["command"])) in known:
            raise r.Failure(f"the result of {result['date']} is there twice")
        known.add((result["date"], str(result["command"])))
        absent.update(result["absent"])
        for case in result["cases"]:
            name = case["case"]
            for what, value in kind_of(result, name).items():
                if kinds.setdefault((name, what), value) != value:
                    raise r.Failure(f"the results of {name} differ in {what}: {kinds[name, what]} and {value}")
            found = cases.setdefault(name, {"case": name, "generations": []})
            found["generations"] += [{**one, "generation": number + one["generation"]}
                                     for one in case["generations"]]
        number += len(result["pinning"]["cores"])
    lines = lines_of(cases.values())
    if len(set(map(third_of, lines))) > 1:
        raise r.Failure("the results differ in the third process")
    commits = list(dict.fromkeys(result["commit"] or "an unknown one" for result in results))
    print(f"overhead: {len(results)} results together, of commit " + ", ".join(commits) +
          (", which have to be the same where it counts" if len(commits) > 1 else ""))
    show(lines, goals_of(lines), absent)


if __name__ == "__main__":
    r.main("overhead", __doc__, add_options, run, conclude)

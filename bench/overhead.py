#!/usr/bin/env python3
"""bench/overhead: what gpumux costs a program when everything fits: native against gpumux.

Three processes of the same program take turns of some milliseconds: two run natively, A and B, and one runs under a
daemon whose budget holds all of it. Only one of them works at a time, and all three work on the same core, so that
whatever drifts (clock rates, the host) hits all three. A and B differ by nothing: their ratio is the noise.

One start gives one ratio: the median turn under gpumux over the geometric mean of the median turns of A and B. The
table shows the median over all starts, and the smallest and the largest.

    launch-1, launch-8   an empty kernel, by one thread and by eight at once (bench/bench_calls)
    graph-20             a replay of a CUDA graph of 20 empty kernels
    grow-20M             one allocation of a program that allocates 20 MiB again and again and fills each
    resnet50             inference of one image in PyTorch (bench/python/units.py)
    decode               one token of a decoder of 1.1 billion weights, each kernel launched by itself
    decode-graphs        the same in one CUDA graph
    training             one step of training a ResNet-50
    load                 reading a model file of --model-bytes from the page cache onto the GPU, first in a process
    load-again           the same, later in that process

The models compute the same in all three processes, or the bench fails; so it does if the daemon moved anything.

With --marking it is what it costs to mark the memory that work touches: A and B run under one daemon, which does not ask
for it, and the third under another one, on which an idle program has more memory than the budget. So that one asks.
"""

import math
import os
import sys
import time

import rig as r
from actors import under

LANES = ("native A", "native B", "gpumux")
CALLS = ("launch-1", "launch-8", "graph-20", "grow-20M")
LOADS = ("load", "load-again")
MODELS = ("resnet50", "decode", "decode-graphs", "training")
SIMULATED = CALLS[:3]  # what the simulated GPU has room for, and kernels
LIMITS = {"load": 1.1} # of native; of all others:
LIMIT = 1.01
LIMIT_MARKING = 1.08   # of launches and replays of nothing
SPENT = .9             # of --seconds; the rest is to end everything
LEAST_ROUNDS = 3
LEAST_UNITS = 2        # of a model in a turn
THREADS = 8            # of the case with most


def names(text):
    return [part for part in text.split(",") if part]


def add_options(parser):
    parser.add_argument("--only", type=names, metavar="NAME,...", help="of " + ", ".join(CALLS + MODELS + LOADS))
    parser.add_argument("--starts", type=int, default=3, metavar="N", help="of the processes (3)")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="of each case in a start, at most (40)")
    parser.add_argument("--turn", type=r.milliseconds, default=20, metavar="TIME", help="about (20ms)")
    parser.add_argument("--budget", type=r.size, metavar="SIZE", help="of the daemon (40G; with --simcuda 512M)")
    parser.add_argument("--marking", action="store_true", help="beside the same without marking, not natively")
    parser.add_argument("--model-bytes", type=r.size, default=10 * 2**30, metavar="SIZE", help="of the file (10G)")
    parser.add_argument("--model-dir", default="/var/tmp", metavar="DIR", help="of that file (/var/tmp)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: tiny models on the processor, to try this out")


class Program:
    """A lane: one process, asked by lines."""

    def __init__(self, rig, lane, program, command, daemons):
        daemon = daemons[LANES.index(lane)]
        self.process = r.Process(rig, f"{program}-{lane}".replace(" ", "-"), command,
                                 under(rig, daemon, is_preloaded=not rig.is_linked))

    def answer(self, seconds=180):
        line = self.process.line(seconds)
        if line.startswith("absent "):
            raise r.Absent(line.partition(" ")[2])
        return self.process.understand(line)


class Calls:
    """Driver calls, by bench_calls."""

    def __init__(self, rig, daemons, cores):
        self.turn_ms = rig.args.turn
        self.lanes = []
        for lane, daemon in zip(LANES, daemons):
            command = [rig.at("bench/bench_calls" + ("_linked" if daemon and rig.is_linked else ""))]
            self.lanes.append(Program(rig, lane, "calls", command + ["--cores", ",".join(map(str, cores[:THREADS]))],
                                      daemons))
        for lane in self.lanes:
            lane.process.await_line("ready", 60)

    def begin(self, name):
        del name

    def turn(self, index, name):
        kind, what = name.split("-")
        answer = self.lanes[index].process.ask(f"{kind} {what} {self.turn_ms:g}", 120)
        return answer["more_ns" if kind == "grow" else "unit_ns"], None


class Models:
    """Models in PyTorch, by units.py."""

    def __init__(self, rig, daemons, cores):
        if rig.is_linked:
            raise r.Absent("what a sanitizer built cannot be preloaded into Python")
        self.turn_ms = rig.args.turn
        command = [sys.executable, "-B", "-u", f"{rig.here}/python/units.py", "--core", str(cores[0]),
                   "--device", rig.args.device, "--file", rig.model_file or ""]
        self.lanes = [Program(rig, lane, "models", command, daemons) for lane in LANES]
        for lane in self.lanes:
            lane.answer()
        self.units = {}

    def begin(self, name):
        if name in LOADS:
            return
        for lane in self.lanes:
            lane.process.send(f"model {name}")
        for lane in self.lanes:
            lane.answer()
        self.units = {index: LEAST_UNITS for index in range(len(LANES))}
        unit_ns = max(self.turn(index, name)[0] for index in range(len(LANES))) # not counted: the first of everything
        units = max(LEAST_UNITS, round(self.turn_ms * 1e6 / unit_ns))
        self.units = {index: units for index in range(len(LANES))}

    def turn(self, index, name):
        lane = self.lanes[index]
        lane.process.send("load" if name in LOADS else f"run {self.units[index]}")
        answer = lane.answer()
        return answer["unit_ns"], answer["sum"]


def measure(rig, kind, name, until):
    """Turns of all three, round after round: {lane: [ns]}."""
    kind.begin(name)
    found = {lane: [] for lane in LANES}
    rounds = {"load": 1, "load-again": 2}.get(name, rig.args.rounds)
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.monotonic() > until:
            break
        sums = set()
        for offset in range(len(LANES)): # each follows each of the others
            index = (number + offset) % len(LANES) if number % 2 else (number - offset) % len(LANES)
            ns, one = kind.turn(index, name)
            found[LANES[index]].append(ns)
            sums.add(one)
        if len(sums) != 1:
            raise r.Failure(f"{name}: results differ: {sorted(sums)}")
    return found


def is_marking(pid):
    """Whether the words of a process are mapped, which they are once it marks."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        spans = [line.split("-", 1) for line in maps if "gpumux-stat" in line]
    return any(int(end.split()[0], 16) - int(start, 16) > 2**29 for start, end in spans)


def check_apps(rig, daemons, kind):
    """Each is an app of its daemon and of no other, and marks if that asks for it."""
    if rig.args.device == "cpu" and isinstance(kind, Models):
        return # nobody makes a CUDA call
    for daemon in {daemon for daemon in daemons if daemon}:
        apps = {app["pid"] for app in daemon.status()["apps"]}
        for own, program in zip(daemons, kind.lanes):
            if (program.process.pid in apps) != (own is daemon):
                raise r.Failure(f"{program.process.name}: it is {'an' if program.process.pid in apps else 'no'} app of "
                                "that daemon")
    for lane, program in zip(LANES, kind.lanes):
        if is_marking(program.process.pid) != (rig.args.marking and lane == "gpumux"):
            raise r.Failure(f"{program.process.name}: it {'marks' if lane != 'gpumux' else 'does not mark'}")


def make_model_file(rig):
    """A model file of random words, in the page cache as it was just written."""
    path = os.path.join(rig.args.model_dir, f"gpumux-bench-{os.getpid()}.model")
    block = os.urandom(2**26)
    with open(path, "wb") as file:
        for done in range(0, rig.args.model_bytes, len(block)):
            file.write(block[:rig.args.model_bytes - done])
    return path


def run(rig):
    args = rig.args
    wanted = args.only or (SIMULATED if args.simcuda else CALLS + LOADS + MODELS)
    for name in wanted:
        if name not in CALLS + MODELS + LOADS:
            raise r.Failure(f"there is no case {name}: --only takes {', '.join(CALLS + MODELS + LOADS)}")
    budget = args.budget or (2**29 if args.simcuda else 40 * 2**30) // (2 if args.marking else 1)
    pinned = 2**34 if args.marking and not args.simcuda else 2**28 # what asks has memory of both on the host
    options = {"gpu_budget": budget, "pinned": pinned, "idle": "100ms", "turn": None}
    rig.result.update(cases={name: [] for name in wanted}, absent={}, marking=args.marking)
    cores = sorted(os.sched_getaffinity(0))
    rig.model_file = make_model_file(rig) if set(LOADS) & set(wanted) else None
    try:
        daemon = r.Daemon(rig, **options)
        daemons = [daemon if args.marking else None] * 2 + [daemon]
        if args.marking:
            daemons[-1] = asking = r.Daemon(rig, "asking", oversize="host", **options)
            filler = r.App(rig, "filler", budget + 2**27, asking, piece=2**26)
        for start in range(args.starts):
            first = start * len(cores) // args.starts
            measure_start(rig, daemons, wanted, cores[first:] + cores[:first], args.starts - start)
        gpu = daemon.gpu()
        moved = {key: gpu[key] for key in ("switches", "bytes_in", "bytes_out")}
        if any(moved.values()) and not args.marking:
            raise r.Failure(f"everything fits, and yet something moved: {moved}")
        if args.marking:
            filler.end()
            asking.stop()
        daemon.stop()
    finally:
        if rig.model_file:
            os.unlink(rig.model_file)
    if not any(rig.result["cases"].values()):
        raise r.Absent("; ".join(f"{name}: {why}" for name, why in rig.result["absent"].items()))


def measure_start(rig, daemons, wanted, cores, starts_left):
    """All cases in new processes; of --seconds that are left this start has its share."""
    time_left = rig.left() - (1 - SPENT) * rig.args.seconds
    end = time.monotonic() + time_left / starts_left
    cases = [name for name in wanted if name not in rig.result["absent"]]
    for factory, group in ((Calls, [name for name in cases if name in CALLS]),
                           (Models, [name for name in cases if name not in CALLS])):
        group.sort(key=lambda name: name not in LOADS) # the first load is the first of its process
        if not group:
            continue
        try:
            kind = factory(rig, daemons, cores)
            for name in group:
                left = sum(one in cases for one in wanted[wanted.index(name):])
                until = time.monotonic() + max(0, end - time.monotonic()) / left
                rig.result["cases"][name].append(measure(rig, kind, name, until))
            check_apps(rig, daemons, kind)
        except r.Absent as absent:
            rig.result["absent"].update(dict.fromkeys(group, str(absent)))
            continue
        for lane in kind.lanes:
            lane.process.end()


def line_of(name, starts):
    """What a case comes to."""
    medians = [{lane: r.median(one[lane]) for lane in LANES} for one in starts]
    ratios = sorted(one["gpumux"] / math.sqrt(one["native A"] * one["native B"]) for one in medians)
    noise = [max(one["native A"] / one["native B"], one["native B"] / one["native A"]) - 1 for one in medians]
    return {"case": name, "native_ns": r.median([math.sqrt(one["native A"] * one["native B"]) for one in medians]),
            "gpumux_ns": r.median([one["gpumux"] for one in medians]), "ratio": r.median(ratios),
            "least": ratios[0], "most": ratios[-1], "noise": r.median(noise), "starts": len(starts),
            "rounds": sum(len(one["gpumux"]) for one in starts)}


def show_ns(value):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value >= unit:
            return f"{value / unit:.3f} {name}"
    return f"{value:.0f} ns"


def conclude(rig):
    lines = rig.result["lines"] = [line_of(name, starts) for name, starts in rig.result.get("cases", {}).items()
                                   if starts]
    if not lines:
        return
    is_marking_too = rig.result["marking"]
    than = "without marking" if is_marking_too else "native"
    limits = {**LIMITS, **dict.fromkeys(SIMULATED, LIMIT_MARKING if is_marking_too else LIMIT)}
    rig.result["goals"] = [{"goal": f"{one['case']}: of {than}", "measured": one["ratio"], "is_share": True,
                            "wanted": limits.get(one["case"], LIMIT),
                            "is_met": one["ratio"] <= limits.get(one["case"], LIMIT)} for one in lines]
    print("overhead: marking what is touched" if is_marking_too else
          "overhead: native against gpumux, everything fits")
    r.table(["case", "starts", "rounds", than, "marking" if is_marking_too else "gpumux", "ratio", "least", "most",
             "noise"],
            [[one["case"], one["starts"], one["rounds"], show_ns(one["native_ns"]), show_ns(one["gpumux_ns"]),
              *(r.number(one[key], 4) for key in ("ratio", "least", "most")), r.percent(one["noise"])]
             for one in lines])
    for name, why in rig.result["absent"].items():
        print(f"not measured: {name}: {why}")
    r.show_goals(rig.result["goals"])


if __name__ == "__main__":
    r.main("overhead", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""bench/overhead: what gpumux costs a program when everything fits: native against gpumux.

Three processes of the same program take turns of some milliseconds: two run natively, A and B, and one runs under a
daemon whose budget holds all of it. Only one of them works at a time, and all three work on the same core, so that
whatever drifts (clock rates, the host) hits all three. A and B differ by nothing: their ratio is the noise.

One start gives one ratio: the median turn under gpumux over the geometric mean of the median turns of A and B. The
table shows the median over all starts, and the smallest and the largest.

    launch-1, launch-8   an empty kernel, by one thread and by eight at once (bench/bench_calls)
    graph-20             a replay of a CUDA graph of 20 empty kernels
    grow-20M and others  one allocation of a program that allocates so much again and again and fills each
    resnet50             inference of one image in PyTorch (bench/python/models.py)
    decode               one token of a decoder of 3 GiB, each kernel launched by itself
    decode-graphs        the same in one CUDA graph
    training             one step of training a ResNet-50
    load                 reading a model file of --model-bytes from the page cache onto the GPU

The models compute the same in all three processes, or the bench fails; so it does if the daemon moved anything.

With --marking it is what it costs to mark the memory that work touches: A and B run under one daemon, which does not ask
for it, and the third under another one, on which an idle program has more memory than the budget. So that one asks.
"""

import math
import os
import time

import programs as p
import rig as r

LANES = ("native A", "native B", "gpumux")
CALLS = ("launch-1", "launch-8", "graph-20", "grow-4M", "grow-20M", "grow-128M", "grow-512M")
MODELS = {"resnet50": ("inference", 2**30), "decode": ("decoder", 3 * 2**30), "decode-graphs": ("decoder-graphs", 3 * 2**30),
          "training": ("resnet50", 4 * 2**30), "load": ("loading", 0)} # of models.py, and bytes
CASES = (*CALLS, *MODELS)
SIMULATED = CALLS[:3] # what the simulated GPU has room for, and kernels
LIMITS = {"load": 1.1} # of native; of all others:
LIMIT = 1.01
LIMIT_MARKING = 1.08 # of launches and replays of nothing
SPENT = .9 # of --seconds; the rest is to end everything
LEAST_ROUNDS = 3


def add_options(parser):
    parser.add_argument("--only", type=r.some_of(CASES), metavar="NAME,...", help="of " + ", ".join(CASES))
    parser.add_argument("--starts", type=int, default=3, metavar="N", help="of the processes (3)")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="of each case in a start, at most (40)")
    parser.add_argument("--turn", type=r.milliseconds, default=20, metavar="TIME", help="about (20ms)")
    parser.add_argument("--budget", type=r.size, metavar="SIZE", help="of the daemon (40G; with --simcuda 512M)")
    parser.add_argument("--marking", action="store_true", help="beside the same without marking, not natively")
    parser.add_argument("--model-bytes", type=r.size, default=10 * 2**30, metavar="SIZE", help="of the file (10G)")
    parser.add_argument("--model-dir", default="/var/tmp", metavar="DIR", help="of that file (/var/tmp)")
    p.add_options(parser)


class Calls:
    """Driver calls, by bench_calls."""

    def __init__(self, rig, daemons, cores, _name):
        self.turn_ms = rig.args.turn
        self.lanes = []
        for lane, daemon in zip(LANES, daemons):
            command = [rig.at("bench/bench_calls" + ("_linked" if daemon and rig.is_linked else ""))]
            self.lanes.append(r.Process(rig, f"calls-{lane}".replace(" ", "-"), command,
                                        r.under(rig, daemon, is_preloaded=not rig.is_linked)))
        for lane in self.lanes:
            lane.await_line("ready", 60)
            os.sched_setaffinity(lane.pid, cores[:1])

    def turn(self, index, name):
        kind, what = name.split("-")
        answer = self.lanes[index].ask(f"{kind} {what} {self.turn_ms:g}", 120)
        return answer["more_ns" if kind == "grow" else "unit_ns"]


class Models:
    """Models in PyTorch, which compare what they compute; their main threads all work on the first core."""

    def __init__(self, rig, daemons, cores, name):
        self.turn_ms = rig.args.turn
        model, count = MODELS[name]
        plan = p.Plan(model, 2**22 if rig.args.programs == "cpu" else count, file=rig.model_file)
        self.lanes = [p.make(rig, f"{name}-{lane}".replace(" ", "-"), plan, daemon) for lane, daemon in zip(LANES, daemons)]
        p.load_all(self.lanes)
        for lane in self.lanes:
            os.sched_setaffinity(lane.pid, cores[:1])
            lane.units() # not counted: the first of everything

    def turn(self, index, _name):
        return self.lanes[index].units(self.turn_ms)["pass_ms"] * 1e6


def measure(rig, kind, name, until):
    """Turns of all three, round after round: {lane: [ns]}."""
    found = {lane: [] for lane in LANES}
    for number in range(LEAST_ROUNDS if name == "load" else rig.args.rounds):
        if number >= LEAST_ROUNDS and time.monotonic() > until:
            break
        for offset in range(len(LANES)): # each follows each of the others
            index = (number + offset) % len(LANES) if number % 2 else (number - offset) % len(LANES)
            found[LANES[index]].append(kind.turn(index, name))
    return found


def is_marking(pid):
    """Whether the words of a process are mapped, which they are once it marks."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        spans = [line.split("-", 1) for line in maps if "gpumux-stat" in line]
    return any(int(end.split()[0], 16) - int(start, 16) > 2**29 for start, end in spans)


def check_apps(rig, daemons, kind):
    """Each is an app of its daemon and of no other, and marks if that asks for it."""
    if rig.args.programs == "cpu" and isinstance(kind, Models):
        return # nobody makes a CUDA call
    for daemon in {daemon for daemon in daemons if daemon}:
        apps = {app["pid"] for app in daemon.status()["apps"]}
        for own, process in zip(daemons, kind.lanes):
            if (process.pid in apps) != (own is daemon):
                raise r.Failure(f"{process.name}: it is {'an' if process.pid in apps else 'no'} app of that daemon")
    for lane, process in zip(LANES, kind.lanes):
        if is_marking(process.pid) != (rig.args.marking and lane == "gpumux"):
            raise r.Failure(f"{process.name}: it {'marks' if lane != 'gpumux' else 'does not mark'}")


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
    wanted = args.only or (SIMULATED if args.simcuda else CASES)
    budget = args.budget or (2**29 if args.simcuda else 40 * 2**30) // (2 if args.marking else 1)
    pinned = 2**34 if args.marking and not args.simcuda else 2**28 # what asks has memory of both on the host
    options = {"gpu_budget": budget, "pinned": pinned, "idle": "100ms", "turn": None}
    rig.result.update(cases={name: [] for name in wanted}, absent={}, marking=args.marking)
    cores = sorted(os.sched_getaffinity(0))
    rig.model_file = make_model_file(rig) if "load" in wanted else None
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
    groups = [(Calls, [name for name in cases if name in CALLS])] + [(Models, [name]) for name in cases if name in MODELS]
    for factory, group in groups:
        if not group:
            continue
        try:
            kind = factory(rig, daemons, cores, group[0])
        except r.Absent as absent:
            rig.result["absent"].update(dict.fromkeys(group, str(absent)))
            continue
        for name in group:
            left = sum(one in cases for one in wanted[wanted.index(name):])
            until = time.monotonic() + max(0, end - time.monotonic()) / left
            rig.result["cases"][name].append(measure(rig, kind, name, until))
        check_apps(rig, daemons, kind)
        for lane in kind.lanes:
            lane.end()


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

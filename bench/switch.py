#!/usr/bin/env python3
"""bench/switch: two programs that do not fit together hand the GPU to each other, again and again.

Both hold all of their memory written. They take turns strictly: the one that was idle is asked to work; it notes
the time before its first GPU call, which is held until its memory is there, runs an empty kernel to its end (time to
first kernel), then verifies and rewrites every byte, answers and is idle. What a switch moved and where its time went
is what the daemon says (mux-ctl status --json, gpus[0].history). The ceiling is bench/link of the same run: before
the first measured turn, in the middle and after the last, while the daemon is idle.

--peer checkpoint does the same turns without gpumux, through the driver's own suspend: of the one process
cuCheckpointProcessLock and ...Checkpoint, of the other ...Restore and ...Unlock. It moves all memory of both, whether
there is room or not. --peer restart ends the one program and starts the other with its memory filled by a kernel,
which is the least that a restart can cost: real programs load their data from somewhere.
"""

import time

import rig as r

# What sums up to total_ms, and what lies across.
SUMMED = ("drain_ms", "plan_ms", "lower_ms", "pinned_ms", "copy_ms", "hash_ms", "unmap_ms", "map_ms", "other_ms")
PARTS = SUMMED + ("link_ms", "out_ms", "in_ms", "total_ms")


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[16 * 2**30, 20 * 2**30], metavar="SIZE,SIZE",
                        help="of the two programs (16G,20G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--pinned", type=r.size, metavar="SIZE", help="pinned memory (both sizes together, and 128M)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--idle", type=r.milliseconds, default=5, metavar="TIME",
                        help="the daemon's option (5ms); with --gap 0 each turn waits for that as well")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="measured turns of each program (20)")
    parser.add_argument("--warm", type=int, default=10, metavar="N", help="turns of each before those (10)")
    parser.add_argument("--peer", action="append", choices=("checkpoint", "restart"), default=[],
                        help="compare with; may be given twice")
    parser.add_argument("--peer-turns", type=int, default=3, metavar="N", help="turns of each program there (3)")


def derive(record, ceiling):
    """What follows from a turn's record and the ceiling."""
    parts = record["parts"]
    whole = parts["total_ms"] if parts else record["first_ms"]
    moved = (parts or record)["bytes_out"] + (parts or record)["bytes_in"]
    ideal = r.copy_ideal_ms((parts or record)["bytes_out"], (parts or record)["bytes_in"], ceiling)
    record["ideal_ms"] = ideal
    record["whole_over_ideal"] = whole / ideal if ideal else None
    record["rate"] = moved / parts["link_ms"] / 1e6 if parts and parts["link_ms"] else None
    record["share_of_ceiling"] = record["rate"] and record["rate"] / ceiling["both"]
    record["not_hidden"] = (whole - parts["link_ms"]) / whole if parts and whole else None
    record["beyond_switch_ms"] = record["first_ms"] - parts["total_ms"] if parts else None


def summarize(records):
    summary = {key: r.spread([record[key] for record in records])
               for key in ("first_ms", "ideal_ms", "whole_over_ideal", "rate", "share_of_ceiling", "not_hidden",
                           "beyond_switch_ms", "bytes_out", "bytes_in", "work_ms")}
    summary["parts"] = {key: r.spread([record["parts"][key] for record in records if record["parts"]])
                        for key in PARTS}
    return summary


def measure(rig):
    args = rig.args
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=args.pinned or sum(args.sizes) + 2**27,
                      idle=f"{args.idle:g}ms")
    rig.result["has_parts"] = r.tell_history(daemon)
    apps = [r.App(rig, f"app-{index}", count, daemon, piece=args.piece) for index, count in enumerate(args.sizes)]
    warm, records = [], []
    rig.result.update(warm=warm, turns=records)
    # With a limit of time, a quarter of what is left here is to warm up, most of the rest for measured turns.
    until = time.monotonic() + rig.left() / 4
    while len(warm) < args.warm * 2 and (len(warm) < 2 or time.monotonic() < until):
        warm.append(r.turn(rig, daemon, apps[len(warm) % 2]))
    if len(warm) % 2:
        apps.reverse() # each turn has to be of the program that was idle
    daemon.settle()
    rig.link("before")
    link_s = rig.result["link"][0]["took_s"]
    begun, is_middle = time.monotonic(), False
    until = begun + rig.left() - link_s - rig.closing_s()
    if rig.args.seconds:
        until -= link_s
    while len(records) < args.turns * 2 and (len(records) < 2 or time.monotonic() < until):
        if not is_middle and (len(records) >= args.turns or time.monotonic() > (begun + until) / 2):
            is_middle = True
            rig.link("middle")
        records.append(r.turn(rig, daemon, apps[len(records) % 2]))
    rig.link("after")
    rig.result["tiers"] = daemon.gpu()["tiers"]
    for app in apps:
        app.end()
    daemon.stop()
    if any(record["switches"] == 0 for record in records):
        raise r.Failure("turns without a switch: the sizes fit into the budget together")


def digest(rig):
    records = rig.result["turns"]
    ceiling = rig.result["ceiling"] = rig.ceiling()
    for record in rig.result["warm"] + records:
        record.pop("tiers", None)
    for record in records:
        derive(record, ceiling)
    names = sorted({record["app"] for record in records})
    rig.result["warm_max_ms"] = max(record["first_ms"] for record in rig.result["warm"])
    rig.result["summary"] = {"all": summarize(records),
                             **{name: summarize([x for x in records if x["app"] == name]) for name in names}}


def show(rig):
    result, args = rig.result, rig.args
    ceiling, summary = result["ceiling"], result["summary"]
    print(f"switch: programs of {' and '.join(map(r.show_size, args.sizes))}, budget {r.show_size(args.budget)}; "
          f"{len(result['turns'])} turns in turn after {len(result['warm'])} to warm up (longest "
          f"{r.number(result['warm_max_ms'])} ms to the first kernel); every byte verified in every turn")
    print("link, both ways at once: " + ", ".join(f"{one['both']:.1f} {one['when']}" for one in result["link"]) +
          f" GB/s; to the GPU {ceiling['h2d']:.1f}, from it {ceiling['d2h']:.1f}")

    def cell(of, key, digits=1):
        return r.number(of[key] and of[key]["median"], digits)

    r.table(["to", "out GiB", "in GiB", "switch ms", *(key[:-3] for key in SUMMED), "GB/s", "of link", "of ideal",
             "not hidden"],
            [[name, *(r.number(of[key]["median"] / 2**30, 2) for key in ("bytes_out", "bytes_in")),
              *(cell(of["parts"], key) for key in ("total_ms",) + SUMMED),
              cell(of, "rate"), *(r.percent(of[key] and of[key]["median"])
                                  for key in ("share_of_ceiling", "whole_over_ideal", "not_hidden"))]
             for name, of in summary.items()])
    print("time to first kernel, ms:")
    r.table(["to", "p10", "p50", "p90", "p99", "max", "beyond the switch"],
            [[name, *(r.number(of["first_ms"][key]) for key in ("p10", "p50", "p90", "p99", "max")),
              cell(of, "beyond_switch_ms")]
             for name, of in summary.items()])


def judge(rig):
    """What the project wants to reach, beside what was measured. Not a test: the exit code does not tell."""
    of = rig.result["summary"]["all"]
    wanted = [("rate of the copies, of the ceiling", of["share_of_ceiling"], .95, True),
              ("whole switch, of bytes over ceiling", of["whole_over_ideal"], 1.10, False),
              ("time not hidden behind copies, of the switch", of["not_hidden"], .03, False)]
    goals = [{"goal": name, "measured": values["median"], "wanted": goal, "is_share": True,
              "is_met": values["median"] >= goal if is_least else values["median"] <= goal}
             for name, values, goal, is_least in wanted if values is not None]
    for peer in rig.result.get("peers", {}).values():
        if peer.get("is_available") and peer["peer"] == "checkpoint":
            goals.append({"goal": "times faster than the checkpoint calls", "measured": peer["ratio"], "wanted": 30,
                          "is_met": peer["ratio"] >= 30})
    r.show_goals(goals)
    rig.result["goals"] = goals


def run_checkpoint(rig):
    """The turns through the driver's own suspend: a list of {app, total_ms, out_ms, back_ms, first_ms, bytes}."""
    args = rig.args
    helper = r.Process(rig, "checkpoint", [rig.at("bench/bench_checkpoint")])
    try:
        line = helper.line(60)
    except r.Failure as failure:
        raise r.Absent(str(failure)) from None
    if line != "ready":
        raise r.Absent(line.partition(" ")[2])
    apps, turns = [], []
    for index, count in enumerate(args.sizes):
        apps.append(r.App(rig, f"checkpoint-app-{index}", count, piece=args.piece))
        if index == 0:
            helper.ask(f"out {apps[0].pid}", 240) # the first time costs more; not measured
    for _ in range(args.peer_turns):
        for app, other in (apps, apps[::-1]):
            begun = time.monotonic()
            out = helper.ask(f"out {other.pid}", 240)
            back = helper.ask(f"back {app.pid}", 240)
            switched = time.monotonic()
            answer = app.turn()
            turns.append({"app": app.name, "out_ms": out["ms"], "back_ms": back["ms"],
                          "first_ms": answer["first_ms"],
                          "total_ms": (switched - begun) * 1000 + answer["first_ms"],
                          "bytes_out": other.bytes, "bytes_in": app.bytes})
    helper.ask(f"back {apps[0].pid}", 240) # the last turn was the second's: the first has to end, too
    for app in apps:
        app.end()
    helper.end()
    return turns


def run_restart(rig):
    """The turns by ending the one and starting the other: a list of {app, total_ms, end_ms, start_ms, first_ms}."""
    args = rig.args
    app = r.App(rig, "restart-1", args.sizes[1], piece=args.piece)
    turns = []
    for number in range(args.peer_turns):
        for index in range(2):
            begun = time.monotonic()
            app.end()
            ended = time.monotonic()
            app = r.App(rig, f"restart-{index}-{number}", args.sizes[index], piece=args.piece)
            started = time.monotonic()
            answer = app.turn()
            turns.append({"app": f"app-{index}", "end_ms": (ended - begun) * 1000,
                          "start_ms": (started - ended) * 1000, "first_ms": answer["first_ms"],
                          "total_ms": (started - begun) * 1000 + answer["first_ms"],
                          "bytes_out": 0, "bytes_in": app.bytes})
    app.end()
    return turns


def run_peer(rig, peer):
    try:
        turns = {"checkpoint": run_checkpoint, "restart": run_restart}[peer](rig)
    except r.Absent as absent:
        rig.result["peers"][peer] = {"peer": peer, "is_available": False, "why": str(absent)}
        return

    def there_and_back(turns, value):
        """One turn each way: the sum of the two directions' medians."""
        return sum(r.median([value(turn) for turn in turns[way::2]]) for way in range(2))

    def moved(turn):
        return turn["bytes_out"] + turn["bytes_in"]

    own_turns = rig.result["turns"]
    theirs = there_and_back(turns, lambda turn: turn["total_ms"])
    ours = there_and_back(own_turns, lambda turn: turn["first_ms"])
    own = there_and_back(own_turns, moved)
    rig.result["peers"][peer] = {
        "peer": peer, "is_available": True, "turns": turns, "there_and_back_ms": theirs,
        "own_there_and_back_ms": ours, "ratio": theirs / ours,
        "ratio_a_byte": (theirs / there_and_back(turns, moved)) / (ours / own)
                        if own and peer == "checkpoint" else None}


def show_peer(peer):
    if not peer["is_available"]:
        print(f"{peer['peer']}: not available: {peer['why']}")
        return
    print(f"{peer['peer']}: there and back {peer['there_and_back_ms'] / 1000:.2f} s, gpumux "
          f"{peer['own_there_and_back_ms'] / 1000:.3f} s, from request to first kernel: {peer['ratio']:.1f} times "
          "faster" +
          (f"; a byte moved, {peer['ratio_a_byte']:.1f} times" if peer["ratio_a_byte"] else ""))


def run(rig):
    if len(rig.args.sizes) != 2 or min(rig.args.turns, rig.args.warm, rig.args.peer_turns) < 1:
        raise r.Failure("--sizes takes two sizes; there is at least one turn of each kind")
    rig.result["peers"] = {}
    measure(rig)
    for peer in rig.args.peer:
        run_peer(rig, peer)


def conclude(rig):
    if not rig.result.get("turns") or not rig.result.get("link"):
        return
    digest(rig)
    show(rig)
    for peer in rig.result["peers"].values():
        show_peer(peer)
    judge(rig)


if __name__ == "__main__":
    r.main("switch", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""bench/switch: programs that do not fit together hand the GPU to each other, again and again.

All hold all of their memory written. They take turns strictly: one that was idle is asked to work; it notes the time before
its first GPU call, which is held until its memory is there, runs an empty kernel to its end (time to first kernel), then
verifies, or verifies and rewrites, every byte, again and again for as long as the row says, answers and is idle. What a switch
moved and where its time went is what the daemon says (mux-ctl status --json, gpus[0].history). The ceiling is bench/link of the
same run, before and after all turns. Sets, of which --set picks one:

switch   two programs that rewrite all they have, and two that only read it, as models read their weights: unchanged memory is
         not copied out. --peer checkpoint does the turns of the first two without gpumux, through the driver's own suspend: of
         the one process cuCheckpointProcessLock and ...Checkpoint, of the other ...Restore and ...Unlock. It moves all memory
         of both, whether there is room or not
tiers    three programs whose turns work for 700 ms, with pinned memory for all of them, for a third and for a fifth, the rest
         paged; and with --disk for a ninth, the rest on the disk

Turns to warm up are counted apart: pinned memory is made as it is found to be lacking, and the daemon learns when each comes.
"""

import collections
import sys
import time

import rig as r

# What sums up to total_ms.
SUMMED = ("drain_ms", "plan_ms", "lower_ms", "pinned_ms", "copy_ms", "hash_ms", "unmap_ms", "map_ms", "other_ms")
COUNTED = ("bytes_out", "bytes_in", "bytes_clean", "hash_ms")
SLAB = 2**25 # of pinned memory: what the daemon takes at once
LEAST_PINNED = 7 * SLAB # that it wants with tiers below

# Suspends ("out PID") and resumes ("back PID") other processes by the driver's own calls, which came with CUDA 12.8.
CHECKPOINT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
verbs = {"out": ("Lock", "Checkpoint"), "back": ("Restore", "Unlock")}
calls = {verb: [getattr(cuda, "cuCheckpointProcess" + name) for name in names] for verb, names in verbs.items()}
assert cuda.cuInit(0) == 0
print("ready", flush=True)
for line in sys.stdin:
    verb, pid = line.split()
    for name, call in zip(verbs[verb], calls[verb]):
        arguments = (ctypes.c_uint * 64)(10000 if name == "Lock" else 0) # its timeout, ms
        code = call(int(pid), arguments)
        if code != 0:
            print(f"FAIL {name}: error {code}", flush=True)
            break
    else:
        print("done", flush=True)
"""

Set = collections.namedtuple("Set", "sizes budget work_ms")
SETS = {"switch": Set((16, 20), 24, 0), "tiers": Set((12, 12, 12), 14, 700)} # GiB
Row = collections.namedtuple("Row", "name work options")


def add_options(parser):
    parser.add_argument("--set", choices=tuple(SETS), default="switch", help="(switch)")
    parser.add_argument("--sizes", type=r.sizes, metavar="SIZE,...", help="of the programs (those of the set)")
    parser.add_argument("--budget", type=r.size, metavar="SIZE", help="of GPU memory (that of the set)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--work", type=r.milliseconds, metavar="TIME", help="of a turn, at least (that of the set)")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="measured turns of each program (10)")
    parser.add_argument("--warm", type=int, default=6, metavar="N", help="turns of each before those (6)")
    parser.add_argument("--disk", metavar="DIR", help="tiers: a folder for the disk tier (none)")
    parser.add_argument("--peer", choices=("checkpoint",), help="switch: compare with")
    parser.add_argument("--peer-turns", type=int, default=3, metavar="N", help="turns of each program there (3)")


def part_of(count):
    """Of pinned memory, in whole slabs."""
    return max(LEAST_PINNED, count // SLAB * SLAB)


def rows_of(args):
    total = sum(args.sizes)
    if args.set == "switch":
        return [Row(name, work, {"pinned": total + 4 * SLAB}) for name, work in (("rewrite", "rewrite"), ("read", "verify"))]
    found = [Row("all pinned", "rewrite", {"pinned": total})]
    found += [Row(f"1/{part} pinned", "rewrite", {"pinned": part_of(total // part), "paged": total}) for part in (3, 5)]
    if args.disk:
        found.append(Row("disk", "rewrite", {"pinned": part_of(total // 9), "disk": f"{args.disk}:{total}"}))
    return found


# ---- measuring ----

def take_turn(rig, daemon, app, work):
    """
    One turn of an app that was idle, and the switch that it caused. Afterwards the app is idle, and the daemon has had
    the time to notice. What moved is all since the turn before; the parts are those of its own last switch.
    """
    answer = app.turn(work, rig.args.work)
    time.sleep(rig.args.gap / 1000)
    moved = daemon.take()
    mine = [entry for entry in moved["history"] if entry["pid"] == app.pid]
    return {"app": app.name, **{key: answer[key] for key in ("first_ms", "work_ms", "pass_ms", "passes", "mismatches")},
            **{key: moved[key] for key in ("switches", "bytes_out", "bytes_in")}, "parts": mine[-1] if mine else None}


def measure(rig, row, until):
    args = rig.args
    daemon = r.Daemon(rig, f"daemon-{len(rig.result['rows'])}", gpu_budget=args.budget, **row.options)
    apps = [r.App(rig, f"app-{len(rig.result['rows'])}-{index}", count, daemon, piece=args.piece,
                  patience=400 if "disk" in row.options else 120) for index, count in enumerate(args.sizes)]
    found = {"row": row.name, "options": row.options, "warm": [], "turns": []}
    rig.result["rows"].append(found)

    def take_turns(turns, most, end):
        """So many, or fewer when the time ends, but one of each program."""
        while len(turns) < most * len(apps) and (len(turns) < len(apps) or time.monotonic() < end):
            turns.append(take_turn(rig, daemon, apps[0], row.work))
            apps.append(apps.pop(0)) # the next turn is another's

    begun = time.monotonic()
    for half in (args.warm - args.warm // 2, args.warm): # host memory grows by what was lacking, and holds it afterwards
        take_turns(found["warm"], half, begun + (until - begun) / 3)
        daemon.settle()
    before = daemon.gpu()
    take_turns(found["turns"], args.turns, until - rig.closing_s())
    gpu = daemon.gpu()
    found.update(moved={key: gpu[key] - before[key] for key in COUNTED}, tiers=gpu["tiers"])
    for app in apps:
        app.end()
    daemon.stop()
    if any(turn["switches"] == 0 for turn in found["turns"]):
        raise r.Failure("turns without a switch: the programs fit into the budget together")
    if not gpu["is_hashing"]:
        raise r.Failure("the daemon does not hash on this GPU: its log says why")
    if gpu["tiers"]["pinned_used_bytes"] > row.options["pinned"]:
        raise r.Failure(f"{row.name}: more pinned memory was used than the cap")


def run_checkpoint(rig):
    """The turns through the driver's own suspend: a list of {app, total_ms, first_ms}."""
    args = rig.args
    helper = r.Process(rig, "checkpoint", [sys.executable, "-c", CHECKPOINT])
    try:
        helper.await_line("ready", 60)
    except r.Failure as failure:
        raise r.Absent(str(failure)) from None
    apps, turns = [], []
    for index, count in enumerate(args.sizes):
        apps.append(r.App(rig, f"checkpoint-app-{index}", count, piece=args.piece))
        if index == 0:
            helper.ask(f"out {apps[0].pid}", 240) # the first time costs more; not measured
    for _ in range(args.peer_turns):
        for app, other in (apps, apps[::-1]):
            begun = time.monotonic()
            helper.ask(f"out {other.pid}", 240)
            helper.ask(f"back {app.pid}", 240)
            switched = time.monotonic()
            first_ms = app.turn()["first_ms"]
            turns.append({"app": app.name, "first_ms": first_ms, "total_ms": (switched - begun) * 1000 + first_ms})
    helper.ask(f"back {apps[0].pid}", 240) # the last turn was the second's: the first has to end, too
    for app in apps:
        app.end()
    helper.end()
    return turns


def there_and_back(turns, key):
    """One turn each way: the sum of the two directions' medians."""
    return sum(r.median([turn[key] for turn in turns[way::2]]) for way in range(2))


def measure_peer(rig):
    try:
        turns = run_checkpoint(rig)
    except r.Absent as absent:
        return {"is_available": False, "why": str(absent)}
    theirs, ours = there_and_back(turns, "total_ms"), there_and_back(rig.result["rows"][0]["turns"], "first_ms")
    return {"is_available": True, "turns": turns, "there_and_back_ms": theirs, "own_ms": ours, "ratio": theirs / ours}


def run(rig):
    args, chosen = rig.args, SETS[rig.args.set]
    args.sizes = args.sizes or [size * 2**30 for size in chosen.sizes]
    args.budget = args.budget or chosen.budget * 2**30
    args.work = chosen.work_ms if args.work is None else args.work
    if len(args.sizes) != len(chosen.sizes) or min(args.turns, args.warm, args.peer_turns) < 1:
        raise r.Failure(f"--sizes takes {len(chosen.sizes)} sizes here; there is at least one turn of each kind")
    rig.result.update(rows=[], peer=None, set=args.set)
    link_s = rig.link("before")["took_s"]
    rows = rows_of(args)
    for number, row in enumerate(rows):
        measure(rig, row, time.monotonic() + (rig.left() * .9 - link_s) / (len(rows) - number))
    rig.link("after")
    if args.peer and args.set == "switch":
        rig.result["peer"] = measure_peer(rig)


# ---- what it comes to ----

def digest(row, ceiling):
    turns = row["turns"]
    parts = [turn["parts"] for turn in turns if turn["parts"]]
    for one in parts:
        one["ideal_ms"] = r.copy_ideal_ms(one["bytes_out"], one["bytes_in"], ceiling)
    row["parts"] = {key: r.spread([one[key] for one in parts]) for key in SUMMED + ("total_ms", "ideal_ms")}
    row["rate"] = r.spread([(one["bytes_out"] + one["bytes_in"]) / one["link_ms"] / 1e6 for one in parts if one["link_ms"]])
    row["of_link"] = row["rate"] and row["rate"]["median"] / ceiling["both"]
    row["of_ideal"] = r.median([one["total_ms"] / one["ideal_ms"] for one in parts if one["ideal_ms"]] or [0])
    row["not_hidden"] = r.median([1 - one["link_ms"] / one["total_ms"] for one in parts if one["total_ms"]] or [0])
    row["first_ms"] = r.spread([turn["first_ms"] for turn in turns])
    row["pass_ms"] = r.median([turn["pass_ms"] for turn in turns])
    row["a_turn"] = {key: value / len(turns) for key, value in row["moved"].items()}
    row["warm_max_ms"] = max(turn["first_ms"] for turn in row["warm"])


def show(rig, rows):
    args, ceiling = rig.args, rig.result["ceiling"]
    print(f"{args.set}: programs of {' and '.join(map(r.show_size, args.sizes))}, budget {r.show_size(args.budget)}, turns "
          f"work for {args.work:g} ms; every byte verified in every turn")
    print(f"link, GB/s: to the GPU {ceiling['h2d']:.1f}, from it {ceiling['d2h']:.1f}, both ways at once {ceiling['both']:.1f}")
    r.table(["row", "turns", "out GiB", "unchanged", "in GiB", "switch ms", "p90", "GB/s", "of link", "of ideal", "not hidden",
             "paged GiB", "disk GiB"],
            [[row["row"], len(row["turns"]),
              *(r.number(row["a_turn"][key] / 2**30, 2) for key in ("bytes_out", "bytes_clean", "bytes_in")),
              *(r.number(row["parts"]["total_ms"][key]) for key in ("median", "p90")),
              r.number(row["rate"] and row["rate"]["median"]),
              *(r.percent(row[key]) for key in ("of_link", "of_ideal", "not_hidden")),
              *(r.number(row["tiers"].get(key, 0) / 2**30, 2) for key in ("paged_used_bytes", "disk_used_bytes"))]
             for row in rows])
    print("a switch in parts, ms (medians); time to first kernel, ms; a pass, ms:")
    r.table(["row", *(key[:-3] for key in SUMMED), "first p50", "p90", "max", "max warm", "pass"],
            [[row["row"], *(r.number(row["parts"][key]["median"]) for key in SUMMED),
              *(r.number(row["first_ms"][key]) for key in ("p50", "p90", "max")), r.number(row["warm_max_ms"]),
              r.number(row["pass_ms"], 3)] for row in rows])
    peer = rig.result["peer"]
    if peer and peer["is_available"]:
        print(f"checkpoint: there and back {peer['there_and_back_ms'] / 1000:.2f} s, gpumux {peer['own_ms'] / 1000:.3f} s, from "
              f"request to first kernel: {peer['ratio']:.1f} times slower")
    elif peer:
        print(f"checkpoint: not available: {peer['why']}")


def judge(rig, rows):
    """What the project wants to reach, beside what was measured. Not a test: the exit code does not tell."""
    of, goals = {row["row"]: row for row in rows}, []

    def goal(text, measured, wanted, is_least=False):
        goals.append({"goal": text, "measured": measured, "wanted": wanted, "is_share": True,
                      "is_met": measured >= wanted if is_least else measured <= wanted})

    if "rewrite" in of:
        goal("rate of the copies, of the ceiling", of["rewrite"]["of_link"] or 0, .95, is_least=True)
        goal("whole switch, of bytes over ceiling", of["rewrite"]["of_ideal"], 1.1)
        goal("time not hidden behind copies, of the switch", of["rewrite"]["not_hidden"], .03)
    if "read" in of:
        moved = of["read"]["moved"]
        goal("copied out of unchanged memory", moved["bytes_out"] / (moved["bytes_out"] + moved["bytes_clean"] or 1), 0)
        goal("whole switch of unchanged memory, of bytes over ceiling", of["read"]["of_ideal"], 1.1)
    for row in rows[1:] if rig.args.set == "tiers" else ():
        if row["row"] != "disk":
            goal(f"{row['row']}: first kernel, of all pinned",
                 row["first_ms"]["median"] / of["all pinned"]["first_ms"]["median"], 1.1)
    rig.result["goals"] = goals
    r.show_goals(goals)


def conclude(rig):
    rows = [row for row in rig.result.get("rows", []) if "moved" in row and any(turn["parts"] for turn in row["turns"])]
    if not rows or not rig.result.get("link"):
        return
    rig.result["ceiling"] = rig.ceiling()
    for row in rows:
        digest(row, rig.result["ceiling"])
    show(rig, rows)
    judge(rig, rows)


if __name__ == "__main__":
    r.main("switch", __doc__, add_options, run, conclude)

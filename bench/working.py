#!/usr/bin/env python3
"""bench/working: programs of which a turn touches a part.

A pool is bench/app: it fills --pool bytes, which it allocates in pieces of --piece, with random words; after that a pass
checks and rewrites --touch of them. Cells, of which --cells picks:

three         three pools that together have twice --budget; what they touch fits
beside        a pool beside a decoder, which reads all that it has for each token; budget --beside-budget
three-one, beside-one  the same with pools of one allocation and one base address: no argument says what is touched
round-one     the three of three-one, of which one at a time works, for --turn: a share is of what it does natively in its turns
end-one, middle-one    what they touch lies at the end of the allocation, or in its middle
stripes-one   ... in 16 stripes, evenly over it
moving-one    ... and goes on by as much once in --move, --moves times: how long until passes take again what they took
latency-one   two pools of one allocation beside a latency-critical program that has a request each 50 ms: how long these take
latency-blind the same, but the daemon cannot load NVML: nothing is tried
jax           two programs in JAX, each with a pool of --pool, allocated ahead, of which it uses --touch; --framework-budget
torch         two in PyTorch behind one large batch: what it took more, PyTorch keeps; likewise
hidden        three pools of half the size, of which one from some moment on also reads --hidden bytes through pointers
              that lie in device memory: no argument says so. With --hidden-budget most of what is cold lies on the host;
              --times with new programs each, beside the first of which are the same natively
blind         the same, but the daemon cannot load NVML

Beside each cell are the same programs natively, which the GPU must have the memory for: blocks alternate, and in each of them
all programs of one side work at once. A program's share is its rate of that natively. What moved is counted from --warm after
the last fill on; "settled" is when within that time all had 90 % for as long as a block. At the end all memory is checked.
"""

import functools
import math
import os
import time

import programs
import rig as r
import sides

FIRST = ("three", "beside", "three-one", "beside-one", "hidden", "blind")
CELLS = (*FIRST, "round-one", "end-one", "middle-one", "stripes-one", "moving-one", "latency-one", "latency-blind", "jax",
         "torch")
STRIPES = 16
REQUEST_S = .05 # from one to the next


def add_options(parser):
    programs.add_options(parser)
    parser.set_defaults(piece=2**29)
    parser.add_argument("--cells", type=r.some_of(CELLS), default=list(FIRST), metavar="CELL,...",
                        help="(" + ", ".join(FIRST) + ")")
    parser.add_argument("--pool", type=r.size, default=16 * 2**30, metavar="SIZE", help="of a pool (16G)")
    parser.add_argument("--touch", type=r.size, default=2 * 2**30, metavar="SIZE", help="of it in a pass (2G)")
    parser.add_argument("--hidden", type=r.size, default=2**30, metavar="SIZE", help="read through pointers (1G)")
    parser.add_argument("--decoder", type=r.size, default=14 * 2**30, metavar="SIZE", help="of the decoder (14G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--beside-budget", type=r.size, default=17 * 2**30, metavar="SIZE",
                        help="... beside a decoder (17G)")
    parser.add_argument("--hidden-budget", type=r.size, default=9 * 2**30, metavar="SIZE",
                        help="... of hidden and blind (9G)")
    parser.add_argument("--framework-budget", type=r.size, default=20 * 2**30, metavar="SIZE", help="... of jax and torch (20G)")
    parser.add_argument("--turn", default="500ms", metavar="TIME", help="length of a turn (500ms)")
    sides.add_options(parser, warm="15s", block="4s", rounds=3)
    parser.add_argument("--found", type=r.milliseconds, default=15000, metavar="TIME",
                        help="for which the hidden reads are watched (15s)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="of the cell hidden (1)")
    parser.add_argument("--move", type=r.milliseconds, default=60000, metavar="TIME",
                        help="between two moves of a program of moving-one (60s)")
    parser.add_argument("--moves", type=int, default=3, metavar="N", help="of each (3)")


def pool(args, count, cell):
    """Where what it touches lies is in the cell's name."""
    piece, options, (where, _, one) = args.piece, ["--touch", args.touch], cell.partition("-")
    if where in ("end", "middle"):
        options += ["--touch-at", where]
    elif where == "stripes":
        piece = min(piece, args.touch // STRIPES)
        options += ["--stripes", STRIPES]
    return programs.Plan("pool", count, work="rewrite", piece=piece, options=options + ["--one"] * bool(one))


def plans_of(args, cell):
    """The programs of a cell, and the budget."""
    if cell in ("hidden", "blind"):
        return [pool(args, args.pool // 2, cell)] * 3, args.hidden_budget
    if cell in ("jax", "torch"):
        model, units = {"jax": ("jax", 64), "torch": ("after-batch", 8)}[cell]
        return [programs.Plan(model, args.touch, units, spare=args.pool - args.touch, work="rewrite",
                              piece=args.piece)] * 2, args.framework_budget
    one = pool(args, args.pool, cell)
    if cell.startswith("latency"):
        return [one, one, programs.Plan("pool", args.touch // 8, work="rewrite")], args.budget
    if cell.startswith("beside"):
        return [one, programs.Plan("decoder-graphs", args.decoder)], args.beside_budget
    return [one] * 3, args.budget


def until_found(units, wanted_ms):
    """Seconds from the first of these units until they take no longer than that, half a second on average."""
    if not units:
        return None
    back, begin, near, total = None, units[0][0] - units[0][1], 0, 0
    for index, (end, ms) in enumerate(units):
        while near < len(units) and units[near][0] - end < 500:
            total += units[near][1]
            near += 1
        if total / (near - index) > wanted_ms:
            back = None
        elif back is None:
            back = (end - begin) / 1000
        total -= ms
    return back


def until_settled(row, block_ms):
    """Seconds until all had 90 % of natively in a block, before what is counted; None if they never had."""
    parts = row["course"]
    for first in range(len(parts) - 3):
        if min(sides.shares(row["native"], parts[first:first + 4])) >= .9:
            return first * block_ms / 4000
    return None


def leave(row, natives, apps, daemon):
    """
    The natives are done, and end: while others use the GPU, the daemon does not judge what crosses its link. The apps work
    on until it does, or cannot.
    """
    for program in natives:
        program.check()
    sides.end(natives)
    natives.clear()
    deadline = time.monotonic() + 15
    while row["cell"] != "blind" and daemon.gpu()["unchecked"] and time.monotonic() < deadline:
        programs.work_together(apps, 500) # it is judged again as soon as it is seen that nobody is there
    row["unchecked"] = daemon.gpu()["unchecked"]


def follow_pointers(rig, row, natives, apps, daemon):
    """
    The last of either side begins to follow pointers; how long it takes until that is nearly as fast as natively. What
    room there is on the GPU for cold memory, others have. Without natives they are those of the time before.
    """
    args = rig.args
    row["before"] = daemon.status()
    row["on_host"] = next(one["on_host_bytes"] for one in row["before"]["apps"] if one["pid"] == apps[-1].pid)
    if natives:
        natives[-1].ask(f"follow {args.hidden}", 60)
        _, lists = programs.work_together(natives, args.block)
        rig.result["hidden_native"] = {"ms": r.median([ms for _, ms in lists[-1]]), "before": row["native"],
                                       "after": [sides.rates(natives, args.block)]}
    native = rig.result["hidden_native"]
    row.update(native=native["before"], hidden_native_ms=native["ms"])
    leave(row, natives, apps, daemon)
    apps[-1].ask(f"follow {args.hidden}", 60)
    before = daemon.gpu()
    _, lists = programs.work_together(apps, args.found)
    units = lists[-1]
    row.update(hidden_ms=r.spread([ms for _, ms in units]), hidden_moved=sides.moved_since(daemon, before)["bytes"],
               found_s=until_found(units, 1.5 * row["hidden_native_ms"]),
               hidden_units=[[round(end - units[0][0], 2), round(ms, 3)] for end, ms in units][:4000])
    row["then_shares"] = sides.shares(native["after"], [sides.rates(apps, args.block)])


def move_about(rig, row, natives, apps, daemon):
    """What they touch goes on, of one after the other; how long until its passes take again what they took natively."""
    args = rig.args
    usual = [1000 / r.mean(column) for column in zip(*row["native"])]
    leave(row, natives, apps, daemon)
    lists, moved, begun, before = [[] for _ in apps], [[] for _ in apps], time.monotonic() * 1000, daemon.gpu()
    for turn in range((args.moves + 1) * len(apps) - 1): # the last ones are watched for as long as the others
        step, index = divmod(turn, len(apps))
        if step < args.moves:
            moved[index].append(time.monotonic() * 1000)
            apps[index].ask(f"place {(step + 1) * args.touch % args.pool}", 60)
        for units, more in zip(lists, programs.work_together(apps, args.move / len(apps))[1]):
            units += more
    spent = time.monotonic() * 1000 - begun
    row.update(move_bytes=sides.moved_since(daemon, before)["bytes"], back_s=[])
    for units, ms, moments in zip(lists, usual, moved):
        for moment, end in zip(moments, [*moments[1:], math.inf]):
            row["back_s"].append(until_found([unit for unit in units if moment < unit[0] <= end], 1.5 * ms))
    row["then_shares"] = sides.shares(row["native"], [[len(units) * 1000 / spent for units in lists]])


def answer(found, side, ms):
    """As work_together, but the last is asked for a round now and then. found: of either side, how long that took."""
    begun, took = time.monotonic() * 1000, []
    for program in side[:-1]:
        program.ask_units(ms)
    while time.monotonic() * 1000 < begun + ms:
        response_ms = side[-1].round()["response_ms"]
        took.append((time.monotonic() * 1000, response_ms))
        time.sleep(max(0, REQUEST_S - response_ms / 1000))
    found["app" if side[-1].daemon else "native"] += [ms for _, ms in took]
    lists = [program.take(program.line(program.patience + ms / 1000))["list"] for program in side[:-1]]
    return begun, [*lists, took]


def show_times(found, most_ms):
    """The median and the worst of these seconds, of which None was not within that time."""
    ordered = sorted(math.inf if one is None else one for one in found)
    shown = [f"not in {most_ms / 1000:g}" if one == math.inf else f"{one:.1f}" for one in (r.percentile(ordered, .5), ordered[-1])]
    return f"{shown[0]} s (median), {shown[1]} s (worst) of {len(found)}"


def blinded(rig):
    """What a daemon needs in its environment to find no NVML: a library of that name that cannot be loaded."""
    folder = os.path.join(rig.work, "blind")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "libnvidia-ml.so.1"), "wb"):
        pass
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (folder, rig.environment.get("LD_LIBRARY_PATH"))))}


THEN = {"hidden": follow_pointers, "blind": follow_pointers, "moving-one": move_about} # behind the blocks


def run(rig):
    args = rig.args
    rig.result.update(rows=[], left_out=[])
    took = 0 # the row before: how long
    rig.link("before")
    for cell in (cell for one in args.cells for cell in [one] * (args.times if one == "hidden" else 1)):
        natives = []

        def work(cell=cell):
            plans, budget = plans_of(args, cell)
            if cell != "hidden" or "hidden_native" not in rig.result:
                natives.extend(sides.start(rig, f"native-{cell}", plans))
            more = {"then": functools.partial(THEN[cell], rig)} if cell in THEN else {}
            if cell == "round-one":
                more["work"] = functools.partial(programs.work_in_turns, turn=r.milliseconds(args.turn))
            row = {"cell": cell, "budget": budget}
            if cell.startswith("latency"):
                row["request_ms"] = {"native": [], "app": []}
                more = {"work": functools.partial(answer, row["request_ms"]), "best_class": "latency",
                        "change": lambda apps, daemon: daemon.set(apps[-1], "class=latency")}
            sides.measure(rig, row, natives, plans, gpu_budget=budget,
                          turn=args.turn, environment=blinded(rig) if cell.endswith("blind") else None, **more)

        if rig.left() < took:
            rig.result["left_out"].append([cell, "no time left"])
            continue
        begun = time.monotonic()
        if not sides.attempt(rig, cell, work):
            natives.clear()
        took = time.monotonic() - begun
        sides.end(natives)
    sides.finish(rig)


def conclude(rig):
    args, result = rig.args, rig.result
    if not result.get("link"):
        return
    result["ceiling"], result["goals"] = rig.ceiling(), []
    rows = []
    for row in result["rows"]:
        if "status" not in row:
            continue
        row["shares"] = sides.shares(row["native"], row["app"])
        rows.append([row["cell"], " ".join(map(r.percent, row["shares"])),
                     r.number(row["bytes"] / 2**30, 2), row["switches"],
                     r.number(until_settled(row, args.block)),
                     r.show_size(row["on_host"]) if "on_host" in row else "-", r.number(row.get("found_s")),
                     r.number(row["hidden_ms"]["max"]) if "hidden_ms" in row else "-",
                     " ".join(map(r.percent, row.get("then_shares", []))) or "-",
                     "yes" if row.get("is_right") else "not checked"])
        judge(result["goals"], row)
    print(f"working: pools of {r.show_size(args.pool)} in pieces of {r.show_size(args.piece)}, {r.show_size(args.touch)} "
          f"touched; {args.rounds} blocks of {args.block / 1000:g} s of either side; turns of {args.turn}")
    for name, why in result["left_out"]:
        print(f"{name}: {why}")
    r.table(["cell", "of native, each", "moved, GiB", "switches", "settled, s", "cold on host", "found, s", "slowest, ms",
             "then, of native", "data right"], rows)
    if result["rows"]:
        programs.measures(rig)
    found = [row["found_s"] for row in result["rows"] if row["cell"] == "hidden" and "found_s" in row]
    if found:
        print("hidden: found:", show_times(found, args.found))
    for row in result["rows"]:
        if "back_s" in row:
            print(f"{row['cell']}: passes as usual behind a move:", show_times(row["back_s"], args.move) + ",",
                  r.number(row["move_bytes"] / 2**30, 2), "GiB moved")
        for side, took in row.get("request_ms", {}).items():
            if took:
                print(f"{row['cell']}: {side}: a request takes", ", ".join(
                    f"{name} {r.number(r.percentile(took, part), 2)}" for name, part in (("p50", .5), ("p99", .99), ("most", 1))), "ms")
    r.show_goals(result["goals"])


def judge(goals, row):
    """What the project wants of the row."""
    name, wanted = row["cell"], .9 if row["cell"].startswith("beside") else .95
    least = min(share or 0 for share in row["shares"])
    goals.append({"goal": f"{name}: the slowest, of natively", "measured": least, "wanted": wanted, "is_share": True,
                  "is_met": least >= wanted})
    if not name.startswith("beside"):
        goals.append({"goal": f"{name}: MiB moved", "measured": row["bytes"] / 2**20, "wanted": 1024,
                      "is_met": row["bytes"] < 2**30})
    if name == "hidden" and "hidden_ms" in row:
        goals.append({"goal": "hidden: seconds until it is found", "measured": row["found_s"], "wanted": 5,
                      "is_met": row["found_s"] is not None and row["found_s"] <= 5})


if __name__ == "__main__":
    r.main("working", __doc__, add_options, run, conclude)

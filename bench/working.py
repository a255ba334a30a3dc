#!/usr/bin/env python3
"""bench/working: programs of which a turn touches a part.

A pool is bench/app: it fills --pool bytes, which it allocates in pieces of --piece, with random words; after that a pass
checks and rewrites --touch of them. Cells, of which --cells picks:

three         three pools that together have twice --budget; what they touch fits
beside        a pool beside a decoder, which reads all that it has for each token; budget --beside-budget
three-one, beside-one  the same with pools of one allocation and one base address: no argument says what is touched
hidden        three pools of half the size, of which one from some moment on also reads --hidden bytes through pointers
              that lie in device memory: no argument says so. With --hidden-budget most of what is cold lies on the host
blind         the same, but the daemon cannot load NVML

Beside each cell are the same programs natively, which the GPU must have the memory for: blocks alternate, and in each of them
all programs of one side work at once. A program's share is its rate of that natively. What moved is counted from --warm after
the last fill on. At the end all memory is checked.
"""

import functools
import os
import time

import programs
import rig as r
import sides

CELLS = ("three", "beside", "three-one", "beside-one", "hidden", "blind")


def add_options(parser):
    programs.add_options(parser)
    parser.set_defaults(piece=2**29)
    parser.add_argument("--cells", type=r.some_of(CELLS), default=list(CELLS), metavar="CELL,...", help="(all)")
    parser.add_argument("--pool", type=r.size, default=16 * 2**30, metavar="SIZE", help="of a pool (16G)")
    parser.add_argument("--touch", type=r.size, default=2 * 2**30, metavar="SIZE", help="of it in a pass (2G)")
    parser.add_argument("--hidden", type=r.size, default=2**30, metavar="SIZE", help="read through pointers (1G)")
    parser.add_argument("--decoder", type=r.size, default=14 * 2**30, metavar="SIZE", help="of the decoder (14G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--beside-budget", type=r.size, default=17 * 2**30, metavar="SIZE",
                        help="... beside a decoder (17G)")
    parser.add_argument("--hidden-budget", type=r.size, default=9 * 2**30, metavar="SIZE",
                        help="... of hidden and blind (9G)")
    parser.add_argument("--turn", default="500ms", metavar="TIME", help="length of a turn (500ms)")
    sides.add_options(parser, warm="15s", block="4s", rounds=3)
    parser.add_argument("--found", type=r.milliseconds, default=15000, metavar="TIME",
                        help="for which the hidden reads are watched (15s)")


def pool(args, count, is_one=False):
    return programs.Plan("pool", count, work="rewrite", piece=args.piece, options=["--touch", args.touch] + ["--one"] * is_one)


def plans_of(args, cell):
    """The programs of a cell, and the budget."""
    if cell in ("hidden", "blind"):
        return [pool(args, args.pool // 2)] * 3, args.hidden_budget
    one = pool(args, args.pool, cell.endswith("-one"))
    if cell.startswith("beside"):
        return [one, programs.Plan("decoder-graphs", args.decoder)], args.beside_budget
    return [one] * 3, args.budget


def until_found(units, wanted_ms):
    """Seconds from the first of these units until they take no longer than that, half a second on average."""
    back, begin = None, units[0][0] - units[0][1]
    for index, (end, _) in enumerate(units):
        near = [ms for ended, ms in units[index:] if ended - end < 500]
        if r.mean(near) > wanted_ms:
            back = None
        elif back is None:
            back = (end - begin) / 1000
    return back


def follow_pointers(rig, row, natives, apps, daemon):
    """
    The last of either side begins to follow pointers; how long it takes until that is nearly as fast as natively. What
    room there is on the GPU for cold memory, others have. The natives are done first, and end: while others use the GPU,
    the daemon does not judge what crosses its link.
    """
    args = rig.args
    row["before"] = daemon.status()
    row["on_host"] = next(one["on_host_bytes"] for one in row["before"]["apps"] if one["pid"] == apps[-1].pid)
    natives[-1].ask(f"follow {args.hidden}", 60)
    _, lists = programs.work_together(natives, args.block)
    row["hidden_native_ms"] = r.median([ms for _, ms in lists[-1]])
    after = [[sides.rates(natives, args.block)]]
    for program in natives:
        program.check()
    sides.end(natives)
    natives.clear()
    deadline = time.monotonic() + 15
    while row["cell"] == "hidden" and daemon.gpu()["unchecked"] and time.monotonic() < deadline:
        programs.work_together(apps, 500) # it is judged again as soon as it is seen that nobody is there
    row["unchecked"] = daemon.gpu()["unchecked"]
    apps[-1].ask(f"follow {args.hidden}", 60)
    before = daemon.gpu()
    _, lists = programs.work_together(apps, args.found)
    units = lists[-1]
    row.update(hidden_ms=r.spread([ms for _, ms in units]), hidden_moved=sides.moved_since(daemon, before)["bytes"],
               found_s=until_found(units, 1.5 * row["hidden_native_ms"]),
               hidden_units=[[round(end - units[0][0], 2), round(ms, 3)] for end, ms in units][:4000])
    after.append([sides.rates(apps, args.block)])
    row["hidden_shares"] = sides.shares(*after)


def blinded(rig):
    """What a daemon needs in its environment to find no NVML: a library of that name that cannot be loaded."""
    folder = os.path.join(rig.work, "blind")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "libnvidia-ml.so.1"), "wb"):
        pass
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (folder, rig.environment.get("LD_LIBRARY_PATH"))))}


def run(rig):
    args = rig.args
    rig.result.update(rows=[], left_out=[])
    took = 0 # the row before: how long
    rig.link("before")
    for cell in args.cells:
        natives = []

        def work(cell=cell):
            plans, budget = plans_of(args, cell)
            natives[:] = natives or sides.start(rig, f"native-{cell}", plans)
            then = functools.partial(follow_pointers, rig) if cell in ("hidden", "blind") else None
            sides.measure(rig, {"cell": cell, "budget": budget}, natives, plans, gpu_budget=budget,
                          turn=args.turn, environment=blinded(rig) if cell == "blind" else None, then=then)

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
                     r.show_size(row["on_host"]) if "on_host" in row else "-", r.number(row.get("found_s")),
                     r.number(row["hidden_ms"]["max"]) if "hidden_ms" in row else "-",
                     " ".join(map(r.percent, row.get("hidden_shares", []))) or "-",
                     "yes" if row.get("is_right") else "not checked"])
        judge(result["goals"], row)
    print(f"working: pools of {r.show_size(args.pool)} in pieces of {r.show_size(args.piece)}, {r.show_size(args.touch)} "
          f"touched; {args.rounds} blocks of {args.block / 1000:g} s of either side; turns of {args.turn}")
    for name, why in result["left_out"]:
        print(f"{name}: {why}")
    r.table(["cell", "of native, each", "moved, GiB", "switches", "cold on host", "found, s", "slowest, ms",
             "then, of native", "data right"], rows)
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

#!/usr/bin/env python3
"""bench/multi: programs that together need more than the GPU has and take turns, as in the evaluations of MSched and PILOT.

Sets of programs, of which --sets picks:

decoders      three that read all they have for each token (--decoder each), at 150, 200 and 300 % of the budget
more          3, 4 and 6 of them on a budget of 2: the same percentages
cnns          training of ResNet-152, VGG-19, Inception-v3 and DenseNet-201 (--cnn each)
mixed         ResNet-152, VGG-19 and a decoder
science       2D wavelet, hotspot, unstructured flow, nearest neighbours (--kernel each)
micro         vector addition and matrix products, two of each; also at 100 %
pairs         five kernels, each by itself beside a program that touches as much as it can. The kernel has as much again
              that it never touches; all have 75, 100 or 150 % of --pair-budget. By need, and with a cap for the other
              program.

A cell is a set, a percentage and a length of turns: "decoders-150-200ms". --cells picks some by name; a wrong name is answered by
all. A cell takes a minute or two; those of earlier results (--known FILE) are shown again and not run.

In-memory throughput is that of the same programs natively at once, which the GPU must have the memory for. The bound and the
ideal are those of bench/ideal.py with the programs' footprints and alone times, the budget, and the link as in the same
run: the bound for equal turns of that length one after the other, the ideal for the turns that there were, as recorded. A
turn counts from the moment the program runs.
"""

import functools
import json

import ideal
import programs
import rig as r
import sides

SETS = ("decoders", "more", "cnns", "mixed", "science", "micro", "pairs")
PAIRS = ("wavelet", "hotspot", "flow", "neighbours", "products")
PAIR_OVER = (75, 100, 150)


def add_options(parser):
    programs.add_options(parser)
    parser.add_argument("--sets", type=r.some_of(SETS), default=list(SETS), metavar="SET,...", help="(all)")
    parser.add_argument("--turns", default="200ms,1s", metavar="TIME,...", help="lengths of turns (200ms,1s)")
    parser.add_argument("--cells", metavar="CELL,...", help="only these cells")
    parser.add_argument("--known", action="append", default=[], metavar="FILE", help="an earlier result")
    parser.add_argument("--decoder", type=r.size, default=7 * 2**30, metavar="SIZE", help="(7G)")
    parser.add_argument("--cnn", type=r.size, default=4 * 2**30, metavar="SIZE", help="(4G)")
    parser.add_argument("--kernel", type=r.size, default=4 * 2**30, metavar="SIZE", help="(4G; of a pair half as much)")
    parser.add_argument("--pair-budget", type=r.size, default=8 * 2**30, metavar="SIZE", help="(8G)")
    sides.add_options(parser, warm="6s", block="4s", rounds=2)


class Cell:
    """What runs, and with which settings."""

    def __init__(self, set_, over, turn, what=None, variant=None):
        self.set, self.over, self.turn, self.what, self.variant = set_, over, turn, what, variant
        self.name = "-".join(str(part) for part in (set_, what, over, turn, variant) if part)


def all_cells(args):
    """Those that share native programs side by side."""
    found = []
    for set_ in args.sets:
        if set_ == "pairs":
            found += [Cell(set_, over, args.turns.split(",")[-1], what, admission) for what in PAIRS
                      for over in PAIR_OVER for admission in ("need", "cap")]
            continue
        for over in (100, 150, 200, 300) if set_ == "micro" else (150, 200, 300):
            found += [Cell(set_, over, turn) for turn in args.turns.split(",")]
    wanted = args.cells.split(",") if args.cells else [cell.name for cell in found]
    unknown = set(wanted) - {cell.name for cell in found}
    if unknown:
        raise r.Failure(f"there is no cell {', '.join(sorted(unknown))}: take some of {', '.join(cell.name for cell in found)}")
    return [cell for cell in found if cell.name in wanted]


def plans_of(args, cell):
    decoder = programs.Plan("decoder-graphs", args.decoder)
    if cell.set in ("decoders", "more"):
        return [decoder] * (3 if cell.set == "decoders" else {150: 3, 200: 4, 300: 6}[cell.over])
    if cell.set == "pairs":
        half = args.kernel // 2
        return [programs.Plan(cell.what, half, spare=half, work="rewrite"),
                programs.Plan("pool", args.pair_budget * cell.over // 100 - 2 * half, work="rewrite")]
    if cell.set == "cnns":
        names, size = programs.VISION, args.cnn
    elif cell.set == "mixed":
        names, size = ("resnet152", "vgg19"), args.cnn
    else:
        names = programs.SCIENCE[:4] if cell.set == "science" else ("vectors", "products") * 2
        size = args.kernel
    found = [programs.Plan(name, size, seed=seed + 1, work="rewrite") for seed, name in enumerate(names)]
    return found + ([decoder] if cell.set == "mixed" else [])


def budget_of(args, cell, natives):
    """Each program fits by itself, with a little room."""
    if cell.set == "pairs":
        return args.pair_budget
    sizes = [native.bytes for native in natives]
    return max(sum(sizes) * 100 // cell.over, max(sizes) * 103 // 100) + (2**26 if cell.over == 100 else 0)


def set_cap(row, apps, daemon):
    """The program that touches as much as it can leaves room for the other one."""
    cap = row["budget"] - apps[0].bytes
    if apps[1].bytes > cap:
        daemon.set(apps[1], f"cap={cap}")


def run_cell(rig, cell, natives, alone):
    args = rig.args
    plans = plans_of(args, cell)
    row = {"cell": cell.name, "set": cell.set, "over": cell.over, "turn": cell.turn, "variant": cell.variant,
           "budget": budget_of(args, cell, natives), "footprints": alone,
           "block_ms": max(args.block, 2 * len(plans) * r.milliseconds(cell.turn))} # two rounds at least
    change = functools.partial(set_cap, row) if cell.variant == "cap" else None
    sides.measure(rig, row, natives, plans, change=change, gpu_budget=row["budget"], turn=cell.turn)


def run(rig):
    args = rig.args
    rig.result.update(rows=[], left_out=[], known=[])
    for file in args.known:
        with open(file, encoding="utf-8") as text:
            known = json.load(text)
        rig.result["known"] += known["known"] + [row for row in known["rows"] if "ideal" in row]
    done = {row["cell"] for row in rig.result["known"]}
    cells = [cell for cell in all_cells(args) if cell.name not in done]
    rig.link("before")
    natives, who, alone, took = [], None, None, 0
    for cell in cells:
        if rig.left() < took:
            rig.result["left_out"].append([cell.name, "no time left"])
            continue
        begun = rig.left()
        plans = plans_of(args, cell)
        mine = [(plan.model, plan.bytes, plan.spare) for plan in plans]

        def work(cell=cell, plans=plans, mine=mine):
            nonlocal natives, who, alone
            if mine != who:
                sides.end(natives)
                natives = []
                natives, who = sides.start(rig, f"native-{cell.name}", plans), mine
                alone = [[*native.footprint(), r.median([ms for _, ms in native.units(500)["list"]])]
                         for native in natives]
            run_cell(rig, cell, natives, alone)

        if not sides.attempt(rig, cell.name, work):
            natives, who = [], None
        took = begun - rig.left() if args.seconds else 0
    sides.end(natives)
    sides.finish(rig)


def conclude_row(row, link):
    """What the ideal would be, in the same run."""
    usable = row["status"]["gpus"][0]["usable_bytes"]
    apps = [ideal.App(*one) for one in row["footprints"]]
    row["shares"] = sides.shares(row["native"], row["app"])
    row["share"], row["least"] = r.mean([share or 0 for share in row["shares"]]), min(share or 0 for share in row["shares"])
    row["rate"] = row["bytes"] / row["app_s"]
    bound = ideal.in_turns(apps, r.milliseconds(row["turn"]), usable, link)
    row["bound"] = bound and bound["share"]
    row["ideal"] = row["of_ideal"] = None
    turns = [(app, units * apps[app].pass_ms) for app, units in row["trace"]]
    found = ideal.simulate(apps, turns * 2, usable, link, counted=(len(turns), None)) if turns else None
    if found:
        # Programs that work at once may get more, or less, done than one after the other.
        at_once = sum(rate * app.pass_ms / 1000 for rate, app in zip(map(r.mean, zip(*row["native"])), apps))
        least_ms = found["work_ms"] / at_once + found["wait_ms"]
        row["ideal"] = {"share": found["work_ms"] / at_once / least_ms,
                        "rate": (found["bytes_in"] + found["bytes_out"]) * 1000 / least_ms}
        row["of_ideal"] = least_ms / 1000 / row["app_s"]


def conclude(rig):
    result = rig.result
    if not result.get("link"):
        return
    result["ceiling"], result["goals"] = rig.ceiling(), []
    for row in result["rows"]:
        if "status" in row:
            conclude_row(row, result["ceiling"])
    rows = [row for row in result["known"] + result["rows"] if "ideal" in row]
    r.table(["cell", "budget", "of in-memory", "least", "bound", "of bound", "ideal", "of ideal", "GiB/s", "ideal",
             "turns/s"],
            [[row["cell"], r.show_size(row["budget"]), r.percent(row["share"]), r.percent(row["least"]),
              r.percent(row["bound"]),
              r.percent(row["bound"] and row["share"] / row["bound"]),
              r.percent(row["ideal"] and row["ideal"]["share"]), r.percent(row["of_ideal"]), r.number(row["rate"] / 2**30),
              r.number(row["ideal"] and row["ideal"]["rate"] / 2**30), r.number(row["switches"] / row["app_s"])]
             for row in rows])
    for name, why in result["left_out"]:
        print(f"{name}: {why}")
    judge(result["goals"], [row for row in rows if row["of_ideal"] and not row["variant"]])
    r.show_goals(result["goals"])


def judge(goals, rows):
    """What the project wants."""
    def goal(text, measured, wanted):
        goals.append({"goal": text, "measured": measured, "wanted": wanted, "is_share": True,
                      "is_met": measured >= wanted})
    if rows:
        goal("mean of the ideal", r.mean([row["of_ideal"] for row in rows]), .85)
    for row in rows:
        if row["of_ideal"] < .7:
            goal(f"{row['cell']}: of the ideal", row["of_ideal"], .7)
        if row["over"] == 100:
            goal(f"{row['cell']}: of in-memory", row["share"], .99)
        if row["set"] in ("decoders", "more") and row["turn"] == "200ms" and row["bound"]:
            goal(f"{row['cell']}: of the bound", row["share"] / row["bound"], .9)


if __name__ == "__main__":
    r.main("multi", __doc__, add_options, run, conclude)

"""The same programs natively and under gpumux, on one GPU that has room for both: blocks alternate, and in each of them all
programs of one side work at once. A program's share is its rate under gpumux of that natively.

A bench makes a row (a dictionary of its result) for each setting of the daemon; the native programs stay for all rows.
"""

import math
import subprocess
import time

import programs
import rig as r


def add_options(parser, warm, block, rounds):
    parser.add_argument("--warm", type=r.milliseconds, default=r.milliseconds(warm), metavar="TIME",
                        help=f"all work for so long before anything is counted ({warm})")
    parser.add_argument("--block", type=r.milliseconds, default=r.milliseconds(block), metavar="TIME", help=f"({block})")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"blocks of either side ({rounds})")


def start(rig, name, plans, daemon=None):
    """The programs, with their memory filled one after the other."""
    found = []
    for index, plan in enumerate(plans):
        found.append(programs.make(rig, f"{name}-{index}", plan, daemon).load())
    return found


def end(side):
    for program in side:
        program.end()


def rates(side, ms, work=programs.work_together):
    """Units a second of each in a block in which all of a side work; of a unit that the block's end cuts, its part."""
    return rates_of(*work(side, ms), ms)


def rates_of(begun, lists, ms):
    return [sum(min(1, max(0, 1 - (ended - begun - ms) / took)) for ended, took in units) * 1000 / ms for units in lists]


def course(begun, lists, ms, parts):
    """Units a second of each in each of so many parts of that time."""
    edges = [begun + ms * number / parts for number in range(parts + 1)]
    return [[sum(edge < ended <= after for ended, _ in units) * 1000 * parts / ms for units in lists]
            for edge, after in zip(edges, edges[1:])]


def trace_of(lists, switches):
    """
    Who ran when: between two of these moments, in ms, [program, its units] of each that had any, in the order in which
    they ended their first.
    """
    found, moments = [], [-math.inf, *sorted(switches), math.inf]
    for begin, end in zip(moments, moments[1:]):
        inside = [[ended for ended, _ in units if begin < ended <= end] for units in lists]
        found += sorted(([index, len(ends)] for index, ends in enumerate(inside) if ends), key=lambda one: inside[one[0]][0])
    return found


def moved_since(daemon, before):
    """Bytes over the link in both ways, and switches."""
    now = daemon.gpu()
    return {"bytes": sum(now[key] - before[key] for key in ("bytes_in", "bytes_out")),
            "switches": now["switches"] - before["switches"]}


def measure(rig, row, natives, plans, environment=None, change=None, then=None, work=programs.work_together, **options):
    """
    Start a daemon with these options and the programs of these plans; leave in `row` the rates of either side, those of
    the apps before the blocks in parts of a quarter of a block (course), who ran when, what moved meanwhile, and the
    status. A block lasts block_ms of it, or --block; work(side, ms) is what a side does in it. change(apps, daemon) is
    called before all work, then(row, natives, apps, daemon) behind the blocks. Data is checked, and all but the natives
    end.
    """
    args = rig.args
    name = f"{row['cell']}-{len(rig.result['rows'])}"
    total, budget = sum(plan.bytes + plan.spare for plan in plans), options["gpu_budget"]
    row.update(native=[], app=[], trace=[])
    block = row.get("block_ms", args.block)
    rig.result["rows"].append(row)
    pinned = total + 2**28 + min(4 * 2**30, budget) # as much as can be of use
    daemon = r.Daemon(rig, "daemon-" + name, environment=environment, **{"pinned": pinned, "idle": None, **options})
    begun = time.monotonic()
    apps = start(rig, name, plans, daemon)
    row["fill_s"] = time.monotonic() - begun
    if change:
        change(apps, daemon)
    warm = max(args.warm, block)
    row["course"] = course(*work(apps, warm), warm, round(4 * warm / block))
    before, spent = daemon.gpu(), 0
    for _ in range(args.rounds):
        row["native"].append(rates(natives, block, work))
        daemon.take()
        begun, lists = work(apps, block)
        spent += time.monotonic() - begun / 1000
        row["app"].append(rates_of(begun, lists, block))
        row["trace"] += trace_of(lists, [one["at_s"] * 1000 - one["total_ms"] for one in daemon.take()["history"]])
    row.update(moved_since(daemon, before), app_s=spent)
    if then:
        then(row, natives, apps, daemon)
    row["status"] = daemon.status()
    for program in (*apps, *natives):
        program.check()
    row["is_right"] = True # or it would have failed
    end(apps)
    daemon.stop()


def attempt(rig, name, work):
    """
    Do that. If it fails, or cannot be had, say why in the result, and end all that was started: what comes next begins
    anew. Returns whether it was done.
    """
    try:
        work()
        return True
    except r.Stopped:
        raise
    except r.Absent as absent:
        why = str(absent)
    except (r.Failure, subprocess.TimeoutExpired) as failure:
        why = f"FAILED: {failure}"
        rig.result["failed"] = rig.result.get("failed", 0) + 1
    rig.result["left_out"].append([name, why])
    rig.kill_all()
    return False


def finish(rig):
    """What failed makes the whole fail, at its end."""
    if rig.result.get("failed"):
        raise r.Failure(f"{rig.result['failed']} of the cells")


def shares(native, app):
    """Of each program, of the blocks' means."""
    native, app = ([r.mean(column) for column in zip(*side)] for side in (native, app))
    return [mine / other if other else None for mine, other in zip(app, native)]

#!/usr/bin/env python3
"""bench/tiers: three programs in turn, with less and less pinned memory, the rest paged, then on disk.

Together the programs need more than the budget; the difference, `rest`, has to be in host memory. Pinned memory for a
copy of everything, a full mirror, is the run that the others are compared with; then pinned memory is capped at
fractions of that, with ordinary memory (--paged) for what it cannot hold; then at --disk-pinned with little paged
memory and a disk. In each turn a program that was idle is asked to work, as in bench/switch: time from before its first
GPU call to the end of an empty kernel, then all of its memory verified and rewritten, again and again for --work (it is
then that a daemon can prepare for the next one).

The bound of a run is exact: the bytes that the daemon really moved, over the ceilings of the same run, in the time
that there was. Those are the link, both ways at once (bench/link); copies between pinned and paged memory, both ways
at once, by as many threads as the daemon has (bench/copy); and the disk, written and read at once (bench/disk). What
the link moves it moves while a program waits. What moves below pinned memory can also move while another program
works: from the time that it needs, the time from the first kernel of a turn to the next turn is taken off; but not for
what pinned memory, full of what comes in before a turn and of what went out after it, cannot hold: that moves in the
turn itself. A run is bound by what needs most of them.

The link and the copies below it use the same host memory. How much they slow each other down is measured with plain
copies before and after the runs (bench/load): each alone, and both at once, once with each way of the link as fast as
it goes, and once both ways the same, as in a switch: copies in memory slow the way in down more than the way out. What
a switch moves is as much each way, so the link is as slow as its slower way; of the two the one with the lesser time
counts. What is left to copy while a program waits goes on
beside the link, each as much slower as that, until one of them is done; the rest goes on alone. The time for that is
the bound `both`. Without that measurement each counts as if the other were not there.

Moving fewer bytes would be better yet: of the rest, pinned memory holds a part, and the other part of what a turn
brings in has to come up and as much to go down. `moved/least` is what moved below pinned memory over that.

Turns to warm up are counted apart. A stall is the longest time that a program waited in a turn, for its first kernel
or for a later one.
"""

import os
import time

import rig as r

LINKS = ("link", "paged", "disk", "both")


def fractions(text):
    found = []
    for part in text.split(","):
        over, _, under = part.partition("/")
        found.append((part, float(over) / float(under or 1)))
    return found


def times(text):
    return [r.milliseconds(part) for part in text.split(",")]


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[12 * 2**30] * 3, metavar="SIZE,...",
                        help="of the programs (12G,12G,12G)")
    parser.add_argument("--budget", type=r.size, default=14 * 2**30, metavar="SIZE", help="of GPU memory (14G)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--fractions", type=fractions, default=fractions("1/3,1/5"), metavar="F,...",
                        help="of pinned memory, of what a copy of all programs needs (1/3,1/5)")
    parser.add_argument("--work", type=times, default=[0, 700], metavar="TIME,...",
                        help="that each turn computes; each configuration is run with each (0,700ms), with the disk "
                        "only the first")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="measured turns of each program (6)")
    parser.add_argument("--warm", type=int, default=3, metavar="N",
                        help="turns of each before those (3: then the daemon knows when each comes); with the disk, "
                        "one of one program")
    parser.add_argument("--disk", default="/var/tmp", metavar="DIR",
                        help="folder for the disk tier (/var/tmp); '': none")
    parser.add_argument("--disk-pinned", type=r.size, default=4 * 2**30, metavar="SIZE",
                        help="pinned memory with the disk (4G)")
    parser.add_argument("--disk-paged", type=r.size, default=6 * 2**30, metavar="SIZE",
                        help="paged memory with the disk (6G)")
    parser.add_argument("--disk-rounds", type=int, default=2, metavar="N", help="measured turns of each with it (2)")
    parser.add_argument("--disk-bytes", type=r.size, default=2**30, metavar="SIZE",
                        help="written and read when the disk is measured (1G)")


# --- measuring ---

def measure_ceilings(rig):
    args = rig.args
    rig.link("before")
    rig.copies()
    if args.disk:
        result = rig.run_tool("disk", "--dir", args.disk, "--bytes", args.disk_bytes, "--rounds", 3, "--threads", 4)
        step = result["steps"][-1] # as many threads as the daemon has for the disk
        rig.result["disk"] = {**{way: step[way]["median"] for way in ("write", "read", "both")},
                              "is_direct": result["is_direct"], "steps": result["steps"]}
    rig.result["together"] = {}
    measure_together(rig, 60)


def measure_together(rig, least_s):
    """What the link and copies in memory cost each other."""
    if rig.left() < least_s:
        return
    begun = time.monotonic()
    load = r.Process(rig, "load", [rig.at("bench/load"), "--bytes", min(2**28, rig.args.link_bytes), "--threads",
                                   max(2, rig.result["copies"]["workers"])])
    load.await_line("ready", 60)
    for what, request in (("memory", "copy 0 0 999 600"), ("link", "swap 0 400"), ("all", "copy 999 999 999 600"),
                          ("swap", "swap 999 600")):
        rig.result["together"].setdefault(what, []).append(load.ask(request, 60))
    load.end()
    rig.result["together_s"] = time.monotonic() - begun


def configurations(rig):
    """(name, daemon options, share of the time)."""
    args = rig.args
    total = sum(args.sizes)
    rest = total - args.budget
    if rest <= 0:
        raise r.Failure("the programs fit into the budget together")
    rig.result["rest_bytes"] = rest
    # The daemon wants whole slabs of 32 MiB, and room in the lowest tier for what passes through.
    slab = 2**25

    def cap(share):
        return max(2 * slab, int(total * share) // slab * slab)

    found = [("uncapped", {"pinned": total}, 1)]
    if rig.has_option("paged"):
        found += [(f"{name} pinned", {"pinned": cap(share), "paged": total}, 1) for name, share in args.fractions]
    else:
        print("note: this gpumuxd has no --paged: pinned memory is not capped")
    if not args.disk:
        pass
    elif rig.has_option("disk"):
        found.append(("disk", {"pinned": args.disk_pinned, "paged": args.disk_paged or None,
                               "disk": f"{args.disk}:{total}"}, 1.6))
    else:
        print("note: this gpumuxd has no --disk")
    return found


def measure(rig, name, options, until):
    """One configuration, until then: a run for each --work, with the disk (whose time it is then) for the first."""
    args = rig.args
    is_disk = "disk" in options
    begun = time.monotonic()
    daemon = r.Daemon(rig, gpu_budget=args.budget, **{key: value for key, value in options.items() if value})
    apps = [r.App(rig, f"app-{index}", count, daemon, piece=args.piece, patience=400 if is_disk else 120)
            for index, count in enumerate(args.sizes)]
    daemon.settle()
    start_s = time.monotonic() - begun
    works = args.work[:1] if is_disk else args.work
    until -= rig.closing_s()
    daemon.take()
    for index, work_ms in enumerate(works):
        found = {"name": name, "options": options, "work_ms": work_ms, "start_s": start_s,
                 "fill_ms": max(app.start["fill_ms"] for app in apps), "warm": [], "turns": []}
        rig.result["runs"].append(found)
        # Half a second for a switch: shares of the time in which each kind of run makes as many turns.
        weights = [500 + ms for ms in works[index:]]
        end = time.monotonic() + (until - time.monotonic()) * weights[0] / sum(weights)
        take_turns(rig, daemon, apps, found, end,
                   warm=1 if is_disk else len(apps) * args.warm,
                   most=len(apps) * (args.disk_rounds if is_disk else args.rounds))
    for app in apps:
        app.end()
    daemon.stop()


def take_turns(rig, daemon, apps, found, end, warm, most):
    """
    Turns to warm up, then measured ones: `most`, or fewer when this run's time ends, but one of each program; even
    those not when all time of this bench ends.
    """
    longest, index = 0, 0
    while len(found["turns"]) < most:
        begun = time.monotonic()
        if len(found["turns"]) >= len(apps) and begun + longest > end:
            break
        if found["turns"] and rig.left() < longest + rig.closing_s():
            break
        record = r.turn(rig, daemon, apps[index % len(apps)], least_ms=found["work_ms"])
        found["warm" if index < warm else "turns"].append(record)
        longest = max(longest, time.monotonic() - begun)
        index += 1


def run(rig):
    args = rig.args
    if len(args.sizes) < 2 or min(args.rounds, args.disk_rounds) < 1:
        raise r.Failure("there are at least two programs and one round")
    if args.disk and not os.path.isdir(args.disk):
        raise r.Failure(f"no folder {args.disk}")
    rig.result["runs"] = []
    wanted = configurations(rig)
    measure_ceilings(rig)
    for index, (name, options, share) in enumerate(wanted):
        left = rig.left() - rig.result["link"][0]["took_s"] - rig.result.get("together_s", 0)
        measure(rig, name, options, time.monotonic() + left * share / sum(one[2] for one in wanted[index:]))
    rig.link("after")
    if rig.result["together"]:
        measure_together(rig, rig.result["together_s"])


# --- what it comes to ---

def below(record):
    """What moved between pinned and paged memory, and to and from the disk: (down, up) of each. None: not told."""
    moved = record["lower"]
    if moved is None:
        return None
    return {"paged": (moved.get("pinned_to_paged", 0), moved.get("paged_to_pinned", 0)),
            "disk": tuple(sum(count for key, count in moved.items() if at(key)) for at in (
                lambda key: key.endswith("_to_disk"), lambda key: key.startswith("disk_to_")))}


def least_below(mean_in, options, rest):
    """
    The bytes that a turn which brings in so many has to move below pinned memory, down and up, if the daemon chooses
    well: each byte that is not on the GPU is as likely in pinned memory as the share of the rest that it holds.
    """
    def missing(held):
        return mean_in * max(0, rest - held) / rest

    paged = missing(options["pinned"])
    disk = missing(options["pinned"] + (options.get("paged") or 0)) if options.get("disk") else 0
    return {"paged": (paged - disk,) * 2, "disk": (disk,) * 2}


def needed_ms(rig, bytes_out, bytes_in, lower):
    """The least time for all that, by what it passes."""
    link, copies, disk = rig.ceiling(), rig.result["copies"], rig.result.get("disk")
    return {"link": r.copy_ideal_ms(bytes_out, bytes_in, link),
            "paged": r.ideal_ms(*lower["paged"], copies["out"], copies["back"], copies["both"]),
            "disk": r.ideal_ms(*lower["disk"], disk["write"], disk["read"], disk["both"]) if disk else 0}


def together_of(rig):
    """The means of what plain copies did together; None: not measured."""
    together = rig.result.get("together")
    return together and {what: {key: r.mean([one[key] for one in answers]) for key in answers[0]}
                         for what, answers in together.items()}


def slowdowns(together):
    """
    How much longer the link (its slower way) takes beside busy memory, and copies in memory beside a busy link, at
    least 1 each: for each way in which both were measured at once.
    """
    link, memory = together["link"], together["memory"]["memory"]
    return [(max(1, *(link[way] / found[way] for way in ("in", "out"))), max(1, memory / found["memory"]))
            for found in (together[name] for name in ("all", "swap") if name in together)]


def both_ms(link_ms, paged_ms, slower):
    """The time for both at once, each slower than alone until the other is done: the least of those measured."""
    def once(link, paged):
        slow_link, slow_paged = link_ms * link, paged_ms * paged
        first = min(slow_link, slow_paged)
        if first == 0:
            return max(link_ms, paged_ms)
        return first + max(link_ms * (1 - first / slow_link), paged_ms * (1 - first / slow_paged))

    return min(once(*pair) for pair in slower)


def beyond_pinned(rig, bytes_out, bytes_in, options):
    """The least time for what has to move below pinned memory in the turn itself, as pinned memory cannot hold it."""
    copies = rig.result["copies"]
    down, up = (max(0, count - options["pinned"]) for count in (bytes_out, bytes_in))
    return r.ideal_ms(down, up, copies["out"], copies["back"], copies["both"])


def bound(needed, free_ms, slower, beyond_ms):
    """
    The least time to the first kernel, and by what, if below pinned memory things can move for free_ms before, all but
    for beyond_ms. `slower` is of slowdowns(), or None.
    """
    times = {name: ms if name == "link" else max(0, ms - free_ms) for name, ms in needed.items()}
    times["paged"] = max(times["paged"], min(needed["paged"], beyond_ms))
    if slower:
        times["both"] = both_ms(times["link"], times["paged"], slower)
    slowest = max(times, key=lambda name: (times[name], -LINKS.index(name))) # of two the one that is by itself
    return times[slowest], slowest


def digest(rig, found):
    """What a run's turns come to."""
    options, records, rest = found["options"], found["turns"], rig.result["rest_bytes"]
    tiers = [record.pop("tiers") for record in found["warm"] + records]
    found["first_ms"] = r.spread([record["first_ms"] for record in records])
    found["warm_ms"] = r.spread([record["first_ms"] for record in found["warm"]])
    usual = r.median([record["pass_ms"] for record in records])
    found["stall_ms"] = max(max(record["first_ms"], record["pass_max_ms"] - usual) for record in records)
    for key in ("total_ms", "lower_ms", "pinned_ms"):
        found[key] = r.spread([record["parts"][key] for record in records if record["parts"]])
    found["most"] = {key: max(tier.get(key, 0) for tier in tiers)
                     for key in ("pinned_used_bytes", "paged_used_bytes", "disk_used_bytes")}

    # The whole run: every byte that moved in it, in all the time that it took.
    moved = {key: r.mean([record[key] for record in records]) for key in ("bytes_out", "bytes_in")}
    least = least_below(moved["bytes_in"], options, rest)
    lowers = [below(record) for record in records]
    found["is_estimated"] = None in lowers
    lower = least if found["is_estimated"] else {
        name: tuple(r.mean([one[name][way] for one in lowers]) for way in range(2)) for name in least}
    found["moved"] = {**moved, "lower": lower, "least_lower": least}
    found["needed_ms"] = needed_ms(rig, moved["bytes_out"], moved["bytes_in"], lower)
    free_ms = r.mean([record["wall_ms"] - record["first_ms"] for record in records])
    together = together_of(rig)
    slower = slowdowns(together) if together else None
    found["bound_ms"], found["slowest"] = bound(
        found["needed_ms"], free_ms, slower, beyond_pinned(rig, moved["bytes_out"], moved["bytes_in"], options))
    if slower:
        found["needed_ms"]["both"] = both_ms(found["needed_ms"]["link"], found["needed_ms"]["paged"], slower)
    found["over_bound"] = found["first_ms"]["mean"] / found["bound_ms"] if found["bound_ms"] else None
    found["use"] = {name: ms / r.mean([record["wall_ms"] for record in records])
                    for name, ms in found["needed_ms"].items()}
    found["over_least"] = sum(map(sum, lower.values())) / sum(map(sum, least.values())) if any(
        map(sum, least.values())) else None

    # Turn by turn: not as exact, as what moved in one can be for another.
    for record, one in zip(records, lowers):
        record["bound_ms"], record["slowest"] = bound(
            needed_ms(rig, record["bytes_out"], record["bytes_in"], one or least),
            record["wall_ms"] - record["first_ms"], slower,
            beyond_pinned(rig, record["bytes_out"], record["bytes_in"], options))
    found["turn_bound_ms"] = r.spread([record["bound_ms"] for record in records])

    reference = next((one for one in rig.result["runs"] if one["work_ms"] == found["work_ms"]), found)
    # The means: turns that move more and turns that move less come in turn. That one was first.
    found["of_uncapped"] = found["first_ms"]["mean"] / reference["first_ms"]["mean"]


def bound_by(found):
    return "link and memory together" if found["slowest"] == "both" else found["slowest"]


def judge(rig):
    """What the project wants to reach, beside what was measured. Only what must never be is a failure."""
    goals = []
    for found in rig.result["runs"]:
        if not found["turns"]:
            continue
        what = f"{found['name']}, work {found['work_ms']:.0f} ms"
        if found["most"]["pinned_used_bytes"] > found["options"]["pinned"]:
            raise r.Failure(f"{what}: more pinned memory was used than the cap")
        if found["options"].get("disk"):
            if found["most"]["disk_used_bytes"] == 0:
                raise r.Failure(f"{what}: the disk was not used")
            goals.append({"goal": f"{what}: complete and verified, turns", "measured": len(found["turns"]),
                          "wanted": len(rig.args.sizes), "is_met": len(found["turns"]) >= len(rig.args.sizes)})
            continue
        if found["name"] != "uncapped":
            is_link = found["slowest"] == "link"
            measured = found["of_uncapped"] if is_link else found["over_bound"]
            goals.append({"goal": f"{what}: first kernel, of " +
                          ("uncapped (paged memory can keep up)" if is_link else f"the bound ({bound_by(found)})"),
                          "measured": measured, "wanted": 1.1, "is_share": True, "is_met": measured <= 1.1})
        goals.append({"goal": f"{what}: longest stall, ms", "measured": found["stall_ms"], "wanted": 1000,
                      "is_met": found["stall_ms"] <= 1000})
    rig.result["goals"] = goals
    r.show_goals(goals)


def show(rig):
    result = rig.result
    ceiling, copies, disk, together = (result["ceiling"], result["copies"], result.get("disk"),
                                       together_of(rig))
    print(f"tiers: programs of {' + '.join(map(r.show_size, rig.args.sizes))}, budget "
          f"{r.show_size(rig.args.budget)}, {r.show_size(result['rest_bytes'])} in host memory; every byte verified "
          "in every turn")
    print(f"ceilings, GB/s: link {ceiling['both']:.1f} both ways; pinned and paged memory {copies['both']:.1f} both "
          f"ways ({copies['out']:.1f} out, {copies['back']:.1f} back; {copies['workers']} threads)" +
          (f"; disk {disk['both']:.2f} both ways ({disk['write']:.2f} write, {disk['read']:.2f} read)" if disk else ""))
    if together:
        def told(name):
            return " and ".join(f"{together[name][way]:.1f}" for way in ("in", "out"))

        print(f"plain copies, GB/s: memory {together['memory']['memory']:.1f}, link {told('link')} in and out; "
              f"together {together['all']['memory']:.1f}, {told('all')}; with both ways the same "
              f"{together['swap']['memory']:.1f}, {told('swap')}")
    shown = [one for one in result["runs"] if one["turns"]]
    print("time to first kernel, ms; its bound is of the slowest that the bytes of the run must pass (both: the link "
          "beside copies in memory)" +
          ("; this daemon does not tell what it moves below pinned memory: the least" if any(
              one["is_estimated"] for one in shown) else "") + ":")
    r.table(["pinned memory", "cap", "work", "turns", "p50", "p90", "max", "stall", "warm max", "of uncapped", "bound",
             "mean/bound", "slowest", "in use", "moved/least", "paged GiB", "disk GiB"],
            [[one["name"], r.show_size(one["options"]["pinned"]), f"{one['work_ms']:.0f}", len(one["turns"]),
              *(r.number(one["first_ms"][key]) for key in ("p50", "p90", "max")), r.number(one["stall_ms"]),
              r.number(one["warm_ms"] and one["warm_ms"]["max"]), r.percent(one["of_uncapped"]),
              r.number(one["bound_ms"]), r.percent(one["over_bound"]), one["slowest"],
              r.percent(one["use"][one["slowest"]]), r.number(one["over_least"], 2),
              *(r.number(one["most"][key] / 2**30, 2) for key in ("paged_used_bytes", "disk_used_bytes"))]
             for one in shown])
    print("programs ready after, s: " + "; ".join(
        f"{one['name']} {one['start_s']:.1f} (longest fill {one['fill_ms'] / 1000:.1f})"
        for one in shown if one["work_ms"] == rig.args.work[0]))


def conclude(rig):
    if not rig.result.get("link"):
        return
    rig.result["ceiling"] = rig.ceiling()
    for found in rig.result["runs"]:
        if found["turns"]:
            digest(rig, found)
        for record in found["warm"]:
            record.pop("tiers", None)
    if any(found["turns"] for found in rig.result["runs"]):
        show(rig)
        judge(rig)


if __name__ == "__main__":
    r.main("tiers", __doc__, add_options, run, conclude)

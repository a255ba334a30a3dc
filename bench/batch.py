#!/usr/bin/env python3
"""bench/batch: three batch programs that never rest share a GPU that has room for one of them at a time.

A language model in fp16 that decodes token after token, each a CUDA graph (or not: --launches), the training of a
ResNet-152, and convolutions in the shape of a model that makes images (python/models.py), all of random weights. So
that no two fit together, those that need less than --sizes hold ballast for the rest: buffers of random words, which
they read and compare in every unit of their work. Every round of each is compared with the same round computed
without gpumux, to the bit.

Each is measured alone without gpumux before and, with the others idle, under it after all have worked together; what
a program does in a second alone is its rate. The ideal is each alone and the time shared with free switches: then what
each did over its rate adds up to the time that passed. `total` is that sum, of the time; a program's share is its part
of it.

Beside its share of the work, which is as exact as the rates alone, each has a share of the time: how long its gate
was open, as the daemon's history of switches has it, of the time for which any of theirs was.

Shares are judged over whole rounds: the longest time in which all have had as many turns. A turn that idleness
interrupted and its rest, which is added to a later one, are one turn; a later one that has both is two. A
round ends where no turn is interrupted or in progress, so one that the end of the measurement cuts short is in none.
The work together goes on for --together and until the round in progress ends, if there is time. It is counted from
when all have come to the scheduler's last level (--settle at most): on the way there turns are of different lengths,
and one that was idle when others were charged gets its allotments later than they.
"""

import time

import programs as p
import rig as r

LEAST_TOTAL = .95
EQUAL_WITHIN = .05
LEAST_REST = 1 / 8 # of a slice: if idleness leaves less, it was a whole turn


def add_options(parser):
    p.add_options(parser)
    p.add_decoder_options(parser)
    parser.add_argument("--sizes", type=r.sizes, default=[14 * 2**30] * 3, metavar="SIZE,SIZE,SIZE",
                        help="of the decoder, the training and the convolutions (14G,14G,14G)")
    parser.add_argument("--budget", type=r.size, default=20 * 2**30, metavar="SIZE", help="of GPU memory (20G)")
    parser.add_argument("--together", type=r.milliseconds, default=120000, metavar="TIME",
                        help="all at once, at least so long if there is time (120s)")
    parser.add_argument("--more", type=r.milliseconds, default=50000, metavar="TIME",
                        help="and so much longer at most until the round in progress ends (50s)")
    parser.add_argument("--settle", type=r.milliseconds, default=100000, metavar="TIME",
                        help="until all are at the last level, at most (100s)")
    parser.add_argument("--alone", type=r.milliseconds, default=6000, metavar="TIME",
                        help="each alone before, and half of it after (6s)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        type=lambda text: tuple(text.partition("=")[::2]),
                        help="of the daemon; may be given several times")


def plans(args):
    return {"decoder": p.Plan(p.decoder(args), args.sizes[0], 128, seed=31),
            "training": p.Plan("training", args.sizes[1], 8, seed=32),
            "convolutions": p.Plan("denoising", args.sizes[2], 30, seed=33)}


# --- measuring ---

def measure_alone(rig, kept, seconds):
    """One program for so long; its rate, the first second left out."""
    begun = time.monotonic()
    kept.start()
    p.watch([kept], begun + seconds)
    end = time.monotonic()
    kept.end()
    time.sleep(rig.args.gap / 1000)
    return {"seconds": end - begun, "rate": kept.rate(begun + min(1, seconds / 4), end)}


def measure_native(rig):
    """Each alone, without gpumux: their rates, and the results that all others are compared with."""
    natives = {name: p.make(rig, "native-" + name, plan) for name, plan in plans(rig.args).items()}
    p.load_all(natives.values())
    for (name, program), member in zip(natives.items(), rig.result["members"]):
        member["alone"].append({"is_native": True, **measure_alone(rig, p.Kept(program), rig.args.alone / 1000)})
    for program in natives.values():
        program.end()


def settle_levels(daemon, kept, until):
    """All work together until each has come to the last level, where programs that never rest stay; whether they have."""
    pids = {one.program.pid for one in kept}
    while time.monotonic() < until:
        p.watch(kept, min(until, time.monotonic() + .5))
        status = daemon.status()
        levels = [app["level"] for app in status["apps"] if app["pid"] in pids]
        if len(levels) == len(kept) and set(levels) <= {3}:
            return True
    return False


def open_s(one, following):
    """For how long its gate was open: until the switch to the next began."""
    return following["at_s"] - following["total_ms"] / 1000 - one["at_s"]


def turns_of(slices, slice_s):
    """
    Of each slice but the last, whose end is not known: (turns of its program that ended in it, whether any turn is
    interrupted after it). `slice_s` is what the scheduler gives to each; "left" of a switch says who yielded and why.
    """
    used, found = {}, [] # used: time in interrupted turns, by program
    for one, following in zip(slices, slices[1:]):
        pid, took = one["pid"], open_s(one, following)
        before, turns = used.pop(pid, 0), 0
        if before and took > slice_s - before + LEAST_REST * slice_s: # the rest, and the next turn
            turns, took, before = 1, took - (slice_s - before), 0
        is_idle = any(left["pid"] == pid and left["why"] == "idle" for left in following["left"])
        if is_idle and before + took <= (1 - LEAST_REST) * slice_s:
            used[pid] = before + took
        else:
            turns += 1
        found.append((turns, bool(used)))
    return found


def whole_rounds(slices, slice_s, first=0):
    """
    The longest time in which every program has as many turns, none of them cut short: (the first of its slices, the one
    behind the last, turns of each), from slices[first] on; those before say what was interrupted then. None if there
    is none.
    """
    turns = turns_of(slices, slice_s)
    pids = {one["pid"] for one in slices[first:]}
    best = None
    for begin in range(first, len(turns)):
        if begin > 0 and turns[begin - 1][1]:
            continue
        counts = dict.fromkeys(pids, 0)
        for at in range(begin, len(turns)):
            counts[slices[at]["pid"]] += turns[at][0]
            if turns[at][1] or len(set(counts.values())) > 1:
                continue
            took = slices[at + 1]["at_s"] - slices[begin]["at_s"]
            if best is None or took > slices[best[1]]["at_s"] - slices[best[0]]["at_s"]:
                best = begin, at + 1, counts[slices[begin]["pid"]]
    return best


def measure_together(rig, daemon, kept):
    """All at once. The slices, as the daemon tells them."""
    args, found = rig.args, rig.result["together"]
    daemon.settle()
    daemon.take()
    after = 1.5 * args.alone / 1000 + rig.closing_s() + 8 # each alone again, and the end
    for one in kept:
        one.start()
    begun = time.monotonic()
    found["is_settled"] = settle_levels(daemon, kept, begun + min(args.settle / 1000, rig.left() - after - 3))
    found["settled_s"] = time.monotonic() - begun
    config = daemon.status()["config"]
    found["slice_s"] = config["slice_s"] * 4
    slices = found["slices"] = daemon.take_with_leavers()["history"]
    found["first"] = len(slices) # those before say which turns are interrupted
    begun = time.monotonic()
    least = begun + max(3, min(args.together / 1000, rig.left() - after))
    most = max(least, min(least + args.more / 1000, begun + rig.left() - after))
    moved = {"switches": 0, "bytes_out": 0, "bytes_in": 0}
    while time.monotonic() < most:
        p.watch(kept, min(most, time.monotonic() + 1)) # to ask the daemon takes time of theirs
        taken = daemon.take_with_leavers()
        slices += taken["history"]
        for key in moved:
            moved[key] += taken[key]
        if time.monotonic() > least and len({one["pid"] for one in slices[found["first"]:]}) == len(kept):
            rounds = whole_rounds(slices, found["slice_s"], found["first"])
            if rounds and rounds[1] == len(slices) - 1 and slices[-1]["at_s"] > least:
                break
    found.update(moved, begin_s=begun, end_s=time.monotonic())
    p.end_all(kept)


def run(rig):
    args = rig.args
    if len(args.sizes) != 3:
        raise r.Failure("--sizes takes three sizes")
    if max(args.sizes) > args.budget or sum(sorted(args.sizes)[:2]) <= args.budget:
        raise r.Failure("each program fits into the budget, and no two together do")
    rig.result["members"] = [{"name": name, "alone": []} for name in plans(args)]
    rig.result["together"] = {"slices": []}
    rig.link("before")
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=sum(args.sizes) + 2**28,
                      **{"turn": None, "idle": None, **dict(args.option)})
    rig.result["options"] = daemon.options
    # All import PyTorch at once.
    kept = [p.Kept(p.make(rig, name, plan, daemon)) for name, plan in plans(args).items()]
    measure_native(rig)
    for one, member in zip(kept, rig.result["members"]):
        one.program.load()
        member.update(pid=one.program.pid, bytes=one.program.bytes, fill_ms=one.program.loaded["fill_ms"])
    for one in kept: # so that all host memory is there
        one.program.units()
    measure_together(rig, daemon, kept)
    for one, member in zip(kept, rig.result["members"]):
        member["ends"] = one.ends # left out of the result later
        if rig.left() > rig.closing_s() + args.alone / 2000 + 2:
            member["alone"].append({"is_native": False, **measure_alone(rig, one, args.alone / 2000)})
    for one in kept:
        one.program.end()
    daemon.stop()
    if rig.left() > 2 * rig.result["link"][0]["took_s"]:
        rig.link("after")


# --- what it comes to ---

def shares_of(parts):
    """Each part as a multiple of an equal one."""
    total = sum(parts)
    return [part / total * len(parts) if total else None for part in parts]


def account(members, slices, begin, end):
    """What each did in that time: over its rate alone, of the time; and for how long its gate was open."""
    done = [sum(begin < at <= end for at in one["ends"]) for one in members]
    parts = [count / one["rate"] / (end - begin) for count, one in zip(done, members)]
    opened = [sum(min(end, part["at_s"] + part["slice_s"]) - max(begin, part["at_s"]) for part in slices
                  if part["pid"] == one["pid"] and "slice_s" in part and begin < part["at_s"] + part["slice_s"]
                  and part["at_s"] < end) for one in members]
    return {"seconds": end - begin, "total": sum(parts), "done": done, "parts": parts, "shares": shares_of(parts),
            "open_s": opened, "time_shares": shares_of(opened)}


def digest(rig):
    members, together = rig.result["members"], rig.result["together"]
    for one in members:
        rates = [run["rate"] for run in one["alone"] if run["rate"]]
        if not rates:
            raise r.Failure(f"{one['name']} did less than two units alone: give it more time (--alone)")
        one["rate"] = r.mean(rates)
    slices, first = together["slices"], together["first"]
    names = {one["pid"]: one["name"] for one in members}
    for one, following in zip(slices, slices[1:]):
        one["slice_s"] = open_s(one, following)
        one["name"] = names.get(one["pid"])
    rounds = whole_rounds(slices, together["slice_s"], first)
    together["all"] = account(members, slices, together["begin_s"], together["end_s"])
    together["rounds"] = rounds and {
        "count": rounds[2], "slices": rounds[1] - rounds[0],
        **account(members, slices, slices[rounds[0]]["at_s"], slices[rounds[1]]["at_s"])}
    together["slices"] = slices = slices[first:]
    together["switch_ms"] = r.spread([one["total_ms"] for one in slices])
    for one in members:
        del one["ends"]


def show(rig):
    args, members, together = rig.args, rig.result["members"], rig.result["together"]
    print(f"batch: {rig.result['programs']}, budget {r.show_size(args.budget)}; together for "
          f"{together['all']['seconds']:.1f} s; every round compared with the same one alone")
    rounds = together["rounds"]
    r.table(["program", "memory", "units/s without", "alone under it", "of it, all the time", "share",
             "in whole rounds", "share in whole rounds", "gate open s", "share of the time", "slices", "longest s"],
            [[one["name"], r.show_size(one["bytes"]), *(r.number(run and run["rate"]) for run in
                                                        (one["alone"] + [None])[:2]),
              r.percent(together["all"]["parts"][index]), r.number(together["all"]["shares"][index], 3),
              *([r.percent(rounds["parts"][index]), r.number(rounds["shares"][index], 3),
                 r.number(rounds["open_s"][index]), r.number(rounds["time_shares"][index], 3)] if rounds else ["-"] * 4),
              sum(part["pid"] == one["pid"] for part in together["slices"]),
              r.number(max((part.get("slice_s", 0) for part in together["slices"] if part["pid"] == one["pid"]),
                           default=None))]
             for index, one in enumerate(members)])
    print(f"total of ideal: {r.percent(together['all']['total'])} all the time" +
          (f", {r.percent(rounds['total'])} in {rounds['count']} whole rounds of {rounds['seconds']:.1f} s" if rounds
           else "; there was no whole round") +
          (f"; {together['switches']} switches of {together['switch_ms']['median']:.0f} ms" if together["switch_ms"]
           else ""))


def judge(rig):
    together = rig.result["together"]
    rounds = together["rounds"]
    of = rounds or together["all"]
    what = "whole rounds" if rounds else "all the time, there was no whole round"
    goals = [{"goal": f"total, of ideal ({what})", "measured": of["total"], "wanted": LEAST_TOTAL, "is_share": True,
              "is_met": of["total"] >= LEAST_TOTAL}]
    for one, share in zip(rig.result["members"], of["shares"]):
        far = abs(share - 1) if share is not None else 1
        goals.append({"goal": f"{one['name']}: its share differs from an equal one by", "measured": far,
                      "wanted": EQUAL_WITHIN, "is_share": True, "is_met": bool(rounds) and far <= EQUAL_WITHIN})
    for one, share in zip(rig.result["members"], of["time_shares"]):
        far = abs(share - 1) if share is not None else 1
        goals.append({"goal": f"{one['name']}: its share of the time differs from an equal one by", "measured": far,
                      "wanted": EQUAL_WITHIN, "is_share": True, "is_met": bool(rounds) and far <= EQUAL_WITHIN})
    rig.result["goals"] = goals
    r.show_goals(goals)


def conclude(rig):
    together, members = rig.result.get("together"), rig.result.get("members", [])
    if not together or "end_s" not in together or not all("ends" in one for one in members):
        for one in members:
            one.pop("ends", None)
        return
    if rig.result.get("link"):
        rig.result["ceiling"] = rig.ceiling()
    digest(rig)
    show(rig)
    if p.measures(rig):
        judge(rig)


if __name__ == "__main__":
    r.main("batch", __doc__, add_options, run, conclude)

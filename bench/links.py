#!/usr/bin/env python3
"""bench/links: one daemon for all GPUs, and all links at once.

--programs programs (bench/app), as many on each GPU as can be, together need --need times the budgets. All of them rewrite all of
their memory without a pause, and turns are short (--turn), so that every GPU switches all the time. Measured for --run:

  decisions   the time that passes each time while scheduler and planner decide, and while the loop works on what follows from that,
              as the daemon counts them: gpus[].decision_times and pass_times of mux-ctl status --json
  bytes       what crosses each GPU's link, by mux-ctl trace record: in the moments when every GPU has copies under way in both
              directions, and over all of the time

The ceilings are of the same run, before that: bench/link, both ways at once, on each GPU alone (their sum is what the links can do)
and on all GPUs at once (what the host's memory can do beside). The programs verify all that they rewrite.
"""

import json
import os
import time

import mixes
import rig as r

PATIENCE_S = 90 # for the start of all programs
BUSY_LEAST_S = .5 # of moments in which all links are busy: a copy's end is seen some milliseconds later
LINK = ("--from", "32M", "--to", "32M", "--rounds", "200")


def add_options(parser):
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="so many GPUs, from the first on (all)")
    parser.add_argument("--programs", type=int, default=30, metavar="N", help="(30)")
    parser.add_argument("--budget", type=r.size, default=6 * 2**30, metavar="SIZE", help="of each GPU (6G)")
    parser.add_argument("--need", type=float, default=2, metavar="N", help="what programs need, of the budgets (2)")
    parser.add_argument("--turn", default="20ms", metavar="TIME", help="length of a turn (20ms)")
    parser.add_argument("--run", type=r.milliseconds, default=r.milliseconds("20s"), metavar="TIME", help="measured (20s)")
    parser.add_argument("--warm", type=r.milliseconds, default=r.milliseconds("40s"), metavar="TIME",
                        help="before that, at most, until host memory grows no more (40s)")


# ---- the ceilings ----

def visible(rig, gpu):
    """The environment of a program that sees that GPU alone."""
    return {**rig.environment, "CUDA_VISIBLE_DEVICES": str(gpu)}


def raw(rig, gpus, ms):
    """GB/s of each of these GPUs both ways, all at once."""
    links = []
    for gpu in gpus:
        file = os.path.join(rig.work, f"link-{gpu}-of-{len(gpus)}.json")
        links.append((file, r.Process(rig, os.path.basename(file), [
            rig.at("bench/link"), *LINK, "--bytes", rig.args.link_bytes, "--ms", f"{ms:.0f}", "--wait", "--json", file],
            visible(rig, gpu))))
    for _, link in links:
        link.await_line("ready", 60)
    for _, link in links:
        link.send("go")
    found = []
    for file, link in links:
        link.end()
        with open(file, encoding="utf-8") as text:
            piece = json.load(text)["pieces"][0]
        found.append(piece["both"]["median"])
    return found


def ceilings(rig, n_gpus):
    found = rig.result["raw"] = {"alone": [raw(rig, [gpu], 2000)[0] for gpu in range(n_gpus)],
                                   "together": raw(rig, range(n_gpus), 4000)}
    found["sum"], found["at_once"] = sum(found["alone"]), sum(found["together"])


# ---- the programs ----

def start_programs(rig, daemon, n_gpus):
    """All at once: their memory is filled in turns."""
    args = rig.args
    count = int(args.need * n_gpus * args.budget / args.programs) & ~0x1fffff
    rig.result["program_bytes"] = count
    apps, environment = [], rig.environment
    for index in range(args.programs):
        rig.environment = visible(rig, index % n_gpus)
        apps.append(r.App(rig, f"app-{index}", count, daemon, piece=min(count, 2**30), patience=PATIENCE_S, is_awaited=False))
    rig.environment = environment
    for app in apps:
        app.await_ready()
    return apps


def grow(rig, daemon):
    """Until host memory grows no more: it is made when it is first needed."""
    end = time.monotonic() + min(rig.args.warm / 1000, rig.left() / 3)
    most, since = 0, time.monotonic()
    while time.monotonic() < end and time.monotonic() < since + 2:
        pinned = sum(gpu["tiers"]["pinned_bytes"] for gpu in daemon.status()["gpus"])
        if pinned > most * 1.01:
            most, since = pinned, time.monotonic()
        time.sleep(.2)
    rig.result["pinned_bytes"] = most


def measure(rig, daemon, apps):
    args, trace = rig.args, os.path.join(rig.work, "trace")
    seconds = max(1, round(min(args.run / 1000, rig.left() / 2 - 5)))
    until = time.monotonic() + min(args.warm / 1000, rig.left() / 3) + seconds + 3
    for app in apps:
        app.send(f"run rewrite {(until - time.monotonic()) * 1000:.0f}")
    grow(rig, daemon)
    before, begun = daemon.status(), time.monotonic()
    record = r.Process(rig, "record", [rig.ctl, "trace", "record", trace, f"--seconds={seconds}"], daemon.environment)
    record.end(seconds + 20)
    took, after = time.monotonic() - begun, daemon.status()
    rig.result.update(run_s=took, copies=read_copies(trace), decisions=since(before, after, "decision_times"),
                      passes=since(before, after, "pass_times"))
    for key in ("bytes_in", "bytes_out", "switches"):
        rig.result[key] = [now[key] - then[key] for now, then in zip(after["gpus"], before["gpus"])]
    passes = 0
    for app in apps:
        answer = app.understand(app.line(until - time.monotonic() + PATIENCE_S))
        passes += answer["passes"]
    rig.result["work_passes"] = passes


def read_copies(path):
    """Of a trace: (GPU, way, begin, end, bytes) of each span of copies, in ns."""
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if len(words) == 7 and words[2] == "copied" and words[6] in ("in", "out"):
                span = r.fields(line)
                found.append((int(words[1]), words[6], span["begin_ns"], span["end_ns"], span["bytes"]))
    return found


def since(before, after, key):
    """Those that were counted meanwhile, on all GPUs."""
    counts = [sum(now[key]["counts"][i] - then[key]["counts"][i] for now, then in zip(after["gpus"], before["gpus"]))
              for i in range(len(after["gpus"][0][key]["counts"]))]
    return {"up_to_s": after["gpus"][0][key]["up_to_s"], "counts": counts,
            "sum_s": sum(now[key]["sum_s"] - then[key]["sum_s"] for now, then in zip(after["gpus"], before["gpus"])),
            "most_s": max(gpu[key]["most_s"] for gpu in after["gpus"])}


def run(rig):
    args = rig.args
    for variable in ("CUDA_VISIBLE_DEVICES", "GPUMUX_PLACE", "GPUMUX_NEED"):
        rig.environment.pop(variable, None)
    rig.gpus = mixes.devices_of(rig)
    n_gpus = rig.result["n_gpus"] = len(rig.gpus)
    if args.programs < 2 * n_gpus:
        raise r.Failure("at least two programs a GPU")
    if min(gpu["free"] for gpu in rig.gpus) < args.budget:
        raise r.Absent(f"a GPU has less than {r.show_size(args.budget)} free")
    ceilings(rig, n_gpus)
    total = int(args.need * n_gpus * args.budget)
    daemon = r.Daemon(rig, gpu=",".join(str(i) for i in range(n_gpus)), gpu_budget=args.budget, place="off",
                      pinned=min(total + 2**30, r.host_bytes() * 3 // 4), turn=args.turn)
    apps = start_programs(rig, daemon, n_gpus)
    measure(rig, daemon, apps)
    for app in apps:
        app.process.stdin.close()
    for app in apps:
        app.end()
    daemon.stop()


# ---- conclusions ----

def quantile(times, part):
    """The bound, in ms, within which so large a part is; the longest of all, if that is beyond all bounds."""
    left = part * sum(times["counts"])
    for bound, count in zip(times["up_to_s"], times["counts"]):
        left -= count
        if left <= 0:
            return bound * 1000
    return times["most_s"] * 1000


def busy_windows(copies, n_links):
    """
    The time in which that many links are busy, in s, and what moved then, in bytes. A link is a direction of a GPU; what a span
    moves is moved evenly.
    """
    events, active, last = [], {}, None
    seconds, moved = 0, 0
    for gpu, way, begin, end, count in copies:
        if end > begin and count > 0:
            link, rate = (gpu, way), count / (end - begin)
            events += [(begin, 1, link, rate), (end, 0, link, rate)]
    for at, is_begin, link, rate in sorted(events):
        if last is not None and at > last and len(active) == n_links:
            seconds += (at - last) / 1e9
            moved += (at - last) * sum(sum(rates) for rates in active.values())
        last = at
        if is_begin:
            active.setdefault(link, []).append(rate)
        else:
            active[link].remove(rate)
            if not active[link]:
                del active[link]
    return seconds, moved


def conclude(rig):
    result = rig.result
    if "copies" not in result:
        return
    n_gpus, limits = result["n_gpus"], result["raw"]
    copies = result.pop("copies") # they are many
    seconds, moved = busy_windows(copies, 2 * n_gpus)
    ceiling = min(limits["sum"], limits["at_once"])
    all_rate = (sum(result["bytes_in"]) + sum(result["bytes_out"])) / result["run_s"] / 1e9
    busy_rate = moved / seconds / 1e9 if seconds > 0 else None
    result.update(busy_s=seconds, busy_gb_s=busy_rate, gb_s=all_rate, ceiling_gb_s=ceiling)
    print(f"links: {n_gpus} GPUs, {rig.args.programs} programs of {r.show_size(result['program_bytes'])}, a budget of "
          f"{r.show_size(rig.args.budget)} each, turns of {rig.args.turn}, for {result['run_s']:.1f} s; "
          f"{result['work_passes']} passes, all bytes right")
    r.table(["decisions", "of them", "median ms", "p99", "p99.9", "longest since the start"],
            [[name, sum(times["counts"]), *(r.number(quantile(times, part), 3) for part in (.5, .99, .999)),
              r.number(times["most_s"] * 1000, 3)]
             for name, times in (("scheduler and planner", result["decisions"]), ("the whole pass", result["passes"]))])
    r.table(["GB/s", "all", *(f"GPU {gpu}" for gpu in range(n_gpus))],
            [["raw, both ways, each alone", r.number(limits["sum"]), *map(r.number, limits["alone"])],
             ["raw, both ways, all at once", r.number(limits["at_once"]), *map(r.number, limits["together"])],
             ["gpumux, over all of the time", r.number(all_rate),
              *(r.number((into + out) / result["run_s"] / 1e9) for into, out in zip(result["bytes_in"], result["bytes_out"]))],
             [f"gpumux, all links busy both ways ({seconds:.1f} s)", r.number(busy_rate), *["-"] * n_gpus]])
    print(f"switches: {' '.join(map(str, result['switches']))}; pinned {r.show_size(result['pinned_bytes'])}")
    goals = result["goals"] = [{"goal": "a decision, 99 of 100, ms", "measured": quantile(result["decisions"], .99), "wanted": 1,
                                "is_met": quantile(result["decisions"], .99) <= 1}]
    if seconds < BUSY_LEAST_S:
        print(f"all links were busy at once for {seconds * 1000:.0f} ms: too short to tell their rate")
    else:
        goals.append({"goal": "all links at once, of raw copies on all GPUs at once", "measured": busy_rate / ceiling, "wanted": .9,
                      "is_share": True, "is_met": busy_rate >= .9 * ceiling})
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("links", __doc__, add_options, run, conclude)

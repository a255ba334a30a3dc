#!/usr/bin/env python3
"""bench/prefetch: three batch programs in turn, with prefetch on and off, and what prefetching costs the one that runs.

The programs never idle: each goes over all of its memory again and again (one pass in eight verifies and rewrites it,
the others verify it, which the GPU's memory bounds) and has the GPU for a quantum at a time. Pinned memory is capped,
with paged memory for the rest, so that the next program's data has to be raised before it can be copied in: while the
others run (prefetch on) or during the switch (off). There are two daemons with three programs each, one for either
setting; blocks of --block, or shorter ones with --seconds, alternate between them, off, on, off, on, while the other's
programs are idle.

What counts are passes within a slice: after the gate opened for their program and before the next switch was decided.
With prefetch on, those during which the daemon moved bytes for the next program are told from those beside which
nothing moved. The cost of prefetching is how much longer the median of the first is; next to it stands what plain
copies at the same rate cost a program (bench/load), and at full speed.
"""

import bisect
import os
import threading
import time

import rig as r


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[6 * 2**30] * 3, metavar="SIZE,...",
                        help="of the programs (6G,6G,6G)")
    parser.add_argument("--budget", type=r.size, default=8 * 2**30, metavar="SIZE", help="of GPU memory (8G)")
    parser.add_argument("--pinned", type=r.size, default=4 * 2**30, metavar="SIZE", help="pinned memory (4G)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--quantum", default="300ms", metavar="TIME", help="of the daemon (300ms)")
    parser.add_argument("--blocks", type=int, default=2, metavar="N", help="of each setting (2)")
    parser.add_argument("--block", type=r.milliseconds, default=10000, metavar="TIME",
                        help="length of one, at most (10s)")
    parser.add_argument("--alone", type=r.milliseconds, default=800, metavar="TIME",
                        help="that a program is measured beside plain copies, each (800ms)")


class Setting:
    """A daemon with prefetch on or off, its programs, and what was measured of them."""

    def __init__(self, rig, prefetch):
        args = rig.args
        options = {"gpu_budget": args.budget, "pinned": args.pinned, "quantum": args.quantum, "prefetch": prefetch,
                   "shared_gpu": True} # with the other setting
        if args.pinned < sum(args.sizes):
            options["paged"] = sum(args.sizes)
        self.rig = rig
        self.prefetch = prefetch
        self.daemon = r.Daemon(rig, "daemon-" + prefetch, **options)
        self.apps = []
        self.found = {"prefetch": prefetch, "options": self.daemon.options, "blocks": [], "switches": [],
                      "passes": 0, "mismatches": 0, "seconds": 0}
        self.passes, self.alone, self.beside = [], [], [] # of passes within slices: all, and those that are told apart
        rig.result["settings"].append(self.found)

    def start_app(self, index):
        """The program of that number; not ready yet."""
        self.apps.append(r.App(self.rig, f"{self.prefetch}-{index}", self.rig.args.sizes[index], self.daemon,
                               piece=self.rig.args.piece, is_awaited=False))

    def stop(self):
        for app in self.apps:
            app.end()
        self.daemon.stop()


def run_block(rig, setting, ms):
    """All programs of a setting at once for so long; what the daemon says meanwhile goes into its found."""
    answers, failures = {}, []

    def ask(app):
        try:
            answers[app.pid] = app.run("mixed", ms, os.path.join(rig.work, app.name + ".passes"))
        except r.Failure as failure:
            failures.append(failure)

    daemon = setting.daemon
    daemon.settle()
    daemon.take()
    threads = [threading.Thread(target=ask, args=(app,), daemon=True) for app in setting.apps]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    switches, samples = [], []
    block = {"ms": ms, "switches": 0}
    setting.found["blocks"].append(block)
    while any(thread.is_alive() for thread in threads):
        time.sleep(.03)
        taken = daemon.take()
        # Between two calls: what moved, in milliseconds of the clock that passes and switches have, too.
        samples.append({"begin": (daemon.taken_at * 1000) - taken["wall_ms"], "end": daemon.taken_at * 1000,
                        "lower": sum((taken["lower"] or {}).values()),
                        "link": taken["bytes_in"] + taken["bytes_out"]})
        for one in taken["history"]:
            # Only while all want the GPU: at the end they finish one after the other. The first is to who asked first.
            if switches and one["at_s"] < begun + ms / 1000:
                setting.found["switches"].append(one)
                block["switches"] += 1
            switches.append(one)
    if failures:
        raise failures[0]
    setting.found["passes"] += sum(answer["passes"] for answer in answers.values())
    setting.found["mismatches"] += sum(answer["mismatches"] for answer in answers.values())
    setting.found["seconds"] += ms / 1000
    sort_passes(setting, switches, samples, answers)


def sort_passes(setting, switches, samples, answers):
    """Passes within slices: with the daemon at work for the next program meanwhile, and with nothing."""
    ends = [one["end"] for one in samples]
    for one, following in zip(switches, switches[1:]):
        begin, end = one["at_s"] * 1000, following["at_s"] * 1000 - following["total_ms"]
        mine = [(ended - ms, ended, ms) for ended, ms, is_rewrite in answers[one["pid"]]["list"]
                if not is_rewrite and ended - ms >= begin and ended <= end] if one["pid"] in answers else []
        for pass_begin, pass_end, ms in mine:
            setting.passes.append(ms)
            at = bisect.bisect_left(ends, pass_begin)
            over = []
            while at < len(samples) and samples[at]["begin"] < pass_end:
                over.append(samples[at])
                at += 1
            # A sample that reaches into a switch counts its bytes: it tells nothing of the slice.
            if not over or over[0]["begin"] < begin or over[-1]["end"] > end:
                continue
            if any(sample["lower"] + sample["link"] > 0 for sample in over):
                took = sum(sample["end"] - sample["begin"] for sample in over)
                setting.beside.append({"ms": ms, **{what: sum(sample[what] for sample in over) / took / 1e6
                                                    for what in ("lower", "link")}})
            else:
                setting.alone.append(ms)


def measure_load(rig, setting, wanted):
    """
    A program that has the GPU for itself (the others of its daemon have ended), and beside it plain copies: none, at
    the rates that prefetching had, and at full speed.
    """
    app = setting.apps[0]
    threads = max(2, r.default_workers(rig.result))
    load = r.Process(rig, "load", [rig.at("bench/load"), "--bytes", min(2**28, rig.args.link_bytes), "--threads",
                                   threads])
    load.await_line("ready", 60)
    found = {"threads": threads}
    app.turn("verify") # all of it is back on the GPU
    ms = rig.args.alone
    for name, rates in (("alone", None), ("same_rate", f"{wanted['link']:.3f} 0 {wanted['lower']:.3f}"),
                        ("memory", "0 0 999"), ("link", "999 999 0"), ("alone_again", None)):
        answer = {}
        thread = threading.Thread(target=lambda rates=rates, answer=answer: answer.update(
            load.ask(f"copy {rates} {ms + 100:.0f}", 60)), daemon=True)
        if rates:
            thread.start()
            time.sleep(.05)
        passes = app.run("verify", ms, os.path.join(rig.work, "passes"))["list"]
        if rates:
            thread.join()
        found[name] = {"pass_ms": r.spread([took for _, took, _ in passes]), "rates": answer}
    load.end()
    return found


def start(rig):
    """Both daemons, and their programs two by two: each takes long to fill its memory."""
    settings = [Setting(rig, prefetch) for prefetch in ("off", "on")]
    for index in range(len(rig.args.sizes)):
        for setting in settings:
            setting.start_app(index)
        for setting in settings:
            setting.apps[-1].await_ready()
    for setting in settings:
        for app in setting.apps: # one turn each, so that pinned memory is there
            r.turn(rig, setting.daemon, app, work="verify")
    return settings


def run(rig):
    args = rig.args
    if len(args.sizes) < 2 or args.blocks < 1:
        raise r.Failure("there are at least two programs and one block")
    if not rig.has_option("prefetch"):
        raise r.Absent("this gpumuxd has no --prefetch")
    rig.result["settings"] = []
    rig.link("before")
    settings = start(rig)
    for number in range(args.blocks):
        for index, setting in enumerate(settings):
            # Afterwards: five runs beside plain copies, the link; and a block ends with a turn of each program.
            after = 5 * args.alone / 1000 + 2 + rig.closing_s() + rig.result["link"][0]["took_s"]
            blocks = 2 * (args.blocks - number) - index
            run_block(rig, setting, min(args.block, max(1000, ((rig.left() - after) / blocks - 2) * 1000)))
    beside = settings[1].beside
    for setting in settings:
        setting.found.update(slice_ms=r.spread(setting.passes), pass_ms=r.spread(setting.alone),
                             staging_ms=r.spread([one["ms"] for one in setting.beside]))
    rig.result["staging"] = {what: sum(one[what] * one["ms"] for one in beside) / sum(one["ms"] for one in beside)
                             for what in ("lower", "link")} if beside else None
    settings[1].stop()
    for app in settings[0].apps[1:]:
        app.end()
    del settings[0].apps[1:]
    rig.result["load"] = measure_load(rig, settings[0], rig.result["staging"] or {"lower": 0, "link": 0})
    settings[0].stop()
    rig.link("after")


def slowdown(beside, alone):
    """How much longer the median is; None without either."""
    return beside["median"] / alone["median"] - 1 if beside and alone else None


def digest(rig):
    result = rig.result
    result["ceiling"] = rig.ceiling()
    for found in result["settings"]:
        for key in ("total_ms", "copy_ms", "lower_ms", "drain_ms", "bytes_in", "bytes_out"):
            found[key] = r.spread([one[key] for one in found["switches"]])
        found["passes_a_second"] = found["passes"] / found["seconds"] if found["seconds"] else None
    off, on = result["settings"]
    result["ratio"] = (on["total_ms"]["median"] / off["total_ms"]["median"]
                       if on["total_ms"] and off["total_ms"] else None)
    cost = result["cost"] = {"prefetch": slowdown(on.get("staging_ms"), on.get("pass_ms")),
                             "slice": slowdown(on.get("slice_ms"), off.get("slice_ms"))}
    load = result.get("load")
    if load:
        # Alone twice, before and after: how far two measurements of the same are apart.
        alone = {"median": (load["alone"]["pass_ms"]["median"] + load["alone_again"]["pass_ms"]["median"]) / 2}
        cost.update({name: slowdown(load[name]["pass_ms"], alone) for name in ("same_rate", "memory", "link")})
        cost["noise"] = abs(slowdown(load["alone_again"]["pass_ms"], load["alone"]["pass_ms"]))


def show(rig):
    args, result = rig.args, rig.result
    print(f"prefetch: programs of {' + '.join(map(r.show_size, args.sizes))}, budget {r.show_size(args.budget)}, "
          f"{r.show_size(args.pinned)} pinned, quantum {args.quantum}; blocks off and on in turn; every byte verified "
          "in every pass")
    print(f"link: {result['ceiling']['both']:.1f} GB/s both ways")

    def cell(of, key="median", scale=1, digits=1):
        return r.number(of and of[key] / scale, digits)

    r.table(["prefetch", "switches", "switch ms", "p10", "p90", "min", "max", "copies", "lower", "in GiB", "passes/s",
             "pass ms", "p90", "staging", "p10", "p90"],
            [[one["prefetch"], len(one["switches"]),
              *(cell(one["total_ms"], key) for key in ("median", "p10", "p90", "min", "max")), cell(one["copy_ms"]),
              cell(one["lower_ms"]), cell(one["bytes_in"], scale=2**30, digits=2), r.number(one["passes_a_second"]),
              *(cell(one.get("slice_ms"), key, digits=3) for key in ("median", "p90")),
              *(cell(one.get("staging_ms"), key, digits=3) for key in ("median", "p10", "p90"))]
             for one in result["settings"]])
    if result["ratio"]:
        print(f"a switch with prefetch takes {r.percent(result['ratio'])} of one without")
    if result["cost"]["slice"] is not None:
        print(f"a pass with prefetch, of all within a program's turn: {signed(result['cost']['slice'])}")
    cost, load, staging = result["cost"], result.get("load"), result.get("staging")
    if cost["prefetch"] is not None:
        print(f"a pass while the next program is staged ({staging['lower']:.1f} GB/s below pinned memory, "
              f"{staging['link']:.1f} on the link): {signed(cost['prefetch'])}, of "
              f"{result['settings'][1]['staging_ms']['count']} passes")
    else:
        print("no pass was seen while the next program was staged: the status does not tell, or it took no time")
    if load:
        same, memory, link = (load[name]["rates"] for name in ("same_rate", "memory", "link"))
        print(f"beside plain copies: {signed(cost['same_rate'])} at that rate ({same['memory']:.1f} in memory, "
              f"{same['in']:.1f} on the link), {signed(cost['memory'])} at {memory['memory']:.1f} GB/s in memory, "
              f"{signed(cost['link'])} at {link['in'] + link['out']:.1f} GB/s on the link; alone twice differs by "
              f"{r.percent(cost['noise'])}")


def signed(value):
    return f"{100 * value:+.1f} %"


def judge(rig):
    result = rig.result
    cost, goals = result["cost"], []
    for one in result["settings"]:
        goals.append({"goal": f"switches with prefetch {one['prefetch']}", "measured": len(one["switches"]),
                      "wanted": 15, "is_met": len(one["switches"]) >= 15})
    if cost["prefetch"] is not None and "same_rate" in cost and result["settings"][1]["staging_ms"]["count"] >= 20:
        # What plain copies at that rate cost, and what two measurements of the same differ by.
        most = max(0, cost["same_rate"]) + cost["noise"]
        goals.append({"goal": "prefetch slows the running program by", "measured": cost["prefetch"], "wanted": most,
                      "is_share": True, "is_met": cost["prefetch"] <= most})
    result["goals"] = goals
    r.show_goals(goals)


def conclude(rig):
    settings = rig.result.get("settings", [])
    if len(settings) < 2 or not any(one["switches"] for one in settings):
        if rig.result["is_verified"]:
            raise r.Failure("no switches: the quantum is too long, or the status has no history")
        return
    digest(rig)
    show(rig)
    judge(rig)


if __name__ == "__main__":
    r.main("prefetch", __doc__, add_options, run, conclude)

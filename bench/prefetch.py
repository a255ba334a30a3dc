#!/usr/bin/env python3
"""bench/prefetch: three batch programs in turn, with prefetch on and off.

The programs never idle: each verifies and rewrites all of its memory again and again and gets the GPU for a quantum
at a time. Pinned memory is capped, with paged memory for the rest, so that the next program's data has to be raised
before it can be copied in: while the others run (prefetch on) or during the switch (off). For each cap and both
settings, in turn and --repeat times: the time of a switch and its parts, the programs' passes (median time of one
while a program has the GPU, which shows what prefetching costs it) and how many all of them made.
"""

import threading
import time

import rig as r


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[16 * 2**30] * 3, metavar="SIZE,...",
                        help="of the programs (16G,16G,16G)")
    parser.add_argument("--budget", type=r.size, default=20 * 2**30, metavar="SIZE", help="of GPU memory (20G)")
    parser.add_argument("--pinned", type=r.sizes, default=[48 * 2**30, 14 * 2**30], metavar="SIZE,...",
                        help="pinned memory; each is a configuration (48G,14G)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--quantum", default="1500ms", metavar="TIME", help="of the daemon (1500ms)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="of each run (20)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="times (1)")


def run_all(rig, daemon, apps):
    """All programs at once for --seconds; their answers, and the switches meanwhile."""
    seconds = rig.args.seconds
    answers, failures, switches = {}, [], []

    def ask(app):
        try:
            answers[app.name] = app.ask(f"run rewrite {seconds * 1000:.0f}", seconds + app.patience)
        except r.Failure as failure:
            failures.append(failure)

    daemon.take()
    threads = [threading.Thread(target=ask, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    moved = {"bytes_in": 0, "bytes_out": 0, "switches": 0}
    ends = time.monotonic() + seconds
    while any(thread.is_alive() for thread in threads):
        time.sleep(.25)
        taken = daemon.take()
        # Only while all three want the GPU: at the end they finish one after the other.
        if time.monotonic() < ends:
            switches += taken["history"]
        for key in moved:
            moved[key] += taken[key]
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers, switches, moved


def measure(rig, pinned, prefetch):
    args = rig.args
    options = {"gpu_budget": args.budget, "pinned": pinned, "quantum": args.quantum, "prefetch": prefetch}
    if pinned < sum(args.sizes):
        options["paged"] = sum(args.sizes)
    daemon = r.Daemon(rig, **options)
    apps = [r.App(rig, f"app-{index}", count, piece=args.piece) for index, count in enumerate(args.sizes)]
    for app in apps: # one turn each, so that pinned memory is there
        r.turn(rig, daemon, app)
    daemon.settle()
    answers, switches, moved = run_all(rig, daemon, apps)
    for app in apps:
        app.end()
    daemon.stop()
    switches = switches[1:] # the first is the one to the program that was asked first
    found = {"pinned": pinned, "prefetch": prefetch, "answers": answers, "moved": moved, "switches": switches,
             "passes": sum(answer["passes"] for answer in answers.values()),
             "pass_ms": r.spread([answer["pass_ms"] for answer in answers.values()]),
             "longest_wait_ms": max(answer["pass_max_ms"] for answer in answers.values())}
    for key in ("total_ms", "copy_ms", "lower_ms", "bytes_in", "bytes_out"):
        found[key] = r.spread([one[key] for one in switches])
    return found


def show(rig):
    args = rig.args
    ceiling = rig.result["ceiling"]
    print(f"prefetch: programs of {' + '.join(map(r.show_size, args.sizes))}, budget {r.show_size(args.budget)}, "
          f"quantum {args.quantum}, {args.seconds:.0f} s; every byte verified in every pass")
    print(f"link: {ceiling['both']:.1f} GB/s both ways")

    def cell(of, key="median", scale=1, digits=1):
        return r.number(of and of[key] / scale, digits)

    r.table(["pinned, prefetch", "switches", "switch ms", "p99", "copies", "lower", "in GiB", "out GiB", "passes",
             "pass ms"],
            [[f"{r.show_size(one['pinned'])}, {one['prefetch']}", len(one["switches"]), cell(one["total_ms"]),
              cell(one["total_ms"], "p99"), cell(one["copy_ms"]), cell(one["lower_ms"]),
              cell(one["bytes_in"], scale=2**30, digits=2), cell(one["bytes_out"], scale=2**30, digits=2),
              one["passes"], cell(one["pass_ms"])] for one in rig.result["runs"]])


def run(rig):
    args = rig.args
    if not rig.has_option("prefetch"):
        raise r.Absent("this gpumuxd has no --prefetch")
    rig.link("before")
    rig.result["runs"] = []
    for repeat in range(args.repeat):
        for pinned in args.pinned:
            for prefetch in ("off", "on") if repeat % 2 == 0 else ("on", "off"):
                rig.result["runs"].append(measure(rig, pinned, prefetch))
    rig.link("after")
    rig.result["ceiling"] = rig.ceiling()
    show(rig)
    if not all(one["switches"] for one in rig.result["runs"]):
        raise r.Failure("a run without switches: the quantum is too long, or the status has no history")
    rig.result["is_verified"] = True # or an app would have ended the run


if __name__ == "__main__":
    r.main("prefetch", __doc__, add_options, run)

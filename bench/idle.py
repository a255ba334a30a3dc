#!/usr/bin/env python3
"""bench/idle: what the daemon costs while nothing happens.

So many programs with memory and an open gate that do nothing, all of which fit into the budget: the processor time of
the daemon over stretches of a few seconds, in percent of one core, and its wake-ups (voluntary context switches). The
same daemon before any program came is the floor.
"""

import os
import time

import rig as r


def add_options(parser):
    parser.add_argument("--apps", type=int, default=20, metavar="N", help="programs that do nothing (20)")
    parser.add_argument("--size", type=r.size, default=64 * 2**20, metavar="SIZE", help="of each (64M)")
    parser.add_argument("--stretch", type=float, default=3, metavar="S", help="seconds of one measurement (3)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="measurements of each (5)")


def measure(rig, pid):
    """Stretches: percent of a core and wake-ups a second."""
    tick = os.sysconf("SC_CLK_TCK")

    def look():
        wakes = cpu = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii", errors="replace") as status:
                wakes += sum(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt"))
            try:
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
                    cpu += int(stat.read().split()[0])
            except OSError:
                with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii", errors="replace") as stat:
                    fields = stat.read().rpartition(")")[2].split()
                cpu += (int(fields[11]) + int(fields[12])) * 10**9 // tick
        return time.monotonic(), cpu, wakes

    found = []
    for _ in range(rig.args.rounds):
        at, cpu, wakes = look()
        time.sleep(rig.args.stretch)
        end, more, woken = look()
        found.append({"core": (more - cpu) / 1e9 / (end - at), "wakes": (woken - wakes) / (end - at)})
    return found


def run(rig):
    args = rig.args
    rig.result["runs"] = []
    daemon = r.Daemon(rig, gpu_budget=2 * args.apps * args.size, pinned=2**27, idle="100ms", turn=None)

    def note(name):
        time.sleep(1) # what was begun before is over
        rig.result["runs"].append({"name": name, "stretches": measure(rig, daemon.process.pid)})

    note("no program")
    apps = [r.App(rig, f"app-{index}", args.size, daemon) for index in range(args.apps)]
    for app in apps:
        app.turn("verify")
    note(f"{args.apps} idle programs")
    status = daemon.status()
    states = [one["state"] for one in status["apps"]]
    if states != ["idle"] * args.apps:
        raise r.Failure(f"not all are idle: {', '.join(sorted(set(states)))}")
    for app in apps:
        app.end()
    daemon.stop()


def conclude(rig):
    rows, goals = [], []
    for one in rig.result.get("runs", []):
        core, wakes = (r.spread([stretch[key] for stretch in one["stretches"]]) for key in ("core", "wakes"))
        one.update(core=core, wakes=wakes)
        rows.append([one["name"], len(one["stretches"]), *(f"{100 * core[key]:.4f} %" for key in
                                                           ("median", "min", "max")), r.number(wakes["median"])])
    if len(rows) < 2:
        return
    print(f"idle: the daemon's processor time over {rig.args.stretch:.0f} s each, of one core")
    r.table(["daemon with", "stretches", "median", "min", "max", "wake-ups/s"], rows)
    core = rig.result["runs"][1]["core"]["median"]
    goals.append({"goal": "of a core, with idle programs", "measured": core, "wanted": 0.001, "is_share": True,
                  "is_met": core < 0.001})
    rig.result["goals"] = goals
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("idle", __doc__, add_options, run, conclude)

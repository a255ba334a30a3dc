#!/usr/bin/env python3
"""bench/predict: how well windows tell what a program touches.

While the GPU is not large enough for all, each program marks the places of 2 MiB that its launches, copies and graphs name,
with the number of the window (common/windows.h). This bench reads these marks, window by window, and compares what they
predict with what programs really touch, which is known here by construction. Two programs run at once under a budget that
is too small for both. Programs, of which --kinds picks:

pieces    a pool in pieces, of which every second is touched, up to --touch bytes
dense     one whose first pieces are touched
one       the same in one allocation: kernels get its address and an index
all       one that touches all it has
hidden    pieces, and --hidden bytes more by pointers that lie in device memory

A mark reaches to the end of its allocation. Beside that: the same if it stood for its whole
allocation. What is predicted for a window is what was marked in the one before or in itself. False negatives are bytes
that were touched and not predicted, false positives bytes that were predicted and not touched, both in percent of what was
touched, over all windows.
"""

import os
import struct
import time

import programs
import rig as r
import sides

KINDS = ("pieces", "dense", "one", "all", "hidden")
PLACE = 2**21
WORDS_BYTES = 2**47 // PLACE * 8 # common/windows.h
WINDOW_SHIFT, WINDOW_MASK = 40, 2**24 - 1


def add_options(parser):
    programs.add_options(parser)
    parser.set_defaults(piece=2**28)
    parser.add_argument("--kinds", type=sides.some_of(KINDS), default=list(KINDS), metavar="KIND,...", help="(all)")
    parser.add_argument("--pool", type=r.size, default=8 * 2**30, metavar="SIZE", help="of a program (8G)")
    parser.add_argument("--touch", type=r.size, default=2 * 2**30, metavar="SIZE", help="of it in a pass (2G)")
    parser.add_argument("--hidden", type=r.size, default=2**30, metavar="SIZE", help="read through pointers (1G)")
    parser.add_argument("--windows", type=int, default=10, metavar="N", help="at least, if --seconds allows it (10)")
    parser.add_argument("--most", type=r.milliseconds, default=20000, metavar="TIME", help="for each program (20s)")
    parser.add_argument("--quantum", default="500ms", metavar="TIME", help="length of a turn (500ms)")


def plan_of(args, kind):
    options = {"pieces": ["--touch", args.touch, "--every", 2], "all": [], "one": ["--touch", args.touch, "--one"]}
    return programs.Plan("pool", args.pool, work="rewrite", piece=args.piece,
                         options=options.get(kind, ["--touch", args.touch]))


class Marks:
    """
    What a program marked: the words behind what it shares with the daemon. The program has it mapped, and the daemon has it
    open.
    """

    def __init__(self, pid, daemon):
        self.file = None
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            mapped = {int(line.split()[4]) for line in maps if "memfd:gpumux-stat" in line}
        folder = f"/proc/{daemon}/fd"
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if "memfd:gpumux-stat" not in os.readlink(path):
                continue
            found = os.stat(path)
            if found.st_ino in mapped and found.st_size > WORDS_BYTES:
                self.file, self.begin = os.open(path, os.O_RDONLY), found.st_size - WORDS_BYTES
        if self.file is None:
            raise r.Absent("this libgpumux.so has no windows")

    def of(self, va, count):
        """For each place from that address on the window in which it was marked last; 0: never."""
        words = os.pread(self.file, count * 8, self.begin + va // PLACE * 8)
        return [word >> WINDOW_SHIFT & WINDOW_MASK for word in struct.unpack(f"{count}Q", words)]

    def close(self):
        os.close(self.file)


class Allocation:
    """Its places, and which of them are touched."""

    def __init__(self, va):
        self.va, self.touched = va, []

    def add(self, va, count, is_touched):
        # A place that two pieces share is touched if one of them is.
        for place in range(va // PLACE - self.va // PLACE, (va + count - 1) // PLACE - self.va // PLACE + 1):
            self.touched += [False] * (place + 1 - len(self.touched))
            self.touched[place] |= is_touched


def truth_of(pieces):
    """The allocations of these pieces (programs.Standin.map)."""
    found = {}
    for whole, va, count, is_touched in pieces:
        found.setdefault(whole, Allocation(whole)).add(va, count, bool(is_touched))
    return list(found.values())


def predicted(windows, since):
    """Which places these marks stand for, from that window on; and the same by allocation."""
    first = next((place for place, window in enumerate(windows) if window >= since), len(windows))
    return [place >= first for place in range(len(windows))], [first < len(windows)] * len(windows)


def compare(allocations, marks, window):
    """Places in this window: touched, and of both ways of predicting the false negatives and positives."""
    found = {"window": window, "touched": 0, "places": [0, 0], "allocations": [0, 0]}
    for one in allocations:
        ways = predicted(marks.of(one.va, len(one.touched)), window - 1)
        found["touched"] += sum(one.touched)
        for name, way in zip(("places", "allocations"), ways):
            found[name][0] += sum(is_touched and not is_found for is_touched, is_found in zip(one.touched, way))
            found[name][1] += sum(is_found and not is_touched for is_touched, is_found in zip(one.touched, way))
    return found


def watch(rig, row, program, other, daemon):
    """Compare each window of the program while both work."""
    args = rig.args
    allocations, marks = truth_of(program.map()), Marks(program.pid, daemon.process.pid)
    end = time.monotonic() + min(args.most / 1000, rig.left() / 2)
    last = None
    while time.monotonic() < end and len(row["windows"]) < args.windows:
        for one in (program, other):
            one.ask_units(200)
        for one in (program, other):
            one.take(one.line(one.patience))
        window = max(max(marks.of(one.va, len(one.touched))) for one in allocations)
        if last is not None and window > last + 1: # the one before is over; the first has not been seen from its begin
            row["windows"].append(compare(allocations, marks, window - 1))
            last = window - 1
        elif last is None and window:
            last = window
    marks.close()
    row["status"] = daemon.status()


def run(rig):
    args = rig.args
    rig.result.update(rows=[])
    budget = args.pool * 3 // 2
    for kind in args.kinds:
        row = {"kind": kind, "windows": []}
        rig.result["rows"].append(row)
        daemon = r.Daemon(rig, f"daemon-{kind}", gpu_budget=budget, pinned=2 * args.pool, turn=args.quantum, idle=None)
        program, other = sides.start(rig, kind, [plan_of(args, kind), plan_of(args, "all")], daemon)
        if kind == "hidden":
            program.ask(f"follow {args.hidden}", 60)
        watch(rig, row, program, other, daemon)
        for one in (program, other):
            one.check()
        sides.end([program, other])
        daemon.stop()
    if not any(row["windows"] for row in rig.result["rows"]):
        raise r.Absent("programs mark nothing, or no window ended")


def conclude(rig):
    rows = []
    for row in rig.result["rows"]:
        touched = sum(one["touched"] for one in row["windows"])
        if not touched:
            continue
        for way in ("places", "allocations"):
            row[way] = [sum(one[way][i] for one in row["windows"]) / touched for i in range(2)]
        rows.append([row["kind"], len(row["windows"]), r.show_size(touched * PLACE // len(row["windows"])),
                     *(r.percent(row[way][i]) for way in ("places", "allocations") for i in range(2))])
    r.table(["program", "windows", "touched", "false negatives", "positives", "by allocation: negatives", "positives"], rows)
    goals = rig.result["goals"] = []
    for row in rig.result["rows"]:
        if row["kind"] in ("pieces", "dense", "all") and "places" in row:
            for name, i, most in (("false negatives", 0, .005), ("false positives", 1, .02)):
                goals.append({"goal": f"{row['kind']}: {name}", "measured": row["places"][i], "wanted": most, "is_share": True,
                              "is_met": row["places"][i] <= most})
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("predict", __doc__, add_options, run, conclude)

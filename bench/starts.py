#!/usr/bin/env python3
"""bench/starts: what it takes until a program has run its first kernel, and until it has ended.

A program (bench/start.c) opens the GPU, allocates --size in pieces of --piece, runs a kernel on each piece and ends. It is
started in three ways:

native   without gpumux
own      without gpumux; each piece is a frame of the program's own making, of which another process has the descriptor
         before it is mapped: what it would cost if clients made their frames themselves
gpumux   under a daemon whose budget all of them fit in

alone    one
together --together at once; each is measured, and the last of them counts
chain    --chain of them one after the other, each when the one before has ended; all of it is measured

Ways alternate, --rounds times. Times are in ms from before the program's start.
"""

import os
import socket
import threading
import time

import rig as r

WAYS = ("native", "own", "gpumux")
CELLS = ("alone", "together", "chain")
STEPS = ("main_ms", "init_ms", "context_ms", "open_ms", "memory_ms", "kernel_ms", "end_ms")


def add_options(parser):
    parser.add_argument("--size", type=r.size, default=10 * 2**30, metavar="SIZE", help="of each (10G)")
    parser.add_argument("--piece", type=r.size, default=512 * 2**20, metavar="SIZE", help="(512M)")
    parser.add_argument("--cells", type=r.some_of(CELLS), default=list(CELLS), metavar="CELL,...", help="(all)")
    parser.add_argument("--together", type=int, default=4, metavar="N", help="programs at once (4)")
    parser.add_argument("--chain", type=int, default=20, metavar="N", help="programs one after the other (20)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="(10; of the chain a third)")


class Holder:
    """Takes descriptors of frames, keeps them, and says so."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.held = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            byte, descriptors, _, _ = socket.recv_fds(self.ours, 1, 1)
            if not byte:
                return
            self.held += descriptors
            self.ours.send(byte)

    def end(self):
        """The program is gone."""
        self.theirs.close()
        self.thread.join()
        self.ours.close()
        for descriptor in self.held:
            os.close(descriptor)


class Start:
    """A program, from before it is started."""

    count = 0

    def __init__(self, rig, way, daemon):
        Start.count += 1
        self.holder = Holder() if way == "own" else None
        under = daemon if way == "gpumux" else None
        command = [rig.at("bench/bench_start_linked" if under and rig.is_linked else "bench/bench_start"), "--bytes", rig.args.size,
                   "--piece", rig.args.piece]
        fds = (self.holder.theirs.fileno(),) if self.holder else ()
        if fds:
            command += ["--hold", fds[0]]
        self.from_ns = time.monotonic_ns()
        self.program = r.Process(rig, f"start-{Start.count}", command + ["--from", self.from_ns],
                                 r.under(rig, under, is_preloaded=not rig.is_linked), pass_fds=fds)
        if self.holder:
            self.holder.theirs.close()

    def since(self):
        return (time.monotonic_ns() - self.from_ns) / 1e6

    def steps(self):
        """Until its kernel has run."""
        self.found = self.program.understand(self.program.line(120))
        return self

    def end(self):
        """All of its steps."""
        self.program.end()
        self.found["end_ms"] = self.since()
        if self.holder:
            self.holder.end()
        return self.found


def last_of(found):
    return {step: max(one[step] for one in found) for step in STEPS}


def run_cell(rig, cell, way, daemon):
    if cell == "alone":
        return Start(rig, way, daemon).steps().end()
    if cell == "together":
        starts = [Start(rig, way, daemon) for _ in range(rig.args.together)]
        for start in starts:
            start.steps()
        return last_of([start.end() for start in starts])
    begun = time.monotonic_ns()
    found = [Start(rig, way, daemon).steps().end() for _ in range(rig.args.chain)]
    return {**{step: r.mean([one[step] for one in found]) for step in STEPS}, "all_ms": (time.monotonic_ns() - begun) / 1e6}


def run(rig):
    args = rig.args
    rig.result["rows"] = [{"cell": cell, "way": way, "found": []} for cell in args.cells for way in WAYS]
    budget = (args.together + 1) * args.size
    daemon = r.Daemon(rig, gpu_budget=budget, pinned=2**28, idle=None, turn=None)
    for number in range(args.rounds):
        for row in rig.result["rows"]:
            if row["cell"] == "chain" and number * 3 >= args.rounds and row["found"]:
                continue
            if args.seconds and rig.left() < 5 and row["found"]:
                continue
            row["found"].append(run_cell(rig, row["cell"], row["way"], daemon))
    status = daemon.status()
    if status["gpus"][0]["used_bytes"] or status["apps"]:
        raise r.Failure("something is left of programs that have ended")
    daemon.stop()


def conclude(rig):
    rows, goals, natives = [], [], {}
    for row in rig.result.get("rows", []):
        if not row["found"]:
            continue
        counted = "all_ms" if row["cell"] == "chain" else "kernel_ms"
        spreads = {step: r.spread([one[step] for one in row["found"]]) for step in (*STEPS, counted)}
        row["spreads"] = spreads
        median = spreads[counted]["median"]
        native = natives.setdefault(row["cell"], median)
        rows.append([row["cell"], row["way"], len(row["found"]), *(f"{spreads[step]['median']:.0f}" for step in STEPS),
                     f"{median:.0f} ({spreads[counted]['min']:.0f} to {spreads[counted]['max']:.0f})", f"{median / native:.2f}"])
        if row["way"] == "gpumux":
            wanted = (native + 50) / native if row["cell"] == "alone" else 1.1
            goals.append({"goal": f"{row['cell']}: of natively", "measured": median / native, "wanted": wanted, "is_share": True,
                          "is_met": median <= wanted * native})
    if not rows:
        return
    print(f"starts: {rig.args.size >> 20} MiB in pieces of {rig.args.piece >> 20}; ms from before the start, medians; of "
          f"{rig.args.together} together the last; of {rig.args.chain} in a chain the mean, and all of it")
    r.table(["cell", "way", "rounds", "began", "driver", "context", "module", "memory", "kernel ran", "ended", "counted (spread)",
             "of native"], rows)
    rig.result["goals"] = goals
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("starts", __doc__, add_options, run, conclude)

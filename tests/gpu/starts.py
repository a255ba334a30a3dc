#!/usr/bin/env python3
"""tests/gpu/starts.py BUILD [--starts N] [--seed N] [--simcuda]: programs start, and they and their daemon are killed.

Three programs at a time, of which two fit. Each looks whether all of its memory reads as zero, fills it and checks that
(gm_worker's mode fresh), and another one follows when it has ended. Two of five are killed, at a random moment; with every
fifteenth start the daemon or its keeper is, and a supervisor starts the daemon again. In the end: no program that was let alone
found a byte wrong or failed, and nothing is left. Needs a GPU with 8 GiB free. The last line says what was done.
"""
import argparse
import os
import random
import sys
import time

from harness import Failure, Place, Program, use_simcuda, wait_until
from supervisor import Supervisor, kill

AT_ONCE = 3
LIMIT_S = 60


class Starts:
    def __init__(self, place, args):
        self.place, self.chance = place, random.Random(args.seed)
        self.size, budget, pinned = ("64M", "160M", "512M") if args.simcuda else ("1G", "2560M", "6G")
        self.longest_s = 0.1 if args.simcuda else 1.0  # of a program's life, about
        self.supervisor = Supervisor(place, ["--gpu-budget", budget, "--pinned", pinned, "--slice", "50ms", "--idle", "50ms"])
        self.running = []
        self.n = {"started": 0, "passed": 0, "killed": 0, "daemons": 0, "keepers": 0}

    def start(self):
        self.n["started"] += 1
        name = f"start-{self.n['started']}"
        program = Program(self.place, name, [self.place.at("tests/programs/gm_worker"), "--mode", "fresh", "--bytes", self.size,
                                             "--allocs", self.chance.choice((1, 3, 5)), "--seed", self.n["started"]],
                          under_gpumux=True, extra={"GPUMUX_LOG": self.place.log(name + ".shim")})
        is_victim = self.chance.random() < 0.4
        program.dies_at = time.monotonic() + self.chance.random() * 2 * self.longest_s if is_victim else None
        self.running.append(program)

    def look(self):
        """Kill whose time has come, and take out who has ended."""
        for program in list(self.running):
            if program.is_running() and program.dies_at and time.monotonic() > program.dies_at:
                kill(program.process.pid)
                program.process.wait()
            if program.is_running():
                if time.monotonic() > program.begun + LIMIT_S:
                    raise Failure(f"{program.name} has not ended within {LIMIT_S} s")
                continue
            self.running.remove(program)
            if program.process.returncode == -9 and program.dies_at:
                self.n["killed"] += 1
                continue
            program.passed()
            self.n["passed"] += 1

    def strike(self):
        """The daemon, or its keeper."""
        keepers = self.supervisor.keepers()
        if self.chance.random() < 0.3 and len(keepers) == 1:
            self.n["keepers"] += 1
            before = self.supervisor.text().count("another gpumux-keeper holds all")
            kill(keepers[0])
            wait_until("another keeper holds all", 20,
                       lambda: self.supervisor.text().count("another gpumux-keeper holds all") > before)
        else:
            self.n["daemons"] += 1
            self.supervisor.kill()

    def run(self, starts):
        while self.n["started"] < starts or self.running:
            while len(self.running) < AT_ONCE and self.n["started"] < starts:
                self.start()
                if self.n["started"] % 15 == 0:
                    time.sleep(self.chance.random() * self.longest_s)
                    self.strike()
            self.look()
            time.sleep(0.005)

    def expect_empty(self):
        def is_empty():
            status = self.supervisor.status()
            tiers = status["gpus"][0]["tiers"] if status else {}
            return status and not status["apps"] and all(
                tiers[tier] == 0 for tier in ("gpu_bytes", "pinned_used_bytes", "paged_used_bytes"))
        wait_until("nothing is left in the daemon", 20, is_empty)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simcuda", action="store_true")
    args = parser.parse_args()
    place = Place(args.build, "starts")
    place.check_build()
    if args.simcuda:
        use_simcuda(place)
    os.environ.update(GPUMUX_RUN_DIR=place.work, XDG_RUNTIME_DIR=place.work)
    starts = Starts(place, args)
    try:
        starts.run(args.starts)
        starts.expect_empty()
        code = starts.supervisor.end()
        if code != 0:
            raise Failure(f"the daemon ended with {code}: {starts.supervisor.tail()}")
    except Failure as failure:
        starts.supervisor.clean_up()
        print(f"FAIL starts, seed {args.seed}: {failure} ({place.pack()})")
        return 1
    finally:
        for program in starts.running:
            program.stop()
    place.pack(is_kept=False)
    print("ok starts: " + ", ".join(f"{n} {what}" for what, n in starts.n.items()) + f"; seed {args.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

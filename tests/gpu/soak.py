"""python3 tests/gpu/soak.py BUILD-DIR [--seconds S] [--seed N] [--budget SIZE] [--json FILE] [--simcuda]

The soak: random programs of all kinds start and end on one budget, several at a time and together beyond it, for a
given time. Some are killed, some asked to end, some stopped for a while. What is started, with what options and what
becomes of it follows from --seed; when, does not.

It fails if a program does not end within its deadline, or ends with a wrong result or otherwise than it should; if
the daemon does not answer or ends; if, in a break in which no program is left, a byte of one is left in any tier; and
if the daemon has grown from the first break after the warm-up to the last: its own memory, its open files, its
threads. So it does if nothing was switched in more than 40 seconds. There are six breaks, in less than a minute three.

Run by tests/gpu/run.sh --set soak, and with --simcuda by tests/integration/gpu_scripts.sh.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from harness import Daemon, Failure, Place, Program, use_simcuda, wait_until

BREAKS, FEW_BREAKS = 6, 3 # and in less than a minute
GROWTH = {"anon_kib": 8192, "fds": 8, "threads": 0} # from the first break to the last, at most; and
FDS_A_PIECE = 2 # for each frame and each slab of pinned memory that it keeps for the next program
SLAB = 2**25
DEADLINE = 240
LONG = 40 # seconds, after which programs must have met

# Modes of gm_worker, with their options; a size is of the budget.
WORKERS = [
    ("verify", "--iterations 6", .5), ("verify", "--iterations 3 --own-context", .3), ("sweep", "--iterations 8", .4),
    ("churn", "--iterations 40", .3), ("copies", "--iterations 2", .1), ("vector", "--iterations 2", .1),
    ("matmul", "--allocs 8 --iterations 2", .05), ("graph", "--iterations 10", .4),
    ("capture", "--iterations 3 --hold 60", .3), ("streams", "--iterations 6", .4),
    ("threads", "--iterations 12 --threads 4", .4), ("ptds", "--iterations 12 --threads 3", .3),
    ("spin", "--iterations 2 --hold 300", .2), ("hot", "--iterations 10 --allocs 3", .4),
    ("guests", "--iterations 6 --allocs 3 --hold 200", .3), ("fork", "--iterations 2", .1),
    ("exec", "--iterations 2", .1), ("info", "", .1),
]
NOT_TIMED = ("copies", "vector", "matmul", "fork", "exec", "info")
GUEST = 2**25 # bytes that mode guests takes for a while, beside its own: GM_GUEST_BYTES
WAYS = ("", "_dlsym", "_proc")
# Cases of the framework matrix: their memory in bytes beside --gib.
CASES = [("case_torch.py", "eager", 2**30), ("case_torch.py", "threads", 2**30), ("case_torch.py", "graphs", 2**30),
         ("case_torch.py", "fft", 3 * 2**30), ("case_cupy.py", "raw", 2**31), ("case_numba.py", "numba", 2**28)]


class Kind:
    """A program to come: what it is, what it needs, and how its end is judged."""

    def __init__(self, name, command, count, judge):
        self.name, self.command, self.bytes, self.judge = name, command, count, judge


class Soak:
    """The programs that run, the daemon, and what has come to light."""

    def __init__(self, place, arguments):
        self.place, self.arguments = place, arguments
        self.chance = random.Random(arguments.seed)
        self.is_linked = os.environ.get("GM_LINKED") == "1"
        self.budget = arguments.budget
        self.running, self.number = [], 0
        self.counts = {}
        self.failures, self.samples = [], []
        self.references = {}
        self.cu_programs = []
        if not arguments.simcuda:
            folder = place.at("tests/gpu/programs")
            if os.path.isdir(folder):
                self.cu_programs = sorted(name for name in os.listdir(folder) if name != "hog" and "." not in name)
        # All that may run at once, also of programs that were killed a moment ago: out of memory is no outcome here.
        pinned = max(2**29, 4 * self.budget) if arguments.simcuda else max(2**36, 2 * self.budget)
        self.daemon = Daemon(place, "daemon", str(self.budget), str(pinned), arguments.slice)

    # --- what there is ---

    def worker(self):
        mode, options, share = self.chance.choice(WORKERS)
        if mode == "guests" and self.budget < 4 * GUEST:
            mode = "turns" # a program has no more than the budget, guests included
        way = "" if mode == "ptds" and self.chance.random() < .5 else self.chance.choice(WAYS)
        count = int(self.budget * min(.9, self.chance.uniform(share / 3, 2 * share))) // 2**16 * 2**16 + 2**21
        binary = self.place.at("tests/programs/gm_worker" + way + ("_linked" if self.is_linked else ""))
        command = [binary, "--mode", mode, "--bytes", count, "--seed", self.chance.randrange(1, 10**6),
                   *options.split()]
        if not self.arguments.simcuda and mode not in NOT_TIMED:
            command += ["--seconds", self.chance.choice((2, 4, 7))] # a GPU is so fast that none would meet another
        return Kind(f"worker{way}-{mode}", command, count + GUEST * (mode == "guests"), self.judge_worker)

    @staticmethod
    def judge_worker(program):
        line = program.last_line()
        if not line.startswith("PASS ") or "mismatches=0" not in line.split():
            raise Failure(f"{line or program.complaint()}")

    def cu_program(self):
        name = self.chance.choice(self.cu_programs)
        command = [self.place.at("tests/gpu/programs/" + name), "--seconds", self.chance.choice((1, 2, 3))]

        def judge(program):
            if not program.last_line().startswith(f"PASS {name} rounds="):
                raise Failure(program.last_line() or program.complaint())

        return Kind("cu-" + name, command, 2**30, judge)

    def case(self):
        """A case of the matrix; its results are compared with those of the one that ran natively at the start."""
        name = self.chance.choice(sorted(self.references))
        file, count, gib, sums = self.references[name]

        def judge(program):
            result = json.loads(program.last_line())
            if result["sums"] != sums:
                raise Failure("another result than natively")

        return Kind("case-" + name, self.case_command(file, name, gib, self.chance.choice((0, 1, 3))), count, judge)

    def case_command(self, file, name, gib, seconds):
        return [sys.executable, "-B", os.path.join(self.place.here, "python", file), name, "--gib", gib, "--rounds", 1,
                "--seconds", seconds]

    def take_references(self):
        """Natively; a case that cannot run, or does not agree with itself, is not taken."""
        if self.arguments.no_python:
            return
        cases = [("case_driver.py", "driver", 0)] if self.arguments.simcuda else CASES
        if self.is_linked:
            return # python cannot have a sanitized library preloaded
        gib = self.budget / 2**30 / 8
        programs = [(file, name, count, Program(self.place, "native-" + name, self.case_command(file, name, gib, 0) +
                                                ["--rounds", 2])) for file, name, count in cases]
        for file, name, count, program in programs:
            code = program.wait(150)
            result = json.loads(program.last_line() or "{}") if code in (0, 77) else {}
            if code == 0 and len(result["sums"]) == 1:
                self.references[name] = (file, int(count + gib * 2**30), gib, result["sums"])
            else:
                print(f"note: without the case {name}: {result.get('skip') or program.complaint()}", flush=True)

    def pick(self):
        kinds = [self.worker] * 6 + [self.cu_program] * (5 if self.cu_programs else 0)
        kinds += [self.case] * (3 if self.references and not self.arguments.simcuda else bool(self.references))
        return self.chance.choice(kinds)()

    # --- one program ---

    def start(self, kind):
        self.number += 1
        program = Program(self.place, f"{self.number}-{kind.name}", kind.command, not self.is_linked)
        fate, at = self.chance.random(), time.monotonic() + self.chance.uniform(.05, self.arguments.fate_within)
        program.kind, program.is_ended_by = kind, None
        program.fates = []
        if fate < .15:
            program.fates = [(at, signal.SIGKILL)]
        elif fate < .22:
            program.fates = [(at, signal.SIGTERM)]
        elif fate < .32:
            program.fates = [(at, signal.SIGSTOP), (at + self.chance.uniform(.05, 1.5), signal.SIGCONT)]
        self.running.append(program)

    def count(self, kind, what):
        kind = kind.split("-")[0]
        self.counts.setdefault(kind, {"passed": 0, "ended by a signal": 0, "failed": 0})[what] += 1

    def fail(self, text):
        self.failures.append(" ".join(text.split())[:400])
        print("FAIL " + self.failures[-1], flush=True)

    def look_at(self, program):
        """Signals that are due; the end, if it has come."""
        while program.fates and time.monotonic() >= program.fates[0][0] and program.is_running():
            number = program.fates.pop(0)[1]
            os.killpg(program.process.pid, number)
            if number in (signal.SIGKILL, signal.SIGTERM):
                program.is_ended_by = number
        if program.is_running():
            if time.monotonic() > program.begun + self.arguments.deadline:
                self.fail(f"{program.name} hangs: not ended within {self.arguments.deadline:.0f} s; command: "
                          f"{' '.join(str(part) for part in program.kind.command)}; {self.state_of(program)}")
                program.stop()
                self.count(program.kind.name, "failed")
                self.running.remove(program)
            return
        self.running.remove(program)
        code = program.wait(0)
        try:
            if program.is_ended_by and code == -program.is_ended_by:
                self.count(program.kind.name, "ended by a signal")
            else:
                if code != 0:
                    raise Failure(f"code {code}: {program.last_line() or program.complaint()}")
                program.kind.judge(program)
                self.count(program.kind.name, "passed")
            for path in (program.out, program.log):
                os.unlink(path)
        except (Failure, ValueError, KeyError) as failure:
            self.count(program.kind.name, "failed")
            self.fail(f"{program.name}: {failure}; command: {' '.join(str(part) for part in program.kind.command)}")

    def state_of(self, program):
        app = self.daemon.app(program)
        return f"the daemon says {app.get('state')}, {app.get('why')}" if app else "the daemon does not know it"

    # --- the daemon ---

    def sample(self):
        """When nothing runs: what is left of the programs, and how large the daemon is."""
        pid = self.daemon.program.process.pid
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            status = file.read()
        gpu = self.daemon.gpu()
        return {"at_s": time.monotonic() - self.begun,
                "anon_kib": int(re.search(r"^RssAnon:\s+(\d+)", status, re.M).group(1)),
                "rss_kib": int(re.search(r"^VmRSS:\s+(\d+)", status, re.M).group(1)),
                "threads": int(re.search(r"^Threads:\s+(\d+)", status, re.M).group(1)),
                "fds": len(os.listdir(f"/proc/{pid}/fd")), "frames": gpu.get("frames"), "tiers": gpu["tiers"],
                "switches": gpu["switches"]}

    def have_break(self):
        """Let all programs end, and look."""
        end = time.monotonic() + self.arguments.deadline + 30
        while self.running and time.monotonic() < end:
            self.look_at_all()
            time.sleep(.05)

        def is_clean():
            status = self.daemon.status()
            tiers = status["gpus"][0]["tiers"]
            return not status["apps"] and not any(tiers[key] for key in ("gpu_bytes", "pinned_used_bytes",
                                                                         "paged_used_bytes", "disk_used_bytes",
                                                                         "on_host_bytes"))

        try:
            wait_until("nothing is left", 120, is_clean)
        except Failure:
            status = self.daemon.status()
            tiers = status["gpus"][0]["tiers"]
            self.fail(f"no program runs, and yet there are {len(status['apps'])} apps and {tiers}")
        time.sleep(.3) # what is put off until nothing happens
        one = self.sample()
        self.samples.append(one)
        print(f"break at {one['at_s']:.0f} s: {one['switches']} switches so far; daemon: {one['anon_kib']} KiB of its "
              f"own, {one['fds']} files, {one['threads']} threads, {one['frames']} frames", flush=True)

    def look_at_all(self):
        for program in list(self.running):
            self.look_at(program)
        if time.monotonic() > self.next_status:
            self.next_status = time.monotonic() + 1
            self.daemon.status() # it answers, or that is a failure

    def run(self):
        self.begun = self.next_status = time.monotonic()
        self.take_references()
        seconds = max(1, self.arguments.seconds - (3 if self.arguments.simcuda else 12)) # the last ones end, too
        breaks = BREAKS if seconds >= 60 else FEW_BREAKS
        for turn in range(breaks):
            left = max(breaks - turn, self.begun + seconds - time.monotonic())
            until = time.monotonic() + left / (breaks - turn) - .3
            while time.monotonic() < until and not self.failures:
                pause = time.monotonic() + self.chance.expovariate(self.arguments.rate)
                kind = self.pick()
                while True:
                    self.look_at_all()
                    has_room = sum(program.kind.bytes for program in self.running) + kind.bytes <= 2.2 * self.budget
                    if time.monotonic() >= min(until, pause) and (
                            (has_room and len(self.running) < self.arguments.at_once) or not self.running):
                        break
                    if time.monotonic() >= until or self.failures:
                        break
                    time.sleep(.02)
                if time.monotonic() < until and not self.failures:
                    self.start(kind)
            self.have_break()
            if self.failures:
                break
        self.compare()
        last = self.daemon.status()
        if last["totals"]["switches"] == 0 and seconds >= LONG:
            self.fail("nothing was ever switched")
        self.result = {"seed": self.arguments.seed, "seconds": time.monotonic() - self.begun, "budget": self.budget,
                       "programs": self.counts, "samples": self.samples, "totals": last["totals"],
                       "failures": self.failures}
        self.daemon.stop()

    @staticmethod
    def pieces(sample):
        return sample["frames"] + sample["tiers"]["pinned_bytes"] // SLAB

    def compare(self):
        """Has the daemon grown from the first break to the last?"""
        if len(self.samples) < 2:
            return
        first, last = self.samples[0], self.samples[-1]
        for key, most in GROWTH.items():
            if key == "fds":
                most += FDS_A_PIECE * max(0, self.pieces(last) - self.pieces(first))
            if last[key] - first[key] > most and not (self.is_linked and key == "anon_kib"):
                self.fail(f"the daemon has grown: {key} {first[key]} at {first['at_s']:.0f} s, {last[key]} at "
                          f"{last['at_s']:.0f} s; in between " + ", ".join(str(one[key]) for one in self.samples))

    def show(self):
        total = {}
        for kind, counts in sorted(self.counts.items()):
            print(f"{kind}: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
            for what, count in counts.items():
                total[what] = total.get(what, 0) + count
        moved = self.result["totals"]
        print(f"soak: seed {self.arguments.seed}, {self.result['seconds']:.0f} s, {self.number} programs: "
              f"{total.get('passed', 0)} passed, {total.get('ended by a signal', 0)} ended by a signal, "
              f"{total.get('failed', 0)} failed; {moved['switches']} switches, {moved['bytes_out'] / 2**30:.1f} GiB "
              f"out, {moved['bytes_in'] / 2**30:.1f} in")


def size(text):
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(prog="soak.py", description="random programs on one budget for a time")
    parser.add_argument("build", metavar="BUILD-DIR")
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="for all of it, about (120)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--budget", type=size, metavar="SIZE", help="(24G; with --simcuda 160M)")
    parser.add_argument("--slice", default=None, metavar="TIME", help="(500ms; with --simcuda 50ms)")
    parser.add_argument("--at-once", type=int, default=None, metavar="N", help="programs at a time (8; 6)")
    parser.add_argument("--rate", type=float, default=None, metavar="R", help="of starts a second, at most (3; 12)")
    parser.add_argument("--fate-within", type=float, default=None, metavar="S",
                        help="a program that is killed or stopped is that within so long after its start (8; 1)")
    parser.add_argument("--deadline", type=float, default=DEADLINE, metavar="S", help=f"of a program ({DEADLINE})")
    parser.add_argument("--no-python", action="store_true", help="without cases in Python")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU")
    arguments = parser.parse_args()
    sim = arguments.simcuda
    shrink = int(os.environ.get("GM_SHRINK", "1"))
    for name, real, simulated in (("budget", 24 * 2**30, 160 * 2**20 // shrink), ("slice", "500ms", "50ms"),
                                  ("at_once", 8, 6), ("rate", 3, 12), ("fate_within", 8, 1)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, simulated if sim else real)
    place = Place(arguments.build, "soak")
    place.check_build()
    if sim:
        use_simcuda(place)
    soak, failure = None, None
    try:
        soak = Soak(place, arguments)
        soak.run()
    except (Failure, subprocess.SubprocessError) as error:
        failure = str(error)
    finally:
        for program in place.started:
            program.stop()
        shutil.rmtree(place.work, ignore_errors=True)
    if failure is not None:
        print(f"FAIL soak: {failure}")
    if soak is not None and hasattr(soak, "result"):
        for path in (os.path.join(place.logs, "soak.json"), arguments.json):
            if path:
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(soak.result, file, indent=1)
        soak.show()
    is_good = failure is None and soak is not None and not soak.failures and any(
        counts["passed"] for counts in soak.counts.values())
    where = place.pack(is_kept=not is_good)
    if not is_good:
        print(f"logs: {where}")
    print("1 passed, 0 failed" if is_good else "0 passed, 1 failed")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

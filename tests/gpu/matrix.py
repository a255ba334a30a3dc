"""python3 tests/gpu/matrix.py BUILD-DIR [--only NAME]... [--seconds S] [--json FILE] [--simcuda] [--list]

The framework matrix: each case is a small deterministic program (tests/gpu/python/case*.py), which runs natively and
then as two copies of itself under gpumux, together beyond the budget, so that its memory is switched while it works.
All that both computed has to be equal to what the native one computed, to the bit; where a program does not agree with
itself natively, its results must be no farther apart than twice what they are natively, and that is shown. A case that
was not switched has shown nothing and fails; one whose package is not installed is skipped, with the reason.

Run by tests/gpu/run.sh --set matrix; --seconds is the time for all of it: cases for which there is none left fail.
"""

import argparse
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python"))

from case import apart
from harness import Daemon, Failure, Moved, Place, Program, same, use_simcuda, wait_until

SKIPPED = 77
TOGETHER = 5  # native programs at a time
LONGEST = 150  # seconds for one program; torch.compile is slow the first time


class Case:
    """A row of the matrix."""

    def __init__(self, name, file, gib=3.5, native=None, under=None, check=None, is_greedy=False):
        self.name, self.file, self.gib = name, file, gib
        self.native_environment, self.under_environment = native or {}, under or {}
        self.is_greedy = is_greedy  # takes all of the GPU's memory: nothing may run beside it natively
        self.check = check or (lambda extra, budget: None)
        self.native = self.outcome = None
        self.programs = []


def check_prealloc(extra, budget):
    """JAX takes three quarters of what it is told the GPU has."""
    if not .5 * budget < (extra["limit_bytes"] or 0) <= .8 * budget:
        raise Failure(f"JAX took {extra['limit_bytes']} bytes of a GPU that is said to have {budget}")


def check_oom(extra, budget):
    del budget
    if extra.get("caught", 0) < 1:
        raise Failure("it never ran out of memory")


def check_backend(extra, budget):
    del budget
    if extra.get("backend") != "cudaMallocAsync":
        raise Failure(f"the allocator is {extra.get('backend')}")


def check_child(extra, budget):
    del budget
    if extra.get("child") != 0:
        raise Failure(f"the other process ended with {extra.get('child')}")


# Natively JAX would take most of the GPU from the others.
SMALL_JAX = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.08"}


def all_cases():
    return [
        Case("driver", "case_driver.py"),
        Case("eager", "case_torch.py"),
        Case("compile", "case_torch.py"),
        Case("graphs", "case_torch.py"),
        Case("expandable", "case_torch.py"),
        Case("async", "case_torch.py", check=check_backend),
        Case("loaders", "case_torch.py"),
        Case("threads", "case_torch.py"),
        Case("oom", "case_torch.py", check=check_oom, is_greedy=True),
        Case("ipc", "case_torch.py", check=check_child),
        Case("fft", "case_torch.py"),
        Case("solver", "case_torch.py"),
        Case("nccl", "case_torch.py"),
        Case("generate", "case_models.py"),
        Case("timm", "case_models.py"),
        Case("jit", "case_jax.py", 2.5, native=SMALL_JAX, check=check_prealloc),
        Case("pmap", "case_jax.py", 2.5, native=SMALL_JAX, check=check_prealloc),
        Case("raw", "case_cupy.py"),
        Case("pool", "case_cupy.py"),
        Case("numba", "case_numba.py"),
        Case("triton", "case_triton.py"),
    ]


class Matrix:
    """The cases, the place, and the time that is left."""

    def __init__(self, place, arguments):
        self.place, self.arguments = place, arguments
        self.begun = time.monotonic()
        self.cases = [case for case in all_cases() if not arguments.only or case.name in arguments.only]
        self.scale = 1 / 40 if arguments.simcuda else 1  # of memory
        self.budget = int(6 * 2**30 * self.scale)
        # What frameworks compile is compiled once: by the native programs.
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR"):
            os.environ[name] = os.path.join(place.work, "cache", name)

    def left(self):
        return self.begun + self.arguments.seconds - time.monotonic()

    def start(self, case, way, seconds, under_gpumux, go=None):
        path = os.path.join(self.place.here, "python", case.file)
        command = [sys.executable, "-B", path, case.name, "--seconds", seconds, "--gib", case.gib * self.scale]
        if go:
            command += ["--go", go]
        extra = case.under_environment if under_gpumux else case.native_environment
        return Program(self.place, f"{way}-{case.name}", command, under_gpumux, extra)

    # --- natively ---

    def run_native(self):
        """All of them, some at a time."""
        waiting, running = sorted(self.cases, key=lambda case: case.is_greedy), []
        while waiting or running:
            while waiting and len(running) < (1 if waiting[0].is_greedy else TOGETHER):
                case = waiting.pop(0)
                running.append((case, self.start(case, "native", self.arguments.native_seconds, False)))
            time.sleep(.05)
            for case, program in list(running):
                if program.is_running() and time.monotonic() < program.begun + LONGEST and self.left() > 0:
                    continue
                running.remove((case, program))
                try:
                    case.native = self.result(program, 0)
                    case.native["seconds"] = program.ended - program.begun
                    if "skip" in case.native:
                        case.outcome = ("skipped", case.native["skip"])
                except Failure as failure:
                    case.outcome = ("FAIL", f"natively: {failure}")

    @staticmethod
    def result(program, seconds):
        code = program.wait(seconds)
        if code not in (0, SKIPPED):
            raise Failure(f"{program.name} ended with {code}: {program.complaint()}")
        try:
            result = json.loads(program.last_line())
        except ValueError:
            raise Failure(f"{program.name} printed no result: {program.complaint()}") from None
        if (code == SKIPPED) != ("skip" in result):
            raise Failure(f"{program.name} ended with {code}: {program.last_line()}")
        return result

    # --- under gpumux ---

    def go_of(self, case):
        return os.path.join(self.place.work, case.name + ".go")

    def prepare(self, case):
        """Both copies, which import and wait."""
        if case is not None and not case.programs:
            case.programs = [self.start(case, f"under-{number}", self.arguments.case_seconds, True,
                                        f"{self.go_of(case)}.{number}") for number in (1, 2)]

    def run_pair(self, case, following, daemon):
        """Both copies at once, while those of the next case import."""
        self.prepare(case)
        for number, program in enumerate(case.programs, 1):
            path = f"{self.go_of(case)}.{number}.imported"
            wait_until(f"{program.name} imports", 120,
                       lambda p=program, f=path: os.path.exists(f) or not p.is_running())
        moved, begun, switches = Moved(daemon), time.monotonic(), {}
        for number in (1, 2):
            open(f"{self.go_of(case)}.{number}", "w", encoding="utf-8").close()
        self.prepare(following)
        end = time.monotonic() + min(LONGEST, max(5, self.left()))
        while any(program.is_running() for program in case.programs) and time.monotonic() < end:
            for app in daemon.status()["apps"]:
                switches[app["pid"]] = app["switches"]
            time.sleep(.1)
        results = [self.result(program, 0) for program in case.programs]
        took = time.monotonic() - begun
        since = moved.since()
        case.under = {"results": results, "seconds": took, **since,
                      "switched": [switches.get(program.process.pid, 0) for program in case.programs]}
        for result in results:
            if "skip" in result:
                raise Failure(f"skipped under gpumux alone: {result['skip']}")
            case.check(result["extra"], self.budget)
        return self.compare(case, results, since)

    @staticmethod
    def compare(case, results, since):
        native = case.native
        if len(native["sums"]) == 1:
            for number, result in enumerate(results, 1):
                far = apart(native["values"], result["values"])
                same(f"copy {number}'s results (their values {far:.2g} apart)", result["sums"], native["sums"])
            text = "equal"
        else:
            farthest = max(apart(native["values"], result["values"]) for result in results)
            if farthest > 2 * native["spread"]:
                raise Failure(f"values are {farthest:.3g} apart, natively {native['spread']:.3g}")
            text = (f"within its own difference ({len(native['sums'])} results in {native['rounds']} native rounds, "
                    f"values {native['spread']:.2g} apart; here {farthest:.2g})")
        if since["switches"] < 2 or not all(case.under["switched"]):
            raise Failure(f"{text}, but only {since['switches']} switches, by copy {case.under['switched']}")
        return text

    def run_under(self):
        pending = [case for case in self.cases if case.outcome is None]
        daemon = None
        for index, case in enumerate(pending):
            following = pending[index + 1] if index + 1 < len(pending) else None
            if self.left() < self.arguments.case_seconds + 3:
                case.outcome = ("FAIL", "no time was left")
                continue
            try:
                if daemon is None or not daemon.is_running():
                    daemon = self.start_daemon(f"daemon-{case.name}")
                case.outcome = ("ok", self.run_pair(case, following, daemon))
                for program in case.programs:
                    program.stop()
                daemon.expect_empty()
            except Failure as failure:
                # A case that is right and leaves something behind is not right.
                case.outcome = ("FAIL", str(failure))
                for program in case.programs:
                    program.stop()
                if daemon is not None and daemon.is_running():
                    try:
                        daemon.expect_empty()
                    except Failure:
                        daemon.program.stop()
            self.tell(case)
        for case in pending:
            for program in case.programs:
                program.stop()
        if daemon is not None and daemon.is_running():
            daemon.stop()

    def start_daemon(self, name):
        if os.path.exists(self.place.socket):
            os.unlink(self.place.socket)
        pinned = int(20 * 2**30 * self.scale)
        return Daemon(self.place, name, str(self.budget), str(pinned), "100ms" if self.arguments.simcuda else "250ms")

    @staticmethod
    def tell(case):
        print(f"{case.outcome[0]} {case.name} ({case.outcome[1]})", flush=True)

    # --- the table ---

    def rows(self):
        rows = []
        for case in self.cases:
            native, under = case.native or {}, getattr(case, "under", None)
            results = under["results"] if under else []
            rows.append([
                case.name,
                f"{native['rounds']} rounds, {native['seconds']:.0f} s" if "rounds" in native else "-",
                "+".join(str(result.get("rounds", "-")) for result in results) + f" rounds, {under['seconds']:.0f} s"
                if under else "-",
                str(under["switches"]) if under else "-",
                f"{under['bytes_out'] / 2**30:.1f} / {under['bytes_in'] / 2**30:.1f}" if under else "-",
                {"ok": case.outcome[1], "skipped": "skipped: " + case.outcome[1],
                 "FAIL": "FAIL: " + case.outcome[1]}[case.outcome[0]]])
        return rows

    def show(self):
        head = ["case", "native", "under gpumux", "switches", "GiB out / in", "equal?"]
        rows = [head] + self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        for row in rows:
            print("  ".join([cell.ljust(width) for cell, width in zip(row, widths)] + [row[-1][:200]]))

    def report(self):
        return {"budget": self.budget, "seconds": time.monotonic() - self.begun,
                "cases": [{"case": case.name, "outcome": case.outcome[0], "text": case.outcome[1],
                           "native": case.native, "under": getattr(case, "under", None)} for case in self.cases]}


def main():
    parser = argparse.ArgumentParser(prog="matrix.py", description="the framework matrix")
    parser.add_argument("build", metavar="BUILD-DIR")
    names = [case.name for case in all_cases()]
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=names)
    parser.add_argument("--seconds", type=float, default=400, metavar="S", help="for all of it (400)")
    parser.add_argument("--case-seconds", type=float, default=2.5, metavar="S", help="of a case under gpumux (2.5)")
    parser.add_argument("--native-seconds", type=float, default=1, metavar="S", help="of a case natively (1)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU: only the case driver can run")
    parser.add_argument("--list", action="store_true", help="print the cases' names")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(names))
        return 0
    if arguments.simcuda:
        arguments.only = ["driver"]
    place = Place(arguments.build, "matrix")
    place.check_build()
    if arguments.simcuda:
        use_simcuda(place)
    matrix = Matrix(place, arguments)
    try:
        matrix.run_native()
        matrix.run_under()
    finally:
        for program in place.started:
            program.stop()
        shutil.rmtree(place.work, ignore_errors=True)
    outcomes = [case.outcome[0] for case in matrix.cases]
    for path in (os.path.join(place.logs, "matrix.json"), arguments.json):
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(matrix.report(), file, indent=1)
    print()
    matrix.show()
    where = place.pack(is_kept="FAIL" in outcomes)
    if "FAIL" in outcomes:
        print(f"logs: {where}")
    print(f"{outcomes.count('ok')} passed, {outcomes.count('FAIL')} failed, {outcomes.count('skipped')} skipped")
    return 1 if "FAIL" in outcomes or "ok" not in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())

"""python3 tests/gpu/crosscheck.py BUILD-DIR [--only NAME]... [--seconds S] [--cupti FILE] [--json FILE] [--simcuda]

Does anything bypass the shim? A library in the driver (crosscheck/inject.c) hears through CUPTI of every call into it,
whoever makes it and however it found the function, and notes whether the calling thread was inside of the shim then.

  submissions  launches, graph launches, copies, sets: each inside the gate
  allocations  and what belongs to them, releases, mappings: each in a handler of the shim, or by its own threads
  passed       of those, calls that the shim leaves alone by its table (shim/driver/pass.def), with the reason there

Everything else is a bypass and a failure, with where it came from. The cases are those of the framework matrix and
programs of this tree, one copy each, in a budget that holds them. First the check proves that it can fail: a program
that goes around the shim on purpose (crosscheck/bypass.c) has to be caught at it.

Where CUPTI cannot be used the outcome is "not run" with the reason, and that is no pass.
Run by tests/gpu/run.sh --set crosscheck.
"""

import argparse
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time

from harness import Daemon, Failure, Place, Program, use_simcuda
from matrix import all_cases

HEAD = struct.Struct("<8sII256s256sII")  # crosscheck/seen.h
CALL = struct.Struct("<60sI4Q")
TRACES, TEXT, CALLS = 8, 1024, 2048
GATE, HANDLER, OWN, OUTSIDE = range(4)
KINDS = {1: "submissions", 2: "allocations"}
SHARED = 2  # include/gpumux.h
TOGETHER = 4


class NotRun(Exception):
    """The check cannot be made here."""


def text_of(raw):
    return raw.partition(b"\0")[0].decode(errors="replace")


def base_of(name):
    """Without what tells the forms of one API apart."""
    return re.sub(r"_v\d$", "", re.sub(r"_pt[ds][sz]$", "", name))


class Tables:
    """What the shim says of each function: hooked, or passed and why."""

    def __init__(self, root):
        def read(name):
            with open(os.path.join(root, "shim", "driver", name), encoding="utf-8") as file:
                return file.read()

        hooks = re.findall(r"^GM_HOOK\(\w+, (\w+),", read("hooks.def"), re.M)
        passes = re.findall(r"^GM_PASS\(\w+, (\w+), \d+, \w+, (\w+)\)", read("pass.def"), re.M)
        if not hooks or not passes:
            raise Failure("the shim's tables cannot be read")
        self.reasons = {symbol: reason for symbol, reason in passes if symbol not in hooks}

    def reason(self, symbol):
        """Why a call is left alone; None if it is hooked, or not known at all."""
        return self.reasons.get(symbol)


class Seen:
    """A file of crosscheck/inject.c: one process."""

    def __init__(self, path, tables):
        with open(path, "rb") as file:
            data = file.read()
        if len(data) < HEAD.size + TRACES * TEXT + CALLS * CALL.size:
            raise Failure(f"{path} is cut short")
        magic, self.pid, self.state, why, command, traces, _ = HEAD.unpack_from(data)
        if text_of(magic) != "gmseen1":
            raise Failure(f"{path} has another layout")
        self.why, self.command = text_of(why), text_of(command)
        at = HEAD.size
        self.traces = [text_of(data[at + i * TEXT:at + (i + 1) * TEXT]) for i in range(min(TRACES, traces))]
        at = (at + TRACES * TEXT + 7) // 8 * 8
        self.counts = {kind: 0 for kind in (*KINDS.values(), "calls", "own", "passed")}
        self.passed, self.bypasses = {}, {}
        for index in range(CALLS):
            raw, kind, *counts = CALL.unpack_from(data, at + index * CALL.size)
            if any(counts):
                self.count(text_of(raw), KINDS.get(kind), counts, tables)

    def count(self, name, kind, counts, tables):
        self.counts["calls"] += sum(counts)
        if kind is None:
            return
        self.counts[kind] += sum(counts)
        self.counts["own"] += counts[OWN]
        reason = tables.reason(name)
        stray = counts[OUTSIDE] + (counts[HANDLER] if kind == "submissions" else 0)
        if stray and reason is not None:
            self.counts["passed"] += stray
            self.passed[name] = f"{stray} ({reason})"
        elif stray:
            self.bypasses[name] = stray


def find_cupti():
    """Where a libcupti may lie that the loader does not find."""
    found = []
    for folder in sys.path:
        found += glob.glob(os.path.join(folder, "nvidia", "cu13", "lib", "libcupti.so.*"))
        found += glob.glob(os.path.join(folder, "nvidia", "cuda_cupti", "lib", "libcupti.so.*"))
    for folder in ("lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib"):
        found += glob.glob(os.path.join("/usr/local/cuda", folder, "libcupti.so.1?"))
    return next((path for path in found if os.path.exists(path)), "")


class Check:
    """The programs, and what is seen of them."""

    def __init__(self, place, arguments):
        self.place, self.arguments = place, arguments
        self.begun = time.monotonic()
        self.tables = Tables(place.root)
        self.cupti = arguments.cupti or ("" if arguments.simcuda else find_cupti())
        self.inject = place.at("tests/gpu/crosscheck/libgm_inject.so")
        if not os.path.exists(self.inject):
            raise NotRun("the build has no tests/gpu/crosscheck/libgm_inject.so: it was made without CUPTI's headers "
                         "(sh tests/setup.sh --cupti fetches them)")
        self.outcomes = []  # name, "ok", "FAIL", "skipped" or "not run", text, what was seen
        self.is_linked = os.environ.get("GM_LINKED") == "1"

    def left(self):
        return self.begun + self.arguments.seconds - time.monotonic()

    def start(self, name, command, extra=None):
        folder = os.path.join(self.place.logs, "seen-" + name)
        os.makedirs(folder)
        environment = {"CUDA_INJECTION64_PATH": self.inject, "GM_CROSSCHECK_DIR": folder, **(extra or {})}
        if self.cupti:
            environment["GM_CUPTI"] = self.cupti
        return Program(self.place, name, command, not self.is_linked, environment)

    def seen(self, program):
        """Of all processes of a program that called the driver; Failure if something is amiss, NotRun likewise."""
        files = sorted(glob.glob(os.path.join(self.place.logs, "seen-" + program.name, "*.seen")))
        if not files:
            raise NotRun("the driver did not load the library of CUDA_INJECTION64_PATH")
        processes = [Seen(path, self.tables) for path in files]
        for one in processes:
            if one.why:
                raise NotRun(one.why)
        if not any(one.counts["calls"] for one in processes):
            raise NotRun("CUPTI told of no call at all")
        return processes

    # --- the cases ---

    def judge(self, program, code):
        """What is seen, as a text; Failure if it is not as it should be."""
        processes = self.seen(program)
        if code != 0:
            raise Failure(f"ended with {code}: {program.complaint()}")
        total = {key: sum(one.counts[key] for one in processes) for key in processes[0].counts}
        passed = {name: text for one in processes for name, text in one.passed.items()}
        bypasses = {}
        for one in processes:
            for name, count in one.bypasses.items():
                bypasses[name] = bypasses.get(name, 0) + count
        result = {"processes": len(processes), **total, "passed_calls": passed, "bypasses": bypasses,
                  "traces": [trace for one in processes for trace in one.traces]}
        if bypasses:
            raise Failure("went past the shim: " + ", ".join(f"{name} {count} times" for name, count in
                                                             bypasses.items()), result)
        if not total["submissions"] or not total["allocations"]:
            raise Failure(f"only {total['submissions']} submissions and {total['allocations']} allocations were seen",
                          result)
        if not any(one.state == SHARED for one in processes):
            raise Failure("the program ran without gpumux", result)
        return result

    def prove(self):
        """The check can fail: each way around the shim is seen, and nothing where there is none."""
        binary = self.place.at("tests/gpu/crosscheck/bypass" + ("_linked" if self.is_linked else ""))
        for way, wanted in (("none", set()), ("launch", {"cuLaunchKernel"}), ("alloc", {"cuMemAlloc", "cuMemFree"})):
            program = self.start("bypass-" + way, [binary, way])
            code = program.wait(60)
            if code != 0:
                raise Failure(f"bypass {way} ended with {code}: {program.complaint()}")
            processes = self.seen(program)
            found = {base_of(name): count for one in processes for name, count in one.bypasses.items()}
            if set(found) != wanted or any(count != 1 for count in found.values()):
                raise Failure(f"of bypass {way} was seen: {found or 'nothing'}; wanted: {wanted or 'nothing'}")
        return "a launch, an allocation and a release past the shim are seen, and nothing else"

    def commands(self):
        """name, command, environment."""
        worker = "_linked" if self.is_linked else ""
        ways = {"linked": "gm_worker" + worker, "dlsym": "gm_worker_dlsym" + worker,
                "proc": "gm_worker_proc" + worker}
        for way, binary in ways.items():
            for mode in ("verify", "copies", "graph", "streams", "ptds"):
                if (way == "proc") == (mode in ("ptds", "graph", "streams")):
                    yield (f"{way}-{mode}", [self.place.at("tests/programs/" + binary), "--mode", mode, "--bytes",
                                             "24M", "--iterations", "3"], {})
        if self.arguments.simcuda:
            if not self.is_linked:
                yield ("driver", self.python("case_driver.py", "driver", .05), {})
            return
        for name in ("graphs", "pools", "callbacks", "threads", "gridsync"):
            yield ("cu-" + name, [self.place.at("tests/gpu/programs/" + name), "--seconds", "1"], {})
        for case in all_cases():
            yield (case.name, self.python(case.file, case.name, 1), {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"})

    def python(self, file, name, gib):
        return [sys.executable, "-B", os.path.join(self.place.here, "python", file), name, "--seconds", "1", "--rounds",
                "2", "--gib", gib]

    def note(self, name, verdict, text, result=None):
        self.outcomes.append((name, verdict, " ".join(str(text).split()), result or {}))
        print(f"{verdict} {name} ({self.outcomes[-1][2][:300]})", flush=True)

    def end(self, program):
        """A program that has ended, or whose time is up."""
        try:
            code = program.wait(0)
            if code == 77:
                self.note(program.name, "skipped", json.loads(program.last_line())["skip"])
                return
            result = self.judge(program, code)
            self.note(program.name, "ok", f"{result['submissions']} submissions, {result['allocations']} allocations, "
                      f"{result['passed']} passed, none past the shim", result)
        except NotRun as why:
            self.note(program.name, "not run", why)
        except Failure as failure:
            self.note(program.name, "FAIL", failure.args[0], failure.args[1] if len(failure.args) > 1 else None)

    def run(self):
        daemon = Daemon(self.place, "daemon", "512M" if self.arguments.simcuda else "24G",
                        "256M" if self.arguments.simcuda else "40G")
        try:
            self.note("self-test", "ok", self.prove())
        except NotRun as why:
            self.note("self-test", "not run", why)
            daemon.stop()
            return
        except Failure as failure:
            self.note("self-test", "FAIL", failure)
        waiting = [command for command in self.commands()
                   if not self.arguments.only or command[0] in self.arguments.only]
        for name in sorted(set(self.arguments.only) - {command[0] for command in waiting}):
            self.note(name, "FAIL", "there is no such case")
        running = []
        while waiting or running:
            while waiting and len(running) < TOGETHER and self.left() > 0:
                running.append(self.start(*waiting.pop(0)))
            if waiting and not running:
                for name, _, _ in waiting:
                    self.note(name, "FAIL", "no time was left")
                waiting = []
            time.sleep(.05)
            for program in list(running):
                if program.is_running() and time.monotonic() < program.begun + 120 and self.left() > -20:
                    continue
                running.remove(program)
                self.end(program)
        daemon.expect_empty()
        daemon.stop()

    def show(self):
        head = ["case", "processes", "calls", "submissions", "allocations", "own threads", "passed", "outcome"]
        rows = [head]
        for name, verdict, text, result in self.outcomes:
            cells = [str(result.get(key, "-")) for key in ("processes", "calls", "submissions", "allocations", "own",
                                                           "passed")]
            rows.append([name, *cells, verdict if verdict == "ok" else f"{verdict}: {text[:150]}"])
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        for row in rows:
            print("  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in
                                                         zip(row[1:-1], widths[1:])] + [row[-1]]))
        for name, _, _, result in self.outcomes:
            if name.startswith("self") or not result.get("bypasses"):
                continue
            for trace in result["traces"][:2]:
                print(f"{name}: {trace[:400]}")
        passed = sorted({f"{name}: {text.partition('(')[2].rstrip(')')}" for *_, result in self.outcomes
                         for name, text in result.get("passed_calls", {}).items()})
        if passed:
            print("passed by shim/driver/pass.def: " + ", ".join(passed))


def main():
    parser = argparse.ArgumentParser(prog="crosscheck.py", description="what the shim sees, and what CUPTI sees")
    parser.add_argument("build", metavar="BUILD-DIR")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=240, metavar="S", help="for all of it (240)")
    parser.add_argument("--cupti", metavar="FILE", help="libcupti.so to load; else it is looked for")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU, which has a CUPTI of its own")
    arguments = parser.parse_args()
    place = Place(arguments.build, "crosscheck")
    place.check_build()
    if arguments.simcuda:
        use_simcuda(place)
    check = None
    try:
        check = Check(place, arguments)
        check.run()
    except (NotRun, Failure, subprocess.SubprocessError) as failure:
        print(f"{'not run' if isinstance(failure, NotRun) else 'FAIL'}: {failure}")
        if check is None or not check.outcomes:
            print("0 passed, 0 failed, 1 not run" if isinstance(failure, NotRun) else "0 passed, 1 failed, 0 not run")
            return 1
        check.note("crosscheck", "FAIL", failure)
    finally:
        for program in place.started:
            program.stop()
        shutil.rmtree(place.work, ignore_errors=True)
    for path in (os.path.join(place.logs, "crosscheck.json"), arguments.json):
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump([{"case": name, "outcome": verdict, "text": text, **result}
                           for name, verdict, text, result in check.outcomes], file, indent=1)
    for folder in glob.glob(os.path.join(place.logs, "seen-*")):
        shutil.rmtree(folder)
    print()
    check.show()
    verdicts = [outcome[1] for outcome in check.outcomes]
    where = place.pack(is_kept="FAIL" in verdicts)
    if "FAIL" in verdicts:
        print(f"logs: {where}")
    print(f"{verdicts.count('ok')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('not run')} not run, "
          f"{verdicts.count('skipped')} skipped")
    return 0 if "ok" in verdicts and not {"FAIL", "not run"} & set(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

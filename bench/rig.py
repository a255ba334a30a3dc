"""What the benches in Python share: the build, the ceilings of the machine, and the result; with figures and actors.

A bench is two functions of a Rig: one measures, and leaves what it measured in the result as it goes; one concludes and
prints the table, also of what there is when the first was cut short. main() runs both and writes the result, with the
table in it. Nothing here needs more than Python 3.8 and a build of this tree. Every wait has a limit, and every process
that was started here is ended here, or ends with this one.

Times are in milliseconds, rates in GB/s (10^9 bytes), sizes in bytes.
"""

import argparse
import contextlib
import datetime
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

# Also what a bench takes from here as r.NAME.
from actors import Absent, App, Daemon, Failure, Process, Stopped, fields, under
from figures import (copy_ideal_ms, mean, median, milliseconds, number, percent, percentile, show_goals, show_size, size,
                     sizes, some_of, spread, table)

NOT_AVAILABLE = 77


class Rig:
    """The build, the environment, what was started, and the result."""

    def __init__(self, bench, args):
        self.begun = time.monotonic()
        self.bench = bench
        self.args = args
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.root = os.path.dirname(self.here)
        self.work = tempfile.mkdtemp(prefix="gpumux-bench-")
        self.logs = os.path.abspath(args.logs) if args.logs else os.path.join(self.work, "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.started = []
        self.is_linked = os.environ.get("GM_LINKED") == "1" # the sanitizer builds
        self.use(args.build or os.path.join(self.root, "build"))
        self.environment = dict(os.environ)
        for variable in ("LD_PRELOAD", "GPUMUX_DISABLE"):
            self.environment.pop(variable, None)
        self.environment["GPUMUX_SOCKET"] = os.path.join(self.work, "nobody.sock") # each daemon has its own
        if args.simcuda:
            os.mkdir(os.path.join(self.work, "sim"))
            self.environment.update(SIMCUDA_DIR=os.path.join(self.work, "sim"),
                                    LD_LIBRARY_PATH=self.at("tests/simcuda"))
        if not self.environment.get("GM_COMMIT"):
            commit = self.commit()
            if commit:
                self.environment["GM_COMMIT"] = commit
        self.result = {}

    def use(self, build):
        """What is started from now on is of that build."""
        self.build = os.path.abspath(build)
        self.shim = self.at("shim/libgpumux.so")
        self.ctl = self.at("daemon/mux-ctl")
        self.native_app = self.at("bench/bench_app")
        self.app = self.at("bench/bench_app_linked") if self.is_linked else self.native_app

    def at(self, path):
        path = os.path.join(self.build, path)
        if not os.path.exists(path):
            raise Failure(f"{path} is missing: build it first (--build DIR)")
        return path

    def commit(self):
        """The commit of the tree that this file is in, with a + if it was changed since; None outside of git."""
        def git(*command):
            try:
                done = subprocess.run(["git", "-C", self.root, *command], capture_output=True, text=True, check=False)
            except OSError:
                return None
            return done.stdout.strip() if done.returncode == 0 else None
        head = git("rev-parse", "HEAD")
        return head and head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")

    def left(self):
        """Seconds of --seconds that are left; endless without it."""
        return self.begun + self.args.seconds - time.monotonic() if self.args.seconds else math.inf

    def closing_s(self):
        """About how long it takes to end everything: to give pinned memory back takes its time."""
        return .5 + sum(getattr(one, "bytes", 0) for one in self.started if one.is_running()) / 2**34

    def run_tool(self, name, *arguments, seconds=240):
        """A bench in C: its JSON result."""
        path = os.path.join(self.work, name + ".json")
        done = subprocess.run([self.at("bench/" + name), "--json", path, *(str(part) for part in arguments)],
                              capture_output=True, text=True, timeout=seconds, check=False, env=self.environment)
        if done.returncode != 0:
            raise Failure(f"bench/{name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def link(self, when):
        """The link now: the best median over the sizes of piece, each way and both ways at once."""
        begun = time.monotonic()
        result = self.run_tool("link", "--from", "32M", "--to", min(2**27, max(2**25, self.args.link_bytes)),
                               "--bytes", self.args.link_bytes, "--rounds", self.args.link_rounds)
        best = {way: max(piece[way]["median"] for piece in result["pieces"]) for way in ("h2d", "d2h", "both")}
        best.update(when=when, took_s=time.monotonic() - begun)
        self.result.setdefault("link", []).append(best)
        return best

    def ceiling(self):
        """Of all measurements of the link in this run: the median of each."""
        return {way: median([one[way] for one in self.result["link"]]) for way in ("h2d", "d2h", "both")}

    def machine(self):
        done = subprocess.run([self.at("bench/link"), "--machine"], capture_output=True, text=True, timeout=60,
                              check=False, env=self.environment)
        if done.returncode != 0:
            raise Failure(done.stderr.strip()[-300:])
        return json.loads(done.stdout)

    def head(self):
        return {"bench": self.bench,
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "commit": self.environment.get("GM_COMMIT"),
                "command": [os.path.basename(sys.argv[0])] + sys.argv[1:]}

    def kill_all(self):
        """What was started and still runs."""
        for process in reversed(self.started):
            if process.is_running():
                process.process.kill()
        end = time.monotonic() + 20 # pinned memory takes its time to go
        for process in self.started:
            try:
                process.process.wait(timeout=max(.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"{self.bench}: {process.name} was killed and is still there")

    def clean(self):
        self.kill_all()
        shutil.rmtree(self.work, ignore_errors=True)


def host_bytes():
    """Of the machine's memory, what programs could have now."""
    with open("/proc/meminfo", encoding="ascii") as text:
        available = next(int(line.split()[1]) * 1024 for line in text if line.startswith("MemAvailable:"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as text:
                available = min(available, int(text.read()))
        except (OSError, ValueError):
            pass # no limit
    return available


def add_common(parser):
    parser.add_argument("--build", metavar="DIR", help="the build folder (build)")
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    parser.add_argument("--logs", metavar="DIR", help="keep the logs there")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU of the build")
    parser.add_argument("--seconds", type=float, default=0, metavar="S",
                        help="end within so long: fewer turns than asked for, at least one of each kind (no limit)")
    parser.add_argument("--gap", type=milliseconds, default=30, metavar="TIME", help="between turns (30ms)")
    parser.add_argument("--link-bytes", type=size, default=2**30, metavar="SIZE",
                        help="each way, when the link is measured (1G)")
    parser.add_argument("--link-rounds", type=int, default=5, metavar="N", help="... (5)")


def write_result(rig):
    """Through a file beside it, so that there is never half a result."""
    rig.result["seconds"] = time.monotonic() - rig.begun
    try:
        with open(rig.args.json + ".new", "w", encoding="utf-8") as file:
            json.dump(rig.result, file, indent=1)
            file.write("\n")
        os.replace(rig.args.json + ".new", rig.args.json)
    except OSError as error:
        print(f"{rig.bench}: {rig.args.json}: {error.strerror}")
        return False
    return True


def tell(rig, conclude):
    """The table to the screen and into the result."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            conclude(rig)
    finally:
        rig.result["table"] = said.getvalue().splitlines()
        print(said.getvalue(), end="")


def main(bench, description, add_options, run, conclude):
    """
    Parse; measure (run) and draw conclusions (conclude), those also from what a measurement that failed or was
    stopped has left; write the result; clean up. Ends the program: 0 done, 1 failed, 2 wrong use, 77 not available.
    """
    parser = argparse.ArgumentParser(prog=bench + ".py", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add_options(parser)
    add_common(parser)
    args = parser.parse_args()

    def stop(which, frame):
        for again in (signal.SIGTERM, signal.SIGINT): # timeout(1) sends it twice
            signal.signal(again, signal.SIG_IGN)
        raise Stopped("stopped by a signal" + (", as by a time limit" if which == signal.SIGTERM else ""))

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    rig, code, outcome = None, 1, None
    try:
        rig = Rig(bench, args)
        rig.result.update(rig.head())
        rig.result["machine"] = rig.machine()
        rig.result["is_verified"] = False
        run(rig)
        rig.result["is_verified"] = True # or a program would have ended the run
        code = 0
    except Absent as absent:
        code, outcome = NOT_AVAILABLE, f"not available: {absent}"
    except (Failure, subprocess.TimeoutExpired) as failure:
        outcome = f"FAILED: {failure}"
    except Exception: # pylint: disable=broad-except
        traceback.print_exc()
        outcome = "FAILED: an error of the bench itself"
    if rig is None:
        print(f"{bench}: {outcome}")
        sys.exit(code)
    if outcome:
        for line in dict.fromkeys(f"--- {process.name}: {process.complaint()}" for process in rig.started):
            if not line.endswith(": it said nothing"):
                print(line)
    try:
        if code != NOT_AVAILABLE:
            tell(rig, conclude)
    except Failure as failure:
        code, outcome = 1, outcome or f"FAILED: {failure}"
    except Exception: # pylint: disable=broad-except
        if outcome is None: # else of half a result nothing more can be said
            traceback.print_exc()
            code, outcome = 1, "FAILED: an error of the bench itself"
    if outcome:
        rig.result["outcome"] = outcome
        rig.result["is_verified"] = False
        print(f"{bench}: {outcome}")
    if args.json and not write_result(rig):
        code = code or 1
    sys.stdout.flush()
    rig.clean() # after that: it can take long
    sys.exit(code)

"""What the benches in Python share: the daemon, the programs, the ceilings of the machine, and the result.

A bench is a function of a Rig; main() runs it and writes the result. Nothing here needs more than Python 3.8 and
a build of this tree. Every wait has a limit, and every process that was started here is ended here.

Times are in milliseconds, rates in GB/s (10^9 bytes), sizes in bytes.
"""

import argparse
import datetime
import json
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
NOT_AVAILABLE = 77


class Failure(Exception):
    """The bench failed; the text says how, on one line."""


class Absent(Exception):
    """What is to be measured is not there; the text says what."""


# --- numbers ---

def size(text):
    """Bytes of "24G", "512MiB", "1.5T"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 24G")
    return int(float(match.group(1)) * UNITS[match.group(2)])


def sizes(text):
    return [size(part) for part in text.split(",")]


def milliseconds(text):
    """Milliseconds of "30ms", "4s", "500" (plain numbers are milliseconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|)", text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not a time such as 30ms")
    return float(match.group(1)) * (1000 if match.group(2) == "s" else 1)


def show_size(count):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if count >= unit:
            return f"{count / unit:.1f}".rstrip("0").rstrip(".") + " " + name
    return f"{count} B"


def percentile(values, part):
    """The nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values):
    """The summary that every result uses; None without values."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"count": len(values), "median": median(values), "p10": percentile(values, .1),
            "p50": percentile(values, .5), "p90": percentile(values, .9), "p99": percentile(values, .99),
            "min": min(values), "max": max(values), "mean": sum(values) / len(values)}


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def table(head, rows):
    """Columns, the first to the left and the others to the right."""
    rows = [head] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def fields(line):
    """name=value parts of an answer, numbers as numbers."""
    found = {}
    for part in line.split():
        name, is_pair, value = part.partition("=")
        if is_pair:
            found[name] = float(value) if "." in value else int(value)
    return found


# --- processes ---

class Process:
    """A program that is asked by lines and answers by lines; its messages go into a log."""

    def __init__(self, rig, name, command, environment=None):
        self.name = name
        self.log = os.path.join(rig.logs, name + ".log")
        self.pending = b""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log,
                                            env={**rig.environment, **(environment or {})})
        self.pid = self.process.pid
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        rig.started.append(self)

    def is_running(self):
        return self.process.poll() is None

    def complaint(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = [line for line in log.read().splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"\berror\b|ERROR:", line)]
        return (errors or lines or ["it said nothing"])[-1][:300]

    def line(self, seconds):
        """Its next line of output, within that many seconds."""
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            if not self.selector.select(max(0, end - time.monotonic())):
                raise Failure(f"{self.name} did not answer within {seconds} s")
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                code = self.process.wait()
                raise Failure(f"{self.name} ended with {code}: {self.complaint()}")
            self.pending += part
        text, _, self.pending = self.pending.partition(b"\n")
        return text.decode(errors="replace")

    def ask(self, request, seconds):
        """Its answer as fields. An answer FAIL, or wrong data, is a failure."""
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass # its last line says why
        line = self.line(seconds)
        if line.startswith("FAIL"):
            raise Failure(f"{self.name}: {line}")
        answer = fields(line)
        if answer.get("mismatches"):
            raise Failure(f"{self.name}: wrong data: {line}")
        return answer

    def end(self, seconds=60):
        """Close its input and wait; it must end with 0."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} did not end within {seconds} s") from None
        if code != 0:
            raise Failure(f"{self.name} ended with {code}: {self.complaint()}")

    def kill(self):
        if self.is_running():
            self.process.kill()
        self.process.wait()


class App(Process):
    """bench/app with its memory filled: under gpumux, or natively."""

    count = 0

    def __init__(self, rig, name, count, is_native=False, piece=None, patience=120):
        App.count += 1
        command = [rig.app if not is_native else rig.native_app, "--bytes", count, "--seed", App.count]
        if piece:
            command += ["--piece", piece]
        environment = {} if is_native or rig.is_linked else {"LD_PRELOAD": rig.shim}
        super().__init__(rig, name, command, environment)
        self.bytes = count
        self.patience = patience
        self.turns = 0
        first = self.line(patience)
        if not first.startswith("ready "):
            raise Failure(f"{name}: {first}")
        self.start = fields(first)

    def turn(self, work="rewrite", least_ms=0):
        """A turn: see app.c. All of its memory is verified by it unless work is none."""
        self.turns += 1
        return self.ask(f"turn {work} {least_ms:.0f}", self.patience + least_ms / 1000)


class Daemon:
    """gpumuxd. `options` are its options without the dashes."""

    def __init__(self, rig, name="daemon", **options):
        self.rig = rig
        self.options = {"gpu-budget": None, "pinned": None, "idle": "5ms", "quantum": "60s", "log-level": "info"}
        self.options.update({key.replace("_", "-"): value for key, value in options.items()})
        self.options = {key: value for key, value in self.options.items() if value is not None}
        unknown = [key for key in self.options if not rig.has_option(key)]
        if unknown:
            raise Absent("this gpumuxd has no --" + " and no --".join(unknown))
        command = [rig.at("daemon/gpumuxd"), "--socket", rig.socket]
        for key, value in self.options.items():
            command += ["--" + key, value]
        self.process = Process(rig, name, command)
        self.last_seq = 0
        self.counted = None
        end = time.monotonic() + 60
        while not self.try_status():
            if not self.process.is_running():
                raise Failure(f"the daemon did not start: {self.process.complaint()}")
            if time.monotonic() > end:
                raise Failure("the daemon does not answer within 60 s")
            time.sleep(.05)
        self.take()

    def try_status(self):
        done = subprocess.run([self.rig.ctl, "status", "--json"], capture_output=True, timeout=60, check=False,
                              env=self.rig.environment)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        status = self.try_status()
        if status is None:
            raise Failure("mux-ctl status failed: " + ("the daemon runs" if self.process.is_running() else
                                                       f"the daemon died: {self.process.complaint()}"))
        return status

    def gpu(self):
        return self.status()["gpus"][0]

    @property
    def has_history(self):
        return "history" in self.gpu()

    def take(self):
        """The switches since the last call, and what moved since then, together (switches of several calls
        ago may be lost: the status keeps the last 64)."""
        gpu = self.gpu()
        now = {key: gpu[key] for key in ("switches", "bytes_in", "bytes_out")}
        before = self.counted or now
        moved = {key: now[key] - before[key] for key in now}
        moved["history"] = [entry for entry in gpu.get("history", []) if entry["seq"] > self.last_seq]
        moved["tiers"] = gpu["tiers"]
        if gpu.get("history"):
            self.last_seq = max(entry["seq"] for entry in gpu["history"])
        self.counted = now
        return moved

    def settle(self, seconds=120):
        """Wait until pinned memory has stopped growing."""
        end = time.monotonic() + seconds
        before, since = -1, time.monotonic()
        while time.monotonic() - since < 1:
            pinned = self.gpu()["tiers"]["pinned_bytes"]
            if pinned != before:
                before, since = pinned, time.monotonic()
            if time.monotonic() > end:
                raise Failure(f"pinned memory still grows after {seconds} s")
            time.sleep(.1)
        return before

    def stop(self):
        if not self.process.is_running():
            raise Failure(f"the daemon died: {self.process.complaint()}")
        self.process.process.send_signal(signal.SIGTERM)
        self.process.end()


# --- the rig ---

class Rig:
    """The build, the environment, what was started, and the result."""

    def __init__(self, bench, args):
        self.bench = bench
        self.args = args
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.root = os.path.dirname(self.here)
        self.build = os.path.abspath(args.build or os.path.join(self.root, "build"))
        self.work = tempfile.mkdtemp(prefix="gpumux-bench-")
        self.logs = os.path.abspath(args.logs) if args.logs else os.path.join(self.work, "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.socket = os.path.join(self.work, "gpumux.sock")
        self.started = []
        self.shim = self.at("shim/libgpumux.so")
        self.ctl = self.at("daemon/mux-ctl")
        self.is_linked = os.environ.get("GM_LINKED") == "1" # the sanitizer builds
        self.native_app = self.at("bench/bench_app")
        self.app = self.at("bench/bench_app_linked") if self.is_linked else self.native_app
        self.environment = dict(os.environ)
        self.environment.pop("LD_PRELOAD", None)
        self.environment["GPUMUX_SOCKET"] = self.socket
        if args.simcuda:
            os.mkdir(os.path.join(self.work, "sim"))
            self.environment.update(SIMCUDA_DIR=os.path.join(self.work, "sim"),
                                    LD_LIBRARY_PATH=self.at("tests/simcuda"))
        if not self.environment.get("GM_COMMIT"):
            commit = self.commit()
            if commit:
                self.environment["GM_COMMIT"] = commit
        self.help = None
        self.begun = time.monotonic()
        self.result = {}

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

    def has_option(self, name):
        """Does this gpumuxd have the option?"""
        if self.help is None:
            self.help = subprocess.run([self.at("daemon/gpumuxd"), "--help"], capture_output=True, text=True,
                                       timeout=30, check=False).stdout
        return re.search(rf"--{re.escape(name)}\b(?!-)", self.help) is not None

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
        result = self.run_tool("link", "--from", "32M", "--to", min(2**27, max(2**25, self.args.link_bytes)),
                               "--bytes", self.args.link_bytes, "--rounds", self.args.link_rounds)
        best = {way: max(piece[way]["median"] for piece in result["pieces"]) for way in ("h2d", "d2h", "both")}
        best["when"] = when
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

    def clean(self):
        for process in reversed(self.started):
            process.kill()
        shutil.rmtree(self.work, ignore_errors=True)


def copy_ideal_ms(bytes_out, bytes_in, ceiling):
    """Least time for these bytes on a link of that ceiling: both ways at once, then the rest one way."""
    both = min(bytes_out, bytes_in)
    return (2 * both / ceiling["both"] + (bytes_in - both) / ceiling["h2d"] +
            (bytes_out - both) / ceiling["d2h"]) / 1e6


def turn(rig, daemon, app, work="rewrite", least_ms=0):
    """
    One turn of an app that was idle, and the switch that it caused. Afterwards the app is idle, and the daemon
    has had the time to notice. The parts are None if the daemon does not tell them.
    """
    answer = app.turn(work, least_ms)
    time.sleep(rig.args.gap / 1000)
    moved = daemon.take()
    record = {"app": app.name, "first_ms": answer["first_ms"], "work_ms": answer["work_ms"],
              "passes": answer["passes"], "mismatches": answer["mismatches"], "switches": moved["switches"],
              "bytes_out": moved["bytes_out"], "bytes_in": moved["bytes_in"], "tiers": moved["tiers"]}
    mine = [entry for entry in moved["history"] if entry["pid"] == app.pid]
    record["parts"] = mine[-1] if mine else None
    if len(mine) > 1:
        record["more_parts"] = mine[:-1]
    return record


def tell_history(daemon):
    """One line if the daemon does not tell the parts of a switch."""
    if not daemon.has_history:
        print("note: this daemon's status has no history of switches: their parts are not shown")
        return False
    return True


def add_common(parser):
    parser.add_argument("--build", metavar="DIR", help="the build folder (build)")
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    parser.add_argument("--logs", metavar="DIR", help="keep the logs there")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU of the build")
    parser.add_argument("--gap", type=milliseconds, default=30, metavar="TIME", help="between turns (30ms)")
    parser.add_argument("--link-bytes", type=size, default=2**30, metavar="SIZE",
                        help="each way, when the link is measured (1G)")
    parser.add_argument("--link-rounds", type=int, default=7, metavar="N", help="... (7)")


def main(bench, description, add_options, run):
    """Parse, run, write the result, clean up. Ends the program: 0 done, 1 failed, 2 wrong use, 77 not available."""
    parser = argparse.ArgumentParser(prog=bench + ".py", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    add_common(parser)
    args = parser.parse_args()

    def stop(number, frame):
        for again in (signal.SIGTERM, signal.SIGINT): # timeout(1) sends it twice
            signal.signal(again, signal.SIG_IGN)
        raise Failure("stopped by a signal" + (", as by a time limit" if number == signal.SIGTERM else ""))

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    rig, code, outcome = None, 1, "failed"
    try:
        rig = Rig(bench, args)
        rig.result.update(rig.head())
        rig.result["machine"] = rig.machine()
        rig.result["is_verified"] = False
        run(rig)
        code, outcome = 0, None
    except Absent as absent:
        code, outcome = NOT_AVAILABLE, f"not available: {absent}"
    except (Failure, subprocess.TimeoutExpired) as failure:
        outcome = f"FAILED: {failure}"
    finally:
        if outcome and rig:
            for line in dict.fromkeys(f"--- {process.name}: {process.complaint()}" for process in rig.started):
                if not line.endswith(": it said nothing"):
                    print(line)
        if outcome and rig:
            rig.result["outcome"] = outcome
        if rig:
            rig.result["seconds"] = time.monotonic() - rig.begun
            rig.clean()
    if outcome:
        print(f"{bench}: {outcome}")
    if args.json and rig:
        try:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(rig.result, file, indent=1)
                file.write("\n")
        except OSError as error:
            print(f"{bench}: {args.json}: {error.strerror}")
            code = code or 1
    sys.exit(code)

"""Processes, the daemon and its status, for the GPU tests. run.py has the tests."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


class Skip(Exception):
    """What a test needs is not here."""


class Failure(Exception):
    """A test failed; the text says how, on one line."""


def end_well(number, frame):
    """On SIGTERM, as by a time limit: what is in a `finally` is done, and nothing that was started is left."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    print("FAIL: stopped by a signal, as by a time limit", flush=True)
    sys.exit(1)


class Place:
    """Where things are: the build, the logs, the socket."""

    def __init__(self, build, name="gpu-tests"):
        self.name = name
        self.build = os.path.abspath(build)
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.root = os.path.dirname(os.path.dirname(self.here))
        self.logs = tempfile.mkdtemp(prefix="gpumux-gpu-")
        self.work = tempfile.mkdtemp(prefix="gpumux-run-")
        atexit.register(shutil.rmtree, self.work, ignore_errors=True)
        self.socket = os.path.join(self.work, "gpumux.sock")
        self.shim = self.at("shim/libgpumux.so")
        self.ctl = self.at("daemon/mux-ctl")
        self.started = []
        signal.signal(signal.SIGTERM, end_well)

    def at(self, path):
        return os.path.join(self.build, path)

    def check_build(self):
        """Ends with a line if what every test needs was not built."""
        for path in (self.shim, self.ctl, self.at("daemon/gpumuxd"), self.at("tests/programs/gm_worker")):
            if not os.path.exists(path):
                for folder in (self.logs, self.work):
                    shutil.rmtree(folder, ignore_errors=True)
                die(f"{path} is missing: give a build folder with tests")

    def log(self, name):
        return os.path.join(self.logs, name + ".log")

    def pack(self, is_kept=True):
        """All logs into one file under $OUT, if that is set; else they go unless they are to be kept. Returns where they
        are."""
        out = os.environ.get("OUT")
        if not out:
            if not is_kept:
                shutil.rmtree(self.logs, ignore_errors=True)
            return self.logs
        path = shutil.make_archive(os.path.join(out, self.name), "gztar", self.logs)
        shutil.rmtree(self.logs, ignore_errors=True)
        return path


class Program:
    """A program with its output in a log. under_gpumux: with the shim preloaded."""

    def __init__(self, place, name, command, under_gpumux=False, extra=None, stdin=subprocess.DEVNULL):
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        environment["GPUMUX_SOCKET"] = place.socket
        environment["PYTHONUNBUFFERED"] = "1"
        if under_gpumux:
            environment["LD_PRELOAD"] = place.shim
        environment.update(extra or {})
        self.name = name
        self.begun = time.monotonic()
        self.ended = None
        self.out = os.path.join(place.logs, name + ".out")
        self.log = place.log(name)
        with open(self.out, "wb") as out, open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=stdin, stdout=out, stderr=log,
                env=environment, start_new_session=True)
        place.started.append(self)

    def is_running(self):
        return self.process.poll() is None

    def thread_seconds(self, name):
        """Processor time that its threads of that name have used."""
        ticks = 0
        folder = f"/proc/{self.process.pid}/task"
        for thread in os.listdir(folder):
            try:
                with open(f"{folder}/{thread}/stat", encoding="utf-8") as stat:
                    head, _, tail = stat.read().rpartition(")")
            except OSError:
                continue  # it has just ended
            if head.partition("(")[2] == name[:15]:
                ticks += sum(int(word) for word in tail.split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def ask(self, line, seconds=120):
        """Send a line to its standard input, which is a pipe. The line that it answers."""
        before = self.text().count("\n")
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        wait_until(f"{self.name} answers \"{line}\"", seconds,
                   lambda: self.text().count("\n") > before or not self.is_running())
        if self.text().count("\n") == before:
            raise Failure(f"{self.name} ended: {self.complaint()}")
        return self.last_line()

    def stop(self, number=signal.SIGKILL):
        if self.is_running():
            os.killpg(self.process.pid, number)
        self.process.wait()

    def text(self):
        with open(self.out, encoding="utf-8", errors="replace") as out:
            return out.read()

    def last_line(self):
        lines = self.text().strip().splitlines()
        return lines[-1] if lines else ""

    def complaint(self):
        """The last line that it wrote anywhere, for a message."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            errors = log.read().strip().splitlines()
        return (errors[-1] if errors else self.last_line())[:300]

    def wait(self, seconds=150):
        """Its exit code, which must come within that many seconds."""
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Failure(f"{self.name} did not end within {seconds} s: {self.complaint()}") from None
        self.ended = time.monotonic()
        return code

    def passed(self, seconds=150):
        """Its last line, which must be PASS without a mismatch."""
        code = self.wait(seconds)
        line = self.last_line()
        if code != 0 or not line.startswith("PASS ") or "mismatches=0" not in line.split():
            raise Failure(f"{self.name} ended with {code}: {line or self.complaint()}")
        return fields(line)

    def result(self, seconds=150):
        """The JSON of its last line; its exit code must be 0."""
        code = self.wait(seconds)
        if code != 0:
            raise Failure(f"{self.name} ended with {code}: {self.complaint()}")
        try:
            return json.loads(self.last_line())
        except ValueError:
            raise Failure(f"{self.name} printed no result: {self.complaint()}") from None


def fields(line):
    """The name=value parts of a line."""
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


def use_simcuda(place):
    """From here on what is started runs on the simulated GPU of the build."""
    folder = os.path.join(place.work, "sim")
    os.mkdir(folder)
    libraries = [place.at("tests/simcuda"), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ.update(SIMCUDA_DIR=folder, SIMCUDA_MEMORY="1G", LD_LIBRARY_PATH=":".join(filter(None, libraries)))


def wait_until(what, seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Daemon:
    """gpumuxd on the GPU. One may serve many tests, so that host memory is pinned once."""

    def __init__(self, place, name, budget, pinned, slice_="1s", options=()):
        self.place = place
        self.program = Program(
            place, name,
            [place.at("daemon/gpumuxd"), "--socket", place.socket, "--gpu-budget", budget, "--pinned", pinned,
             "--slice", slice_, *options])
        wait_until("the daemon answers", 60, lambda: self.try_status() or not self.program.is_running())
        if not self.program.is_running():
            raise Failure(f"the daemon did not start: {self.program.complaint()}")

    def try_status(self):
        done = subprocess.run([self.place.ctl, "status", "--json"], capture_output=True, timeout=30, check=False,
                              env={**os.environ, "GPUMUX_SOCKET": self.place.socket})
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        status = self.try_status()
        if status is None:
            raise Failure("mux-ctl status failed: " +
                          ("the daemon runs" if self.program.is_running() else
                           f"the daemon died: {self.program.complaint()}"))
        return status

    def gpu(self):
        return self.status()["gpus"][0]

    def app(self, program):
        """What the status says of a program; empty if the daemon does not know it."""
        return next((app for app in self.status()["apps"] if app["pid"] == program.process.pid), {})

    def is_running(self):
        return self.program.is_running()

    def is_empty(self):
        status = self.status()
        tiers = status["gpus"][0]["tiers"]
        return not status["apps"] and tiers["gpu_bytes"] == 0 and tiers["pinned_used_bytes"] == 0

    def expect_empty(self):
        wait_until("no app and no memory left in the daemon", 20, self.is_empty)

    def stop(self):
        if not self.is_running():
            raise Failure(f"the daemon died: {self.program.complaint()}")
        self.program.process.terminate()
        code = self.program.wait(60)
        if code != 0:
            raise Failure(f"the daemon ended with {code}: {self.program.complaint()}")


class Moved:
    """What moved between two moments."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.before = daemon.gpu()

    def since(self):
        now = self.daemon.gpu()
        return {key: now[key] - self.before[key] for key in ("switches", "bytes_in", "bytes_out")}

    @staticmethod
    def text(moved):
        return (f"{moved['switches']} switches, {moved['bytes_out'] / 2**30:.1f} GiB out, "
                f"{moved['bytes_in'] / 2**30:.1f} GiB in")


def same(what, one, other):
    """Fail with the first place where two results differ."""
    if one == other:
        return
    where = ""
    if isinstance(one, list) and isinstance(other, list):
        index = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        where = f" from element {index} of {len(one)} and {len(other)} on"
    raise Failure(f"{what} differ{where}")


def die(text):
    print(f"FAIL: {text}")
    print("0 passed, 1 failed")
    sys.exit(1)

"""Who takes part in a bench: programs that are asked by lines, and daemons. Every wait has a limit."""

import ctypes
import json
import os
import re
import selectors
import signal
import subprocess
import time

from figures import milliseconds

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failure(Exception):
    """The bench failed; the text says how, on one line."""


class Stopped(Failure):
    """Somebody ended the bench."""


class Absent(Exception):
    """What is to be measured is not there; the text says what."""


def fields(line):
    """name=value parts of an answer, numbers as numbers."""
    found = {}
    for part in line.split():
        name, is_pair, value = part.partition("=")
        if is_pair:
            found[name] = float(value) if "." in value else int(value)
    return found


def end_with_parent():
    """In a child: even if this program is killed, nothing that it started goes on using the GPU."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Process:
    """
    A program that is asked by lines and answers by lines; its messages go into a log. Started by the main thread
    alone: a child ends with the thread that started it.
    """

    def __init__(self, rig, name, command, environment=None, pass_fds=()):
        path = os.path.join(rig.logs, name + ".log")
        with open(path, "ab") as log:
            process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=log, preexec_fn=end_with_parent, pass_fds=pass_fds,
                                       env={**rig.environment, **(environment or {})})
        self.name, self.log, self.pending = name, path, b""
        self.process, self.pid = process, process.pid
        self.selector = selectors.DefaultSelector()
        self.selector.register(process.stdout, selectors.EVENT_READ)
        rig.started.append(self)

    def is_running(self):
        return self.process.poll() is None

    def complaint(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = [line for line in log.read().splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"\berror\b|ERROR:", line)]
        return (errors or lines or ["it said nothing"])[-1][:300]

    def try_line(self, seconds=0):
        """Its next line of output; None if there is none within that many seconds."""
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            if not self.selector.select(max(0, end - time.monotonic())):
                return None
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                self.ended()
            self.pending += part
        text, _, self.pending = self.pending.partition(b"\n")
        return text.decode(errors="replace")

    def ended(self):
        raise Failure(f"{self.name} ended with {self.process.wait()}: {self.complaint()}")

    def line(self, seconds):
        """Its next line of output, within that many seconds."""
        line = self.try_line(seconds)
        if line is None:
            raise Failure(f"{self.name} did not answer within {seconds:.0f} s")
        return line

    def await_line(self, wanted, seconds):
        line = self.line(seconds)
        if line != wanted:
            raise Failure(f"{self.name}: {line}")

    def send(self, request):
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass # its last line says why

    def understand(self, line):
        """An answer as fields. FAIL, or wrong data, is a failure."""
        if line.startswith("FAIL"):
            raise Failure(f"{self.name}: {line}")
        answer = fields(line)
        if answer.get("mismatches"):
            raise Failure(f"{self.name}: wrong data: {line}")
        return answer

    def ask(self, request, seconds):
        """Its answer as fields."""
        self.send(request)
        return self.understand(self.line(seconds))

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


def under(rig, daemon, is_preloaded=True):
    """What a program needs to be under that daemon; nothing without one."""
    if not daemon:
        return {}
    return {"GPUMUX_SOCKET": daemon.socket, **({"LD_PRELOAD": rig.shim} if is_preloaded else {})}


class App(Process):
    """bench/app with its memory filled: under a daemon, or natively."""

    count = 0

    def __init__(self, rig, name, count, daemon=None, piece=None, patience=120, is_awaited=True, options=(), environment=None):
        App.count += 1
        command = [rig.app if daemon else rig.native_app, "--bytes", count, "--seed", App.count]
        if piece:
            command += ["--piece", piece]
        command += options
        super().__init__(rig, name, command, {**under(rig, daemon, is_preloaded=not rig.is_linked), **(environment or {})})
        self.bytes = count
        self.patience = patience
        self.start = None
        if is_awaited:
            self.await_ready()

    def await_ready(self):
        first = self.line(self.patience)
        if not first.startswith("ready "):
            raise Failure(f"{self.name}: {first}")
        self.start = fields(first)
        return self

    def turn(self, work="rewrite", least_ms=0):
        """A turn: see app.c. All of its memory is verified by it."""
        return self.ask(f"turn {work} {least_ms:.0f}", self.patience + least_ms / 1000)


def read_passes(file):
    """The passes that a run wrote, each as (end_ms, ms)."""
    with open(file, encoding="ascii") as lines:
        found = [tuple(map(float, line.split())) for line in lines]
    os.unlink(file)
    return found


class Daemon:
    """
    gpumuxd, with a socket of its own. `options` are its options without the dashes; True: it takes no value, None: not
    given. `environment` is what it has beside the rig's.
    """

    def __init__(self, rig, name="daemon", environment=None, turn="60s", **options):
        self.rig = rig
        self.options = {"gpu-budget": None, "pinned": None, "idle": "5ms", "log-level": "info"}
        if turn: # all in turn: those of class batch have four slices each
            self.options.update({"rule": "command=* class=batch", "slice": f"{milliseconds(turn) / 4:g}ms"})
        self.options.update({key.replace("_", "-"): value for key, value in options.items()})
        self.options = {key: value for key, value in self.options.items() if value is not None}
        self.socket = os.path.join(rig.work, name + ".sock")
        self.environment = {**rig.environment, "GPUMUX_SOCKET": self.socket}
        command = [rig.at("daemon/gpumuxd"), "--socket", self.socket]
        for key, value in self.options.items():
            command += ["--" + key] if value is True else ["--" + key, value]
        run = os.path.join(rig.work, name + ".run") # a claim on the GPU of its own: another one may be there with other settings
        os.makedirs(run, mode=0o755, exist_ok=True)
        self.process = Process(rig, name, command, {"GPUMUX_RUN_DIR": run, "XDG_RUNTIME_DIR": run, **(environment or {})})
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
                              env=self.environment)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        status = self.try_status()
        if status is None:
            raise Failure("mux-ctl status failed: " + ("the daemon runs" if self.process.is_running() else
                                                       f"the daemon died: {self.process.complaint()}"))
        return status

    def gpu(self):
        return self.status()["gpus"][0]

    def set(self, program, setting):
        done = subprocess.run([self.rig.ctl, "set", str(program.pid), setting], capture_output=True, text=True, timeout=60,
                              check=False, env=self.environment)
        if done.returncode != 0:
            raise Failure(f"mux-ctl set {setting}: {done.stderr.strip()[-200:]}")

    def take(self):
        """
        What moved since the last call: the switches (of those since then the newest 64, which is what the status
        keeps), and bytes over the link.
        """
        gpu = self.gpu()
        now = {key: gpu[key] for key in ("switches", "bytes_in", "bytes_out")}
        before, self.counted = self.counted or now, now
        moved = {key: now[key] - before[key] for key in now}
        moved["history"] = [entry for entry in gpu["history"] if entry["seq"] > self.last_seq]
        self.last_seq = max([self.last_seq, *(entry["seq"] for entry in gpu["history"])])
        return moved

    def settle(self, seconds=30, still=.6):
        """Wait until nothing has moved and host memory has not changed for a while, at most that long."""
        end, since, before = time.monotonic() + seconds, time.monotonic(), None
        while time.monotonic() - since < still and time.monotonic() < end:
            gpu = self.gpu()
            now = (gpu["bytes_in"], gpu["bytes_out"], gpu["tiers"])
            if now != before:
                since, before = time.monotonic(), now
            time.sleep(.1)

    def stop(self):
        if not self.process.is_running():
            raise Failure(f"the daemon died: {self.process.complaint()}")
        self.process.process.send_signal(signal.SIGTERM)
        self.process.end()

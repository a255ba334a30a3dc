"""What starts gpumuxd again whenever it has ended, as systemd does with its unit: for tests that kill it."""

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time

from harness import Failure, wait_until


def process_of(place, program):
    """The pids of the processes of this place that are called so."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                is_dead = file.read().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if not is_dead and os.path.basename(words[0]).decode() == program and \
                any(word.decode(errors="replace").startswith(place.socket) for word in words[1:]):
            found.append(int(name))
    return found


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Supervisor:
    """READY=1 and WATCHDOG=1 come to a socket of its own. A daemon that does not say the latter in time is killed."""

    def __init__(self, place, options, watchdog_s=10, environment=None):
        self.place = place
        self.options = [str(option) for option in options]
        self.watchdog_s = watchdog_s
        self.environment = environment or {}
        self.once = {}  # for the next start alone
        self.log = place.log("daemon")
        self.starts = 0
        self.codes = []
        self.readies = []  # when it was begun, and was ready
        self.ends = []  # when it had ended, with all of its threads
        self.pause_s = 0  # between an end and the next start, beside 20 ms
        self.watchdog_kills = 0
        self.is_over = False
        self.is_held = False
        self.process = None
        path = place.socket + ".notify"
        if os.path.exists(path):
            os.remove(path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.notify.bind(path)
        self.notify.settimeout(0.02)
        self.thread = threading.Thread(target=self._serve, args=(path,), daemon=True)
        self.thread.start()
        self.await_ready(0)

    def _start(self, path):
        environment = {**os.environ, **self.environment, **self.once, "NOTIFY_SOCKET": path,
                       "WATCHDOG_USEC": str(int(self.watchdog_s * 1e6))}
        environment.pop("WATCHDOG_PID", None)
        self.once = {}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.place.at("daemon/gpumuxd"), "--socket", self.place.socket, *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.starts += 1
        return time.monotonic()

    def _serve(self, path):
        while not self.is_over:
            if self.is_held:
                time.sleep(0.01)
                continue
            begun = self._start(path)
            is_ready, alive = False, begun
            try:
                end = os.pidfd_open(self.process.pid)
            except ProcessLookupError:  # hold() has taken it
                end = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)  # always readable
            while end not in (can := select.select([self.notify, end], [], [], 0.02)[0]):
                said = self.notify.recv(4096) if can else b""
                now = time.monotonic()
                if b"READY=1" in said and not is_ready:
                    is_ready, alive = True, now
                    self.readies.append((begun, now))
                if b"WATCHDOG=1" in said:
                    alive = now
                if is_ready and now > alive + self.watchdog_s:
                    self.watchdog_kills += 1
                    self.process.kill()
                    alive = now
            self.ends.append(time.monotonic())
            os.close(end)
            self.process.wait()
            self.codes.append(self.process.returncode)
            time.sleep(0.02 + self.pause_s)

    def pid(self):
        return self.process.pid

    def keepers(self):
        return process_of(self.place, "gpumux-keeper")

    def await_ready(self, before, seconds=30):
        """There was one more since there were so many."""
        wait_until(f"a daemon after {before} is ready (ended with {self.codes[-3:]}): {self.tail()}", seconds,
                   lambda: len(self.readies) > before)

    def tail(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                return " | ".join(log.read().strip().splitlines()[-3:])[-600:]
        except OSError:
            return ""

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def kill(self, number=signal.SIGKILL):
        """End the daemon, and wait for the next one. Seconds from the start of that to its being ready."""
        before = len(self.readies)
        kill(self.pid(), number)
        self.await_ready(before)
        begun, ready = self.readies[-1]
        return ready - begun

    def hold(self):
        """The daemon is killed, and none follows until go_on."""
        self.is_held = True
        self.process.kill()
        self.process.wait()

    def go_on(self):
        before = len(self.readies)
        self.is_held = False
        self.await_ready(before)

    def ctl(self, *words):
        return subprocess.run([self.place.ctl, *words], capture_output=True, timeout=60, check=False, text=True,
                              env={**os.environ, "GPUMUX_SOCKET": self.place.socket})

    def drain(self):
        return subprocess.run([self.place.at("daemon/gpumuxd"), "--socket", self.place.socket, "--drain"],
                              capture_output=True, timeout=200, check=False, text=True)

    def status(self):
        done = self.ctl("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def end(self):
        """With SIGTERM. Its exit code."""
        self.is_over = True
        kill(self.pid(), signal.SIGTERM)
        self.thread.join(60)
        if self.process.poll() is None:
            self.process.kill()
            raise Failure("the daemon does not end on SIGTERM")
        self.notify.close()
        return self.process.returncode

    def clean_up(self):
        """Nothing of it is left, whatever has happened."""
        self.is_over = True
        if self.process and self.process.poll() is None:
            self.process.kill()
        self.thread.join(10)
        for pid in self.keepers():
            kill(pid)


def run_times(status):
    """By pid, how long each program has run."""
    return {app["pid"]: app["run_s"] for app in status["apps"]} if status else {}


class Watch:
    """Whether all of some programs make progress after a daemon has come."""

    def __init__(self, supervisor, limit_s=30):
        self.supervisor = supervisor
        self.limit_s = limit_s
        self.longest = 0.0

    def expect(self, programs, since=None):
        """Each runs within the limit, from now on. Those that are paused or have ended are not asked."""
        begun = since or time.monotonic()
        left = {program.process.pid: program for program in programs if program.is_running()}
        before = {}
        while left:
            for pid, seconds in run_times(self.supervisor.status()).items():
                if pid in left and seconds > before.setdefault(pid, seconds):
                    del left[pid]
            left = {pid: program for pid, program in left.items() if program.is_running()}
            if left and time.monotonic() > begun + self.limit_s:
                names = ", ".join(program.name for program in left.values())
                with open(self.supervisor.place.log("status"), "w", encoding="utf-8") as log:
                    json.dump(self.supervisor.status(), log)
                raise Failure(f"{names} did not run within {self.limit_s} s after the daemon was back")
            time.sleep(0.02)
        self.longest = max(self.longest, time.monotonic() - begun)


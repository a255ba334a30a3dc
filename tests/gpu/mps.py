#!/usr/bin/env python3
"""tests/gpu/mps.py BUILD [--simcuda] [--logs DIR]: space sharing by MPS on a GPU, in one call of three minutes at most.

  driver  what the shim rests on: what cuInit says to a folder without a control daemon, to a dead one, and after that; whether the
          folder and the thread percentage count if they are in the environment during cuInit alone; lists of UUIDs
  room    four programs with small kernels and room for all: natively in time slices, under gpumux, under gpumux with mps=on
  short   the same with room for two of them, each with 1 GiB that it verifies; parking, timeslices and drains there
  mixed   one of the four is ruled mps=off
  part    one of two is ruled share=50%: it has half of the multiprocessors
  crash   one of four that share has an illegal access: who ends, what status and log say, and who starts after it
  end     MPS ends with its last program; with programs that go on, after them; nothing is left

Needs the CUDA driver, nvidia-cuda-mps-control, Python 3.8, and no compiler. Everything lies in a folder of its own, and all that was
started is ended. The last lines are a table; logs and each status lie in the folder that the last line names ($OUT, if set).
"""
import argparse
import atexit
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

BEGUN = time.monotonic()
LONGEST = 170 # s; what is not reached then is a FAIL that says so
WORDS = 64 << 10 # 512 KiB: a launch of 16 blocks takes some 20 us on an H100
LAUNCHES = 20 # in a round


# ---- the program: ctypes over the driver ----

def app(args):
    cuda = ctypes.CDLL("libcuda.so.1")
    begun = time.monotonic()
    report = {"pid": os.getpid()}

    def say(**more):
        report.update(more)
        print(json.dumps(report), flush=True)

    def need(name, *values):
        result = getattr(cuda, name)(*values)
        if result != 0:
            say(error=f"{name}: {result}", at_s=time.monotonic() - begun)
            os._exit(3)

    for name in args.before: # NAME=VALUE, during cuInit alone
        os.environ[name.split("=")[0]] = name.split("=", 1)[1]
    report["first"] = cuda.cuInit(0)
    for name in args.before:
        del os.environ[name.split("=")[0]]
    if report["first"] != 0:
        for name in ("CUDA_MPS_PIPE_DIRECTORY",):
            os.environ.pop(name, None)
        report["again"] = cuda.cuInit(0)
    report["init_ms"] = (time.monotonic() - begun) * 1e3
    device, value, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    need("cuDeviceGet", ctypes.byref(device), 0)
    need("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    need("cuCtxSetCurrent", context)
    for word, attribute in (("sms", 16), ("mps", 133)):
        need("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        report[word] = value.value
    if args.look:
        say(ok=True)
        time.sleep(args.look)
        return 0

    module, kernels = ctypes.c_void_p(), {}
    ptx = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../programs/kernels.ptx"), "rb").read() + b"\0"
    need("cuModuleLoadData", ctypes.byref(module), ptx)
    for name in ("sweep", "fill", "verify", "spin"):
        kernels[name] = ctypes.c_void_p()
        need("cuModuleGetFunction", ctypes.byref(kernels[name]), module, f"gm_{name}".encode())
    stream = ctypes.c_void_p()
    need("cuStreamCreate", ctypes.byref(stream), 1)

    def launch(kernel, blocks, *values):
        boxes = [ctypes.c_uint64(v) for v in values]
        list_ = (ctypes.c_void_p * max(1, len(boxes)))(*[ctypes.addressof(b) for b in boxes])
        need("cuLaunchKernel", kernels[kernel], blocks, 1, 1, 128, 1, 1, 0, stream, list_, None)
        return boxes, list_

    def take(size):
        at = ctypes.c_uint64()
        need("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value

    small = take(2 << 20)
    big = take(args.bytes) if args.bytes else 0
    counter = take(2 << 20)
    need("cuMemsetD8_v2", ctypes.c_uint64(counter), 0, ctypes.c_size_t(8))
    launch("fill", 16, small, WORDS, args.seed)
    if big:
        launch("fill", 512, big, args.bytes // 8, args.seed + 1)
    need("cuStreamSynchronize", stream)
    open(args.ready, "w", encoding="utf-8").close()
    while not os.path.exists(args.go):
        time.sleep(0.002)
    begun, rounds, longest, halves = time.monotonic(), 0, 0.0, []
    while rounds < args.rounds or (args.rounds == 0 and time.monotonic() - begun < args.seconds):
        at = time.monotonic()
        for _ in range(LAUNCHES):
            launch("sweep", 16, small, WORDS)
        if big and rounds % 100 == 0:
            launch("verify", 512, big, args.bytes // 8, args.seed + 1, counter)
        if args.spin and rounds % 100 == 99:
            launch("spin", 1, args.spin * 1000000)
        if args.crash and time.monotonic() - begun > args.crash:
            launch("sweep", 1, 0xdead0000000, 1024)
        need("cuStreamSynchronize", stream)
        longest = max(longest, time.monotonic() - at)
        rounds += 1
        if args.rounds == 0 and args.until and os.path.exists(args.until):
            break
    took = time.monotonic() - begun
    words = ctypes.create_string_buffer(WORDS * 8)
    bad = ctypes.c_uint64()
    need("cuMemcpyDtoH_v2", words, ctypes.c_uint64(small), ctypes.c_size_t(WORDS * 8))
    need("cuMemcpyDtoH_v2", ctypes.byref(bad), ctypes.c_uint64(counter), ctypes.c_size_t(8))
    # Without what the rounds added, which differ where time ends them.
    first = int.from_bytes(words.raw[:8], "little")
    say(ok=True, rounds=rounds, seconds=took, rate=rounds / took, bits=zlib.crc32(words.raw) if args.rounds else 0,
        start=(first - rounds * LAUNCHES) % (1 << 64), bad=bad.value, longest_ms=longest * 1e3)
    return 0


# ---- the tests ----

class Test:
    def __init__(self, args):
        self.args = args
        self.build = os.path.abspath(args.build)
        self.work = tempfile.mkdtemp(prefix="gmps-") # short: sockets lie below it
        self.logs = os.path.abspath(args.logs or os.environ.get("OUT") or os.path.join(self.work, "logs"))
        os.makedirs(self.logs, exist_ok=True)
        self.rows, self.failed, self.procs, self.n, self.daemon = [], 0, [], 0, None
        self.base = dict(os.environ, GPUMUX_SOCKET=os.path.join(self.work, "g.sock"), GPUMUX_RUN_DIR=self.work)
        for name in list(self.base):
            if name.startswith(("CUDA_", "LOCAL_RANK", "SLURM", "GPUMUX_GROUP")) or name == "LD_PRELOAD":
                del self.base[name]
        if args.simcuda:
            os.mkdir(os.path.join(self.work, "sim"))
            self.base.update(SIMCUDA_DIR=os.path.join(self.work, "sim"), SIMCUDA_MEMORY="2G",
                             LD_LIBRARY_PATH=os.path.join(self.build, "tests/simcuda"),
                             PATH=os.path.join(self.build, "tests/simcuda") + ":" + os.environ["PATH"])
        self.shim = {"LD_PRELOAD": os.path.join(self.build, "shim/libgpumux.so")}
        self.bytes = (64 << 20) if args.simcuda else (1 << 30)
        atexit.register(self.clean)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))

    def row(self, part, what, result, verdict=None):
        """verdict: True, False; None: for information."""
        self.rows.append((part, what, str(result), "info" if verdict is None else "ok" if verdict else "FAIL"))
        self.failed += verdict is False
        print(f"[{time.monotonic() - BEGUN:5.1f} s] {self.rows[-1][3]:5}{part:8}{what:52}{result}", flush=True)

    def left(self):
        return LONGEST - (time.monotonic() - BEGUN)

    def path(self, name):
        return os.path.join(self.work, name)

    def start(self, name, *options, more=None, **environment):
        self.n += 1
        env = dict(self.base, **(more or {}), **environment)
        if "LD_PRELOAD" in env:
            env["GPUMUX_LOG"] = os.path.join(self.logs, f"{self.n:02}-{name}.shim.log")
        err = open(os.path.join(self.logs, f"{self.n:02}-{name}.err"), "w", encoding="utf-8")
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--app", *options], env=env, stdout=subprocess.PIPE,
                                   stderr=err, text=True)
        self.procs.append(process)
        return process

    def result(self, process, limit=60):
        try:
            out = process.communicate(timeout=min(limit, max(5, self.left())))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"error": f"did not end within {limit} s", "code": "killed here"}
        try:
            return dict(json.loads(out.strip().splitlines()[-1]), code=process.returncode)
        except (IndexError, ValueError):
            return {"error": "no line: " + out[-200:], "code": process.returncode}

    def start_daemon(self, *options):
        with open(os.path.join(self.logs, "daemon.log"), "a", encoding="utf-8") as log:
            print("--- gpumuxd", *options, file=log, flush=True)
            self.daemon = subprocess.Popen([os.path.join(self.build, "daemon/gpumuxd"), "--socket", self.base["GPUMUX_SOCKET"],
                                            "--log-level", "debug", "--pinned", "512M" if self.args.simcuda else "8G", *options],
                                           env=self.base, stderr=log)
        for _ in range(600):
            if self.ctl().returncode == 0:
                return
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the daemon does not start: see daemon.log")

    def stop_daemon(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(timeout=60)
            self.daemon = None

    def ctl(self, *options):
        return subprocess.run([os.path.join(self.build, "daemon/mux-ctl"), "status", *options], env=self.base, capture_output=True,
                              text=True, check=False)

    def status(self, name):
        text = self.ctl("--json").stdout
        with open(os.path.join(self.logs, f"status-{name}.json"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(self.logs, f"status-{name}.txt"), "w", encoding="utf-8") as file:
            file.write(self.ctl().stdout)
        return json.loads(text)

    def daemon_lines(self, *words):
        with open(os.path.join(self.logs, "daemon.log"), encoding="utf-8") as file:
            return [line.strip() for line in file if all(word in line for word in words)]

    def mps_processes(self):
        """pid: command line, of all whose environment names a folder of ours."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                env = open(f"/proc/{pid}/environ", "rb").read()
                command = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if b"CUDA_MPS_PIPE_DIRECTORY=" + self.work.encode() in env and "nvidia-cuda-mps" in command:
                found[int(pid)] = command
        return found

    def clean(self):
        for process in self.procs:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.mps_processes():
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
            time.sleep(0.5 if self.mps_processes() else 0)
        mps = self.path("g.sock.mps")
        if os.path.isdir(mps): # the logs of MPS
            for user in os.listdir(mps):
                shutil.copytree(os.path.join(mps, user, "log"), os.path.join(self.logs, f"mps-{user}"), dirs_exist_ok=True)
        if os.path.dirname(self.logs) != self.work:
            shutil.rmtree(self.work, ignore_errors=True)

    # ---- parts ----

    def driver(self):
        tool = shutil.which("nvidia-cuda-mps-control", path=self.base["PATH"])
        self.row("driver", "nvidia-cuda-mps-control", tool, tool is not None)
        bare = self.result(self.start("bare", "--look", "0.01"))
        self.row("driver", "without MPS", bare, bare.get("mps") == 0)
        pipe, log = self.path("own/pipe"), self.path("own/log")
        os.makedirs(pipe)
        os.makedirs(log)
        names = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": log}
        self.row("driver", "a folder without a control daemon", self.result(self.start("empty", "--look", "0.01", more=names)))
        if not tool:
            return bare
        control = subprocess.Popen([tool, "-f"], env=dict(self.base, **names), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.procs.append(control)

        def ask(command, limit=10):
            begun = time.monotonic()
            try:
                done = subprocess.run([tool], input=command + "\n", env=dict(self.base, **names), capture_output=True, text=True,
                                      timeout=limit, check=False)
                return {"rc": done.returncode, "out": done.stdout[-200:], "err": done.stderr[-200:],
                        "s": round(time.monotonic() - begun, 2)}
            except subprocess.TimeoutExpired:
                return {"rc": "no answer in %d s" % limit}
        time.sleep(0.3)
        self.row("driver", "control daemon's files", sorted(os.listdir(pipe)))
        self.row("driver", "get_server_list at first", ask("get_server_list"))
        self.row("driver", "start_server", ask(f"start_server -uid {os.getuid()}"))
        begun = time.monotonic()
        early = self.start("early", "--look", "0.01", more=names)
        while time.monotonic() - begun < 5:
            listed = ask("get_server_list")
            if listed.get("out", "").strip():
                break
            time.sleep(0.05)
        server = listed.get("out", "").split()
        self.row("driver", f"a server is listed after {time.monotonic() - begun:.2f} s", listed, bool(server))
        if server:
            seen = []
            while time.monotonic() - begun < 10:
                told = ask(f"get_server_status {server[-1]}")
                seen += [told] if not seen or told.get("out") != seen[-1].get("out") else []
                if "ACTIVE" in told.get("out", "") or told.get("rc") != 0:
                    break
                time.sleep(0.05)
            self.row("driver", f"its status, until {time.monotonic() - begun:.2f} s", seen, "ACTIVE" in seen[-1].get("out", ""))
        self.row("driver", "a program that came before that; then cuInit again without it", self.result(early, 30))
        if server:
            self.row("driver", "session of the server is the control daemon's",
                     os.getsid(int(server[-1])) == control.pid if os.path.exists(f"/proc/{server[-1]}") else "no such process")
        kept = self.result(self.start("kept", "--look", "0.01", more=names))
        self.row("driver", "the folder is in the environment all the time", kept, kept.get("mps") == 1)
        process = self.start("during", "--look", "2", "--before", "CUDA_MPS_PIPE_DIRECTORY=" + pipe)
        time.sleep(1.5)
        clients = ask(f"get_client_list {server[-1]}") if server else {}
        during = self.result(process)
        self.row("driver", "... during cuInit alone", during, during.get("mps") == 1)
        self.row("driver", "... and it is listed as a client", clients, str(during.get("pid")) in clients.get("out", ""))
        for way, options, more in (("kept", [], {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}),
                                   ("during cuInit alone", ["--before", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"], {})):
            half = self.result(self.start("half", "--look", "0.01", *options, more=dict(names, **more)))
            self.row("driver", f"50 % of threads, {way}: multiprocessors of {bare.get('sms')}", half.get("sms", half))
        uuid = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True,
                              check=False).stdout.split() if shutil.which("nvidia-smi") else []
        if uuid:
            listed = self.result(self.start("uuid", "--look", "0.01", more=dict(names, CUDA_VISIBLE_DEVICES=",".join(uuid))))
            self.row("driver", "a list of UUIDs", listed, listed.get("mps") == 1)
        self.row("driver", "quit -t 1", ask("quit -t 1"))
        try:
            control.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(control.pid, signal.SIGKILL)
            control.wait()
        self.row("driver", "control daemon ended with", control.returncode)
        # one that was killed
        control = subprocess.Popen([tool, "-f"], env=dict(self.base, **names), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.procs.append(control)
        time.sleep(0.5)
        os.killpg(control.pid, signal.SIGKILL)
        control.wait()
        self.row("driver", "a control daemon that was killed; then cuInit again without it",
                 self.result(self.start("dead", "--look", "0.01", more=names)))
        return bare

    def four(self, name, rounds, mps, options=(), environment=None, spin=0, crash=0, seconds=0, until=None, size=None):
        """Start four; returns their processes when all are ready and have been told to go."""
        ready = [self.path(f"ready-{name}-{i}") for i in range(4)]
        go = self.path(f"go-{name}")
        processes = []
        for i in range(4):
            more = ["--ready", ready[i], "--go", go, "--rounds", str(rounds), "--seed", str(100 * i + 1), *options]
            if size if size is not None else self.bytes:
                more += ["--bytes", str(size if size is not None else self.bytes)]
            if seconds:
                more += ["--seconds", str(seconds)]
            if until:
                more += ["--until", until]
            if spin and i == 0:
                more += ["--spin", str(spin)]
            if crash and i == 3:
                more += ["--crash", str(crash)]
            processes.append(self.start(f"{name}-{i}", *more, more=environment or {}))
        begun = time.monotonic()
        while time.monotonic() - begun < 40 and not all(os.path.exists(r) or p.poll() is not None for r, p in zip(ready, processes)):
            time.sleep(0.02)
        status = self.status(f"{name}-ready") if self.daemon else None
        open(go, "w", encoding="utf-8").close()
        del mps
        return processes, status

    def outcome(self, part, what, results, bits):
        """A row with rates. True: all ended well with these bits."""
        rates = [r.get("rate", 0) for r in results]
        wrong = [r.get("error") or r.get("code") or r.get("bad") or "bits" for i, r in enumerate(results)
                 if not r.get("ok") or r.get("bad") or (bits and r.get("bits") != bits[i])]
        self.row(part, what, f"{sum(rates) / 4:8.1f} rounds/s each ({', '.join(f'{r:.0f}' for r in rates)}) wrong: {wrong or 'none'}",
                 not wrong)
        return sum(rates) / 4

    def shared(self, status):
        return sorted({pid for server in status.get("space_sharing", []) for pid in server["pids"]})

    def off(self, status, pid):
        return next((sorted(a["features_off"]) for a in status["apps"] if a["pid"] == pid), None)

    def room(self):
        small = 64 << 20
        one_ready, one_go = self.path("one"), self.path("one-go")
        open(one_go, "w", encoding="utf-8").close()
        alone = self.result(self.start("alone", "--ready", one_ready, "--go", one_go, "--seconds", "2"))
        self.row("room", "one alone, natively", f"{alone.get('rate', 0):8.1f} rounds/s {alone.get('error', '')}", bool(alone.get("ok")))
        self.rounds = max(20, int(alone.get("rate", 100) * 1.5))
        if self.args.simcuda:
            self.rounds = min(self.rounds, 60)
        processes, _ = self.four("native", self.rounds, False, size=small)
        results = [self.result(p) for p in processes]
        self.bits = [r.get("bits") for r in results]
        native = self.outcome("room", "four natively, time slices", results, None)
        self.start_daemon()
        processes, _ = self.four("slices", self.rounds, False, environment=self.shim, size=small)
        slices = self.outcome("room", "four under gpumux", [self.result(p) for p in processes], self.bits)
        self.stop_daemon()
        self.start_daemon("--rule", "command=* mps=on")
        begun = time.monotonic()
        processes, status = self.four("mps", self.rounds, True, environment=self.shim, size=small)
        took = time.monotonic() - begun
        pids = sorted(p.pid for p in processes)
        results = [self.result(p) for p in processes]
        mps = self.outcome("room", "four under gpumux, mps=on", results, self.bits)
        self.row("room", "status names the four that share", f"{self.shared(status)} of {pids}", self.shared(status) == pids)
        self.row("room", "the driver says the same", [r.get("mps") for r in results], all(r.get("mps") == 1 for r in results))
        self.row("room", "what they do without", self.off(status, pids[0]),
                 set(self.off(status, pids[0]) or []) >= {"isolation", "park", "timeslices"})
        self.row("room", f"four were ready after {took:.1f} s; cuInit took (ms)", [round(r.get("init_ms", 0)) for r in results])
        self.row("room", "mps=on against time slices (wanted 1.9)", f"{mps / native if native else 0:.2f} natively, "
                 f"{mps / slices if slices else 0:.2f} under gpumux", self.args.simcuda or mps >= 1.9 * native)

    def wait_no_mps(self, seconds):
        begun = time.monotonic()
        while self.mps_processes() and time.monotonic() - begun < seconds:
            time.sleep(0.1)
        return round(time.monotonic() - begun, 1), self.mps_processes()

    def short(self):
        self.stop_daemon()
        rates = {}
        for mps in ("off", "on"):
            budget = "160M" if self.args.simcuda else "2500M"
            self.start_daemon("--gpu-budget", budget, "--slice", "300ms", "--rule", f"command=* mps={mps}")
            name = f"short-{mps}"
            processes, ready = self.four(name, self.rounds, mps == "on", environment=self.shim, spin=60)
            time.sleep(1.0)
            status = self.status(name)
            results = [self.result(p, 90) for p in processes]
            end = self.status(name + "-end")
            rates[mps] = self.outcome("short", f"room for two of four, mps={mps}", results, self.bits)
            gpu = end["gpus"][0]
            drains = [h.get("drain_ms", 0) for h in gpu.get("history", [])]
            self.row("short", f"mps={mps}: switches, longest drain (ms), longest round (ms)",
                     f"{gpu['switches']}, {max(drains or [0]):.1f}, {max(r.get('longest_ms', 0) for r in results):.0f}",
                     gpu["switches"] > 0)
            apps = [a for a in status["apps"] if a["pid"] in [p.pid for p in processes]]
            parks, timeslices = sum(a["parks"] for a in apps), [a["timeslice_us"] for a in apps]
            self.row("short", f"mps={mps}: parks, timeslices, states", f"{parks}, {timeslices}, {[a['state'] for a in apps]}",
                     None if mps == "off" else parks == 0)
            self.row("short", f"mps={mps}: share by MPS", len(self.shared(ready)), len(self.shared(ready)) == (4 if mps == "on" else 0))
            self.stop_daemon()
        self.row("short", "mps=on against mps=off", f"{rates['on'] / rates['off'] if rates['off'] else 0:.2f}")

    def mixed(self):
        # A rule goes by the command's name, which is python3 for all: a link with another name.
        self.start_daemon("--space-sharing", "mps", "--rule", "command=apart* mps=off")
        apart = self.path("apart")
        os.symlink(sys.executable, apart)
        ready, until = self.path("mixed-ready"), self.path("mixed-until")
        one = self.start("mixed-in", "--look", "3", more=self.shim)
        env = dict(self.base, **self.shim, GPUMUX_LOG=os.path.join(self.logs, "mixed-apart.shim.log"))
        two = subprocess.Popen([apart, os.path.abspath(__file__), "--app", "--look", "3"], env=env, stdout=subprocess.PIPE, text=True)
        self.procs.append(two)
        del ready, until
        results = [self.result(one), self.result(two)]
        self.row("mixed", "--space-sharing mps; and one ruled off", results, [r.get("mps") for r in results] == [1, 0])

    def part(self):
        """By a rule one of two has half of the multiprocessors."""
        self.stop_daemon()
        half = self.path("half")
        os.symlink(sys.executable, half)
        self.start_daemon("--rule", "command=half* mps=on share=50%", "--rule", "command=* mps=on")
        whole = self.start("part-whole", "--look", "3", more=self.shim)
        env = dict(self.base, **self.shim, GPUMUX_LOG=os.path.join(self.logs, "part-half.shim.log"))
        other = subprocess.Popen([half, os.path.abspath(__file__), "--app", "--look", "3"], env=env, stdout=subprocess.PIPE, text=True)
        self.procs.append(other)
        time.sleep(2)
        status = self.status("part")
        results = [self.result(whole), self.result(other)]
        sms = [r.get("sms") or 0 for r in results]
        self.row("part", "share=50% and mps=on: multiprocessors of both", f"{sms} (mps: {[r.get('mps') for r in results]})",
                 [r.get("mps") for r in results] == [1, 1] and 0 < sms[1] <= sms[0] * 0.55)
        told = {pid: percent for server in status.get("space_sharing", []) for pid, percent in zip(server["pids"], server["percent"])}
        self.row("part", "status says so", told, told.get(other.pid) == 50 and told.get(whole.pid) == 100)
        self.stop_daemon()
        self.start_daemon("--space-sharing", "mps")

    def crash(self):
        until = self.path("crash-until")
        processes, status = self.four("crash", 0, True, environment=self.shim, crash=2, seconds=20, until=until, size=64 << 20)
        pids = sorted(p.pid for p in processes)
        self.row("crash", "four share", self.shared(status), self.shared(status) == pids)
        crashing = self.result(processes[3], 20)
        self.row("crash", "the one that crashes", {k: crashing.get(k) for k in ("error", "code", "at_s")}, not crashing.get("ok"))
        time.sleep(0.7)
        early = self.status("crash-after")
        self.row("crash", "status 0.7 s later", early.get("space_sharing"))
        self.row("crash", "its words", " / ".join(line.strip() for line in self.ctl().stdout.splitlines() if "MPS" in line or "fault" in line))
        time.sleep(1.5)
        late = self.start("late", "--look", "0.01", more=self.shim)
        self.row("crash", "one that starts then", {k: v for k, v in self.result(late).items() if k in ("first", "mps", "error", "code")})
        open(until, "w", encoding="utf-8").close()
        others = [self.result(p, 30) for p in processes[:3]]
        self.row("crash", "the other three", [r.get("error") or ("ran on" if r.get("ok") else r) for r in others])
        self.row("crash", "log", [line[-260:] for line in self.daemon_lines("MPS of")][-4:])
        time.sleep(1.5)
        after = self.result(self.start("after", "--look", "0.01", more=self.shim))
        self.row("crash", "one that starts when all have ended", after, after.get("first") == 0)

    def end(self):
        took, left = self.wait_no_mps(12)
        self.row("end", "MPS ends after its last program", f"{took} s {left}", not left)
        until = self.path("end-until")
        ready = self.path("end-ready")
        go = self.path("end-go")
        open(go, "w", encoding="utf-8").close()
        one = self.start("end", "--ready", ready, "--go", go, "--seconds", "30", "--until", until, more=self.shim)
        begun = time.monotonic()
        while not os.path.exists(ready) and one.poll() is None and time.monotonic() - begun < 20:
            time.sleep(0.02)
        begun = time.monotonic()
        self.stop_daemon()
        self.row("end", "a daemon whose program shares ends within", f"{time.monotonic() - begun:.1f} s")
        time.sleep(1)
        self.row("end", "... and MPS stays for the program", self.mps_processes(), bool(self.mps_processes()) and one.poll() is None)
        open(until, "w", encoding="utf-8").close()
        result = self.result(one, 20)
        self.row("end", "... which ends well", result, bool(result.get("ok")))
        took, left = self.wait_no_mps(8)
        self.row("end", "... and MPS after it", f"{took} s {left}", not left)

    def run(self):
        for part in (self.driver, self.room, self.short, self.mixed, self.part, self.crash, self.end):
            if self.args.only and part.__name__ not in self.args.only.split(",") + ["room"] * (self.args.only != "driver"):
                continue
            if self.left() < 15:
                self.row(part.__name__, "not reached", f"{LONGEST} s are over", False)
                continue
            try:
                part()
            except Exception as error: # the other parts still tell something
                self.row(part.__name__, "broke off", repr(error)[:300], False)
                try:
                    if part.__name__ in ("driver", "room", "short"):
                        self.stop_daemon()
                except Exception:
                    pass
        for name in ("daemon.log",):
            path = os.path.join(self.logs, name)
            if self.failed and os.path.exists(path):
                print(f"--- {name}, without debug lines")
                with open(path, encoding="utf-8") as file:
                    print("".join([line for line in file if " debug" not in line][-60:]))
        mps = self.path("g.sock.mps")
        for folder in [os.path.join(mps, user, "log") for user in (os.listdir(mps) if os.path.isdir(mps) else [])]:
            for name in sorted(os.listdir(folder)) if self.failed else []:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    print(f"--- {folder}/{name}\n" + "".join(file.readlines()[-25:]))
        for name in sorted(os.listdir(self.logs)) if self.failed else []:
            if name.endswith((".err", ".shim.log")):
                with open(os.path.join(self.logs, name), encoding="utf-8", errors="replace") as file:
                    lines = file.readlines()[-6:]
                if lines and ("mps" in name or "crash" in name or "short-on" in name or name.endswith(".err")):
                    print(f"--- {name}\n" + "".join(lines), end="")
        self.clean()
        left = self.mps_processes()
        self.row("end", "nothing of MPS is left", left or "nothing", not left)
        print("\n--- table")
        for part, what, result, verdict in self.rows:
            print(f"{verdict:5}{part:8}{what:52}{result[:240]}")
        print(f"{len(self.rows) - self.failed} fine, {self.failed} failed, {time.monotonic() - BEGUN:.0f} s; logs in {self.logs}")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("--simcuda", action="store_true")
    parser.add_argument("--logs")
    parser.add_argument("--only", help="parts, with a comma between; room always runs before others")
    parser.add_argument("--app", action="store_true")
    for name in ("bytes", "rounds", "seed", "spin"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("seconds", "look", "crash"):
        parser.add_argument(f"--{name}", type=float, default=0)
    for name in ("ready", "go", "until"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--before", action="append", default=[])
    args = parser.parse_args()
    if args.app:
        return app(args)
    if not args.build:
        parser.error("say which BUILD")
    return Test(args).run()


sys.exit(main())

#!/usr/bin/env python3
"""tests/gpu/fair.py BUILD [--seconds S] [--only ROW,...] [--limit SECONDS] [--json FILE] [--simcuda]: what users have of a GPU,
in one call of 100 s.

User A runs one program, user B four. All work all the time, with kernels of 1 ms. A program's part of the GPU is what it does,
against what it does alone. The rows:

  programs  all fit together, --fair programs: as the driver has it, a fifth each
  weighted  the same, and A's program has weight 4: half for A
  users     all fit together, --fair users: half for A
  weights   the same, and A's program has weight 2: two thirds for A
  rests     as users, and two of B's programs do nothing: half for A
  waits     as users, with programs that wait for each kernel before they launch the next one. The GPU goes on to another
            program then, whatever timeslices say; shown and not judged
  turns     --fair users, and two of them fit: half for A

Wanted: A has within 10 % of its part of what both users have. A row takes --seconds (3), and some 6 s before that. Needs root, which
starts programs as two other users, a GPU with 6 GiB free, 8 GiB of host memory, the driver, and no compiler. On simcuda, which
has no timeslices, rows are judged by what the daemon tells programs. Logs are under $OUT (fair.tar.gz). The last lines are a
table.
"""
import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time

from harness import Daemon, Failure, Place, Program, die, use_simcuda, wait_until

A, B = 65534, 65533
KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs", "kernels.ptx")
AHEAD = 64 # kernels that a program has launched and that have not ended
BLOCKS, THREADS = 32, 128 # few: what a kernel reads does not fit into the GPU's cache, and so takes as long beside others
WARM = 3.0 # s, until timeslices are what they will be
SEED = 7


class Row:
    """Who runs how, and what A is to have of what both have; None: anything."""

    def __init__(self, name, fair, part, weight=1, ahead=AHEAD, n_resting=0, budget=None):
        self.name, self.fair, self.part, self.weight = name, fair, part, weight
        self.ahead, self.n_resting, self.budget = ahead, n_resting, budget
        self.result = {"row": name}


def rows_of(sizes):
    return [Row("programs", "programs", 1 / 5), Row("weighted", "programs", 1 / 2, weight=4), Row("users", "users", 1 / 2),
            Row("weights", "users", 2 / 3, weight=2), Row("rests", "users", 1 / 2, n_resting=2),
            Row("waits", "users", None, ahead=1), Row("turns", "users", 1 / 2, budget=sizes["two"])]


# ---- the program ----

class Cuda:
    """The driver, as another user: nothing of the build is opened after that."""

    def __init__(self, uid):
        self.lib = ctypes.CDLL("libcuda.so.1")
        with open(KERNELS, "rb") as file:
            ptx = file.read() + b"\0"
        os.umask(0) # simcuda's files are for all
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) # PR_SET_DUMPABLE: its own files in /proc are its own
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.need("cuInit", 0)
        self.need("cuDeviceGet", ctypes.byref(device), 0)
        self.need("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.need("cuCtxSetCurrent", context)
        self.need("cuModuleLoadData", ctypes.byref(self.module), ptx)
        self.stream = ctypes.c_void_p()
        self.need("cuStreamCreate", ctypes.byref(self.stream), 1)

    def need(self, name, *values):
        result = getattr(self.lib, name)(*values)
        if result != 0:
            print(json.dumps({"error": f"{name}: {result}"}), flush=True)
            sys.exit(f"{name}: {result}")

    def kernel(self, name):
        kernel = ctypes.c_void_p()
        self.need("cuModuleGetFunction", ctypes.byref(kernel), self.module, name)
        return kernel

    def take(self, size):
        at = ctypes.c_uint64()
        self.need("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def launcher(self, kernel, *values):
        """A call that launches it. The values are kept."""
        boxes = [value if isinstance(value, ctypes.c_uint64) else ctypes.c_uint64(value) for value in values]
        addresses = (ctypes.c_void_p * len(boxes))(*[ctypes.addressof(box) for box in boxes])

        def launch():
            assert len(boxes) == len(addresses)
            self.need("cuLaunchKernel", kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, self.stream, addresses, None)
        return launch

    def events(self, n):
        """Events that a thread sleeps for."""
        events = [ctypes.c_void_p() for _ in range(n)]
        for event in events:
            self.need("cuEventCreate", ctypes.byref(event), 1 | 2)
        return events


def calibrate(cuda, verify, most):
    """So many words that a kernel takes 1 ms, of `most`."""
    words = most // 8
    for _ in range(4):
        launch, took = verify(words), []
        for _ in range(6):
            begun = time.monotonic()
            launch()
            cuda.need("cuStreamSynchronize", cuda.stream)
            took.append(time.monotonic() - begun)
        words = max(4096, min(most, int(words * 1e-3 / sorted(took)[2])))
    return words


def program(args):
    """Works from t0 on until t1, which are in the file that it waits for, with the moment from which on it counts kernels."""
    cuda = Cuda(args.uid)
    memory, counter, bad = cuda.take(args.bytes), cuda.take(4096), ctypes.c_uint64(0)
    cuda.need("cuMemcpyHtoD_v2", counter, ctypes.byref(bad), ctypes.c_size_t(8))
    cuda.launcher(cuda.kernel(b"gm_fill"), memory, args.bytes // 8, SEED)()
    cuda.need("cuStreamSynchronize", cuda.stream)
    kernel = cuda.kernel(b"gm_verify")

    def verify(words):
        return cuda.launcher(kernel, memory, words, SEED, counter)

    words = args.words or calibrate(cuda, verify, args.bytes // 8)
    launch, events = verify(words), cuda.events(args.ahead)
    open(args.ready, "w", encoding="utf-8").close()
    while not os.path.exists(args.go):
        time.sleep(0.002)
    with open(args.go, encoding="utf-8") as file:
        _, counted, until = map(float, file.read().split())
    launched = done = first = 0
    now = time.monotonic()
    while now < until and not args.rest:
        launch()
        cuda.need("cuEventRecord", events[launched % args.ahead], cuda.stream)
        launched += 1
        if launched - done == args.ahead:
            cuda.need("cuEventSynchronize", events[done % args.ahead])
            done += 1
        now = time.monotonic()
        if now < counted:
            first = done
    cuda.need("cuStreamSynchronize", cuda.stream)
    while time.monotonic() < until:
        time.sleep(0.01)
    cuda.need("cuMemcpyDtoH_v2", ctypes.byref(bad), counter, ctypes.c_size_t(8))
    print(json.dumps({"words": words, "rate": (done - first) / (until - counted), "bad": bad.value}), flush=True)
    return 1 if bad.value else 0


# ---- the rows ----

class Test:
    def __init__(self, place, args):
        self.place, self.args, self.end = place, args, time.monotonic() + args.limit
        self.sizes = {"bytes": 32 << 20, "all": "800M", "two": "80M", "pinned": "512M"} if args.simcuda else \
            {"bytes": 512 << 20, "all": "6G", "two": "1200M", "pinned": "4G"}
        self.words, self.alone, self.daemon, self.options = 0, 0.0, None, None

    def start(self, name, uid, row, under_gpumux, rests=False):
        path = os.path.join(self.place.work, name)
        command = [sys.executable, "-B", os.path.abspath(__file__), "--app", "--uid", uid, "--bytes", self.sizes["bytes"], "--words",
                   self.words, "--ahead", row.ahead, "--ready", path + ".ready", "--go", os.path.join(self.place.work, row.name + ".go")]
        extra = {"GPUMUX_LOG": self.place.log(name + ".shim")}
        if under_gpumux and self.args.simcuda: # its ioctl comes before libc's: programs open it by dlopen
            extra["LD_PRELOAD"] = self.place.shim + ":" + self.place.at("tests/simcuda/libcuda.so.1")
        return Program(self.place, name, command + ["--rest"] * rests, under_gpumux=under_gpumux, extra=extra)

    def go(self, row, programs, seconds, meanwhile=None):
        """What each did, once all are ready."""
        for one in programs:
            ready = os.path.join(self.place.work, one.name + ".ready")
            wait_until(f"{one.name} is ready", max(1.0, min(30.0, self.end - time.monotonic())),
                       lambda one=one, ready=ready: os.path.exists(ready) or not one.is_running())
            if not one.is_running():
                raise Failure(f"{one.name} ended with {one.process.returncode}: {one.complaint()}")
        begun, go = time.monotonic(), os.path.join(self.place.work, row.name + ".go")
        with open(go + ".new", "w", encoding="utf-8") as file:
            file.write(f"{begun} {begun + WARM} {begun + WARM + seconds}")
        os.rename(go + ".new", go)
        if meanwhile:
            time.sleep(WARM + seconds / 2)
            meanwhile()
        results = [one.result(max(1.0, min(begun + WARM + seconds + 15, self.end) - time.monotonic())) for one in programs]
        if any(result["bad"] for result in results):
            raise Failure(f"wrong memory: {results}")
        return results

    def measure_alone(self):
        row = Row("alone", None, None)
        one = self.start("alone", A, row, False)
        try:
            result = self.go(row, [one], 2)[0]
        finally:
            one.stop()
        self.words, self.alone = result["words"], result["rate"]
        if self.alone <= 0:
            raise Failure("a program alone does nothing")
        print(f"alone: {self.alone:.0f} kernels/s of {self.words * 8 / 2**20:.1f} MiB", flush=True)

    def use_daemon(self, row):
        options = ("--fair", row.fair, "--log-level", "debug")
        budget = row.budget or self.sizes["all"]
        if self.options == (options, budget) and self.daemon.is_running():
            return
        self.stop_daemon()
        self.daemon = Daemon(self.place, f"daemon-{row.name}", budget, self.sizes["pinned"], "250ms", options)
        self.options = (options, budget)

    def stop_daemon(self):
        daemon, self.daemon, self.options = self.daemon, None, None
        if daemon:
            daemon.stop()

    def run(self, row):
        self.use_daemon(row)
        switches = self.daemon.gpu()["switches"]
        programs, slices, seen = [], [], {}

        def look():
            seen.update(self.daemon.status())
            slices.extend(self.daemon.app(one).get("timeslice_us") for one in programs)
        try:
            for name, uid in (("A", A), ("B1", B), ("B2", B), ("B3", B), ("B4", B)):
                rests = uid == B and int(name[1]) > 4 - row.n_resting
                programs.append(self.start(f"{row.name}-{name}", uid, row, True, rests))
            if row.weight != 1:
                wait_until("A is known", 30, lambda: self.daemon.app(programs[0]))
                done = subprocess.run([self.place.ctl, "set", str(programs[0].process.pid), f"weight={row.weight}"], check=False,
                                      env={**os.environ, "GPUMUX_SOCKET": self.place.socket}, capture_output=True, text=True)
                if done.returncode != 0:
                    raise Failure(f"mux-ctl set: {done.stderr.strip()}")
            results = self.go(row, programs, self.args.seconds, look)
        finally:
            for one in programs:
                one.stop()
            with open(self.place.log(f"{row.name}.status"), "w", encoding="utf-8") as out:
                json.dump(seen, out, indent=1)
        parts = [result["rate"] / self.alone for result in results]
        both = sum(parts)
        row.result.update(parts=parts, timeslices_us=slices, a=parts[0] / both if both else 0, total=both,
                          features_off=sorted({word for app in seen["apps"] for word in app["features_off"]}),
                          switches=self.daemon.gpu()["switches"] - switches)
        row.result["verdict"] = self.judge(row)
        row.result.pop("why")

    def judge(self, row):
        """ok, FAIL, or info where there is nothing to judge."""
        if row.part is None or row.name == "programs":
            return "info"
        if self.args.simcuda: # by what is told: the driver's own, 2048 us, where that is 0
            us = [slice_us or 2048 for slice_us in row.result["timeslices_us"]]
            working = us[1:5 - row.n_resting]
            has = row.part if row.budget else us[0] / (us[0] + sum(working))
            return "ok" if abs(has - row.part) < 0.02 and min(row.result["parts"][:5 - row.n_resting]) > 0 else "FAIL"
        return "ok" if abs(row.result["a"] - row.part) <= 0.1 * row.part else "FAIL"


def table(rows):
    print(f"{'row':<9} {'':<8} {'A':>6} {'wanted':>7} {'A':>7}  {'B: each program, of the GPU':<31} {'all':>6} {'turns':>6}  timeslices, us")
    for row in rows:
        result = row.result
        if "parts" not in result:
            print(f"{row.name:<9} {result['verdict']:<8} {result.get('why', '')}")
            continue
        wanted = f"{100 * row.part:.1f} %" if row.part else ""
        each = " ".join(f"{100 * part:5.1f} %" for part in result["parts"][1:])
        print(f"{row.name:<9} {result['verdict']:<8} {100 * result['a']:5.1f}% {wanted:>7} {100 * result['parts'][0]:5.1f} %  {each:<31} "
              f"{100 * result['total']:5.1f}% {result['switches']:>6}  {' '.join(map(str, result['timeslices_us']))}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=3, help="for which each row is measured")
    parser.add_argument("--only")
    parser.add_argument("--limit", type=float, default=95, help="seconds for all")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--simcuda", action="store_true")
    args = parser.parse_args()
    if os.getuid() != 0:
        die("only root can start programs as other users")
    for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "GPUMUX_GROUP", "GPUMUX_CLASS", "GPUMUX_WEIGHT", "CUDA_MPS_PIPE_DIRECTORY"):
        os.environ.pop(name, None)
    place = Place(args.build, "fair")
    place.check_build()
    run = os.path.join(place.work, "run") # for root alone: the daemon's claim on its GPU
    os.mkdir(run, 0o755)
    os.environ.update(GPUMUX_RUN_DIR=run, XDG_RUNTIME_DIR=run)
    if args.simcuda:
        use_simcuda(place)
        os.chmod(os.path.join(place.work, "sim"), 0o777)
    for folder in (place.work, place.logs): # the programs of others write there
        os.chmod(folder, 0o1777)
    test = Test(place, args)
    rows = [row for row in rows_of(test.sizes) if not args.only or row.name in args.only.split(",")]
    for row in rows:
        row.result.update(verdict="not run", why="no time left")
    try:
        test.measure_alone()
        for row in rows:
            if test.end - time.monotonic() < WARM + args.seconds + 4:
                break
            try:
                test.run(row)
            except (Failure, OSError, ValueError, KeyError, subprocess.SubprocessError) as failure:
                row.result.update(verdict="FAIL", why=(str(failure) or repr(failure))[:300])
            print(json.dumps(row.result), flush=True)
    except Failure as failure:
        rows[0].result.update(verdict="FAIL", why=str(failure)[:300])
    finally:
        try:
            test.stop_daemon()
        except Failure as failure:
            rows[-1].result.update(verdict="FAIL", why=str(failure)[:300])
        for one in place.started:
            one.stop()
        failed = sum(row.result["verdict"] == "FAIL" for row in rows)
        logs = place.pack(failed > 0)
        if os.path.exists(logs):
            print(f"logs: {logs}", flush=True)
        shutil.rmtree(place.work, ignore_errors=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"alone_per_s": test.alone, "kernel_bytes": test.words * 8, "failed": failed,
                       "rows": [dict(row.result, wanted=row.part) for row in rows]}, out, indent=1)
    table(rows)
    sys.exit(1 if failed else 0)


def app():
    parser = argparse.ArgumentParser()
    parser.add_argument("--app", action="store_true")
    parser.add_argument("--rest", action="store_true")
    for name in ("uid", "bytes", "words", "ahead"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--go", required=True)
    sys.exit(program(parser.parse_args()))


if __name__ == "__main__":
    app() if "--app" in sys.argv else main()

#!/usr/bin/env python3
"""bench/demo: the second program fails without gpumux and works with it. `sh bench/demo.sh` builds what this needs.

Two programs that know nothing of gpumux, each of which needs 60 % of what the GPU has free. Without gpumux the first
one works and the second one ends with out of memory. With gpumux both stay loaded, and are asked in turn: each request
goes to the program whose memory is not all on the GPU. All results are compared with those of the run without gpumux.

With --models the programs are a language model and one that makes pictures, both of random weights (PyTorch, no
network); what is timed is from the request to the first token, and to the picture. Without it, each verifies and
rewrites all of its memory. If the GPU has more than --memory free, a third program takes the rest, so that the models
are not larger than what people use.

The last line is "demo: PASS ..." or "demo: FAIL ...", and the exit code says the same. On a terminal whatever takes
more than two seconds says so.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time

import programs as p
import rig as r

PART = .6                 # of the GPU, each of the programs
LEAST = 2**26
TOKENS, PROMPT = 64, 64   # of an answer
STEPS = 4                 # of a picture
PATIENCE_S = 2            # what takes longer says so
OUT_OF_MEMORY = re.compile("out of memory|OUT_OF_MEMORY")

# Asks the driver for the GPU's name and its free and total memory, in a process of its own: it leaves no context behind.
ASK = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
name, context, free, total = ctypes.create_string_buffer(100), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
for code in (cuda.cuInit(0), cuda.cuDeviceGetName(name, 100, 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
             cuda.cuCtxSetCurrent(context), cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))):
    assert code == 0, f"the driver says error {code}"
print(free.value, total.value, name.value.decode(), sep="\\t")
"""


def gib(count):
    return f"{count / 2**30:.1f} GiB"


def seconds(ms):
    return f"{ms / 1000:.2f} s"


@contextlib.contextmanager
def progress(what):
    """While this lasts, and it lasts long, the terminal shows for how long. Elsewhere it is quiet."""
    done, begun = threading.Event(), time.monotonic()

    def show():
        wait = PATIENCE_S
        while not done.wait(wait):
            wait = .5
            sys.stderr.write(f"\r\033[K  {what} ... {time.monotonic() - begun:.0f} s")
            sys.stderr.flush()
        if wait != PATIENCE_S:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True) if sys.stderr.isatty() else None
    if thread:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread:
            thread.join()


class Part:
    """One of the two programs: what it is called, what it does, and what is measured of it."""

    def __init__(self, name, does, plan):
        self.name, self.does, self.plan = name, does, plan
        self.program, self.alone_ms, self.ms = None, None, []

    def start(self, rig, daemon=None):
        """Its memory is made, and one request is answered."""
        begun = time.monotonic()
        with progress(f"{self.name}: loads {gib(self.plan.bytes)}"):
            self.program = p.make(rig, f"{self.name.replace(' ', '-')}-{'with' if daemon else 'without'}", self.plan, daemon)
            self.program.load()
        return (time.monotonic() - begun) * 1000

    def ask(self):
        """A request: ms until its first token, or until it is answered."""
        with progress(f"{self.name}: answers"):
            answer = self.program.round()
        return answer["first_unit_ms"] if self.does == "first token" else answer["response_ms"]


def plans(args, count):
    if args.models:
        return [Part("language model", "first token", p.Plan("decoder-graphs", count, TOKENS, PROMPT, seed=1)),
                Part("image model", "picture", p.Plan("denoising", count, STEPS, seed=2))]
    return [Part(name, "answer", p.Plan("app", count, seed=seed, piece=2**27))
            for seed, name in enumerate(("first program", "second program"))]


def look(rig, args):
    """The GPU's name, and the bytes that it has free; a program that takes what is more than --memory."""
    with progress("asks the driver"):
        done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=120, check=False,
                              env=rig.environment)
    if done.returncode != 0:
        raise r.Failure((done.stderr.strip().splitlines() or ["the driver says nothing"])[-1])
    free, total, name = done.stdout.strip().split("\t")
    free, total = int(free), int(total)
    use = min(free, args.memory, r.host_bytes() * 8 // 10)
    filler = None
    if free - use > 2**30:
        with progress(f"takes {gib(free - use)}"):
            filler = r.App(rig, "filler", (free - use) >> 21 << 21)
    else:
        use = free
    print(f"The GPU: {name}, {gib(total)}, " + (f"{gib(free)} free." if not filler else
          f"of which the demo itself takes {gib(filler.bytes)}, so that it is a card with {gib(use)} free."))
    return use, filler


def without(rig, first, second):
    print("\nWithout gpumux")
    load_ms = first.start(rig)
    first.alone_ms = first.ask()
    print(f"  {first.name:<15} works: {gib(first.plan.bytes)}, loaded in {seconds(load_ms)}, "
          f"{first.does} after {seconds(first.alone_ms)}")
    try:
        second.start(rig)
    except r.Failure as failure:
        with open(second.program.log, encoding="utf-8", errors="replace") as file:
            why = OUT_OF_MEMORY.search(file.read() + str(failure))
        if not why:
            raise
        print(f"  {second.name:<15} FAILS: out of memory. It needs {gib(second.plan.bytes)}, too")
    else:
        raise r.Failure(f"the {second.name} does not fail without gpumux: the GPU holds both")
    first.program.end()
    load_ms = second.start(rig)
    second.alone_ms = second.ask()
    print(f"  To use it, the {first.name} has to end, and the {second.name} to load: {seconds(load_ms)}, each time.")
    second.program.end()


def share(rig, args, first, second):
    total = first.plan.bytes + second.plan.bytes
    with progress("gpumuxd starts"):
        daemon = r.Daemon(rig, pinned=first.plan.bytes + 2**30, turn=None, idle=None)
    budget = daemon.gpu()["budget_bytes"]
    if budget < first.plan.bytes:
        raise r.Failure(f"programs may fill only {gib(budget)} of the GPU beside others: give it more (--memory)")
    print("\nWith gpumux (gpumuxd runs; each program is started with LD_PRELOAD=libgpumux.so)")
    for part in (first, second):
        load_ms = part.start(rig, daemon)
        print(f"  {part.name:<15} works: {gib(part.plan.bytes)}, loaded in {seconds(load_ms)}")
    print(f"  Both stay loaded: {gib(total)} on a GPU where programs have {gib(budget)}.")
    daemon.take()
    for _ in range(args.requests):
        for part in (first, second):
            part.ms.append(part.ask())
            time.sleep(.15) # it thinks about the answer, and is idle
    moved = daemon.take()
    print(f"\n  {args.requests} requests to each, in turn. From the request to the")
    for part in (first, second):
        print(f"    {part.does} of the {part.name}: {seconds(r.median(part.ms))} "
              f"({seconds(part.alone_ms)} with the GPU to itself)")
    print("\n$ mux-ctl status")
    sys.stdout.flush()
    subprocess.run([rig.ctl, "status"], check=False, env=daemon.environment, timeout=60)
    first.program.check()
    second.program.check()
    first.program.end()
    second.program.end()
    with progress("gpumuxd ends"):
        daemon.stop()
    if moved["switches"] < args.requests or not moved["bytes_in"]:
        raise r.Failure(f"{moved['switches']} switches, {moved['bytes_in']} bytes: the programs did not take turns")
    return moved


def times(text):
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 1000")
    return int(text)


def find_torch(args):
    return not args.simcuda and importlib.util.find_spec("torch") is not None


def run(args):
    if args.simcuda:
        os.environ["SIMCUDA_MEMORY"] = "1G"
    args.programs = "torch" if args.models else "app"
    try:
        rig = r.Rig("demo", args)
    except r.Failure as failure:
        print(f"demo: FAIL {failure}")
        return 1
    if args.simcuda: # a program may open the driver late; the simulated kernel is found only if that comes before libc
        rig.shim += ":" + rig.at("tests/simcuda/libcuda.so.1")
    code = 1
    try:
        use, filler = look(rig, args)
        each = int(use * PART) >> 21 << 21
        if each < LEAST:
            raise r.Failure(f"only {gib(use)} of the GPU are free")
        first, second = plans(args, each)
        print(f"Two programs, each with {gib(each)}: it holds one of them.")
        without(rig, first, second)
        moved = share(rig, args, first, second)
        if filler:
            filler.end()
        print()
        if find_torch(args) and not args.models:
            print("PyTorch is here: sh bench/demo.sh --models shows the same with a language model and an image model.")
        print(f"demo: PASS the {second.name} is out of memory without gpumux, and works with it: "
              f"{moved['switches']} switches, {gib(moved['bytes_out'])} out and {gib(moved['bytes_in'])} in, 0 mismatches")
        code = 0
    except (r.Failure, r.Absent, subprocess.TimeoutExpired) as failure:
        for process in rig.started:
            if not process.complaint().endswith("it said nothing"):
                print(f"--- {process.name}: {process.complaint()}")
        print(f"demo: FAIL {failure}")
    sys.stdout.flush()
    with progress("gives memory back"):
        rig.clean()
    return code


def main():
    parser = argparse.ArgumentParser(prog="sh bench/demo.sh", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="DIR", help="use this build; install and build nothing")
    parser.add_argument("--simcuda", action="store_true", help="on the simulated GPU even if there is a real one")
    parser.add_argument("--models", action="store_true", help="a language model and one that makes pictures (PyTorch)")
    parser.add_argument("--memory", type=r.size, default=24 * 2**30, metavar="SIZE", help="of the GPU, at most (24G)")
    parser.add_argument("--requests", type=times, default=5, metavar="N", help="to each program (5)")
    parser.set_defaults(logs=None, piece=None)
    args = parser.parse_args()
    if args.models and (args.simcuda or not find_torch(args)):
        parser.error("--models needs a GPU and a python3 with PyTorch")

    def stop(which, frame):
        for again in (signal.SIGTERM, signal.SIGINT):
            signal.signal(again, signal.SIG_IGN)
        raise r.Stopped("stopped by a signal")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(run(args))


main()

"""Programs that people run: models in PyTorch (python/actor.py) and numerical ones (science.cu), or bench/app in their place
where there is none.

All work in units (a token, a step of training), several of which make a round (an answer, an image), and compare the
result of each round with that of the same round before; bench/app's unit and its round are a pass over all of its
memory. A program is asked for one round, or kept at work, unit after unit. Each wait has a limit.
"""

import os
import select
import sys
import time

from actors import Absent, App, Failure, Process, fields, read_passes, under
from figures import size

VISION = ("resnet152", "vgg19", "inception_v3", "densenet201")
SCIENCE = ("wavelet", "hotspot", "flow", "neighbours", "vectors", "products")
ACTORS = {name: os.path.join(os.path.dirname(os.path.abspath(__file__)), "python", name + ".py") for name in ("actor", "pool")}
CHUNK_MS = 500 # a program that is kept at work is asked anew so often


class Plan:
    """
    What a program is: a model of python/models.py, of so many bytes, with so many units a round, or "jax" (python/pool.py); one of
    science.cu; some with `spare` bytes of their own that they never touch again; or "pool": bench/app with these pieces and options, whose units
    are passes that do `work`. In place of any of them bench/app does that.
    """

    def __init__(self, model, count, units=16, prompt=16, seed=1, work=None, piece=None, options=(), spare=0,
                 file=None):
        self.model, self.bytes, self.units, self.prompt, self.seed = model, count, units, prompt, seed
        self.work, self.piece, self.options, self.spare, self.file = work, piece, list(options), spare, file


def add_options(parser):
    parser.add_argument("--programs", choices=("torch", "app", "cpu"), metavar="KIND",
                        help="torch: models in PyTorch; app: bench/app instead (what --simcuda takes); cpu: tiny "
                        "models on the processor, which do not use the daemon: to try a bench out")
    parser.add_argument("--piece", type=size, metavar="SIZE", help="allocations of bench/app (1G)")


def make(rig, name, plan, daemon=None):
    """The program, which has not touched the GPU yet: load() makes it do so."""
    kind = rig.args.programs or ("app" if rig.args.simcuda else "torch")
    rig.result["programs"] = kind
    if kind != "app" and plan.model in SCIENCE:
        return Science(rig, name, plan, daemon)
    if kind == "app" or plan.model == "pool":
        return Standin(rig, name, plan, daemon)
    return Model(rig, name, plan, daemon, kind == "cpu")


def measures(rig):
    """Is what was measured of gpumux? Said if not."""
    if rig.result["programs"] == "cpu":
        print("the programs were on the processor: this says nothing of gpumux")
    return rig.result["programs"] != "cpu"


class Worker:
    """What Model and Standin have in common. Requests are sent by ask_..., answers read by take_..."""

    def begin(self, rig, plan):
        self.rig, self.plan = rig, plan
        self.loaded, self.asked, self.file = None, None, None

    def take_loaded(self, line):
        """The line that a program says when its memory is made. True if that was it."""
        if line.startswith("absent "):
            raise Absent(line.partition(" ")[2])
        if not line.startswith("ready "):
            raise Failure(f"{self.name}: {line}")
        self.loaded = fields(line)
        self.bytes = self.loaded.get("bytes", self.plan.bytes)
        self.compare(0, self.loaded)

    def load(self):
        self.begin_load()
        self.take_loaded(self.line(self.patience))
        return self

    def ask_round(self, given=0):
        self.asked = given
        self.send(f"turn {self.words[0]} 0" + (f" {given}" if self.has_input else ""))

    def ask_units(self, ms):
        self.asked = None
        self.file = os.path.join(self.rig.work, f"{self.name}.{self.pid}.units")
        self.send(f"run {self.words[1]} {ms:.0f} {self.file}")

    def take(self, line):
        """An answer. The result of a round must be that of the same round before, here or in another process."""
        answer = self.understand(line)
        if self.asked is not None:
            self.compare(self.asked, answer)
        else:
            answer["list"] = read_passes(self.file)
        return answer

    def compare(self, given, answer):
        """The sum of a round with that of the same model and input wherever it was computed."""
        plan = self.plan
        if "sum" not in answer:
            return # bench/app compares each word itself
        known = self.rig.result.setdefault("sums", {})
        key = f"{plan.model} {plan.bytes} {plan.units} {plan.prompt} {plan.seed} {given}"
        if known.setdefault(key, answer["sum"]) != answer["sum"]:
            raise Failure(f"{self.name}: wrong data: a round's result is {answer['sum']}, it was {known[key]} before")

    def round(self, given=0):
        """A round; its answer, with response_ms as it was here."""
        begun = time.monotonic()
        self.ask_round(given)
        answer = self.take(self.line(self.patience))
        answer["response_ms"] = (time.monotonic() - begun) * 1000
        return answer

    def check(self):
        """All of its memory, where the program can: a model compares its rounds itself."""

    def footprint(self):
        """Bytes that a unit only reads, and bytes that it writes, where the program tells."""
        if "clean" in self.loaded:
            return self.loaded["clean"], self.loaded["dirty"]
        peak = self.loaded.get("peak", self.bytes)
        return (peak, 0) if self.plan.model.startswith("decoder") else (0, peak)

    def units(self, ms=0):
        """Units for so long, at least one."""
        self.ask_units(ms)
        return self.take(self.line(self.patience + ms / 1000))


class Model(Worker, Process):
    words, has_input = ("round", "units"), True

    def __init__(self, rig, name, plan, daemon, is_on_cpu):
        self.begin(rig, plan)
        self.bytes, self.patience = 0, 120
        command = [sys.executable, "-B", ACTORS["pool" if plan.model == "jax" else "actor"], "--model", plan.model, "--bytes", plan.bytes, "--units", plan.units,
                   "--prompt", plan.prompt, "--seed", plan.seed]
        if daemon and rig.is_linked and not is_on_cpu:
            raise Absent("what a sanitizer built cannot be preloaded into Python")
        if plan.spare:
            command += ["--spare", plan.spare]
        if plan.file:
            command += ["--file", plan.file]
        if is_on_cpu:
            command += ["--device", "cpu"]
        Process.__init__(self, rig, name, command, under(rig, None if is_on_cpu else daemon))

    def begin_load(self):
        line = self.line(self.patience)
        if line.startswith("absent "):
            raise Absent(line.partition(" ")[2])
        if line != "imported":
            raise Failure(f"{self.name}: {line}")
        self.send("load")


class Standin(Worker, App):
    has_input = False

    def __init__(self, rig, name, plan, daemon):
        self.begin(rig, plan)
        self.words = ("rewrite", plan.work or "verify")
        self.name, self.daemon, self.patience = name, daemon, 120

    def check(self):
        self.ask("check", self.patience)

    def footprint(self):
        return (self.loaded["touched"], 0) if self.words[1] == "verify" else (0, self.loaded["touched"])

    def begin_load(self):
        plan, options = self.plan, self.plan.options
        if plan.spare:
            options = options + ["--touch", plan.bytes]
        App.__init__(self, self.rig, self.name, plan.bytes + plan.spare, self.daemon, is_awaited=False,
                     piece=plan.piece or self.rig.args.piece, options=options)


class Science(Worker, Process):
    """A program of science.cu: it has no rounds, and compares all it has with what it was when it is asked to."""

    words, has_input = (None, "unit"), False

    def __init__(self, rig, name, plan, daemon):
        self.begin(rig, plan)
        self.name, self.daemon, self.patience, self.bytes = name, daemon, 120, plan.bytes + plan.spare
        self.binary = os.path.join(rig.build, "bench", "bench_science")
        if not os.path.exists(self.binary):
            raise Absent("this build has no bench_science: it was made without nvcc, or with GM_GPU_PROGRAMS off")
        if daemon and rig.is_linked:
            raise Absent("what a sanitizer built cannot be preloaded into bench_science")

    def begin_load(self):
        plan = self.plan
        Process.__init__(self, self.rig, self.name, [self.binary, plan.model, "--bytes", plan.bytes, "--spare", plan.spare],
                         under(self.rig, self.daemon))

    def check(self):
        self.ask("check", self.patience)


def load_all(programs):
    """All at once."""
    programs = list(programs)
    for program in programs:
        program.begin_load()
    for program in programs:
        program.take_loaded(program.line(program.patience))


def work_together(programs, ms):
    """All at once for so long. When that began, in ms, and of each the units as (end_ms, ms)."""
    begun = time.monotonic() * 1000
    for program in programs:
        program.ask_units(ms)
    return begun, [program.take(program.line(program.patience + ms / 1000))["list"] for program in programs]


def work_in_turns(programs, ms, turn):
    """
    One after the other, in turns of so long, until each has had that many ms: as work_together, by a clock of each that
    stands still out of its turns.
    """
    begun = time.monotonic() * 1000
    lists, spent = [[] for _ in programs], [0] * len(programs)
    while programs and min(spent) < ms:
        for index, program in enumerate(programs):
            asked = time.monotonic() * 1000
            units = program.units(turn)["list"]
            lists[index] += [(begun + spent[index] + ended - asked, took) for ended, took in units]
            spent[index] += units[-1][0] - asked
    return begun, lists


class Kept:
    """A program that is kept at work: unit after unit, until it is told to end. `ends` are the units' ends, in s."""

    def __init__(self, program):
        self.program = program
        self.ends = []
        self.is_wanted = self.is_asked = False

    def start(self):
        self.is_wanted = True
        if not self.is_asked:
            self.is_asked = True
            self.program.ask_units(CHUNK_MS)

    def poll(self, seconds=0):
        """Take its answer if there is one, and ask it for more."""
        line = self.program.try_line(seconds) if self.is_asked else None
        if line is None:
            return
        self.ends += [end / 1000 for end, _ in self.program.take(line)["list"]]
        self.is_asked = False
        if self.is_wanted:
            self.start()

    def end(self):
        """Let it come to rest. Units that it does meanwhile count."""
        self.is_wanted = False
        end = time.monotonic() + self.program.patience
        while self.is_asked:
            self.poll(1)
            if self.is_asked and time.monotonic() > end:
                raise Failure(f"{self.program.name} did not answer within {self.program.patience} s")

    def done(self, begin, end):
        """Units that ended in that time."""
        return sum(begin < at <= end for at in self.ends)

    def rate(self, begin, end):
        """Units a second in that time, from the end of a unit to that of another; None of less than two."""
        inside = [at for at in self.ends if begin < at <= end]
        return (len(inside) - 1) / (inside[-1] - inside[0]) if len(inside) > 1 else None


def watch(kept, until, program=None):
    """
    Wait until then, while those are kept at work; or until that program, which was asked, says something: its line.
    None when the time came.
    """
    while True:
        for one in kept:
            one.poll()
        line = program.try_line() if program else None
        if line is not None:
            return line
        left = until - time.monotonic()
        if left <= 0:
            return None
        files = [one.program.process.stdout for one in kept if one.is_asked]
        select.select(files + ([program.process.stdout] if program else []), [], [], left)

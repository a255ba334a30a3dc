#!/usr/bin/env python3
"""bench/mixes: 16 or 32 programs that arrive at once on one GPU or several, as in the evaluation of HuntKTm.

The programs are those of mix.c. Each of them alone takes --alone, from its start to its end; what it takes is measured
first, and so is what it computes, which must be the same in every row. Sizes are given for a card of 40 GiB and scaled to
--card. Mixes W1 to W4 have 16 programs and W5 to W8 32, with 1, 2, 3 and 5 large ones for each small one; large and small
ones take turns in arriving as evenly as can be, each of a kind after the other. (The suite's mixes are not public: these
shares are those of CASE.)

Sides, of which --sides picks:

sa             one program a GPU at a time, in the order of their arrival
case           CASE's policy: of the GPUs whose memory a program fits in, the one with fewest warps; who fits nowhere waits,
               and others pass
now, fit       gpumux with --place order, and --admit now or fit; programs declare what they need (GPUMUX_NEED)
X-mps          the same, with programs that run at once sharing the multiprocessors: case under an MPS server of the bench,
               with folders of its own, which ends with it; gpumux with --space-sharing mps

A cell is a mix and a side, such as W1-fit-mps. --cells picks some. A cell of W1 to W4 takes 10 to 20 s on two
GPUs; those of earlier results (--known FILE) are shown again and not run, if the machine, the card and --alone are the same.
Times count from the arrival to the end of the programs' processes. An MPS server, the bench's or gpumux's, is there before.
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import time

import rig as r
import sides

REFERENCE = 40 * 2**30 # the card that these sizes are for
LARGE = (("deep", 19), ("image", 16), ("price", 12), ("mix-b", 10)) # GiB
SMALL = (("square", 3), ("learn", 4), ("mix-a", 6))
MIXES = {"W1": (16, 1), "W2": (16, 2), "W3": (16, 3), "W4": (16, 5),
         "W5": (32, 1), "W6": (32, 2), "W7": (32, 3), "W8": (32, 5)} # programs, large ones for each small one
SIDES = ("sa", "case", "case-mps", "now", "now-mps", "fit", "fit-mps")
CELLS = [f"{mix}-{side}" for mix in MIXES for side in SIDES]
MPS = "nvidia-cuda-mps-control"
PATIENCE_S = 120 # for a program's start and for each end


def add_options(parser):
    parser.add_argument("--mixes", type=r.some_of(tuple(MIXES)), default=list(MIXES), metavar="MIX,...", help="(all)")
    parser.add_argument("--sides", type=r.some_of(SIDES), default=list(SIDES), metavar="SIDE,...", help="(all)")
    parser.add_argument("--cells", type=r.some_of(CELLS), metavar="CELL,...", help="only these")
    parser.add_argument("--known", action="append", default=[], metavar="FILE", help="an earlier result")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="so many GPUs, from the first on (all)")
    parser.add_argument("--card", type=r.size, metavar="SIZE",
                        help="what programs may take of each GPU (seven eighths of what the fullest one has free)")
    parser.add_argument("--alone", type=r.milliseconds, default=r.milliseconds("1600ms"), metavar="TIME",
                        help="about what each program takes alone (1600ms)")
    parser.add_argument("--limit", type=float, default=180, metavar="S", help="a cell that takes longer fails (180)")


# ---- what runs ----

def programs_of(mix, card):
    """(kind, bytes) of each program of the mix, in the order of their arrival."""
    count, ratio = MIXES[mix]
    large = (count * ratio + (ratio + 1) // 2) // (ratio + 1)
    found, n_large, n_small = [], 0, 0
    for i in range(count):
        if (i + 1) * large // count > n_large:
            kind, gib = LARGE[n_large % len(LARGE)]
            n_large += 1
        else:
            kind, gib = SMALL[n_small % len(SMALL)]
            n_small += 1
        found.append((kind, int(gib * 2**30 * card / REFERENCE) & ~0xfffff))
    return found


def all_cells(args):
    if not args.cells:
        return [f"{mix}-{side}" for mix in args.mixes for side in args.sides]
    return [cell for cell in CELLS if cell in args.cells]


class Program(r.Process):
    """One of mix.c, which waits for "go"."""

    def __init__(self, rig, name, kind, size, work, environment=None):
        binary = "bench_mix_linked" if rig.is_linked and environment and "GPUMUX_SOCKET" in environment else "bench_mix"
        super().__init__(rig, name, [rig.at("bench/" + binary), kind, "--bytes", size, *work], environment)
        self.kind, self.size, self.answer, self.failed, self.gpu = kind, size, None, None, None
        self.began = self.ended_at = None

    def go(self, gpu=None):
        """Natively on that GPU; else gpumux says where."""
        self.began, self.gpu = time.monotonic(), gpu
        self.send("go" if gpu is None else f"go {gpu}")

    def poll(self):
        """Read what it says. True once it has ended."""
        part = os.read(self.process.stdout.fileno(), 4096)
        self.pending += part
        if part:
            return False
        code = self.process.wait(timeout=PATIENCE_S)
        self.ended_at = time.monotonic()
        line = self.pending.decode(errors="replace").strip()
        if code == 0 and line.startswith("done "):
            self.answer = r.fields(line)
        else:
            self.failed = line[:200] if line.startswith("FAIL") else f"ended with {code}: {self.complaint()}"
        return True


# ---- who decides where ----

class Queue:
    """Programs wait here, natively; `pick` is a policy."""

    def __init__(self, pick, n_gpus, card):
        self.pick = pick
        self.gpus = [{"left": card, "warps": 0, "running": 0} for _ in range(n_gpus)]
        self.waiting = []

    def arrive(self, program):
        self.waiting.append(program)

    def start(self):
        """All who may."""
        for program in list(self.waiting):
            gpu = self.pick(self.gpus, program.size, program.warps)
            if gpu is not None:
                self.waiting.remove(program)
                self.count(gpu, program, 1)
                program.go(gpu)

    def count(self, gpu, program, sign):
        self.gpus[gpu]["left"] -= sign * program.size
        self.gpus[gpu]["warps"] += sign * program.warps
        self.gpus[gpu]["running"] += sign

    def end(self, program):
        self.count(program.gpu, program, -1)
        self.start()


def pick_alone(gpus, _size, _warps):
    """A GPU where nobody is."""
    return next((i for i, gpu in enumerate(gpus) if gpu["running"] == 0), None)


def pick_case(gpus, size, _warps):
    """Of those with the memory, the one with fewest warps. One that no GPU can hold is not in a mix."""
    roomy = [i for i, gpu in enumerate(gpus) if gpu["left"] >= size]
    return min(roomy, key=lambda i: gpus[i]["warps"], default=None)


class Sent:
    """gpumux decides: all begin at once."""

    def __init__(self):
        self.waiting = []

    def arrive(self, program):
        self.waiting.append(program)

    def start(self):
        for program in self.waiting:
            program.go()
        self.waiting = []

    def end(self, program):
        pass


# ---- what else is there ----

class Mps(r.Process):
    """NVIDIA's MPS control daemon with folders of its own."""

    def __init__(self, rig, name):
        if not shutil.which(MPS):
            raise r.Absent(f"there is no {MPS} here")
        self.rig = rig
        self.environment = {}
        for variable, folder in (("CUDA_MPS_PIPE_DIRECTORY", "pipe"), ("CUDA_MPS_LOG_DIRECTORY", "log")):
            path = os.path.join(rig.work, f"{name}-{folder}")
            os.makedirs(path, exist_ok=True)
            self.environment[variable] = path
        super().__init__(rig, name, [MPS, "-f"], self.environment)
        end = time.monotonic() + 10
        while self.say(f"start_server -uid {os.getuid()}") is None:
            if not self.is_running() or time.monotonic() > end:
                raise r.Absent(f"{MPS} does not start: {self.complaint()}")
            time.sleep(.1)
        devices_of(rig, self.environment) # CUDA works under it

    def say(self, command):
        """What it answers; None: it is not there."""
        try:
            done = subprocess.run([MPS], input=command + "\n", capture_output=True, text=True, timeout=20, check=False,
                                  env={**self.rig.environment, **self.environment})
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 and "Cannot" not in done.stdout + done.stderr else None

    def stop(self):
        self.say("quit -t 2")
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass


def end_mps(folder):
    """End what is left of an MPS that has its folders in this one, the bench's own or a daemon's: its servers outlive it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as text:
                if not text.read().startswith("nvidia-cuda-mps"):
                    continue
            with open(f"/proc/{pid}/environ", "rb") as text:
                if any(one.startswith(b"CUDA_MPS_PIPE_DIRECTORY=" + folder.encode() + b"/") for one in text.read().split(b"\0")):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass # it has ended, or is another user's


def devices_of(rig, environment=None):
    """The machine's GPUs."""
    done = subprocess.run([rig.at("bench/bench_mix"), "--devices"], capture_output=True, text=True, timeout=120, check=False,
                          env={**rig.environment, **(environment or {})})
    if done.returncode != 0:
        raise r.Absent((done.stdout.strip() or done.stderr.strip())[-200:] or "no GPU")
    found = [r.fields(line) for line in done.stdout.splitlines()]
    if rig.args.gpus > len(found):
        raise r.Absent(f"there are {len(found)} GPUs and not {rig.args.gpus}")
    return found[:rig.args.gpus or None]


# ---- cells ----

def profile(rig, card):
    """Each kind of program alone: what it takes, and what it computes."""
    wanted = sorted(set(sum((programs_of(mix, card) for mix in MIXES), [])))
    known = {(one["kind"], one["bytes"]): one for one in rig.result["profiles"]}
    is_first = True
    for kind, size in wanted:
        if (kind, size) in known:
            continue
        for _ in range(2 if is_first else 1): # the first compiles the kernels
            program = Program(rig, f"alone-{kind}", kind, size, ["--until", f"{rig.args.alone:.0f}"])
            program.go(0)
            wait_for([program], time.monotonic() + PATIENCE_S)
        is_first = False
        if program.failed:
            raise r.Failure(f"{kind} alone: {program.failed}")
        rig.result["profiles"].append({**program.answer, "kind": kind, "bytes": size,
                                       "alone_ms": (program.ended_at - program.began) * 1000})


def wait_for(programs, until, ended=None):
    """Until all have ended. ended(program) is called for each."""
    waits = selectors.DefaultSelector()
    for program in programs:
        waits.register(program.process.stdout, selectors.EVENT_READ, program)
    while waits.get_map():
        left = until - time.monotonic()
        if left <= 0:
            raise r.Failure(f"{len(waits.get_map())} of {len(programs)} programs have not ended in time")
        for key, _ in waits.select(min(left, 1)):
            if key.data.poll():
                waits.unregister(key.fileobj)
                if ended:
                    ended(key.data)


def daemon_of(rig, cell, side, card, total):
    """gpumux for that side."""
    options = {"gpu": ",".join(str(i) for i in range(len(rig.gpus))), "gpu_budget": card, "place": "order",
               "admit": side.split("-")[0], "when_full": "wait",
               "idle": None, "turn": None, "history": os.path.join(rig.work, f"{cell}.history")}
    if options["admit"] == "fit":
        options["patience"] = f"{rig.args.limit:.0f}s" # nobody begins without room
    if side.endswith("-mps"):
        options["space_sharing"] = "mps"
    host = r.host_bytes()
    options["pinned"] = min(total + 2**30, host // 2)
    if options["pinned"] < total + 2**30 - len(rig.gpus) * card: # what is left if all are admitted at once
        options["paged"] = min(total, host // 4)
    return r.Daemon(rig, "daemon-" + cell, **options)


def start_server(rig, cell, environment, wanted):
    """The MPS server is there before the programs arrive, on every side: gpumux starts its own with the first program."""
    kind, size = min(wanted, key=lambda one: one[1])
    program = Program(rig, f"{cell}-first", kind, size, ["--passes", 1], {**environment, "GPUMUX_NEED": str(size)})
    program.go()
    wait_for([program], time.monotonic() + PATIENCE_S)
    if program.failed:
        raise r.Failure(f"the program that starts the server: {program.failed}")


def run_cell(rig, cell, card):
    mix, side = cell.split("-", 1)
    wanted = programs_of(mix, card)
    profiles = {(one["kind"], one["bytes"]): one for one in rig.result["profiles"]}
    is_native = side in ("sa", "case", "case-mps")
    mps = daemon = None
    try:
        mps = Mps(rig, "mps-" + cell) if side == "case-mps" else None
        daemon = None if is_native else daemon_of(rig, cell, side, card, sum(size for _, size in wanted))
        environment = {**r.under(rig, daemon, is_preloaded=not rig.is_linked), **(mps.environment if mps else {})}
        programs = []
        for i, (kind, size) in enumerate(wanted):
            one = profiles[kind, size]
            declared = {} if is_native else {"GPUMUX_NEED": str(size)}
            program = Program(rig, f"{cell}-{i}", kind, size, ["--passes", one["passes"]], {**environment, **declared})
            program.warps = one["streams"] * one["blocks"] * ((one["threads"] + 31) // 32)
            programs.append(program)
        if daemon and side.endswith("-mps"):
            start_server(rig, cell, environment, wanted)
        policy = Queue(pick_alone if side == "sa" else pick_case, len(rig.gpus), card) if is_native else Sent()
        row = {"cell": cell, "mix": mix, "side": side}
        time.sleep(.3) # all wait for the word
        before = daemon.status() if daemon else None
        arrived = time.monotonic()
        for program in programs:
            policy.arrive(program)
        policy.start()
        wait_for(programs, arrived + rig.args.limit, policy.end)
        if daemon:
            after = daemon.status()
            row["moved"] = sum(now[key] - then[key] for now, then in zip(after["gpus"], before["gpus"])
                               for key in ("bytes_in", "bytes_out"))
            row["switches"] = sum(now["switches"] - then["switches"] for now, then in zip(after["gpus"], before["gpus"]))
            daemon.stop()
        conclude_cell(rig, row, programs, arrived, profiles)
    finally:
        if daemon and daemon.process.is_running():
            daemon.process.process.terminate() # so that it ends its MPS
        if mps:
            mps.stop()
        if side.endswith("mps"):
            end_mps(rig.work)
    rig.result["rows"].append(row)


def conclude_cell(rig, row, programs, arrived, profiles):
    numbers = [gpu["gpu"] for gpu in rig.gpus]
    row["programs"], row["failed"] = [], []
    for program in programs:
        one = {"kind": program.kind, "bytes": program.size, "ended_s": program.ended_at - arrived}
        if program.failed:
            row["failed"].append(f"{program.name}: {program.failed}")
        else:
            answer = program.answer
            wrong = answer["sum"] != profiles[program.kind, program.size]["sum"]
            if wrong:
                raise r.Failure(f"{program.name}: wrong data: {answer['sum']}")
            one.update({key: answer[key] for key in ("init_ms", "open_ms", "fill_ms", "work_ms")},
                       began_s=program.began - arrived,
                       gpu=numbers.index(answer["gpu"]) if answer["gpu"] in numbers else None)
        row["programs"].append(one)
    row["total_s"] = max(one["ended_s"] for one in row["programs"])
    row["mean_s"] = r.mean([one["ended_s"] for one in row["programs"]])


def take_known(rig, card):
    """What earlier results tell of the same machine."""
    for file in rig.args.known:
        with open(file, encoding="utf-8") as text:
            known = json.load(text)
        same = all(known.get(key) == rig.result[key] for key in ("card", "n_gpus", "alone_ms"))
        if not same or known["machine"].get("gpu") != rig.result["machine"].get("gpu"):
            print(f"{file} is of another machine or other programs")
            continue
        rig.result["known"] += known["known"] + known["rows"]
        mine = {(one["kind"], one["bytes"]) for one in rig.result["profiles"]}
        rig.result["profiles"] += [one for one in known["profiles"] if (one["kind"], one["bytes"]) not in mine]


def run(rig):
    args = rig.args
    rig.result.update(rows=[], left_out=[], known=[], profiles=[])
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        raise r.Absent("CUDA_VISIBLE_DEVICES is set: use --gpus")
    for variable in ("LOCAL_RANK", "GPUMUX_PLACE", "GPUMUX_NEED", "CUDA_MPS_PIPE_DIRECTORY"):
        rig.environment.pop(variable, None)
    rig.gpus = devices_of(rig)
    card = args.card or min(gpu["free"] for gpu in rig.gpus) // 8 * 7
    if card > min(gpu["free"] for gpu in rig.gpus):
        raise r.Absent(f"a GPU has less than {r.show_size(card)} free")
    rig.result.update(card=card, n_gpus=len(rig.gpus), gpus=rig.gpus, alone_ms=args.alone)
    take_known(rig, card)
    done = {row["cell"] for row in rig.result["known"]}
    cells = [cell for cell in all_cells(args) if cell not in done]
    if cells:
        profile(rig, card)
    took = 0
    for cell in cells:
        if rig.left() < took + 5:
            rig.result["left_out"].append([cell, "no time left"])
            continue
        begun = time.monotonic()
        sides.attempt(rig, cell, lambda cell=cell: run_cell(rig, cell, card))
        took = max(took, time.monotonic() - begun) if args.seconds else 0
    sides.finish(rig)


# ---- conclusions ----

def conclude(rig):
    result = rig.result
    if "card" not in result:
        return
    result["goals"] = []
    rows = sorted(result["known"] + result["rows"], key=lambda row: CELLS.index(row["cell"]))
    alone = {row["mix"]: row["total_s"] for row in rows if row["side"] == "sa"}
    print(f"{result['n_gpus']} GPUs, {r.show_size(result['card'])} each")
    r.table(["program", "memory", "alone ms", "start", "fill", "work", "streams", "blocks", "threads"],
            [[one["kind"], r.show_size(one["bytes"]), r.number(one["alone_ms"], 0),
              r.number(one["init_ms"] + one["open_ms"], 0), r.number(one["fill_ms"], 0), r.number(one["work_ms"], 0),
              one["streams"], one["blocks"], one["threads"]]
             for one in result["profiles"]])
    r.table(["cell", "all end after s", "times SA", "mean s", "moved GiB", "switches", "on GPUs", "failed"],
            [[row["cell"], r.number(row["total_s"]),
              r.number(alone[row["mix"]] / row["total_s"] if row["mix"] in alone else None, 2),
              r.number(row["mean_s"]), r.number(row["moved"] / 2**30) if "moved" in row else "-", row.get("switches", "-"),
              "/".join(str(sum(one.get("gpu") == gpu for one in row["programs"])) for gpu in range(result["n_gpus"])),
              len(row["failed"])] for row in rows])
    for row in rows:
        for text in row["failed"]:
            print(f"{row['cell']}: {text}")
    for name, why in result["left_out"]:
        print(f"{name}: {why}")
    judge(result["goals"], rows)
    r.show_goals(result["goals"])


def judge(goals, rows):
    """What the project wants, of the best side of gpumux with MPS and of that without."""
    def goal(text, measured, wanted):
        goals.append({"goal": text, "measured": measured, "wanted": wanted, "is_share": True, "is_met": measured >= wanted})
    took = {row["cell"]: row["total_s"] for row in rows if not row["failed"]}
    beside = []
    for mix in MIXES:
        for more in ("", "-mps"):
            mine = min((took[f"{mix}-{side}{more}"] for side in ("now", "fit") if f"{mix}-{side}{more}" in took), default=None)
            if mine and more and f"{mix}-sa" in took:
                goal(f"{mix}, gpumux with MPS: of SA's rate", took[f"{mix}-sa"] / mine, 2)
            if mine and f"{mix}-case{more}" in took:
                goal(f"{mix}{more}: of CASE's rate", took[f"{mix}-case{more}"] / mine, 1)
                beside += [took[f"{mix}-case{more}"] / mine] if more else []
    if beside:
        goal("of CASE's rate, in the mean", r.mean(beside), 1.1)
    failed = [row for row in rows if row["failed"]]
    goals.append({"goal": "cells in which a program failed", "measured": len(failed), "wanted": 0, "is_met": not failed})


if __name__ == "__main__":
    r.main("mixes", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""tests/gpu/restart.py BUILD [--simcuda] [--kills N] [--only ROW,...]: the daemon dies and comes back, in one call of five minutes.

  turn   three programs of 16 GiB, of which one fits: the daemon is killed, and started again at once. From the start of the
         new one until it is ready, until the first turn, and until each program had one. Wanted: the first turn within 3 s
  train  ResNet-152 in PyTorch beside a program of 16 GiB, through three restarts: killed, stopped, killed. Its losses and
         weights must be those of a native run, to the bit
  kills  100 kills at random moments under load: 0 wrong bytes

All programs verify their memory. What is needed to judge a failure is under $OUT (restart.tar.gz). Needs a GPU with 24 GiB
free, 64 GiB of host memory, and for train PyTorch. --simcuda tries it out with small programs and no PyTorch. The last lines
are a table.
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import time

from harness import Failure, Place, Program, Skip, same, use_simcuda, wait_until
from supervisor import Supervisor, Watch, kill, run_times


class Sizes:
    """What of the GPU is used."""

    def __init__(self, is_simcuda):
        self.big, self.small = ("96M", "64M") if is_simcuda else ("16G", "4G")
        self.options = {
            "turn": ["--gpu-budget", "160M" if is_simcuda else "20G", "--pinned", "512M" if is_simcuda else "40G"],
            "train": ["--gpu-budget", "160M" if is_simcuda else "20G", "--pinned", "512M" if is_simcuda else "40G"],
            "kills": ["--gpu-budget", "160M" if is_simcuda else "10G", "--pinned", "512M" if is_simcuda else "16G"],
        }


class Row:
    """A daemon that is started again, and the programs of a row."""

    def __init__(self, place, name, options, quantum):
        self.place, self.name = place, name
        self.enough = os.path.join(place.work, name + ".enough")
        self.supervisor = Supervisor(place, [*options, "--policy", "round-robin", "--quantum", quantum], watchdog_s=30)
        self.watch = Watch(self.supervisor)
        self.programs = []

    def worker(self, size, seed, *arguments):
        name = f"{self.name}-{seed}"
        ready = os.path.join(self.place.work, name + ".ready")
        program = Program(self.place, name, [
            self.place.at("tests/programs/gm_worker"), "--bytes", size, "--iterations", "1", "--seed", str(seed), "--ready", ready,
            "--until", self.enough, *arguments], under_gpumux=True, extra={"GPUMUX_LOG": self.place.log(name + ".shim")})
        self.programs.append(program)
        wait_until(f"{name} is ready", 120, lambda: os.path.exists(ready) or not program.is_running())
        return program

    def alive(self):
        for program in self.programs:
            if not program.is_running():
                raise Failure(f"{program.name} ended with {program.process.returncode}: {program.last_line() or program.complaint()}")

    def finish(self):
        """All programs end with all of their bytes right. How many iterations they did."""
        open(self.enough, "w", encoding="utf-8").close()
        done = sum(int(program.passed(150)["iterations"]) for program in self.programs)
        self.programs = []
        return done

    def end(self):
        self.supervisor.end()
        wait_until("the keeper ends", 30, lambda: not self.supervisor.keepers())

    def clean_up(self):
        self.supervisor.clean_up()
        for program in self.programs:
            program.stop()


def row_turn(place, sizes, args):
    row = Row(place, "turn", sizes.options["turn"], "500ms")
    times = []
    try:
        for seed in (1, 2, 3):
            row.worker(sizes.big, seed)
        row.watch.expect(row.programs)
        for _ in range(3 if args.simcuda else 5):
            time.sleep(1.3)
            before = len(row.supervisor.readies)
            kill(row.supervisor.pid())
            row.supervisor.await_ready(before)
            begun, ready = row.supervisor.readies[-1]
            first, waiting, seen = None, {program.process.pid for program in row.programs}, {}
            while waiting:
                for pid, seconds in run_times(row.supervisor.status()).items():
                    if pid in waiting and seconds > seen.setdefault(pid, seconds):
                        waiting.remove(pid)
                        first = first or time.monotonic()
                row.alive()
                if time.monotonic() > ready + 30:
                    raise Failure(f"{len(waiting)} programs did not run within 30 s")
                time.sleep(0.01)
            times.append((ready - begun, first - begun, time.monotonic() - begun))
        done = row.finish()
        row.end()
    finally:
        row.clean_up()
    text = "; ".join(f"ready {a:.2f} s, first turn {b:.2f} s, all {c:.2f} s" for a, b, c in times)
    worst = max(first for _, first, _ in times)
    return f"{text}; first turn at most {worst:.2f} s (wanted 3.00); {done} iterations, 0 wrong", worst <= 3


def row_train(place, sizes, args):
    if args.simcuda or subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode:
        raise Skip("no PyTorch here")
    script = os.path.join(place.here, "python", "resnet.py")
    command = [sys.executable, script, "--steps", str(args.steps)]
    native = Program(place, "train-native", command).result(150)
    row = Row(place, "train", sizes.options["train"], "1s")
    try:
        row.worker(sizes.big, 1)
        go = os.path.join(place.work, "train.go")
        training = Program(place, "train", [*command, "--go", go], under_gpumux=True,
                           extra={"GPUMUX_LOG": place.log("train.shim")})
        wait_until("it imports PyTorch", 120, lambda: os.path.exists(go + ".imported") or not training.is_running())
        open(go, "w", encoding="utf-8").close()
        restarts = []
        for number in (9, 15, 9):
            time.sleep(max(2.0, native["seconds"] / 3))
            if not training.is_running():
                raise Failure(f"training ended before it saw three restarts: raise --steps ({training.complaint()})")
            restarts.append(row.supervisor.kill(number))
            row.watch.expect([*row.programs, training])
        result = training.result(200)
        same("losses through three restarts and natively", result["losses"], native["losses"])
        same("weights through three restarts and natively", result["weights"], native["weights"])
        done = row.finish()
        row.end()
    finally:
        row.clean_up()
    return (f"{args.steps} steps, three restarts ({', '.join(f'{s:.2f} s' for s in restarts)}), losses and weights equal to the bit, "
            f"last loss {float.fromhex(result['losses'][-1]):.6f}; {result['seconds']} s, natively {native['seconds']} s; "
            f"beside it {done} iterations, 0 wrong"), True


def row_kills(place, sizes, args):
    row = Row(place, "kills", sizes.options["kills"], "200ms")
    chance = random.Random(args.seed)
    restarts, keepers_killed = [], 0
    begun = time.monotonic()
    kills = 0
    try:
        for seed in (1, 2, 3, 4):
            row.worker(sizes.small, seed, *(["--allocs", "8"] if seed > 2 else []))
        row.watch.expect(row.programs)
        while kills < args.kills and time.monotonic() < begun + args.seconds:
            time.sleep(chance.random() ** 2 * 1.0)
            if chance.random() < 0.1:
                before = row.supervisor.keepers()
                kill(before[0])
                wait_until("another keeper", 30, lambda b=before: row.supervisor.keepers() not in ([], b))
                keepers_killed += 1
            else:
                restarts.append(row.supervisor.kill())
            kills += 1
            row.alive()
            if kills % 10 == 0:
                row.watch.expect(row.programs)
        row.watch.expect(row.programs)
        done = row.finish()
        row.end()
    finally:
        row.clean_up()
    return (f"{kills} kills ({keepers_killed} of the keeper), 0 wrong in {done} iterations; a start takes "
            f"{statistics.median(restarts):.2f} s (most {max(restarts):.2f}); longest wait {row.watch.longest:.1f} s"), kills >= args.kills


ROWS = {"turn": row_turn, "train": row_train, "kills": row_kills}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--simcuda", action="store_true")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=130, help="the most that row kills lasts")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    place = Place(args.build, "restart")
    place.check_build()
    os.environ.pop("GPUMUX_SOCKET", None)
    if args.simcuda:
        use_simcuda(place)
        os.environ.update(GPUMUX_RUN_DIR=place.work, XDG_RUNTIME_DIR=place.work)
    sizes = Sizes(args.simcuda)
    table, failed = [], 0
    for name in [name for name in args.only.split(",") if name] or list(ROWS):
        begun = time.monotonic()
        try:
            text, is_good = ROWS[name](place, sizes, args)
            verdict = "ok" if is_good else "MISSED"
        except Skip as skip:
            verdict, text = "skipped", str(skip)
        except Failure as failure:
            verdict, text = "FAILED", str(failure)
            failed += 1
        table.append(f"{name:6} {verdict:8} {time.monotonic() - begun:6.1f} s  {text}")
        print(table[-1], flush=True)
    where = place.pack(failed > 0)
    print(f"\n{'row':6} {'verdict':8} {'took':>8}  (logs: {where})" if failed else f"\n{'row':6} {'verdict':8} {'took':>8}")
    print("\n".join(table))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

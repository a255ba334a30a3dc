#!/usr/bin/env python3
"""tests/gpu/restart.py BUILD [--simcuda] [--kills N] [--only ROW,...] [--json FILE]: the daemon dies and comes back, in one call of five minutes.

  turn   three programs of 16 GiB, of which one fits: the daemon is killed, and started again as soon as its process has ended, with
         all threads. From the kill until that; from the start of the new one until it is ready, until the first turn, and until
         each program had one; and from the end of the old one until the first turn. Wanted: the first turn within 3 s. --later N:
         so many further ones, each started 3 s after that end; and how long another process needs for cuInit and a context, while
         the daemon is there and at several times after it was killed, with none that follows
  train  ResNet-152 in PyTorch beside a program of 16 GiB, through three restarts: killed, stopped, killed. Its losses and
         weights must be those of a native run, to the bit
  kills  100 kills at random moments under load: 0 wrong bytes

All programs verify their memory. What is needed to judge a failure is under $OUT (restart.tar.gz). Needs a GPU with 24 GiB
free, 64 GiB of host memory, and for train PyTorch. --simcuda tries it out with small programs and no PyTorch. The last lines
are a table.
"""
import argparse
import json
import os
import random
import re
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

    def __init__(self, place, name, options, slice_):
        self.place, self.name = place, name
        self.enough = os.path.join(place.work, name + ".enough")
        self.supervisor = Supervisor(place, [*options, "--slice", slice_], watchdog_s=30)
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


def await_turns(row, until):
    """When the first of the programs ran, and when all had."""
    first, waiting, seen = None, {program.process.pid for program in row.programs}, {}
    while waiting:
        for pid, seconds in run_times(row.supervisor.status()).items():
            if pid in waiting and seconds > seen.setdefault(pid, seconds):
                waiting.remove(pid)
                first = first or time.monotonic()
        row.alive()
        if time.monotonic() > until:
            raise Failure(f"{len(waiting)} programs did not run within 30 s")
        time.sleep(0.01)
    return first, time.monotonic()


def waits_of(supervisor):
    """What daemons say that they waited for the one before: nothing of less than 1 s."""
    return re.findall(r"waited ([\d.]+) s for the end of the gpumuxd before", supervisor.text())


def restart_once(row, pause_s):
    """Kill the daemon. What happened when, in seconds."""
    supervisor = row.supervisor
    before, n_ends, n_waits = len(supervisor.readies), len(supervisor.ends), len(waits_of(supervisor))
    supervisor.pause_s = pause_s
    killed = time.monotonic()
    kill(supervisor.pid())
    supervisor.await_ready(before, 60)
    ended, (begun, ready) = supervisor.ends[n_ends], supervisor.readies[-1]
    first, last = await_turns(row, ready + 30)
    waits = waits_of(supervisor)[n_waits:]
    one = {"pause_s": pause_s, "end_s": ended - killed, "start_s": begun - ended, "ready_s": ready - begun, "first_s": first - begun,
           "first_from_end_s": first - ended, "all_s": last - begun, "waited_s": float(waits[0]) if waits else 0}
    print("  " + ", ".join(f"{key[:-2]} {value:.2f}" for key, value in one.items()), flush=True)
    return one


def start_driver(place, since):
    """How long a process needs for cuInit and a context, and when it began."""
    begun = time.monotonic()
    done = subprocess.run([place.at("bench/link"), "--machine"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Failure(f"bench/link --machine ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return {"at_s": begun - since, "took_s": time.monotonic() - begun}


def probe_driver(row):
    """The driver alone: beside the daemon, and from its end on."""
    with_daemon = [start_driver(row.place, time.monotonic()) for _ in range(2)]
    row.supervisor.hold()
    since = time.monotonic()
    after = []
    while time.monotonic() < since + 5:
        after.append(start_driver(row.place, since))
        time.sleep(0.2)
    row.supervisor.go_on()
    print("  cuInit and a context: beside the daemon " + " ".join(f"{one['took_s']:.2f}" for one in with_daemon) + " s; after its end " +
          ", ".join(f"{one['took_s']:.2f} (at {one['at_s']:.1f})" for one in after), flush=True)
    return {"with_daemon": with_daemon, "after": after}


def row_turn(place, sizes, args):
    row = Row(place, "turn", sizes.options["turn"], "500ms")
    times = args.result["restarts"] = []
    try:
        for seed in (1, 2, 3):
            row.worker(sizes.big, seed)
        row.watch.expect(row.programs)
        print("  in seconds; ready, first and all from the new daemon's start, first_from_end from the end of the old one's process;"
              " waited: what the new one waited for that, if more than 1", flush=True)
        for pause_s in [0] * args.restarts + [3] * args.later:
            time.sleep(1.3)
            times.append(restart_once(row, pause_s))
        row.supervisor.pause_s = 0
        if args.later:
            args.result["driver"] = probe_driver(row)
        done = row.finish()
        row.end()
    finally:
        row.clean_up()

    def most(key, of=times):
        return max((one[key] for one in of), default=0)

    def listed(key, of=times):
        return " ".join(f"{one[key]:.2f}" for one in of)

    later = [one for one in times if one["pause_s"]]
    text = (f"the old one's end after {listed('end_s')} s; ready {listed('ready_s')}; first turn {listed('first_s')} from the new one's "
            f"start, at most {most('first_s'):.2f} s, and {most('first_from_end_s', [one for one in times if not one['pause_s']]):.2f} from "
            f"the old one's end (wanted 3.00)" + (f", {most('first_s', later):.2f} when started 3 s later" if later else "") +
            f"; all {listed('all_s')}; {done} iterations, 0 wrong")
    return text, most("first_s") <= 3


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
    parser.add_argument("--restarts", type=int, help="of row turn (5; 3 with --simcuda)")
    parser.add_argument("--later", type=int, default=0, help="further ones, started 3 s after the end of the old one")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    args.restarts = (3 if args.simcuda else 5) if args.restarts is None else args.restarts
    args.result = {}
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
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({**args.result, "table": table}, out, indent=1)
    where = place.pack(failed > 0)
    print(f"\n{'row':6} {'verdict':8} {'took':>8}  (logs: {where})" if failed else f"\n{'row':6} {'verdict':8} {'took':>8}")
    print("\n".join(table))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

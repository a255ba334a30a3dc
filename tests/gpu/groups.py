#!/usr/bin/env python3
"""tests/gpu/groups.py BUILD [--ranks N] [--only ROW,...] [--limit SECONDS] [--simcuda]: jobs on several GPUs, in one call of three
minutes.

Two jobs on two GPUs (--ranks: on so many), each of which fits the budget, and both together do not. Natively they run at once; under
gpumux they must end with the same bits, in turns, without GPUMUX_GROUP. The rows:

  native      two jobs of a process on each GPU, with NCCL (python/ranks.py): what the others are compared with
  ipc         the same under gpumux, NCCL_CUMEM_ENABLE=0: NCCL shares memory by cuIpc*
  native-one  two jobs of one process each that uses all these GPUs
  one         the same under gpumux
  cumem       as ipc, NCCL_CUMEM_ENABLE=1: NCCL exports handles of its own
  shm         as ipc, NCCL_P2P_DISABLE=1: NCCL goes through host memory. The daemon sees who belongs together only where NCCL
              shares that by handles, too, so its groups are shown and not judged

A row ends within --row seconds, whatever hangs; all that it started is killed then. What is needed to judge a failure is
under $OUT (groups.tar.gz): the output and Python stacks of each process, NCCL's log, the shim's, the daemon's, the status
twice a second, mux-ctl log. Needs two GPUs, the driver and PyTorch with NCCL. --simcuda tries native and ipc out, with workers
whose GPUs have nothing to do with each other. The last lines are a table; --json FILE has it, too.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

from harness import Daemon, Failure, Place, Program, use_simcuda

RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python", "ranks.py")
CALM = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
ROWS = ("native", "ipc", "native-one", "one", "cumem", "shm")
MORE = {"ipc": {"NCCL_CUMEM_ENABLE": "0"}, "cumem": {"NCCL_CUMEM_ENABLE": "1"}, "shm": {"NCCL_P2P_DISABLE": "1"}}
NAMES = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LOCAL_RANK", "GPUMUX_GROUP", "NCCL_CUMEM_ENABLE", "NCCL_P2P_DISABLE")


class Watcher:
    """What mux-ctl says while a row runs."""

    def __init__(self, place, daemon, name):
        self.place, self.daemon, self.name = place, daemon, name
        self.group_of, self.parent_of, self.reasons = {}, {}, {}
        self.first = self.last = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def look(self):
        status = self.daemon.try_status()
        if status is None:
            return
        self.first = self.first or status
        self.last = status
        for app in status["apps"]:
            pid = app["pid"]
            if pid not in self.parent_of:
                try:
                    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                        self.parent_of[pid] = int(stat.read().rpartition(")")[2].split()[1])
                except OSError:
                    continue
            if app["group"]:
                self.group_of[pid] = app["group"]
            if app["state"] == "waiting":
                self.reasons[app["why"]] = self.reasons.get(app["why"], 0) + 1
        with open(self.place.log(f"{self.name}.looks"), "a", encoding="utf-8") as out:
            kept = [{key: app[key] for key in ("id", "pid", "gpu", "group", "state", "why", "needed_bytes", "switches", "parks")
                     if key in app} for app in status["apps"]]
            gpus = [{key: gpu[key] for key in ("index", "running", "switches", "bytes_in", "bytes_out")} for gpu in status["gpus"]]
            out.write(json.dumps({"at": round(time.time(), 2), "gpus": gpus, "apps": kept}) + "\n")

    def run(self):
        while not self.is_over.wait(0.5):
            try:
                self.look()
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                with open(self.place.log(f"{self.name}.looks"), "a", encoding="utf-8") as out:
                    out.write(f"no status: {error!r}\n")

    def end(self):
        self.is_over.set()
        self.thread.join(timeout=35)
        for command in (["status"], ["status", "--json"], ["log"]):
            try:
                done = subprocess.run([self.place.ctl, *command], capture_output=True, text=True, timeout=20, check=False,
                                      env={**os.environ, "GPUMUX_SOCKET": self.place.socket})
                with open(self.place.log(f"{self.name}.{'-'.join(command)}"), "w", encoding="utf-8") as out:
                    out.write(done.stdout + done.stderr)
            except (OSError, subprocess.SubprocessError):
                pass

    def switches(self):
        if not self.first or not self.last:
            return []
        return [b["switches"] - a["switches"] for a, b in zip(self.first["gpus"], self.last["gpus"])]

    def moved(self):
        if not self.first or not self.last:
            return 0
        return sum(b["bytes_out"] - a["bytes_out"] for a, b in zip(self.first["gpus"], self.last["gpus"])) / 2**30

    def groups(self, jobs):
        """The groups of each job's processes."""
        return [sorted({self.group_of.get(pid, "-") for pid, parent in self.parent_of.items()
                        if job.process.pid in (pid, parent)}) for job in jobs]


def stop_all(programs):
    for program in programs:
        try:
            os.killpg(program.process.pid, signal.SIGKILL)
        except OSError:
            pass
    for program in programs:
        try:
            program.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass


def run_jobs(place, row, args, until):
    """Two jobs; their results. Failure if they are not there in time."""
    is_one, is_native = row.endswith("one"), row.startswith("native")
    folder = os.path.join(place.work, row)
    os.mkdir(folder)
    go = os.path.join(folder, "go")
    jobs = []
    try:
        for number in (1, 2):
            name = f"job{number}"
            extra = {**CALM, **MORE.get(row, {}), "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM",
                     "NCCL_DEBUG_FILE": os.path.join(place.logs, f"{row}.{name}.nccl.%p.log"),
                     "GPUMUX_LOG": place.log(f"{row}.{name}.shim")}
            command = [sys.executable, RANKS, folder, "--name", name, "--seed", number, "--gib", args.gib, "--rounds", args.rounds,
                       "--go", go, "--patience", args.row, "--stacks", max(20, args.row - 15), "--ranks", args.ranks]
            command += ["--one"] if is_one else []
            command += ["--worker", place.at("tests/programs/gm_worker")] if args.simcuda else []
            jobs.append(Program(place, f"{row}.{name}", command, under_gpumux=not is_native, extra=extra))
        want = [os.path.join(folder, f"job{number}.ready.{rank}") for number in (1, 2) for rank in range(args.ranks)]
        while not all(os.path.exists(path) for path in want):
            ended = next((job for job in jobs if not job.is_running()), None)
            if ended or time.monotonic() > until:
                missing = " ".join(os.path.basename(path) for path in want if not os.path.exists(path))
                raise Failure(f"{ended.name + ' ended' if ended else 'in time'} without {missing}: {(ended or jobs[0]).complaint()}")
            time.sleep(0.1)
        begun = time.monotonic()
        open(go, "w", encoding="utf-8").close()
        results = [job.result(max(1, until - time.monotonic())) for job in jobs]
        return jobs, results, time.monotonic() - begun
    except Failure as failure:
        failure.jobs = jobs
        raise
    finally:
        stop_all(jobs)


def differs(native, under):
    """Where the bits of two runs of a job first differ; None: nowhere."""
    for one, other in zip(native, under):
        for number, (a, b) in enumerate(zip(one["bits"], other["bits"])):
            if a != b:
                return f"rank {one['rank']}, round {number}"
        if one["matrices"] != other["matrices"] or len(one["bits"]) != len(other["bits"]):
            return f"rank {one['rank']}, matrices"
    return None


def judge(row, native, results, watcher, jobs, has_groups):
    """What is wrong with a row under gpumux; []: nothing."""
    wrong = []
    if native is None:
        wrong.append("nothing to compare with")
    else:
        wrong += [f"job {i + 1} differs: {where}" for i, where in enumerate(map(differs, native, results)) if where]
    groups = watcher.groups(jobs)
    if row not in ("one", "shm") and has_groups:
        wrong += [f"job {i + 1} is of the groups {names}" for i, names in enumerate(groups) if len(names) != 1 or names == ["-"]]
        if len(groups) == 2 and groups[0] == groups[1]:
            wrong.append("both jobs are one group")
    if not watcher.switches() or min(watcher.switches()) < 2:
        wrong.append(f"no turns: {watcher.switches()} switches")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--limit", type=float, default=175, help="seconds for all")
    parser.add_argument("--row", type=int, default=50, help="seconds for a row")
    parser.add_argument("--gib", type=float, default=8, help="of a job on each GPU")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs, and of a job processes")
    parser.add_argument("--budget", default="12G")
    parser.add_argument("--pinned", help="(10G a GPU)")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--slice", default="1s")
    parser.add_argument("--place", default="order")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--simcuda", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + args.limit
    for name in NAMES:
        os.environ.pop(name, None)
    place = Place(args.build, "groups")
    place.check_build()
    if args.simcuda:
        use_simcuda(place)
        os.environ.update(SIMCUDA_DEVICES=str(args.ranks), GPUMUX_RUN_DIR=place.work, XDG_RUNTIME_DIR=place.work)
        args.gib, args.budget, args.pinned, args.slice, args.only = 64 / 1024, "100M", f"{256 * args.ranks}M", "200ms", "native,ipc"
    args.pinned = args.pinned or f"{10 * args.ranks}G"
    wanted, rows, native, failed, daemon = args.only.split(","), [], {}, 0, None
    try:
        for row in ROWS:
            if row not in wanted:
                continue
            left = end - time.monotonic() - 8
            if left < 20:
                rows.append((row, "not run", "", "", "", "no time left"))
                continue
            is_native = row.startswith("native")
            if not is_native and daemon is None:
                daemon = Daemon(place, "daemon", args.budget, args.pinned, args.slice,
                                ("--gpu", ",".join(map(str, range(args.ranks))), "--place", args.place, "--log-level", "debug"))
            watcher = None if is_native else Watcher(place, daemon, row)
            begun, jobs, wrong, seconds = time.monotonic(), [], [], 0.0
            try:
                jobs, results, seconds = run_jobs(place, row, args, time.monotonic() + min(args.row, left))
                if is_native:
                    native[row.endswith("one")] = results
            except Failure as failure:
                wrong = [str(failure)]
                jobs = failure.jobs
            if watcher:
                watcher.end()
                if not wrong:
                    wrong = judge(row, native.get(row == "one"), results, watcher, jobs, not args.simcuda)
            failed += bool(wrong)
            groups = " | ".join(",".join(names) for names in watcher.groups(jobs)) if watcher else ""
            turns = f"{watcher.switches()} {watcher.moved():.0f} GiB out" if watcher else ""
            rows.append((row, "FAIL" if wrong else "ok", f"{seconds:.1f} s ({time.monotonic() - begun:.0f} with start)", groups, turns,
                         "; ".join(wrong)[:300]))
            print(f"{row}: {rows[-1]}", flush=True)
            if watcher:
                for why, times in sorted(watcher.reasons.items(), key=lambda pair: -pair[1])[:6]:
                    print(f"    {times} times: {why}", flush=True)
            if daemon and not daemon.is_running():
                rows.append(("daemon", "FAIL", "", "", "", f"died: {daemon.program.complaint()}"))
                failed += 1
                break
    except Failure as failure:
        rows.append(("daemon", "FAIL", "", "", "", str(failure)[:300]))
        failed += 1
    finally:
        if daemon and daemon.is_running():
            daemon.program.process.terminate()
            try:
                daemon.program.process.wait(timeout=max(5, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                rows.append(("daemon", "FAIL", "", "", "", "did not stop"))
                failed += 1
        stop_all(place.started)
        print(f"logs: {place.pack()}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"ranks": args.ranks, "gib": args.gib, "budget": args.budget, "rounds": args.rounds, "failed": failed,
                       "rows": [dict(zip(("row", "verdict", "took", "groups", "switches", "wrong"), row)) for row in rows]}, out, indent=1)
    print(f"{'row':<11} {'':<8} {'both jobs':<22} {'groups':<26} {'switches':<24} what is wrong")
    for row in rows:
        print(f"{row[0]:<11} {row[1]:<8} {row[2]:<22} {row[3]:<26} {row[4]:<24} {row[5]}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

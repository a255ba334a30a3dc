#!/usr/bin/env python3
"""tests/gpu/placement.py BUILD [--simcuda]: placement on a machine of two GPUs or more, in one call of two minutes.

  lists    for each list in CUDA_VISIBLE_DEVICES: the devices that a program sees natively and under gpumux. The sets must
           be equal; natively they tell how the driver reads such a list. Also what a second cuInit says after the first failed
  start    what placement adds to cuInit: fresh processes, in turn natively, under a daemon, and with GPUMUX_PLACE=off
  four     four programs that take device 0: on which GPUs they run, and what they get done in 10 s, with --place order and off
  torch    what PyTorch counts and names under gpumux, where it is there

Needs the CUDA driver and Python 3.8. The last lines are a table.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ONE = """
import ctypes, json, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
begun = time.perf_counter()
first = cuda.cuInit(0)
took = time.perf_counter() - begun
again = cuda.cuInit(0)
count = ctypes.c_int()
uuids = []
if first == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for i in range(count.value):
        uuid = (ctypes.c_ubyte * 16)()
        device = ctypes.c_int()
        assert cuda.cuDeviceGet(ctypes.byref(device), i) == 0
        assert cuda.cuDeviceGetUuid_v2(uuid, device) == 0
        text = bytes(uuid).hex()
        uuids.append("GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
print(json.dumps({"first": first, "again": again, "ms": took * 1e3, "uuids": uuids}))
"""
TORCH = """
import torch
torch.cuda.init()
x = torch.ones(1, device="cuda")
print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid, torch.cuda.current_device())
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--simcuda", action="store_true")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    work = tempfile.mkdtemp(prefix="gpumux-placement-")
    base = dict(os.environ, GPUMUX_SOCKET=os.path.join(work, "gpumux.sock"), GPUMUX_RUN_DIR=work)
    for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LOCAL_RANK", "SLURM_LOCALID", "CUDA_DEVICE_ORDER"):
        base.pop(name, None)
    if args.simcuda:
        os.mkdir(os.path.join(work, "sim"))
        base.update(SIMCUDA_DEVICES="3", SIMCUDA_DIR=os.path.join(work, "sim"),
                    LD_LIBRARY_PATH=os.path.join(build, "tests/simcuda"))
    shim = dict(LD_PRELOAD=os.path.join(build, "shim/libgpumux.so"))

    def run_one(**more):
        done = subprocess.run([sys.executable, "-c", ONE], env=dict(base, **more), capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else {"first": done.stderr[-200:], "again": "", "ms": 0, "uuids": []}

    def start_daemon(*more):
        log = open(os.path.join(work, "daemon.log"), "a", encoding="utf-8")
        daemon = subprocess.Popen([os.path.join(build, "daemon/gpumuxd"), "--socket", base["GPUMUX_SOCKET"], "--gpu", "all",
                                   "--pinned", "1G", *more], env=base, stderr=log)
        for _ in range(600):
            if subprocess.run([os.path.join(build, "daemon/mux-ctl"), "status"], env=base, capture_output=True).returncode == 0:
                return daemon
            if daemon.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("the daemon does not start: " + open(log.name, encoding="utf-8").read()[-500:])

    def stop_daemon(daemon):
        daemon.terminate()
        daemon.wait(timeout=120)

    def status():
        done = subprocess.run([os.path.join(build, "daemon/mux-ctl"), "status", "--json"], env=base, capture_output=True, text=True)
        return json.loads(done.stdout)

    rows, failed = [], 0
    machine = run_one()["uuids"]
    if len(machine) < 2:
        sys.exit(f"skipped: this machine has {len(machine)} GPU")
    daemon = start_daemon()

    # ---- lists, with GPU 0 taken so that the order changes
    worker = os.path.join(build, "tests/programs/gm_worker")
    enough = os.path.join(work, "enough")
    taken = subprocess.Popen([worker, "--bytes", "64M", "--ready", os.path.join(work, "ready"), "--until", enough],
                             env=dict(base, **shim), stdout=subprocess.DEVNULL)
    while not os.path.exists(os.path.join(work, "ready")) and taken.poll() is None:
        time.sleep(0.05)
    first, second = machine[0], machine[1]
    lists = [None, "0", "1", "0,1", "1,0", "0,1,-1", "0,-1,1", "-1", "", "0,0", "0,1,0", "9,0", "0,9,1", " 0 , 1", "0x,1y", "0,,1",
             first, f"{first},{second}", f"{second},{first}", first[:12], f"{first[:12]},{second[:12]}", f"{first},{first}",
             "GPU-00000000-0000-0000-0000-000000000000", f"{first},GPU-dead,{second}", f"0,{second}", f"{first},1", "MIG-0",
             "MIG-" + first + "/0/0", "GPU-", first.upper(), ",".join(str(i) for i in range(10000))]
    changed = 0
    for text in lists:
        more = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
        native, under = run_one(**more), run_one(**more, **shim)
        is_same = sorted(native["uuids"]) == sorted(under["uuids"]) and native["first"] == under["first"]
        changed += native["uuids"] != under["uuids"]
        failed += not is_same
        shown = "(none)" if text is None else text[:44].replace(first, "UUID0").replace(second, "UUID1")
        order = " ".join(str(machine.index(u)) for u in native["uuids"]) or f"error {native['first']}, then {native['again']}"
        now = " ".join(str(machine.index(u)) for u in under["uuids"]) or f"error {under['first']}, then {under['again']}"
        rows.append(("list", shown, f"{order} -> {now}", "ok" if is_same else "FAIL"))
    rows.append(("list", "orders that changed", str(changed), "ok" if changed >= 3 else "FAIL"))
    failed += changed < 3
    open(enough, "w", encoding="utf-8").close()
    taken.wait(timeout=60)

    # ---- start
    ways = {"native": {}, "placed": shim, "GPUMUX_PLACE=off": dict(shim, GPUMUX_PLACE="off")}
    times = {way: [] for way in ways}
    for _ in range(20):
        for way, more in ways.items():
            times[way].append(run_one(**more)["ms"])
    native = statistics.median(times["native"])
    for way in ways:
        middle = statistics.median(times[way])
        is_good = way == "native" or middle - native <= 2
        failed += not is_good
        rows.append(("start", f"cuInit, {way}", f"{middle:.2f} ms median, {min(times[way]):.2f} least", "ok" if is_good else "FAIL"))
    stop_daemon(daemon)

    # ---- four
    for place in ("order", "off"):
        daemon = start_daemon("--place", place)
        for name in os.listdir(work):
            if name.startswith("ready") or name == "enough":
                os.unlink(os.path.join(work, name))
        four = [subprocess.Popen([worker, "--bytes", "64M", "--seed", str(i), "--ready", os.path.join(work, f"ready{i}"), "--until",
                                  enough, "--seconds", "10"], env=dict(base, **shim), stdout=subprocess.PIPE, text=True)
                for i in range(4)]
        while sum(name.startswith("ready") for name in os.listdir(work)) < 4 and all(p.poll() is None for p in four):
            time.sleep(0.05)
        where = sorted(app["gpu"] for app in status()["apps"])
        time.sleep(10)
        open(enough, "w", encoding="utf-8").close()
        lines = [p.communicate(timeout=120)[0].strip().splitlines()[-1] for p in four]
        done = [int(word.split("=")[1]) for line in lines for word in line.split() if word.startswith("iterations=")]
        is_good = all(line.startswith("PASS") for line in lines) and (place == "off" or all(where.count(g) <= 2 for g in where))
        failed += not is_good
        rows.append(("four", f"--place {place}: GPUs {where}", f"iterations {sum(done)}", "ok" if is_good else "FAIL"))
        stop_daemon(daemon)

    # ---- torch
    if not args.simcuda and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        daemon = start_daemon()
        for way, more in {"native": {}, "placed": shim}.items():
            done = subprocess.run([sys.executable, "-c", TORCH], env=dict(base, **more), capture_output=True, text=True, timeout=300)
            rows.append(("torch", way, done.stdout.strip() or done.stderr[-100:], "ok" if done.returncode == 0 else "FAIL"))
            failed += done.returncode != 0
        stop_daemon(daemon)

    print(f"{len(machine)} GPUs")
    for part, what, result, verdict in rows:
        print(f"{verdict:5}{part:7}{what:48}{result}")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())

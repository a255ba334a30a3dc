"""A gpumuxd for tests of mux-ctl: answers STATUS with made-up programs and SET by changing them.

fake_daemon.py SOCKET VERSION PROGRAMS GPUS SAID

VERSION is the protocol's. What it is asked to set goes into the file SAID, a line each. Programs work in turns of a
second: program n has the GPU when the seconds since the start are n, modulo their number.
FAKE_NAME is the first program's name.
"""
import array
import json
import os
import socket
import struct
import sys
import time

HELLO, STATUS, STATUS_IS, SET, SET_IS = 1, 32, 33, 34, 35
GIB = 1 << 30
CLASSES = ["auto", "latency", "interactive", "batch"]
STARTED = time.time()


def make_apps(n, gpus):
    """n programs, and with FAKE_BOTH the first of them on GPU 1, too."""
    users = ["alice", "bob", "carol"]
    first = os.environ.get("FAKE_NAME", "train_0.py")
    return [{"id": i, "pid": 1000 + i, "uid": 0, "user": users[i % 3], "name": f"train_{i}.py" if i else first, "gpu": gpu,
             "group": "", "state": "waiting", "resident_bytes": (i % 7) * GIB, "total_bytes": 8 * GIB,
             "device_bytes": (i % 7) * GIB, "run_s": 0.0, "wait_s": 0.0, "waiting_s": float(i), "level": 2,
             "class": "auto", "weight": 1, "share_percent": 100, "paused": False, "pause": "no", "cap_bytes": 0,
             "reason": "turn", "why": f"another program's slice is not over: app {(i + 1) % n} has the GPU"}
            for i, gpu in [(i, i % gpus) for i in range(n)] + [(0, 1)] * ("FAKE_BOTH" in os.environ)]


def status(apps, gpus):
    now = time.time() - STARTED
    turn = int(now) % max(len(apps), 1)
    for app in apps:
        app["run_s"] = 0.0
    for app in apps:  # whole turns, and a part of the one now
        n = app["id"]
        rounds, rest = divmod(now, max(len(apps), 1))
        app["run_s"] = rounds + min(max(rest - n, 0), 1)
        if not app["paused"]:
            app["state"] = "running" if n == turn else "waiting"
    return json.dumps({
        "schema": 3, "version": "0.1.0", "pid": os.getpid(), "uptime_s": now, "socket": sys.argv[1],
        "config": {"space_sharing": "off"}, "reserved": 0, "refused": {"count": 0}, "starting": [], "space_sharing": [],
        "gpus": [{"index": g, "name": f"made-up GPU {g}", "uuid": f"GPU-{g}", "budget_bytes": 80 * GIB,
                  "budget_most_bytes": 80 * GIB, "usable_bytes": 80 * GIB, "used_bytes": 60 * GIB,
                  "cached_bytes": 0, "free_bytes": 20 * GIB, "switches": int(now), "running": [turn],
                  "bytes_in": int(now * 12.5e9), "bytes_out": int(now * 3e9),
                  "switch_times": {"up_to_s": [0.001, 0.064], "counts": [1, 0, 5], "sum_s": 7.5},
                  "tiers": {"gpu_bytes": 60 * GIB, "pinned_used_bytes": 16 * GIB, "pinned_cap_bytes": 64 * GIB,
                            "paged_used_bytes": 2 * GIB, "paged_cap_bytes": 32 * GIB, "disk_used_bytes": 0,
                            "disk_cap_bytes": 0}, "history": [], "refusals": []} for g in range(gpus)],
        "apps": apps, "totals": {"parks": 0}}).encode()


def set_apps(apps, body):
    selects, pid, uid, settings, klass, weight, share, paused, oversize, _, cap = struct.unpack_from("<IiIIIIIIIIQ", body)
    chosen = [app for app in apps if app["pid"] == pid]
    with open(sys.argv[5], "a", encoding="utf-8") as said:
        said.write(f"selects={selects} pid={pid} settings={settings} class={klass} paused={paused} cap={cap}\n")
    if pid == 1013:
        return struct.pack("<II184s", 1, 0, b"that is another user's program: only root may set it")
    for app in chosen:
        if settings & 1:
            app["class"] = CLASSES[klass]
        if settings & 8:
            app["paused"], app["pause"] = paused != 0, ["no", "yes", "evicted", "idle"][paused]
            app["state"], app["why"] = ("paused", f"paused as {app['pause']}") if paused else ("waiting", "")
        if settings & 64:  # prefetch: and others take what it has
            app["resident_bytes"] -= GIB
        if settings & 32:
            app["cap_bytes"] = cap
    return struct.pack("<II184s", 0, len(chosen), b"")


def send(peer, kind, payload, fd=None):
    message = struct.pack("<IHHII", 16 + len(payload), int(sys.argv[2]), kind, 0, 0) + payload
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd is not None else []
    peer.sendmsg([message], rights)


def serve(peer, apps, gpus):
    while True:
        message = peer.recv(16384)
        if len(message) < 16:
            return
        kind = struct.unpack_from("<IHHII", message)[2]
        if kind == STATUS:
            text = status(apps, gpus)
            fd = os.memfd_create("answer")
            os.write(fd, text)
            send(peer, STATUS_IS, struct.pack("<Q", len(text)), fd)
            os.close(fd)
        elif kind == SET:
            send(peer, SET_IS, set_apps(apps, message[16:]))


def main():
    gpus = int(sys.argv[4])
    apps = make_apps(int(sys.argv[3]), gpus)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    listener.listen(16)
    while True:
        peer, _ = listener.accept()
        try:
            serve(peer, apps, gpus)
        except OSError:
            pass
        peer.close()


main()

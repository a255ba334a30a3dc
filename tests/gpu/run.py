"""The GPU tests. See run.sh; harness.py has the machinery.

Memory sizes suit a card of 80 GB or more: the native references run without gpumux, two at a time.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from harness import Daemon, Failure, Moved, Place, Program, Skip, die, fields, same, use_simcuda, wait_until

BUDGET = "24G"
PINNED = "64G"
TOKENS = 200
STEPS = 20
KILLS = 500


class Suite:
    """The tests and what they share: one daemon with the big budget, and the native references."""

    def __init__(self, place):
        self.place = place
        self.daemon = None
        self.references = {}
        self.is_simulated = False

    def size(self, gib):
        """So many GiB as an option; with --simcuda 8 MiB for each."""
        return f"{8 * gib if self.is_simulated else gib * 1024}M"

    def big(self):
        """The daemon with 24 GiB; started again if a test before lost it."""
        if self.daemon is None or not self.daemon.is_running():
            self.daemon = None
            self.daemon = Daemon(self.place, "daemon-big", BUDGET, PINNED)
        return self.daemon

    def small(self, name, budget, pinned, slice_, *options):
        """A daemon of a test's own. The big one must not be running: they would share the socket."""
        self.end_big()
        return Daemon(self.place, name, budget, pinned, slice_, options)

    def end_big(self):
        if self.daemon is not None:
            daemon, self.daemon = self.daemon, None
            daemon.stop()

    def python(self, name, script, *arguments, under_gpumux=False):
        path = os.path.join(self.place.here, "python", script)
        return Program(self.place, name, [sys.executable, path, *arguments], under_gpumux)

    def held(self, name, script, *arguments, under_gpumux=False):
        """A Python program that has done its imports and waits; call release() to let it use the GPU."""
        program = self.python(name, script, "--go", os.path.join(self.place.work, name + ".go"), *arguments,
                              under_gpumux=under_gpumux)
        return program

    def release(self, *programs):
        paths = [os.path.join(self.place.work, program.name + ".go") for program in programs]
        for program, path in zip(programs, paths):
            wait_until(f"{program.name} imports PyTorch", 120,
                       lambda p=program, f=path: os.path.exists(f + ".imported") or not p.is_running())
            if not program.is_running():
                raise Failure(f"{program.name} ended early: {program.complaint()}")
        for path in paths:
            open(path, "w", encoding="utf-8").close()

    def pingpong(self, name, *arguments, under_gpumux=True, extra=None):
        binary = self.place.at("tests/gpu/pingpong")
        if not os.path.exists(binary):
            raise Failure("no tests/gpu/pingpong in the build: it was made without nvcc")
        return Program(self.place, name, [binary, *arguments], under_gpumux, extra)

    def crowd(self, way, names, seconds, under_gpumux, look=lambda: None):
        """Runs all of tests/gpu/programs of these names, five at a time. Returns them all, and what failed."""
        waiting, running, ended, wrong = list(names), [], [], []
        while waiting or running:
            while waiting and len(running) < 5:
                name = waiting.pop(0)
                binary = self.place.at("tests/gpu/programs/" + name)
                if not os.path.exists(binary):
                    raise Failure(f"no tests/gpu/programs/{name} in the build: it was made without nvcc")
                running.append(Program(self.place, f"{way}-{name}", [binary, "--seconds", seconds], under_gpumux))
            look()
            for program in list(running):
                if program.is_running() and time.monotonic() < program.begun + 90:
                    continue
                running.remove(program)
                ended.append(program)
                try:
                    code = program.wait(0)
                    if code != 0 or not program.last_line().startswith(f"PASS {program.name[len(way) + 1:]} rounds="):
                        wrong.append(f"{program.name} ended with {code}: {program.last_line() or program.complaint()}")
                except Failure as failure:
                    wrong.append(str(failure).replace("within 0 s", "within 90 s"))
            time.sleep(.1)
        return ended, wrong

    def worker(self, name, way, *arguments, under_gpumux=True):
        binary = self.place.at("tests/programs/gm_worker" + ("" if way == "linked" else "_" + way))
        return Program(self.place, name, [binary, *arguments], under_gpumux)

    def reference(self, kind):
        if kind not in self.references:
            raise Failure(f"there is no native reference (test native_{kind} failed or was not selected)")
        return self.references[kind]

    # --- without gpumux ---

    def test_native_llm(self):
        """Two native runs of the LLM agree to the bit; the first one alone on the GPU."""
        first = self.held("native-llm-1", "llm.py", "--seeds", "1,2", "--tokens", TOKENS)
        second = self.held("native-llm-2", "llm.py", "--seeds", "1,2", "--tokens", TOKENS)
        self.release(first)
        one = first.result()
        self.release(second)
        if self.wants("native_resnet"):
            self.start_native_resnet()
        two = second.result()
        for seed in ("1", "2"):
            same(f"tokens of two native runs, seed {seed},", one["runs"][seed]["tokens"], two["runs"][seed]["tokens"])
            same(f"logits of two native runs, seed {seed},", one["runs"][seed]["sums"], two["runs"][seed]["sums"])
        distinct = len(set(one["runs"]["1"]["tokens"]))
        if one["bytes"] < 14e9:
            raise Failure(f"the model has only {one['bytes']} bytes")
        self.references["llm"] = one["runs"]
        return (f"{one['bytes'] / 1e9:.1f} GB of weights, {TOKENS} tokens, {distinct} distinct, "
                f"decode {one['decode_s']} s, equal in two runs")

    def start_native_resnet(self):
        self.resnets = [self.held(f"native-resnet-{i}", "resnet.py", "--steps", STEPS) for i in (1, 2)]

    def test_native_resnet(self):
        """Two native runs of the training agree to the bit."""
        if not getattr(self, "resnets", None):
            self.start_native_resnet()
        first, second = self.resnets
        self.release(first)
        one = first.result()
        self.release(second)
        two = second.result()
        same("losses of two native runs", one["losses"], two["losses"])
        same("weights of two native runs", one["weights"], two["weights"])
        self.references["resnet"] = one
        return (f"{STEPS} steps, last loss {float.fromhex(one['losses'][-1]):.4f}, "
                f"peak {one['peak_bytes'] / 2**30:.1f} GiB, {one['seconds']} s, equal in two runs")

    def test_no_daemon(self):
        """With the shim preloaded and no daemon, programs behave as without it."""
        self.end_big()
        arguments = ("--mode", "verify", "--bytes", "1G", "--iterations", "20")
        pairs = [(self.python("nodaemon-torch-bare", "small.py"),
                  self.python("nodaemon-torch-shim", "small.py", under_gpumux=True))]
        for way in ("linked", "dlsym", "proc"):
            pairs.append((self.worker(f"nodaemon-{way}-bare", way, *arguments, under_gpumux=False),
                          self.worker(f"nodaemon-{way}-shim", way, *arguments)))
        pairs.append((self.pingpong("nodaemon-pingpong-bare", "--gib", 4, "--iterations", 20, under_gpumux=False),
                      self.pingpong("nodaemon-pingpong-shim", "--gib", 4, "--iterations", 20)))
        for bare, shimmed in pairs:
            codes = bare.wait(), shimmed.wait()
            if codes[0] != codes[1] or codes[0] != 0:
                raise Failure(f"{shimmed.name} ended with {codes[1]}, without the shim {codes[0]}: "
                              f"{shimmed.complaint()}")
            texts = [" ".join(word for word in program.text().split() if not word.startswith("seconds="))
                     for program in (bare, shimmed)]
            if texts[0] != texts[1]:
                raise Failure(f"{shimmed.name} printed something else than without the shim")
            with open(bare.log, encoding="utf-8") as one, open(shimmed.log, encoding="utf-8") as two:
                if one.read() != two.read():
                    raise Failure(f"{shimmed.name} complained otherwise than without the shim")
        return "PyTorch, the three ways to the driver and a static cudart: same output, same exit code"

    def test_gate(self):
        """Cost of the gate on the fast path."""
        binary, report = self.place.at("bench/gate"), os.path.join(self.place.logs, "gate.json")
        if not os.path.exists(binary):
            raise Failure("no bench/gate in the build")
        gate = Program(self.place, "gate", [binary, "--json", report])
        if gate.wait(60) != 0:
            raise Failure(f"bench/gate failed: {gate.complaint()}")
        with open(report, encoding="utf-8") as file:
            measured = json.load(file)
        cost = measured["gate"]
        if not measured["met"]:
            raise Failure(f"{cost['ns']:.2f} ns a call, {measured['target_ns']:.0f} at most")
        return f"{cost['ns']:.2f} ns a call, {'with' if measured['membarrier'] else 'without'} membarrier"

    # --- gm_worker on the real driver ---

    def test_workers(self):
        """gm_worker's modes and ways, many at a time, at about three times the budget."""
        daemon = self.small("daemon-workers", "3G", "12G", "100ms")
        moved = Moved(daemon)
        rows = [
            ("linked", "verify", "--bytes", "1G", "--iterations", "20"),
            ("dlsym", "verify", "--bytes", "1G", "--iterations", "20"),
            ("proc", "verify", "--bytes", "1G", "--iterations", "20"),
            ("proc", "ptds", "--bytes", "1G", "--iterations", "80"),
            ("linked", "threads", "--bytes", "1G", "--iterations", "80", "--threads", "8"),
            ("dlsym", "graph", "--bytes", "1G", "--iterations", "40"),
            ("linked", "capture", "--bytes", "512M", "--iterations", "6", "--hold", "300"),
            ("proc", "streams", "--bytes", "1G", "--iterations", "20"),
            ("linked", "async", "--bytes", "1G", "--iterations", "40", "--threads", "4"),
            ("proc", "aptds", "--bytes", "1G", "--iterations", "40", "--threads", "4"),
            ("dlsym", "pools", "--iterations", "4"),
            ("proc", "beside", "--iterations", "40"),
            ("linked", "copies", "--bytes", "192M", "--iterations", "4"),
            ("proc", "churn", "--bytes", "1G", "--iterations", "60"),
            ("linked", "vector", "--bytes", "192M", "--iterations", "3"),
            ("dlsym", "matmul", "--allocs", "8", "--iterations", "4"),
            ("linked", "sweep", "--bytes", "512M", "--iterations", "20"),
            ("linked", "spin", "--bytes", "512M", "--iterations", "3", "--hold", "2500"),
            ("linked", "fork", "--bytes", "256M", "--iterations", "2"),
            ("proc", "exec", "--bytes", "256M", "--iterations", "2"),
        ]
        programs = [
            self.worker(f"worker-{i}-{way}-{mode}", way, "--mode", mode, "--seed", i + 1, *rest,
                        *(() if mode in ("fork", "exec", "matmul", "copies", "vector") else ("--seconds", "6")))
            for i, (way, mode, *rest) in enumerate(rows)
        ]
        for program in programs:
            program.passed()
        result = moved.since()
        daemon.expect_empty()
        daemon.stop()
        if result["switches"] < 10:
            raise Failure(f"only {result['switches']} switches")
        return f"{len(rows)} programs, {Moved.text(result)}, 0 mismatches"

    def test_bad_calls(self):
        """Wrong calls get from gpumux what the driver answers, call by call."""
        self.end_big()
        binary = self.place.at("tests/programs/gm_badcalls")
        texts = []
        for name, under_gpumux in (("bad-native", False), ("bad-managed", True)):
            if under_gpumux:
                daemon = self.small("daemon-bad", "3G", "4G", "100ms")
            program = Program(self.place, name, [binary], under_gpumux)
            if program.wait(60) != 0:
                raise Failure(f"{name} failed: {program.complaint()}")
            shutil.copy(program.out, self.place.log(name + "-answers"))
            texts.append(program.text().splitlines())
        daemon.expect_empty()
        daemon.stop()
        differing = [f"{other!r} instead of {one!r}" for one, other in zip(*texts) if one != other]
        if differing or len(texts[0]) != len(texts[1]):
            raise Failure(f"{len(differing)} of {len(texts[0])} answers differ: " + "; ".join(differing[:6]))
        return f"{sum(': ' in line for line in texts[0])} answers are those of the driver"

    def test_killed(self):
        """Programs killed in the middle of switches; the others verify to the end and nothing is leaked."""
        daemon = self.small("daemon-killed", "3G", "12G", "100ms")
        moved = Moved(daemon)
        others = [self.worker(f"killed-other-{i}", "proc", "--bytes", "2G", "--seconds", 12, "--seed", i)
                  for i in (1, 2)]
        for turn in range(8):
            victim = self.worker(f"killed-victim-{turn}", "linked", "--bytes", "2G", "--iterations", 10**9,
                                 "--seed", 50 + turn)
            time.sleep(0.45 + 0.13 * turn)
            victim.stop()
            daemon.status()
        for other in others:
            other.passed()
        result = moved.since()
        daemon.expect_empty()
        daemon.stop()
        return f"8 killed, {Moved.text(result)}, 0 mismatches"

    def test_share(self):
        """Memory shared between processes (cuIpc*), written by all of them in turn, beside a hog."""
        daemon = self.small("daemon-share", "6G", "16G", "100ms")
        moved = Moved(daemon)
        meeting = os.path.join(self.place.work, "share.meeting")
        hog = self.worker("share-hog", "linked", "--bytes", "3G", "--seconds", 20, "--seed", 1)
        owner = self.worker("share-owner", "proc", "--mode", "share", "--bytes", "2G", "--allocs", 3, "--iterations",
                            60, "--threads", 2, "--signal", meeting)
        openers = [self.worker(f"share-opener-{way}", way, "--mode", "open", "--signal", meeting)
                   for way in ("linked", "dlsym")]
        other = self.worker("share-other", "linked", "--bytes", "3G", "--seconds", 15, "--seed", 2)
        most = 0
        while owner.is_running():
            most = max(most, daemon.gpu()["shared_bytes"])
            time.sleep(.05)
        for program in (owner, *openers, other, hog):
            program.passed()
        misuse = self.worker("share-misuse", "proc", "--mode", "misuse", "--bytes", "64M", "--allocs", 2)
        misuse.passed()
        result = moved.since()
        daemon.expect_empty()
        if daemon.gpu()["shared_bytes"] != 0 or most < 2 << 30:
            raise Failure(f"{most} bytes were shared, {daemon.gpu()['shared_bytes']} are left")
        daemon.stop()
        if result["switches"] < 10:
            raise Failure(f"only {result['switches']} switches")
        return f"2 GiB of three programs, {Moved.text(result)}, 0 mismatches"

    def test_share_torch(self):
        """torch.multiprocessing hands tensors to another process, beside a hog; as natively."""
        native = self.python("share-torch-native", "shared.py").result()
        daemon = self.small("daemon-share-torch", "12G", "24G", "200ms")
        moved = Moved(daemon)
        hog = self.worker("share-torch-hog", "linked", "--bytes", "8G", "--seconds", 30, "--seed", 1)
        program = self.python("share-torch", "shared.py", under_gpumux=True)
        most = 0
        while program.is_running():
            most = max(most, daemon.gpu()["shared_bytes"])
            time.sleep(.05)
        result = program.result()
        hog.passed()
        same("tensors of torch.multiprocessing", native, result)
        if result["wrong"] or result["other"] != 0 or most == 0:
            raise Failure(f"{result}, {most} bytes shared at most")
        daemon.expect_empty()
        text = Moved.text(moved.since())
        daemon.stop()
        return f"{most / 2**30:.1f} GiB shared at most, {text}, equal to native"

    def test_tiers(self):
        """Programs whose memory fills the GPU and all tiers below it, the disk too."""
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            daemon = self.small("daemon-tiers", "3G", "1G", "200ms", "--paged", "1G", "--disk", folder + ":3G")
            moved = Moved(daemon)
            programs = [self.worker(f"tiers-{i}", "linked", "--bytes", "2G", "--allocs", 3 + i, "--seconds", 10,
                                    "--seed", i) for i in (1, 2, 3)]
            most = {"paged": 0, "disk": 0}
            while any(program.is_running() for program in programs):
                tiers = daemon.gpu()["tiers"]
                for tier in most:
                    most[tier] = max(most[tier], tiers[tier + "_used_bytes"])
                    if tiers[tier + "_used_bytes"] > tiers[tier + "_cap_bytes"]:
                        raise Failure(f"more than its cap is in {tier}: {tiers}")
                time.sleep(.1)
            for program in programs:
                program.passed()
            result = moved.since()
            daemon.expect_empty()
            daemon.stop()
        if result["switches"] < 4 or not all(most.values()):
            raise Failure(f"{result['switches']} switches, at most {most} bytes")
        return (f"3 x 2 GiB in 3, 1 pinned, 1 paged and the disk: {Moved.text(result)}, at most "
                f"{most['paged'] / 2**30:.1f} GiB paged and {most['disk'] / 2**30:.1f} on disk, 0 mismatches")

    def test_shadows(self):
        """What has not changed is not copied out again, and one byte that has is not missed."""
        wrong = []
        text = []

        def take_turns(name, mode, count, sizes, budget):
            """Two programs beside each other; what left the GPU after each was away once, in bytes by how."""
            daemon = self.small(f"daemon-shadows-{name}", self.size(budget), self.size(4 * max(sizes)), "500ms")
            until = os.path.join(self.place.work, f"shadows-{name}.until")
            programs = [self.worker(f"shadows-{name}-{i}", "linked", "--mode", mode, "--bytes", self.size(size),
                                    "--allocs", 4, "--iterations", 2, "--until", until, "--seed", i)
                        for i, size in enumerate(sizes, 1)]

            def switched(least):
                return daemon.gpu()["switches"] >= least or not all(program.is_running() for program in programs)

            # What leaves the GPU for the first time is copied, and pinned memory for shadows grows meanwhile.
            wait_until("the first turns", 120, lambda: switched(20))
            before = daemon.gpu()
            wait_until("more turns", 120, lambda: switched(before["switches"] + count))
            now = daemon.gpu()
            open(until, "w", encoding="utf-8").close()
            for program in programs:
                program.passed()
            daemon.expect_empty()
            if not now["is_hashing"]:
                wrong.append("the GPU does not hash: " + daemon.program.complaint())
            daemon.stop()
            moved = {key: now[key] - before[key] for key in ("switches", "bytes_out", "bytes_clean", "bytes_zero",
                                                             "bytes_hashed", "hash_ms")}
            if moved["switches"] < count:
                wrong.append(f"{name}: only {moved['switches']} switches")
            text.append(f"{name}: {moved['bytes_out'] / 2**30:.2f} GiB out, {moved['bytes_clean'] / 2**30:.2f} unchanged, "
                        f"{moved['bytes_zero'] / 2**30:.2f} zero in {moved['switches']} switches" +
                        (f", hashed at {moved['bytes_hashed'] / moved['hash_ms'] / 1e6:.0f} GB/s" if moved["hash_ms"] else ""))
            return moved

        same = take_turns("same", "readonly", 12, (16, 16), 24)
        byte = take_turns("byte", "byte", 8, (4, 4), 6)
        zeros = take_turns("zeros", "zeros", 8, (4, 4), 6)
        if same["bytes_out"] > .05 * same["bytes_clean"]:
            wrong.append("more than a twentieth of what leaves is copied")
        if byte["bytes_out"] == 0:
            wrong.append("nothing of what had changed was copied")
        if zeros["bytes_zero"] == 0:
            wrong.append("nothing was zero")
        if wrong:
            raise Failure("; ".join(wrong + text))
        return "; ".join(text) + "; 0 mismatches"

    def test_hash(self):
        """The hash kernel computes what the reference says, for every size of chunk, and fast enough."""
        self.end_big()
        report = os.path.join(self.place.logs, "hash.json")
        bench = Program(self.place, "hash", [self.place.at("bench/hash"), "--bytes", self.size(16), "--rounds", 5, "--json",
                                             report])
        if bench.wait(120) != 0:
            raise Failure(f"bench/hash failed: {bench.complaint()}")
        with open(report, encoding="utf-8") as file:
            pieces = json.load(file)["pieces"]
        return "equal to the reference; " + ", ".join(
            f"{piece['kernel']['median']:.0f} GB/s in {piece['piece'] >> 20} MiB" for piece in pieces)

    def test_fresh(self):
        """New memory is zero: the driver's frames on the device and on the host, and what gpumux gives a program."""
        self.end_big()
        for turn in range(3):  # each fills what the next one may get
            self.worker(f"fresh-native-{turn}", "linked", "--mode", "handles", "--bytes", "8G", "--allocs", "128",
                        "--seed", turn, under_gpumux=False).passed()
        daemon = self.small("daemon-fresh", "3G", "16G", "100ms")
        moved = Moved(daemon)
        others = [self.worker(f"fresh-other-{i}", "linked", "--bytes", "2G", "--seconds", 10, "--seed", i)
                  for i in (1, 2)]
        rows = ("linked", "fresh", 1), ("proc", "fresh", 100), ("dlsym", "handles", 64)
        shorts = 0
        while others[0].is_running():
            programs = [self.worker(f"fresh-{way}-{shorts}", way, "--mode", mode, "--bytes", "2G", "--allocs", allocs,
                                    "--seed", shorts)
                        for way, mode, allocs in rows]
            for program in programs:
                program.passed()
            shorts += len(programs)
        for other in others:
            other.passed()
        result = moved.since()
        daemon.expect_empty()
        daemon.stop()
        if result["switches"] < 10:
            raise Failure(f"only {result['switches']} switches")
        return f"{shorts} programs beside 2 x 2 GiB in 3: all of their new memory was zero, {Moved.text(result)}"

    def test_oversize(self):
        """A program of one and a half times the budget, whose last memory is used most, beside another one."""
        daemon = self.small("daemon-oversize", "4G", "12G", "1s", "--oversize", "host")
        moved = Moved(daemon)
        programs = [self.worker("oversize-hot", "linked", "--mode", "hot", "--bytes", "6G", "--allocs", "3",
                                "--seconds", "14", "--seed", "1"),
                    self.worker("oversize-other", "proc", "--bytes", "1G", "--seconds", "14", "--pause", "200",
                                "--seed", "2")]
        on_host = exchanged = 0
        while programs[0].is_running():
            for app in daemon.status()["apps"]:
                on_host, exchanged = max(on_host, app["on_host_bytes"]), max(exchanged, app["exchanged_bytes"])
            time.sleep(.1)
        for program in programs:
            program.passed()
        result = moved.since()
        daemon.expect_empty()
        daemon.stop()
        if on_host < 2 * 2**30 or exchanged < 1.5 * 2**30: # most of the first third, which made way, has come back
            raise Failure(f"{on_host} bytes were on the host, {exchanged} came to the GPU for being used most")
        return (f"6 GiB in 4: {on_host / 2**30:.1f} on the host, {exchanged / 2**30:.1f} exchanged by use, "
                f"{Moved.text(result)}, 0 mismatches")

    def test_cap(self):
        """A program that runs gets a cap: below it in 5 s, right, as fast as the link lets it. Without it, as before."""
        cap, small = self.size(6), "2M" if self.is_simulated else "64M"
        daemon = self.small("daemon-cap", self.size(24), self.size(32), "500ms")
        layers = Program(self.place, "cap-layers",
                         [self.place.at("bench/bench_app"), "--bytes", self.size(16), "--piece",
                          f"{int(self.size(16)[:-1]) // 64}M", "--activation", small, "--workspace", small, "--host",
                          self.size(1)],
                         under_gpumux=True, stdin=subprocess.PIPE)
        wait_until("the layers are there", 120, lambda: "ready" in layers.text() or not layers.is_running())

        def tokens(n):
            answer = fields(layers.ask(f"tokens {n}"))
            if answer.get("mismatches") != "0":
                raise Failure(f"wrong: {answer}")
            return float(answer["ms"])

        def set_cap(value):
            done = subprocess.run([self.place.ctl, "set", str(layers.process.pid), f"cap={value}"], capture_output=True,
                                  timeout=30, check=False, env=dict(os.environ, GPUMUX_SOCKET=self.place.socket))
            if done.returncode != 0:
                raise Failure(f"cap={value}: {done.stderr.decode(errors='replace').strip()}")

        read = float(fields(layers.ask("rates"))["read"])
        before = tokens(20)
        most = 2**20 * int(cap[:-1])
        set_cap(cap)
        begun = time.monotonic()
        wait_until("it is below its cap", 5, lambda: daemon.app(layers)["device_bytes"] <= most)
        took = time.monotonic() - begun
        tokens(3)
        capped = tokens(5)
        app = daemon.app(layers)
        if app["device_bytes"] > most:
            raise Failure(f"it has {app['device_bytes']} bytes of the GPU and a cap of {most}")
        bound = app["on_host_bytes"] / read / 1e6
        set_cap("none")

        def is_back():
            tokens(1)  # memory comes back for what uses it
            return daemon.app(layers)["on_host_bytes"] == 0

        wait_until("all of it is back", 30, is_back)
        after = tokens(20)
        layers.process.stdin.close()
        if layers.wait(60) != 0:
            raise Failure(f"it ended badly: {layers.complaint()}")
        daemon.expect_empty()
        daemon.stop()
        text = (f"below {cap} after {took:.1f} s; a token {before:.1f} ms, with the cap {capped:.1f}, its bound by the link "
                f"{bound:.1f} ({100 * bound / capped:.0f} %), again without {after:.1f}; 0 mismatches")
        if not self.is_simulated and (capped > bound / .8 or after > 1.1 * before):
            raise Failure(text)
        return text

    def test_programs(self):
        """Benchmarks that prove their own results, static cudart: without gpumux, and beside a memory hog."""
        names = sorted(name[:-3] for name in os.listdir(os.path.join(self.place.here, "programs"))
                       if name.endswith(".cu") and name != "hog.cu")
        self.end_big()
        _, wrong = self.crowd("native", names, 1, False)
        if wrong:
            raise Failure(f"without gpumux {len(wrong)} of {len(names)} fail: " + "; ".join(wrong))

        hog_mib = 6144 - 128  # none of them fits beside it
        daemon = self.small("daemon-programs", "6G", "20G", "250ms")
        moved = Moved(daemon)
        hog = Program(self.place, "hog", [self.place.at("tests/gpu/programs/hog"), "--mib", hog_mib, "--seconds", 600],
                      under_gpumux=True)
        wait_until("the hog has its memory", 60,
                   lambda: daemon.app(hog).get("total_bytes", 0) >= hog_mib << 20 or not hog.is_running())
        switches = {}

        def look():
            for app in daemon.status()["apps"]:
                switches[app["pid"]] = app["switches"]

        ended, wrong = self.crowd("beside", names, 3, True, look)
        hog.process.terminate()
        if hog.wait(60) != 0 or not hog.last_line().startswith("PASS hog rounds="):
            wrong.append(f"the hog: {hog.last_line() or hog.complaint()}")
        wrong += [f"{program.name} was never switched" for program in ended if not switches.get(program.process.pid)]
        result = moved.since()
        if wrong:
            raise Failure(f"beside the hog {len(wrong)} of {len(names)} fail: " + "; ".join(wrong))
        daemon.expect_empty()
        daemon.stop()
        least = min(switches[program.process.pid] for program in ended)
        return (f"{len(names)} programs without gpumux and beside {hog_mib} MiB in 6 GiB: all passed, "
                f"{Moved.text(result)}, each switched at least {least} times")

    def test_idle_inflight(self):
        """A program that submitted work and calls nothing is not idle before that work has ended, and then it is."""
        base = os.path.join(self.place.work, "ahead")
        texts = []

        def touch(name):
            open(f"{base}.{name}", "w", encoding="utf-8").close()

        for context in ("primary", "own"):
            # A turn is longer than the test: only idleness ends it.
            daemon = self.small(f"daemon-inflight-{context}", "3G", "8G", "600s", "--log-level",
                                "debug")
            for name in ("submitted", "release", "end"):
                if os.path.exists(f"{base}.{name}"):
                    os.unlink(f"{base}.{name}")
            ahead = self.worker(f"inflight-ahead-{context}", "linked", "--mode", "ahead", "--bytes", "2G", "--signal",
                                base, "--seed", 1, *(("--own-context",) if context == "own" else ()))
            wait_until("the work is submitted", 60,
                       lambda p=ahead: os.path.exists(base + ".submitted") or not p.is_running())
            other = self.worker(f"inflight-other-{context}", "linked", "--bytes", "2G", "--iterations", 10, "--seed", 2)
            wait_until("the other program waits", 60,
                       lambda d=daemon, p=other: d.app(p).get("state") == "waiting")
            before, begin, cpu = daemon.app(ahead), time.monotonic(), ahead.thread_seconds("gpumux-drain")
            while time.monotonic() < begin + 3:
                now = daemon.app(ahead)
                if now.get("state") != "running" or now["switches"] != 0:
                    raise Failure(f"with work in flight it is {now.get('state')}, after {now['switches']} switches")
                time.sleep(.05)
            now, seconds = daemon.app(ahead), time.monotonic() - begin
            cpu = ahead.thread_seconds("gpumux-drain") - cpu
            ran, idle = now["run_s"] - before["run_s"], now["idle_s"] - before["idle_s"]
            if idle > 0 or ran < 2.9:
                raise Failure(f"of {seconds:.2f} s with work in flight {ran:.2f} s are charged, {idle:.2f} s are idle")
            if cpu > .15:
                raise Failure(f"finding that out took {cpu:.2f} s of a core in {seconds:.2f} s")
            if not other.is_running():
                raise Failure("the other program did not wait")
            touch("release")
            released = time.monotonic()
            wait_until("the other program runs", 20, lambda d=daemon, p=other: d.app(p).get("state") != "waiting")
            took = time.monotonic() - released
            other.passed()
            if not ahead.is_running():
                raise Failure("the program with work in flight ended")
            touch("end")
            ahead.passed()
            busy = daemon.status()["totals"]["drain_busy"]
            daemon.expect_empty()
            daemon.stop()
            if busy != 0:
                raise Failure(f"{busy} drains were given up")
            texts.append(f"{context} context: {ran:.2f} s charged in {seconds:.2f}, {1000 * cpu:.0f} ms of a core, "
                         f"the other one went on {took:.2f} s after the work was let go")
        return "; ".join(texts) + "; 0 mismatches"

    def test_parked(self):
        """Two programs whose kernel never ends share a card in turns: it stops and goes on in the middle."""
        daemon = self.small("daemon-parked", "3G", "8G", "100ms")
        until = os.path.join(self.place.work, "parked.enough")
        files = [os.path.join(self.place.work, f"parked-{i}.steps") for i in (1, 2)]
        programs = [self.worker(f"parked-{i + 1}", "linked", "--mode", "endless", "--bytes", "2G", "--hold", 1,
                                "--threads", 1000, "--signal", files[i], "--until", until, "--seed", i + 1)
                    for i in (0, 1)]

        def steps(path):
            try:
                with open(path, encoding="utf-8") as file:
                    return int(file.read() or 0)
            except (FileNotFoundError, ValueError):
                return 0

        for turn in range(10):
            for program, path in zip(programs, files):
                before = steps(path)
                wait_until(f"{program.name} goes on in turn {turn}", 60,
                           lambda p=program, f=path, n=before: steps(f) > n or not p.is_running())
        totals = daemon.status()["totals"]
        open(until, "w", encoding="utf-8").close()
        for program in programs:
            program.passed()
        daemon.expect_empty()
        daemon.stop()
        if totals["parks"] < 19 or totals["drain_busy"] != 0: # all turns but the first began with one
            raise Failure(f"{totals['parks']} parks, {totals['drain_busy']} drains given up")
        return f"{totals['switches']} switches, each in the middle of an endless kernel; the counters are right"

    def drains(self, name, seconds):
        """Drain times in ms of switches away from programs that queue 0.3 s of kernels."""
        daemon = self.small(f"daemon-{name}", "3G", "8G", "100ms")
        programs = [self.worker(f"{name}-{i}", "linked", "--mode", "queue", "--bytes", "2G", "--hold", 17, "--threads",
                                1000, "--iterations", 1, "--seconds", seconds, "--seed", i) for i in (1, 2)]
        seen = {}
        while any(program.is_running() for program in programs):
            for row in daemon.status()["gpus"][0]["history"]:
                seen[row["seq"]] = row["drain_ms"]
            time.sleep(.5)
        for program in programs:
            program.passed()
        daemon.expect_empty()
        daemon.stop()
        times = sorted(value for seq, value in seen.items() if seq > 4)
        if len(times) < 20:
            raise Failure(f"only {len(times)} switches")
        return times

    def test_queues(self):
        """Switches away from long queues: the work is stopped where it stands."""
        times = self.drains("queues", 36)
        p95 = times[int(.95 * len(times))]
        text = f"{len(times)} switches, drain p50 {times[len(times) // 2]:.1f}, p95 {p95:.1f}, max {times[-1]:.1f} ms"
        if p95 > 10:  # on an H100 6.3, of which the driver takes 3.0 (p95 3.8) to stop the channels
            raise Failure(text)
        return text

    def park_some(self, name, budget, size, seconds, names, slice_):
        """Workers of `size` beside programs of tests/gpu/programs, in short turns. Returns the totals."""
        daemon = self.small("daemon-" + name, budget, "16G", slice_)
        until = os.path.join(self.place.work, name + ".enough")
        modes = (("verify", ("--seconds", seconds)), ("count", ("--hold", 40, "--seconds", seconds)),
                 ("endless", ("--hold", 1, "--until", until)), ("queue", ("--hold", 4, "--seconds", seconds)))
        workers = [self.worker(f"{name}-{mode}", "linked", "--mode", mode, "--bytes", size, "--threads", 500,
                               "--iterations", 1, "--seed", seed, *more) for seed, (mode, more) in enumerate(modes)]
        ended, wrong = self.crowd(name, names, 8, True)
        for program in workers:
            if not program.name.endswith("endless"):
                program.passed(seconds + 60)
        open(until, "w", encoding="utf-8").close()
        workers[2].passed()
        totals = daemon.status()["totals"]
        daemon.expect_empty()
        daemon.stop()
        if wrong:
            raise Failure("; ".join(wrong))
        return totals, len(ended)

    def test_park_many(self):
        """Thousands of parks over all kinds of kernels, with memory moved while parked: no wrong bit."""
        names = ["matmul", "gridsync", "graphs", "histogram", "radixsort", "stencil", "threads", "scan", "nbody", "spmv",
                 "bfs", "montecarlo", "convolution", "ntt", "hotspot", "kmeans"]
        crowded, ended = self.park_some("park-crowd", "3G", "1600M", 50, names, "20ms")
        small, _ = self.park_some("park-small", "64M", "40M", 145, [], "2ms")
        return (f"{crowded['parks']} parks in {crowded['switches']} switches of 4 workers and {ended} programs, "
                f"{small['parks']} in {small['switches']} of 4 small workers, "
                f"{crowded['drain_busy'] + small['drain_busy']} drains given up, 0 mismatches")

    def kill_some(self, number, kills, chance):
        """A daemon and six programs in turns of 5 ms; `kills` times a program is killed, and last the daemon. All that
        run then must end by themselves, with the right result or with error 46. Returns what was free before, and how
        many of them had the right result."""
        daemon = self.small(f"daemon-kills-{number}", "256M", "2G", "5ms")
        free = daemon.gpu()["device_free_bytes"]
        until = os.path.join(self.place.work, f"kills-{number}.enough")
        modes = (("verify", ()), ("endless", ("--hold", 1, "--threads", 200)), ("count", ("--hold", 30, "--threads", 200)),
                 ("queue", ("--hold", 2, "--threads", 200)), ("graph", ()), ("async", ("--threads", 2)))

        def start(at, seed):
            mode, more = modes[at]
            return self.worker(f"kills-{number}-{seed}-{mode}", chance.choice(("linked", "proc")), "--mode", mode,
                               "--bytes", "96M", "--iterations", 1, "--until", until, "--seed", seed, *more)

        programs = [start(at, at) for at in range(len(modes))]
        for turn in range(kills):
            time.sleep(chance.uniform(0, .25))
            at = chance.randrange(len(modes))
            if not programs[at].is_running():
                raise Failure(f"{programs[at].name} ended by itself: {programs[at].complaint()}")
            programs[at].stop()
            programs[at] = start(at, len(modes) + turn)
            daemon.status()
        time.sleep(chance.uniform(.5, 1))
        daemon.program.stop()
        open(until, "w", encoding="utf-8").close()
        right = 0
        for program in programs:
            code = program.wait(40)  # who stays parked does not end
            if fields(program.last_line()).get("mismatches", "0") != "0":
                raise Failure(f"{program.name} ended with {code}: {program.last_line()}")
            if code == 0:
                program.passed()
                right += 1
            elif ": error 46 " not in program.last_line():  # the one error of a program whose memory is lost
                raise Failure(f"{program.name} ended with {code}: {program.last_line()}")
        return free, right

    def test_kill_many(self):
        """Programs, and now and then the daemon, killed in the middle of kernels: nobody stays parked, nothing leaks."""
        chance = random.Random(7)
        rounds = KILLS // 50
        ends = [self.kill_some(number, 49, chance) for number in range(rounds)]
        daemon = self.small("daemon-kills-after", "256M", "2G", "5ms")
        free = [free for free, _ in ends] + [daemon.gpu()["device_free_bytes"]]
        daemon.stop()
        if max(free) - min(free) > 64 << 20:
            raise Failure(f"free device memory went from {free[0] >> 20} to {free[-1] >> 20} MiB")
        return (f"{rounds * 49} programs and {rounds} daemons killed; of {rounds * 6} programs that were left without one "
                f"{sum(right for _, right in ends)} ended with the right result, the others with an error")

    # --- the big budget ---

    def test_pingpong(self):
        """Two static-cudart programs of 16 GiB each within 24 GiB."""
        daemon = self.big()
        moved = Moved(daemon)
        programs = [self.pingpong(f"pingpong-{i}", "--gib", 16, "--seconds", 18, "--seed", i) for i in (1, 2)]
        ends = [program.passed() for program in programs]
        result = moved.since()
        daemon.expect_empty()
        if result["switches"] < 10:
            raise Failure(f"only {result['switches']} switches")
        iterations = "+".join(end["iterations"] for end in ends)
        return f"2 x 16 GiB in {BUDGET}, {Moved.text(result)}, {iterations} iterations, 0 mismatches"

    def test_pingpong_third(self):
        """The same beside a third that starts and exits in between."""
        daemon = self.big()
        moved = Moved(daemon)
        ready = os.path.join(self.place.work, "third-ready")
        programs = [self.pingpong(f"pingpong-three-{i}", "--gib", 16, "--seconds", 20, "--seed", 10 + i)
                    for i in (1, 2)]
        time.sleep(4)
        third = self.pingpong("pingpong-third", "--gib", 8, "--seconds", 4, "--seed", 13, "--ready", ready)
        third.passed()
        if not all(program.is_running() for program in programs):
            raise Failure("the third was to end before the others")
        for program in programs:
            program.passed()
        result = moved.since()
        daemon.expect_empty()
        if result["switches"] < 10:
            raise Failure(f"only {result['switches']} switches")
        return f"2 x 16 GiB and 8 GiB for a while, {Moved.text(result)}, 0 mismatches"

    def check_llm(self, result, seed, tokens):
        reference = self.reference("llm")[str(seed)]
        run = result["runs"][str(seed)]
        same(f"tokens of seed {seed} under gpumux and alone", run["tokens"], reference["tokens"][:tokens])
        same(f"logits of seed {seed} under gpumux and alone", run["sums"], reference["sums"][:tokens])

    def test_llm(self):
        """Two LLM processes decode at once; tokens and logits equal those of each alone."""
        self.reference("llm")
        daemon = self.big()
        moved = Moved(daemon)
        programs = [self.held(f"llm-{seed}", "llm.py", "--seeds", seed, "--tokens", TOKENS, under_gpumux=True)
                    for seed in (1, 2)]
        self.release(*programs)
        results = [program.result() for program in programs]
        result = moved.since()
        for seed, run in zip((1, 2), results):
            self.check_llm(run, seed, TOKENS)
        daemon.expect_empty()
        if result["switches"] < 2:
            raise Failure(f"only {result['switches']} switches")
        return (f"2 x {results[0]['bytes'] / 1e9:.1f} GB in {BUDGET}, {TOKENS} tokens each, {Moved.text(result)}, "
                f"{results[0]['all_s']} and {results[1]['all_s']} s, equal to the bit")

    def test_resnet(self):
        """ResNet-152 training beside an LLM decode; losses, weights and tokens equal those of each alone."""
        self.reference("resnet")
        self.reference("llm")
        daemon = self.big()
        moved = Moved(daemon)
        training = self.held("mixed-resnet", "resnet.py", "--steps", STEPS, under_gpumux=True)
        decoding = self.held("mixed-llm", "llm.py", "--seeds", 1, "--tokens", TOKENS, under_gpumux=True)
        self.release(training, decoding)
        trained, decoded = training.result(), decoding.result()
        result = moved.since()
        same("losses under gpumux and alone", trained["losses"], self.reference("resnet")["losses"])
        same("weights under gpumux and alone", trained["weights"], self.reference("resnet")["weights"])
        self.check_llm(decoded, 1, TOKENS)
        daemon.expect_empty()
        if result["switches"] < 2:
            raise Failure(f"only {result['switches']} switches")
        return (f"{STEPS} steps beside {TOKENS} tokens, {Moved.text(result)}, {trained['seconds']} and "
                f"{decoded['all_s']} s, equal to the bit")

    def test_graphs(self):
        """PyTorch's CUDA graphs replayed beside a program that takes the memory in between."""
        daemon = self.big()
        moved = Moved(daemon)
        graphs = self.held("graphs", "graphs.py", "--gib", 12, "--seconds", 8, under_gpumux=True)
        self.release(graphs)  # imports may take longer than the other program runs
        other = self.pingpong("graphs-other", "--gib", 16, "--seconds", 14, "--seed", 3)
        replayed = graphs.result()
        other.passed()
        result = moved.since()
        daemon.expect_empty()
        if replayed["wrong"] != 0:
            raise Failure(f"{replayed['wrong']} of {replayed['replays']} replays differ")
        if result["switches"] < 4:
            raise Failure(f"only {result['switches']} switches")
        return f"{replayed['replays']} replays, {Moved.text(result)}, all equal to the eager pass"

    def test_fits(self):
        """When everything fits: no switch, nothing moves, and no measurable cost."""
        daemon = self.big()
        moved = Moved(daemon)

        def rate(name, under_gpumux):
            program = self.pingpong(name, "--gib", 4, "--seconds", 3, "--seed", 5, under_gpumux=under_gpumux)
            end = program.passed()
            return int(end["iterations"]) / float(end["seconds"])

        shimmed, native = [], []
        for turn in range(3):
            native.append(rate(f"fits-native-{turn}", False))
            shimmed.append(rate(f"fits-gpumux-{turn}", True))
        cost = 100 * (1 - max(shimmed) / max(native))
        pair = [self.pingpong(f"fits-pair-{i}", "--gib", 8, "--seconds", 3, "--seed", i) for i in (1, 2)]
        for program in pair:
            program.passed()
        result = moved.since()
        daemon.expect_empty()
        if any(result.values()):
            raise Failure(f"everything fits, and yet {Moved.text(result)}")
        if cost > 1.0:
            raise Failure(f"alone under gpumux it is {cost:.2f} % slower than native")
        return f"no switch, nothing moved; alone {cost:+.2f} % against native (best of 3 each)"

    def two_gpus(self, name, *options):
        """A daemon of two GPUs."""
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
        count = listed.stdout.count("\n") if listed.returncode == 0 else 0
        if count < 2:
            raise Skip(f"it needs two GPUs, here is {count or 'none'}")
        return self.small(name, BUDGET, PINNED, "1s", "--gpu", "0,1")

    def on_gpu(self, name, gpu, *arguments, under_gpumux=True, group=None):
        extra = {"CUDA_VISIBLE_DEVICES": str(gpu)}
        if group:
            extra["GPUMUX_GROUP"] = group
        return self.pingpong(name, *arguments, under_gpumux=under_gpumux, extra=extra)

    def test_gpus(self):
        """Two GPUs, a program on each: neither waits, nothing moves; then two more that take turns on one."""
        daemon = self.two_gpus("daemon-gpus")
        native = [self.on_gpu(f"gpus-native-{gpu}", gpu, "--gib", 8, "--seconds", 4, "--seed", gpu,
                              under_gpumux=False) for gpu in (0, 1)]
        rates = [int(end["iterations"]) / float(end["seconds"]) for end in (each.passed() for each in native)]
        shared = [self.on_gpu(f"gpus-{gpu}", gpu, "--gib", 8, "--seconds", 4, "--seed", gpu) for gpu in (0, 1)]
        costs = [100 * (1 - int(end["iterations"]) / float(end["seconds"]) / rate)
                 for end, rate in zip((each.passed() for each in shared), rates)]
        if max(costs) > 3:
            raise Failure(f"under gpumux they are {costs[0]:.1f} and {costs[1]:.1f} % slower")
        if daemon.status()["totals"]["bytes_out"] != 0:
            raise Failure("memory moved though every program had a GPU of its own")
        turns = [self.on_gpu(f"gpus-turn-{i}", 1, "--gib", 16, "--seconds", 12, "--seed", i) for i in (1, 2)]
        alone = self.on_gpu("gpus-alone", 0, "--gib", 16, "--seconds", 12, "--seed", 3)
        for program in (*turns, alone):
            program.passed()
        gpus = daemon.status()["gpus"]
        daemon.stop()
        if gpus[0]["bytes_out"] != 0 or gpus[1]["switches"] < 6:
            raise Failure(f"GPU 0 moved {gpus[0]['bytes_out']}, GPU 1 switched {gpus[1]['switches']} times")
        return f"{costs[0]:+.1f} and {costs[1]:+.1f} % against native; {gpus[1]['switches']} switches on GPU 1 alone"

    def test_gpus_group(self):
        """One group on two GPUs beside a program on each: they run together, and all end."""
        daemon = self.two_gpus("daemon-gpus-group")
        members = [self.on_gpu(f"group-{gpu}", gpu, "--gib", 16, "--seconds", 12, "--seed", gpu, group="pair")
                   for gpu in (0, 1)]
        others = [self.on_gpu(f"group-other-{gpu}", gpu, "--gib", 16, "--seconds", 12, "--seed", 5 + gpu)
                  for gpu in (0, 1)]
        apart = looks = 0
        while all(program.is_running() for program in (*members, *others)):
            states = [daemon.app(member).get("state") for member in members]
            apart += "running" in states and ("waiting" in states or "loading" in states)
            looks += 1
            time.sleep(0.05)
        for program in (*members, *others):
            program.passed()
        switches = [gpu["switches"] for gpu in daemon.status()["gpus"]]
        daemon.stop()
        if apart > looks / 50:
            raise Failure(f"in {apart} of {looks} looks one of the group ran without the other")
        if min(switches) < 4:
            raise Failure(f"only {switches} switches")
        return f"{switches} switches, apart in {apart} of {looks} looks"

    def test_demo(self):
        """bench/demo.sh finds the real GPU and passes."""
        self.end_big()
        program = Program(self.place, "demo", ["sh", os.path.join(self.place.root, "bench/demo.sh"), "--build",
                                               self.place.build])
        code = program.wait(120)
        shutil.copy(program.out, self.place.log("demo-output"))
        if code != 0 or not program.last_line().startswith("demo: PASS "):
            raise Failure(f"demo.sh ended with {code}: {program.last_line() or program.complaint()}")
        if "demo: on the real GPU" not in program.text():
            raise Failure("demo.sh did not find the real GPU")
        return program.last_line()

    # --- running them ---

    NAMES = ("native_llm", "native_resnet", "no_daemon", "gate", "workers", "bad_calls", "killed", "share",
             "share_torch", "tiers", "hash", "shadows", "fresh", "oversize", "cap", "programs", "idle_inflight", "parked",
             "queues", "park_many", "kill_many", "gpus", "gpus_group", "demo", "pingpong", "pingpong_third", "llm",
             "resnet", "graphs", "fits")
    SIMULATED = ("hash", "shadows", "cap")  # that --simcuda can try
    NEEDS = {"llm": ("native_llm",), "resnet": ("native_llm", "native_resnet")}

    def wants(self, name):
        return name in self.selected

    def run(self, only):
        self.selected = set(only or self.NAMES)
        for name in only:
            self.selected.update(self.NEEDS.get(name, ()))
        passed = failed = 0
        for name in self.NAMES:
            if not self.wants(name):
                continue
            begin = time.monotonic()
            try:
                verdict, text = "ok", getattr(self, "test_" + name)()
            except Skip as skip:
                verdict, text = "skip", str(skip)
            except Failure as failure:
                verdict, text = "FAIL", str(failure)
            except Exception as error:  # a test that breaks has failed
                verdict, text = "FAIL", f"{type(error).__name__}: {error}"
            if verdict == "ok":
                passed += 1
            elif verdict == "FAIL":
                failed += 1
                self.clear()
            text = " ".join(str(text).split())
            print(f"{verdict} {name} ({text}; {time.monotonic() - begin:.1f} s)", flush=True)
        return passed, failed

    def clear(self):
        """After a failure: nothing of it may disturb the next test."""
        keep = {id(self.daemon.program)} if self.daemon is not None else set()
        keep.update(id(program) for program in getattr(self, "resnets", None) or ())
        for program in self.place.started:
            if id(program) not in keep:
                program.stop()
        if self.daemon is not None:
            try:
                self.daemon.expect_empty()
            except (Failure, subprocess.SubprocessError):
                self.daemon.program.stop()
                self.daemon = None
        if os.path.exists(self.place.socket) and self.daemon is None:
            os.unlink(self.place.socket)


def main():
    parser = argparse.ArgumentParser(prog="run.sh", description="the GPU tests")
    parser.add_argument("build", metavar="BUILD-DIR")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=Suite.NAMES)
    parser.add_argument("--list", action="store_true", help="print the tests' names")
    parser.add_argument("--simcuda", action="store_true",
                        help=f"try {', '.join(Suite.SIMULATED)} on the simulated GPU, with small sizes")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(Suite.NAMES))
        return 0
    place = Place(arguments.build)
    place.check_build()
    seen = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False) if shutil.which("nvidia-smi") else None
    print("GPU:", seen.stdout.strip() if seen and seen.returncode == 0 else "nvidia-smi says nothing", flush=True)
    suite = Suite(place)
    if arguments.simcuda:
        use_simcuda(place)
        suite.is_simulated = True
        arguments.only = arguments.only or list(Suite.SIMULATED)
    begin = time.monotonic()
    try:
        passed, failed = suite.run(arguments.only)
        try:
            suite.end_big()
        except Failure as failure:
            print(f"FAIL daemon_end ({failure})")
            failed += 1
    finally:
        for program in place.started:
            program.stop()
        shutil.rmtree(place.work, ignore_errors=True)
    with open(place.log("summary"), "w", encoding="utf-8") as log:
        json.dump({"passed": passed, "failed": failed, "seconds": time.monotonic() - begin}, log)
    where = place.pack()
    if failed:
        print(f"logs: {where}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

"""restarts.py BUILD [--kills N] [--seed N] [--only PART,...]: kills of gpumuxd and gpumux-keeper under load, on simcuda.

Programs of every kind run beside each other and verify their bytes: some run, some wait, one is paused, one stands in a
kernel without an end. The daemon is killed, stopped, hung, and started again by a supervisor. Parts:

  random   --kills (6) of daemon or keeper at random moments
  points   one at each named point: the messages of a hand-shake, an allocation, a switch, a park and an adoption, and the
           driver's calls that make, export, import, copy and release memory
  order    SIGTERM and a start; a daemon that hangs; --drain
  bad      ledgers that are older, newer, cut off or damaged; somebody who claims another's id
  both     daemon and keeper: named loss

Each part ends with: no program found a wrong byte, none waited longer than 30 s once a daemon was back, and when all have
ended, daemon and keeper hold nothing of theirs. The long form is --kills 2000.
"""
import argparse
import array
import glob
import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
from harness import Failure, Place, Program, use_simcuda, wait_until  # noqa: E402
from supervisor import Supervisor, Watch, kill  # noqa: E402

OPTIONS = ["--gpu-budget", "160M", "--pinned", "512M", "--paged", "256M", "--slice", "50ms",
           "--idle", "50ms", "--log-level", "info"]
LIMIT_S = 30

# Where a daemon is killed: the message before it is sent ("+": behind it) or once it is received; the driver's call. The
# number says the how manieth.
MESSAGES = [
    "WELCOME:1", "WELCOME:1+", "HOLDS:1", "REJOIN:2",                       # hand-shake
    "ALLOC:2", "ALLOCATED:2", "ALLOCATED:2+", "FREE:2", "FREED:2",          # allocation
    "CLOSE:2", "CLOSE:2+", "DRAINED:2", "UNMAP:2+", "MAP:2", "MAP:3+", "DONE:3", "DROP:1+",  # switch
    "RESUME:1", "RESUME:1+",                                                # park
    "KEEPER_TAKE:1", "KEEPER_PUT:1", "KEEPER_PUT:1+", "KEEPER_PUT:9", "KEEPER_DROP:1", "KEEPER_DROP:1+",  # adoption
]
CALLS = [
    "cuMemImportFromShareableHandle:1", "cuMemImportFromShareableHandle:9", "cuMemMap:1", "cuMemMap:12",
    "cuMemCreate:1", "cuMemExportToShareableHandle:1", "cuMemcpyDtoHAsync:2", "cuMemcpyHtoDAsync:2", "cuMemRelease:1",
    "cuMemsetD8Async:1", "cuMemHostRegister:1", "cuStreamWriteValue64:2",
]
KEEPER_MESSAGES = ["KEEPER_HELLO:1", "KEEPER_PUT:1", "KEEPER_PUT_IS:1", "KEEPER_TAKE:1", "KEEPER_GIVE:1", "KEEPER_DROP:2"]


class World:
    """A daemon that is started again, and programs beside it."""

    def __init__(self, place, options=()):
        self.place = place
        self.supervisor = Supervisor(place, [*OPTIONS, *options], watchdog_s=4)
        self.watch = Watch(self.supervisor, LIMIT_S)
        self.programs = []
        self.enough = os.path.join(place.work, "enough")
        if os.path.exists(self.enough):
            os.remove(self.enough)

    def start(self, name, *arguments, program="gm_worker"):
        ready = os.path.join(self.place.work, name + ".ready")
        if os.path.exists(ready):
            os.remove(ready)
        started = Program(self.place, name, [self.place.at(f"tests/programs/{program}"), "--ready", ready, *arguments],
                          under_gpumux=True, extra={"GPUMUX_LOG": self.place.log(name + ".shim")})
        started.ready = ready
        self.programs.append(started)
        return started

    def load(self):
        """Twice and more of what fits."""
        until = ["--until", self.enough]
        self.start("one", "--bytes", "96M", "--allocs", "5", "--iterations", "1", "--seed", "1", *until)
        self.start("two", "--bytes", "80M", "--allocs", "3", "--iterations", "1", "--seed", "2", *until)
        self.start("threads", "--mode", "threads", "--bytes", "48M", "--iterations", "1", "--seed", "3", *until)
        self.start("stuck", "--mode", "endless", "--bytes", "48M", "--hold", "1", "--seed", "4", "--signal",
                   os.path.join(self.place.work, "stuck.steps"), *until)
        self.start("churn", "--mode", "churn", "--bytes", "64M", "--iterations", "1", "--seed", "5", *until)
        self.await_ready()

    def await_ready(self):
        for program in self.programs:
            wait_until(f"{program.name} is ready: {program.complaint()}", 60,
                       lambda p=program: os.path.exists(p.ready) or not p.is_running())

    def alive(self):
        for program in self.programs:
            if not program.is_running():
                raise Failure(f"{program.name} ended with {program.process.returncode}: {program.last_line()} "
                              f"{shim_says(self.place, program)}")

    def expect_progress(self):
        self.alive()
        self.watch.expect(self.programs)

    def is_paused(self, program):
        return next(app["paused"] for app in self.supervisor.status()["apps"] if app["pid"] == program.process.pid)

    def finish(self):
        """All programs end well, and nothing of them is left."""
        open(self.enough, "w", encoding="utf-8").close()
        for program in self.programs:
            try:
                program.passed(120)
            except Failure as failure:
                raise Failure(f"{failure} {shim_says(self.place, program)}") from None
        self.programs = []
        self.expect_empty()

    def expect_empty(self):
        def is_empty():
            status = self.supervisor.status()
            if not status or status["apps"]:
                return False
            tiers = status["gpus"][0]["tiers"]
            return tiers["gpu_bytes"] == 0 and tiers["pinned_used_bytes"] == 0 and tiers["paged_used_bytes"] == 0
        wait_until("daemon: nothing is left", 20, is_empty)
        self.supervisor.ctl("trim")

        def keeper_has_little():
            keepers = self.supervisor.keepers()
            return len(keepers) == 1 and self.held(keepers[0]) <= 40
        wait_until(f"keeper: nothing is left ({[self.held(pid) for pid in self.supervisor.keepers()]})", 20,
                   keeper_has_little)

    @staticmethod
    def held(pid):
        """Descriptors of a process: of a keeper without programs, its own, the ledgers' and what the pool keeps."""
        return len(os.listdir(f"/proc/{pid}/fd"))

    def end(self):
        code = self.supervisor.end()
        if code != 0:
            raise Failure(f"the daemon ended with {code}: {self.supervisor.tail()}")
        wait_until("the keeper ends with the last daemon, as nobody needs it", 20, lambda: not self.supervisor.keepers())


def shim_says(place, program):
    try:
        with open(place.log(program.name + ".shim"), encoding="utf-8", errors="replace") as log:
            return " | ".join(log.read().strip().splitlines()[-3:])[-500:]
    except OSError:
        return ""


# ---- the parts ----

def part_random(place, options):
    world = World(place)
    chance = random.Random(options.seed)
    try:
        world.load()
        victim = world.start("paused", "--bytes", "64M", "--iterations", "1", "--seed", "6", "--until", world.enough)
        world.await_ready()
        is_paused = False
        for i in range(options.kills):
            time.sleep(chance.random() ** 2 * 0.6)
            if chance.random() < 0.3:  # said once: it must outlive the daemons
                done = world.supervisor.ctl("resume" if is_paused else "pause", str(victim.process.pid))
                is_paused ^= done.returncode == 0
            if chance.random() < 0.2:
                keepers = world.supervisor.keepers()
                kill(keepers[0])
                wait_until("another keeper", 20, lambda: world.supervisor.keepers() not in ([], keepers))
                wait_until("it holds all", 20, lambda: world.supervisor.text().count("another gpumux-keeper holds all") >
                           0)
            else:
                world.supervisor.kill()
            if chance.random() < 0.4 or i + 1 == options.kills:
                world.alive()
                world.watch.expect([p for p in world.programs if p is not victim or not is_paused])
                if world.is_paused(victim) != is_paused:
                    raise Failure(f"a program was {'paused' if is_paused else 'resumed'}, and is not any more")
        if is_paused:
            world.supervisor.ctl("resume", str(victim.process.pid))
        world.finish()
        world.end()
    finally:
        clean_up(world)
    return f"{options.kills} kills, longest wait {world.watch.longest:.1f} s"


def part_points(place, options):
    world = World(place)
    library = place.at("tests/programs/libgm_dies.so")
    reached = 0
    missed = []
    try:
        world.load()
        points = [("GM_DIES", f"gpumuxd/{name}") for name in MESSAGES] + [("SIMCUDA_FAIL", f"{name}=kill") for name in CALLS]
        points += [("GM_DIES", f"gpumux-keeper/{name}") for name in KEEPER_MESSAGES]
        if options.kills < 100:  # the short form takes a quarter of them, by the seed
            points = points[options.seed % 4::4]
        for i, (variable, value) in enumerate(points):
            supervisor = world.supervisor
            starts = supervisor.starts
            with open(supervisor.log, "a", encoding="utf-8") as log:
                log.write(f"--- {value}\n")
            supervisor.once = {variable: value}
            if variable == "GM_DIES":
                supervisor.once["LD_PRELOAD"] = library
            if value.startswith("gpumux-keeper/"):  # the keeper that this daemon starts dies, and the one after it does not
                mark = os.path.join(place.work, f"died.{i}")
                supervisor.once["GM_DIES_ONCE"] = mark
                supervisor.kill()
                kill(supervisor.keepers()[0])
                wait_until("a keeper dies and another one comes", 20,
                           lambda m=mark: os.path.exists(m) and len(supervisor.keepers()) == 1)
                time.sleep(0.3)  # all is handed over
                reached += 1
                continue
            kill(supervisor.pid())
            wait_until("a start", 20, lambda n=starts: supervisor.starts > n)
            end = time.monotonic() + 3
            while supervisor.starts < starts + 2 and time.monotonic() < end:
                time.sleep(0.02)
            if supervisor.starts >= starts + 2:
                reached += 1
            else:
                missed.append(value)
                supervisor.kill()
            wait_until("a daemon that answers", 30, supervisor.status)
            world.alive()
            if options.kills >= 100 or i % 3 == 2:
                world.expect_progress()
        world.expect_progress()
        world.finish()
        world.end()
    finally:
        clean_up(world)
    if reached < len(points) // 2:
        raise Failure(f"only {reached} of {len(points)} points were reached, not {', '.join(missed)}")
    return f"{reached} of {len(points)} points, longest wait {world.watch.longest:.1f} s, not reached: {' '.join(missed) or '-'}"


def part_order(place, options):
    del options
    world = World(place)
    try:
        world.load()
        seconds = world.supervisor.kill(15)  # SIGTERM
        if "bringing memory back" in world.supervisor.text():
            raise Failure("a daemon with a keeper saves before it ends")
        world.expect_progress()
        before = len(world.supervisor.readies)
        kill(world.supervisor.pid(), 19)  # SIGSTOP: the watchdog's turn
        world.supervisor.await_ready(before, 60)
        if world.supervisor.watchdog_kills != 1:
            raise Failure("a daemon that stood still was not killed by its watchdog")
        world.expect_progress()
        world.finish()
        world.end()
    finally:
        clean_up(world)
    return f"a restart takes {seconds:.2f} s"


class FakeDaemon:
    """Speaks to the keeper in a daemon's place, while there is none: what it leaves there the next daemon finds."""
    HELLO, PUT, DROP, TAKE = 1, 3, 5, 7
    CLIENTS, LEDGER = 2, 3

    def __init__(self, place):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.socket.connect(f"{place.socket}-keeper/{os.path.basename(place.socket)}")
        self.ask(self.HELLO)

    def ask(self, kind, items=(), fds=()):
        message = struct.pack("<HHIII", 1, kind, len(items), 0, 0) + b"".join(items)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([message], rights)
        data, got, _, _ = self.socket.recvmsg(16 + 253 * 16, socket.CMSG_SPACE(253 * 4))
        numbers = array.array("i")
        for _, _, part in got:
            numbers.frombytes(part[:len(part) - len(part) % 4])
        return data, list(numbers)

    def find(self, wanted):
        """All items of a kind, with their descriptors."""
        found, behind = [], []
        while True:
            data, fds = self.ask(self.TAKE, behind)
            n = struct.unpack_from("<I", data, 4)[0]
            for i in range(n):
                item = data[16 + 16 * i:32 + 16 * i]
                if item[0] == wanted:
                    found.append((item, fds[i]))
                else:
                    os.close(fds[i])
                behind = [item]
            if n == 0:
                return found

    def replace(self, item, content):
        fd = os.memfd_create("gpumux-bad")
        os.write(fd, content)
        self.ask(self.PUT, [item], [fd])
        os.close(fd)


def content_of(fd):
    return os.pread(fd, os.fstat(fd).st_size, 0)


def change(word, by):
    """That word of the header (32 bits) is changed by so much."""
    def changed(content):
        value = struct.unpack_from("<I", content, 4 * word)[0]
        return content[:4 * word] + struct.pack("<I", (value + by) & 0xffffffff) + content[4 * word + 4:]
    return changed


def damage(begin):
    """A bit of every 64 bytes that say anything is flipped, from there on."""
    def damaged(content):
        out = bytearray(content)
        for at in range(begin, len(out) - 64, 64):
            if any(out[at:at + 64]):
                out[next(i for i in range(at, at + 64) if out[i])] ^= 4
        return bytes(out)
    return damaged


BAD = [
    ("newer", FakeDaemon.LEDGER, change(2, 1)),
    ("older", FakeDaemon.LEDGER, change(2, -1)),
    ("cut off", FakeDaemon.LEDGER, lambda content: content[:len(content) // 2]),
    ("empty", FakeDaemon.LEDGER, lambda content: b""),
    ("damaged", FakeDaemon.LEDGER, damage(8192)),
    ("no ledger at all", FakeDaemon.LEDGER, lambda content: os.urandom(len(content))),
    ("newer record of programs", FakeDaemon.CLIENTS, change(2, 1)),
    ("damaged record of programs", FakeDaemon.CLIENTS, damage(4096)),
    ("record of programs cut off", FakeDaemon.CLIENTS, lambda content: content[:100]),
]


def expect_lost(program):
    """It ends well as all of its memory was mapped, or with the documented error; never with a wrong byte."""
    code = program.wait(120)
    line = program.last_line()
    if "mismatches=0 " not in line or not (
            (code == 0 and line.startswith("PASS ")) or
            (code == 3 and line.endswith("error 46 CUDA_ERROR_DEVICE_UNAVAILABLE"))):
        raise Failure(f"{program.name} ended with {code}: {line}")
    return code == 0


def two_programs(world):
    """One runs, and one is paused and has left the GPU."""
    away = world.start("away", "--bytes", "96M", "--allocs", "2", "--iterations", "1", "--seed", "11", "--until", world.enough)
    world.await_ready()
    world.supervisor.ctl("pause", str(away.process.pid))
    world.start("here", "--bytes", "96M", "--allocs", "2", "--iterations", "1", "--seed", "12", "--until", world.enough)
    world.await_ready()

    def is_out():
        status = world.supervisor.status()
        app = next((app for app in (status or {"apps": []})["apps"] if app["pid"] == away.process.pid), None)
        return app is not None and app["resident_bytes"] < app["total_bytes"]
    wait_until("the paused one leaves the GPU", 30, is_out)
    return away


def expect_all_lost(world, away):
    open(world.enough, "w", encoding="utf-8").close()
    for program in world.programs:
        is_whole = expect_lost(program)
        if program is away and is_whole:
            raise Failure("what was swapped out was lost, and its program did not see that")
        if program is not away and not is_whole:
            raise Failure("what was on the GPU was lost")
    world.programs = []
    os.remove(world.enough)
    wait_until("a daemon that answers", 30, world.supervisor.status)
    world.start("later", "--bytes", "96M", "--iterations", "3").passed(60)
    world.programs = []
    world.expect_empty()


def rejoin(place, app, nonce):
    """What the daemon says to somebody who claims to be its program."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    claim.settimeout(20)
    claim.connect(place.socket)
    body = struct.pack("<IHHQQQQII", app, 1, 65535, *nonce, 1 << 40, 1 << 40, 1, 0)
    version = wire_version(place)
    claim.send(struct.pack("<IHHII", 16 + len(body), version, 49, 0, 0) + body)
    answer = claim.recv(16384)
    claim.close()
    kind = struct.unpack_from("<H", answer, 6)[0] if len(answer) >= 16 else 0
    return kind, answer[16:].decode(errors="replace")


def wire_version(place):
    """That which the daemon speaks, from what it says to nonsense."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    peer.settimeout(20)
    peer.connect(place.socket)
    peer.send(struct.pack("<IHHII", 16, 0, 1, 0, 0))
    answer = peer.recv(16384)
    peer.close()
    return struct.unpack_from("<H", answer, 4)[0]


def part_bad(place, options):
    cases = BAD if options.kills >= 100 else BAD[options.seed % 4::4]
    for name, kind, spoil in cases:
        world = World(place)
        try:
            away = two_programs(world)
            world.supervisor.hold()
            fake = FakeDaemon(place)
            found = fake.find(kind)
            if not found:
                raise Failure(f"{name}: the keeper has no such ledger")
            for item, fd in found:
                fake.replace(item, spoil(content_of(fd)))
                os.close(fd)
            fake.socket.close()
            world.supervisor.go_on()
            expect_all_lost(world, away)
            if "cannot be taken over" not in world.supervisor.text():
                raise Failure(f"{name}: the log does not say so")
            world.end()
        except Failure as failure:
            raise Failure(f"{name}: {failure}") from None
        finally:
            clean_up(world)
    # Somebody who claims another's id while that one has yet to come.
    world = World(place)
    try:
        away = two_programs(world)
        for program in world.programs:
            kill(program.process.pid, 19)
        world.supervisor.kill()
        for app in (0, 1, 2, 255, 2**32 - 1):
            for nonce in ((0, 0), (1, 2), (2**64 - 1, 2**64 - 1)):
                answer, text = rejoin(place, app, nonce)
                if answer != 17:
                    raise Failure(f"who claims to be app {app} is answered {answer}: {text}")
        for program in world.programs:
            kill(program.process.pid, 18)
        world.supervisor.ctl("resume", str(away.process.pid))
        world.watch.expect([program for program in world.programs if program is not away])
        wait_until("the paused one goes on", 30, lambda: world.supervisor.ctl("resume", str(away.process.pid)).returncode == 0)
        world.expect_progress()
        world.finish()
        world.end()
    finally:
        clean_up(world)
    return f"{len(cases)} bad ledgers, claims refused"


def part_both(place, options):
    del options
    world = World(place)
    try:
        away = two_programs(world)
        keepers = world.supervisor.keepers()
        kill(world.supervisor.pid(), 19)
        for pid in keepers:
            kill(pid)
        kill(world.supervisor.pid())
        expect_all_lost(world, away)
        world.end()
    finally:
        clean_up(world)
    return "what was swapped out is named as lost"


def part_drain(place, options):
    """All is given back, and neither daemon nor keeper is left."""
    del options
    world = World(place)
    try:
        two_programs(world)
        world.supervisor.is_over = True  # not started again
        done = world.supervisor.drain()
        if done.returncode != 0 or "all programs go on without gpumux" not in done.stdout:
            raise Failure(f"--drain ended with {done.returncode}: {done.stdout} {done.stderr}")
        wait_until("the keeper ends", 20, lambda: not world.supervisor.keepers())
        open(world.enough, "w", encoding="utf-8").close()
        for program in world.programs:
            program.passed(60)
        world.programs = []
    finally:
        clean_up(world)
    return "all went on"


PARTS = {"random": part_random, "points": part_points, "order": part_order, "bad": part_bad, "both": part_both,
         "drain": part_drain}


def clean_up(world):
    world.supervisor.clean_up()
    for program in world.programs:
        program.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    place = Place(options.build, "restarts")
    place.check_build()
    os.environ.pop("GPUMUX_SOCKET", None)
    use_simcuda(place)
    os.environ.update(GPUMUX_RUN_DIR=place.work, XDG_RUNTIME_DIR=place.work)
    names = [name for name in options.only.split(",") if name] or list(PARTS)
    failed = 0
    for name in names:
        begun = time.monotonic()
        try:
            said = PARTS[name](place, options)
            print(f"restarts: {name}: ok, {said} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"restarts: {name}: FAILED: {failure}", flush=True)
            for log in sorted(glob.glob(os.path.join(place.logs, "*"))):
                with open(log, encoding="utf-8", errors="replace") as file:
                    lines = file.read().strip().splitlines()[-25:]
                print(f"--- {os.path.basename(log)}", *lines, sep="\n", flush=True)
    where = place.pack(failed > 0)
    if failed:
        print(f"restarts: the logs are in {where}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

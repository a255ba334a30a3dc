"""Faults that the tests must catch: plants each of list.txt and says which test notices.

mutants.py check                       every fault's text is found exactly once in its folder
mutants.py run [BUILD-DIR] [NAME...]   plants all of them, or those, PROCESSES at a time (environment; 1)

The trees that are built lie in BUILD-DIR/mutants (BUILD-DIR is build/ if none is given; it must be configured). The unit
tests of the file run first: those that link it or include its header. For faults of the daemon the simulator of the
engine comes next, over its rare seeds, SEEDS more (environment; 400), some in which the daemon dies, and some of jobs.
list.txt says how a fault is written.
"""
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(ROOT, "tests", "mutants", "list.txt")
SIM_RUNS = (["--evicts"], ["--rare"], ["--seeds", os.environ.get("SEEDS", "400")], ["--deaths", "40"], ["--sleepers"],
            ["--jobs", "6"])
CACHED = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_MAKE_PROGRAM", "GM_CUDA_INCLUDE")
SAID_MOST = 110
SIM_MOST_S, UNIT_MOST_S = 600, 120


class Mutant:
    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.why, self.old, self.new = [], [], []
        self.path = None  # of the file with its text

    def pattern(self):
        """Any white space stands for any other, so that formatting does not matter."""
        return re.compile(r"\s+".join(re.escape(word) for word in " ".join(self.old).split()))

    def planted(self, text):
        return self.pattern().sub(lambda _: "\n".join(self.new), text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_list():
    mutants = []
    for line in read(LIST).splitlines():
        head = re.fullmatch(r"([a-z0-9-]+): (\S+)", line)
        if head:
            mutants.append(Mutant(*head.groups()))
        elif line.startswith("    - "):
            mutants[-1].old.append(line[6:])
        elif line.startswith("    + "):
            mutants[-1].new.append(line[6:])
        elif line.startswith("    "):
            mutants[-1].why.append(line.strip())
        elif line.strip() and not line.startswith("#"):
            sys.exit(f"{LIST}: what is this? {line}")
    return mutants


def sources(root, folder):
    return sorted(os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(os.path.join(root, folder))
                  for name in names if name.endswith((".c", ".h")))


def fault_of(mutant, root):
    """What is wrong with a fault of the list; None: nothing. Finds its file in the tree at `root`."""
    if not mutant.old or not mutant.new or not mutant.why:
        return "it lacks what it is, the text, or what is put in its place"
    found = [path for path in sources(root, mutant.folder)
             for _ in mutant.pattern().findall(read(os.path.join(root, path)))]
    if len(found) != 1:
        return f"its text is found {len(found)} times in {mutant.folder}, not once: {' '.join(found)}"
    mutant.path = found[0]
    return None


def check(mutants):
    names = [mutant.name for mutant in mutants]
    faults = [f"{name}: is there twice" for name in sorted(set(names)) if names.count(name) > 1]
    faults += [f"{mutant.name}: {fault}" for mutant in mutants if (fault := fault_of(mutant, ROOT))]
    print("\n".join(faults) if faults else f"{len(mutants)} faults, each has its place")
    return len(faults)


# ---- building ----

def call(*command, timeout=None, **options):
    """Whatever ends this ends what it has started, too."""
    with subprocess.Popen(command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True, **options) as process:
        try:
            output = process.communicate(timeout=timeout)[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output)


def copy_tree(tree):
    """The tree as it is now. What has not changed keeps its time, so that it is not built again."""
    files = call("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").stdout.splitlines()
    for path in files:
        source, target = os.path.join(ROOT, path), os.path.join(tree, path)
        if not os.path.isfile(source):
            continue
        if not os.path.exists(target) or read_bytes(source) != read_bytes(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)
    wanted = set(files)
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.relpath(path, tree) not in wanted:
                os.remove(path)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def configure(build, tree, made):
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", read(os.path.join(build, "CMakeCache.txt")), re.M))
    options = [f"-D{key}={cache[key]}" for key in CACHED if cache.get(key)]
    done = call("cmake", "-S", tree, "-B", made, "-G", cache["CMAKE_GENERATOR"], "-DGM_WERROR=OFF", "-DGM_GPU_PROGRAMS=OFF", *options)
    if done.returncode != 0:
        sys.exit(done.stdout)


def build_target(made, target):
    """What the compiler says if it does not build; None: it does."""
    also = ["simnvml"] if target == "test_meter" else []
    done = call("cmake", "--build", made, "--target", target, *also, "-j2")
    return None if done.returncode == 0 else done.stdout


# ---- which tests ----

def needs_of(unit):
    """Test: the regular expressions of the objects that it takes, of tests/unit/needs.cmake."""
    text = read(os.path.join(unit, "needs.cmake"))
    for name, value in re.findall(r"^set\((\w+) ([^)]*)\)", text, re.M):
        text = text.replace("${%s}" % name, value)
    needs = {}
    for names, row in re.findall(r'^\s*gm_needs\("?([\w; ]+)"?([^()]*(?:\([^()]*\)[^()]*)*)\)', text, re.M):
        words = row.replace('"', " ").split() + (["memory/kept", "keeper/client", "keeper/held"] if "KEEPER" in row else [])
        for name in re.split("[; ]", names):
            needs.setdefault("test_" + name, []).extend(word for word in words if re.fullmatch(r"[\w/.*\[\]-]+", word))
    return needs


def tests_of(path, root):
    """Unit tests that link a file, or include its header or that of its family (sched_step.c has sched.h)."""
    room, base = path.split("/", 1)[1][:-2].rsplit("/", 1)
    header = re.compile(rf'#include "{os.path.dirname(path)}/{base.split("_")[0]}\w*\.h"')
    tests, unit = [], os.path.join(root, "tests", "unit")
    needs = needs_of(unit)
    for name in sorted(os.listdir(unit)):
        test, kind = os.path.splitext(name)
        if not test.startswith("test_") or kind != ".c":
            continue
        text = read(os.path.join(unit, name))
        for world in re.findall(r'#include "tests/unit/(\w+\.h)"', text):
            text += read(os.path.join(unit, world))
        is_taken = any(re.fullmatch(word, f"{room}/{base}") or word == path for word in needs.get(test, ()))
        if is_taken or header.search(text):
            tests.append(test)
    return tests


def runs_of(mutant, tree, made):
    """Test, its target, and its command: in this order, the quick ones first."""
    runs = [(test.replace("test_", "unit ", 1), test,
             ["ctest", "--test-dir", made, "--output-on-failure", "-R", f"^{test.replace('test_', 'unit_', 1)}$"])
            for test in tests_of(mutant.path, tree)]
    if mutant.path.startswith("daemon/core/sched"):
        runs.append(("sim_sched", "sim_sched", [f"{made}/tests/sim/sim_sched"]))
    if mutant.path.startswith("daemon/"):
        runs.append(("sim", "sim_engine", [f"{made}/tests/sim/sim_engine"]))
    return runs


def said(output):
    """The line that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if re.search(r"sim_engine: seed|ERROR|rror:|seed|signal|ssert", line)]
    return lines[0][:SAID_MOST] if lines else ""


def run_sim(sim):
    for arguments in SIM_RUNS:
        done = call(sim, *arguments, timeout=SIM_MOST_S)
        if done.returncode != 0:
            return done
    return done


def prove_whole(mutant, tree, made, proved):
    """Its unit tests pass without a fault: one that fails anyway would catch all."""
    for test, target, command in runs_of(mutant, tree, made):
        if test in proved or test == "sim":
            continue
        fault = build_target(made, target)
        if fault or call(*command, timeout=UNIT_MOST_S, cwd=made).returncode != 0:
            sys.exit(f"{test} fails without a fault {fault or ''}")
        proved.add(test)


def who_catches(mutant, tree, made):
    for test, target, command in runs_of(mutant, tree, made):
        fault = build_target(made, target)
        if fault:
            return None, f"does not build:\n{fault[-2000:]}"
        try:
            done = run_sim(*command) if test == "sim" else call(*command, timeout=UNIT_MOST_S, cwd=made)
        except subprocess.TimeoutExpired:
            return test, "it does not end"
        if done.returncode != 0:
            return test, said(done.stdout)
    return None, ""


def run_jobs(build, mutants, jobs):
    """Each job has trees of its own, in BUILD-DIR/mutants/N."""
    def follow(part):
        command = [sys.executable, __file__, "run", build] + [mutant.name for mutant in mutants[part::jobs]]
        environment = dict(os.environ, PROCESSES="1", PART=str(part))
        with subprocess.Popen(command, text=True, errors="replace", stdout=subprocess.PIPE, env=environment) as job:
            for line in job.stdout:
                found = re.fullmatch(r"(\d+) caught, \d+ not\n", line)
                caught.append(int(found.group(1)) if found else 0)
                if not re.fullmatch(r"\d+ (caught|by the simulator).*\n", line):
                    print(line, end="", flush=True)
    caught = []
    threads = [threading.Thread(target=follow, args=(part,)) for part in range(min(jobs, len(mutants)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(caught)} caught, {len(mutants) - sum(caught)} not")
    return sum(caught) < len(mutants)


def run(build, mutants):
    base = os.path.join(build, "mutants", os.environ.get("PART", ""))
    tree, made = os.path.join(base, "tree"), os.path.join(base, "build")
    os.makedirs(tree, exist_ok=True)
    lock = open(os.path.join(base, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"faults are being planted in {base}")
    copy_tree(tree)
    configure(build, tree, made)
    fault = build_target(made, "sim_engine")
    if fault:
        sys.exit(fault)
    done = run_sim(f"{made}/tests/sim/sim_engine")
    if done.returncode != 0:
        sys.exit(f"the simulator fails without a fault: {said(done.stdout)}")
    caught, by_sim, proved = 0, 0, set()
    for mutant in mutants:
        begin = time.monotonic()
        fault = fault_of(mutant, tree)
        if fault:
            print(f"{mutant.name}: {fault}", flush=True)
            continue
        prove_whole(mutant, tree, made, proved)
        path = os.path.join(tree, mutant.path)
        whole = read(path)
        write(path, mutant.planted(whole))
        try:
            test, text = who_catches(mutant, tree, made)
        finally:
            write(path, whole)
        caught += test is not None
        by_sim += test == "sim"
        print(f"{mutant.name}: {test or 'nobody'} ({time.monotonic() - begin:.0f} s) {text}".rstrip(), flush=True)
    print(f"{by_sim} by the simulator of the engine\n{caught} caught, {len(mutants) - caught} not")
    return caught < len(mutants)


def main(arguments):
    mutants = read_list()
    if arguments == ["check"]:
        return check(mutants)
    if arguments[:1] != ["run"]:
        sys.exit(__doc__)
    names, build = arguments[1:], os.path.join(ROOT, "build")
    if names and os.path.exists(os.path.join(names[0], "CMakeCache.txt")):
        build = os.path.abspath(names.pop(0))
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        sys.exit("no such faults: " + " ".join(sorted(unknown)))
    mutants = [mutant for mutant in mutants if not names or mutant.name in names]
    jobs = int(os.environ.get("PROCESSES", "1"))
    return run_jobs(build, mutants, jobs) if jobs > 1 else run(build, mutants)


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)

"""What the step can reach: daemon/engine/step decides, and has no effect outside.

Of each function of daemon/engine/step this finds all that it can call, or whose address it takes, through daemon/engine/state,
daemon/core, daemon/memory and common. It fails on a way to daemon/engine/act, and on one to a function that has an effect
(EFFECTS): of the driver, libuv, a socket, a file, a clock, a thread, what is random; or that is called through the outlet, but
for what only looks rules up.

It reads C, not objects: a call through a pointer has its name there (cuda->cuMemCreate).

LEFT has the functions below the step that still have effects, each with what it does; one that the step does not reach any
more fails, too. So the list only gets shorter.

reach.py ROOT checks the tree at ROOT; --plant also checks that it finds offences that are planted into it.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rooms import code_of  # noqa: E402

BELOW = ("daemon/engine/step/", "daemon/engine/state/", "daemon/core/", "daemon/memory/", "common/")
ACT = "daemon/engine/act/"

EFFECTS = re.compile(
    r"\b(uv_\w+|cu[A-Z]\w+|pthread_create|clock_gettime|gm_now|gm_stopwatch|getrandom|syscall|ioctl|getpid|time|usleep|nanosleep|"
    r"send|sendmsg|recv|recvmsg|read|write|pread|pwrite|open|openat|close|fopen|fclose|fallocate|ftruncate|mmap|munmap|madvise|fcntl|"
    r"timerfd_settime|memfd_create|kill|fork|exec\w+|abort|exit|_exit|printf|fprintf|gm_log)\s*\(")
OUTLET = re.compile(r"\boutlet\s*(?:\.|->)\s*(send|end|keep|event|stop_of|holder|started)\s*\(")

# A function, and what it still does.
LEFT = {
    "start_job": "a free piece of pinned memory has workers pin or release more (hostpool.c)",
    "gm_paged_start_trimming": "a free page of paged memory starts the timer that gives it back",
    "gm_paged_give_back": "... or is given back where the tier is to have fewer",
    "gm_stores_now": "what was used lately is known by the loop's time",
    "gm_files_left": "how many files are free is asked",
}


def functions_of(code):
    """Name, whether it is static, and body of each function."""
    for match in re.finditer(r"^\{", code, re.M):
        before = code[:match.start()]
        begin = max(before.rfind("\n}"), before.rfind(";"), before.rfind("\n\n"), before.rfind("\n#"))
        head = before[begin + 1:].lstrip("}").strip()
        name = re.search(r"\b(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head, flags=re.S))
        end = code.find("\n}", match.start())
        if name and end > 0 and not head.startswith(("struct", "enum", "union")) or name and end > 0 and "(" in head:
            yield name.group(1), bool(re.match(r"(?:\w+\s+)*static\b", head)), code[match.start():end]


class Tree:
    def __init__(self, texts):
        self.bodies, self.own, self.made = {}, {}, {}  # (path, name): body; path: names; name: where
        for path, text in texts.items():
            own = self.own[path] = {}
            for name, is_static, body in functions_of(code_of(text)):
                key = (path, name)
                self.bodies[key] = body
                own[name] = key
                if not is_static:
                    self.made[name] = key
                elif path.endswith(".h"):
                    self.made.setdefault(name, key)

    def calls(self, key):
        names = set(re.findall(r"\b[a-z_]\w+\b", self.bodies[key]))
        for name in sorted(names):
            other = self.own[key[0]].get(name) or self.made.get(name)
            if other and other != key:
                yield other

    def check(self, left):
        """Offences, each with the way to it; and which of `left` were met."""
        offences, met, ways = [], set(), {}
        todo = [key for key in sorted(self.bodies) if key[0].startswith("daemon/engine/step/")]
        for key in todo:
            ways[key] = key[1]
        while todo:
            key = todo.pop(0)
            path, name = key
            if path.startswith(ACT):
                offences.append(f"{ways[key]}: {path} is what acts")
                continue
            found = EFFECTS.search(self.bodies[key]) or OUTLET.search(self.bodies[key])
            if name in left:
                met.add(name)
                continue
            if found:
                offences.append(f"{ways[key]}: {path} calls {found.group(1)}")
                continue
            for other in self.calls(key):
                if other not in ways:
                    ways[other] = ways[key] + " -> " + other[1]
                    todo.append(other)
        return offences, met


def texts_of(root):
    texts = {}
    for top in BELOW + (ACT,):
        for name in sorted(os.listdir(os.path.join(root, top))):
            if name.endswith((".c", ".h")):
                with open(os.path.join(root, top, name), encoding="utf-8") as file:
                    texts[top + name] = file.read()
    return texts


PLANTS = [  # a file, what is written at its end, and what must be found
    ("daemon/engine/step/turns.c", "static void planted(struct gm_engine *e)\n{\n    gm_engine_act(e);\n}", "act.c is what acts"),
    ("daemon/engine/step/turns.c", "static void planted(struct gm_engine *e)\n{\n    e->cuda.cuCtxSynchronize();\n}",
     "calls cuCtxSynchronize"),
    ("daemon/engine/state/round.c",
     "static void deep(void)\n{\n    getrandom(0, 0, 0);\n}\n\nvoid gm_engine_again(struct gm_engine *e)\n{\n    deep();\n}",
     "gm_engine_again -> deep: daemon/engine/state/round.c calls getrandom"),
    ("daemon/engine/step/room.c", "static void planted(struct gm_engine *e)\n{\n    e->config.outlet.send(0, 0, 0, 0, 0, 0, 0);\n}",
     "calls send"),
    ("daemon/core/layout.c", "void gm_planted(void)\n{\n    clock_gettime(0, 0);\n}", None),  # the step does not reach it
]


def plant(texts):
    ok = True
    for path, text, expected in PLANTS:
        offences, _ = Tree({**texts, path: texts[path] + "\n" + text + "\n"}).check(LEFT)
        if expected and not any(expected in offence for offence in offences) or not expected and offences:
            print(f"planted in {path}: expected {expected}, found {offences}")
            ok = False
    return ok


def main():
    texts = texts_of(sys.argv[1])
    tree = Tree(texts)
    offences, met = tree.check(LEFT)
    offences += [f"{name} is not reached any more: take it off the list" for name in sorted(set(LEFT) - met)]
    print("\n".join(offences))
    if len(tree.bodies) < 1500:
        print(f"only {len(tree.bodies)} functions: is it the source tree?")
        return 1
    if "--plant" in sys.argv[2:] and not offences and not plant(texts):
        return 1
    print(f"{len(tree.bodies)} functions, {len(LEFT)} below the step that act")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

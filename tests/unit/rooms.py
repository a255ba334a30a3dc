"""The structure of common/, shim/ and daemon/: which room may use which, and no circles.

A room is a folder of the table below. A file is x.c with x.h. There is an arrow from a file to another if it includes the
other's header, or if it names a function or variable that the other defines, with or without its header. The check fails on

  - an arrow between two rooms that the table does not have,
  - a circle of files,
  - a name that a line of NAMES forbids,
  - a source that lies in no room.

rooms.py ROOT checks the tree at ROOT. With --plant it also checks that it finds what it must, in trees that have one
offence each.
"""
import collections
import functools
import os
import re
import sys

# Room: what it may use, beside itself and common/. Those at the top know least.
ROOMS = {
    "common": "",
    "include": "",

    "shim/driver": "",                               # tables of the driver's calls, its real functions, its devices
    "shim/gate": "driver",                           # boot state, gate, contexts, captures, drain
    "shim/link": "driver gate",                      # socket, requests, link thread; calls upward by callbacks only
    "shim/tables": "driver gate",                    # what the program has: look-up only, no request, no memory call
    "shim/map": "driver link tables",                # imports, mapper, views, peers
    "shim/observe": "driver gate tables",            # launches: what they use; channels
    "shim/memory": "driver gate link tables map",    # obtain, keep, share, release
    "shim/handlers": "driver gate link tables map observe memory",
    "shim/profiler": "",                             # a library of its own, for mux-ctl profile
    "shim/entry": "driver gate link tables map observe memory handlers include",

    "daemon/core": "",                               # pure: test_deps.sh and test_core_pure.sh say what else that means
    "daemon/memory": "keeper",                       # frames, host memory, paged, disk, CUDA
    "daemon/engine/state": "core memory",            # what the others share: the state, the marks for the next round, groups
    "daemon/engine/act": "core memory engine/state", # carries out: sends, maps, copies, asks the driver and the kernel
    "daemon/engine/step": "core memory engine/state", # decides: see NAMES, and reach.py
    "daemon/engine": "core memory engine/state engine/act engine/step", # opens; takes events in, with their time
    "daemon/trace": "core",                          # the text of a recorded trace
    "daemon/views": "core trace",                          # formats of one snapshot and of events
    "daemon/service": "core memory engine engine/state views keeper",
    "daemon/profile": "",                            # templates from what a profiler recorded
    "daemon/ctl": "core profile trace",
    "daemon/keeper": "",
}

# A file, what it may not include or name, and why.
FORBIDDEN = [
    (r"daemon/engine/(?!open\.).*", r"includes common/log\.h", "what happens is an event, and views tell of it"),
    (r"daemon/(?!core/table_).*", r"includes daemon/core/table_write\.h|names gm_table_turn_\w+", "core/table alone writes the table"),
    (r"daemon/(?!core/(?:table_|layout)).*", r"names gm_table_put", "core/layout alone says where a chunk is to lie"),
]

# A file, what its code may not name, and why.
NAMES = [
    (r"daemon/engine/step/.*",
     r"\b(?:uv_\w+|cu[A-Z]\w+|outlet\s*(?:\.|->)\s*(?:send|end|keep|event|stop_of)|clock_gettime|time|getrandom|syscall|gm_now|gm_stopwatch|"
     r"gm_log\w*|gm_(?:mover|hasher|cuda|alarm|claim|frames|limits)_\w+|gm_(?:hostpool|stores)_(?:want|make|trim|copy|open)\w*)\s*\(",
     "the step knows no clock, log, session, loop or driver: daemon/engine/act/ does that"),
    (r"daemon/.*", r"\bgm_thread_time\(", "the daemon shows for how long others wait: that is elapsed time"),
    (r".*", r"\bsnprintf\([^,;]*\+|\+=\s*(?:\(\w+\)\s*)?snprintf\(",
     "text is put together with gm_text_add (common/text.h), which stays within bounds"),
]

# They name what is in all files of mux-ctl, and use nothing of it.
SHARED = ("daemon/ctl/ctl.h", "daemon/ctl/commands.def")

KINDS = (".c", ".h", ".def")


def unit_of(path):
    """x for x.c and x.h; a table stands for itself."""
    return path if path.endswith(".def") else os.path.splitext(path)[0]


def room_of(path):
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=None)


def may_use(room, other):
    top = room.split("/")[0]
    allowed = [word if word in ("common", "include") else f"{top}/{word}" for word in ROOMS[room].split()]
    return other in [room, "common"] + allowed


def code_of(text):
    """Without comments, strings and includes; lines stay where they are."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#[ \t]*include[^\n]*", blank, text, flags=re.M)


def functions_in(code):
    """What stands before each body that begins in the first column, as clang-format has it."""
    for match in re.finditer(r"^\{", code, re.M):
        before = code[:match.start()]
        begin = max(before.rfind("\n}"), before.rfind(";"), before.rfind("\n\n"), before.rfind("\n#"))
        head = before[begin + 1:].lstrip("}").strip()
        name = re.search(r"\b((?:gm|mux)_\w+)\s*\(", head)
        if name:
            yield name.group(1), head.startswith("static")


def variables_in(code):
    pattern = r"^([A-Za-z_][\w \t*]*?)\b((?:gm|mux)_\w+)(?:\[[^\n=;]*\])*(?: = |;|\n +__attribute__)"
    for match in re.finditer(pattern, code, re.M):
        words = match.group(1).split()
        if words and words[-1] not in ("struct", "enum", "union") and words[0] not in ("extern", "typedef", "return"):
            yield match.group(2), words[0] == "static"


def texts_of(root):
    texts = {}
    for top in ("common", "include", "shim", "daemon"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(KINDS):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        texts[path] = file.read()
    return texts


class File:
    """What is read of one text, whatever the others are."""

    def __init__(self, text):
        self.code = code_of(text)
        self.made = list(functions_in(self.code)) + list(variables_in(self.code))
        self.includes = [(match.group(1), text.count("\n", 0, match.start()) + 1)
                         for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', text, re.M)]
        self.names = []
        code, at, line = re.sub(r"\b(struct|enum|union)(\s+)(?:gm|mux)_\w+", r"\1\2", self.code), 0, 1
        for match in re.finditer(r"\b(?:gm|mux)_\w+", code):
            line += code.count("\n", at, match.start())
            at = match.start()
            self.names.append((match.group(0), line))


file_of = functools.lru_cache(maxsize=None)(File)


class Tree:
    def __init__(self, texts):
        self.arrows = collections.defaultdict(lambda: collections.defaultdict(set))  # from, to: where it shows
        self.offences = []
        self.files = len(texts)
        for path in texts:
            if room_of(path) is None:
                self.offences.append(f"{path}: lies in no room")
        self.read(texts)

    def read(self, texts):
        files = {path: file_of(text) for path, text in texts.items()}
        for path, file in files.items():
            for kind, forbidden, why in NAMES:
                for match in re.finditer(forbidden, file.code) if re.fullmatch(kind, path) else ():
                    line = file.code.count("\n", 0, match.start()) + 1
                    self.offences.append(f"{path}:{line}: names {match.group(0)[:-1]}: {why}")
        made, own = collections.defaultdict(set), collections.defaultdict(set)
        for path, file in files.items():
            for name, is_static in file.made:
                if is_static or path.endswith(".h"):
                    own[path].add(name)
                else:
                    made[name].add(unit_of(path))
        for path, file in files.items():
            for other, line in file.includes:
                if other in texts:
                    self.add(path, other, line, "includes " + other)
            for name, line in file.names if path not in SHARED else ():
                if name in own[path] or unit_of(path) in made.get(name, ()):
                    continue
                for unit in made.get(name, ()):
                    self.add(path, unit + ".c", line, "names " + name)

    def add(self, path, other, line, what):
        if unit_of(path) != unit_of(other):
            self.arrows[unit_of(path)][unit_of(other)].add((path, line, what))

    def check(self):
        """Every offence, one line each."""
        offences = list(self.offences)
        for begin in sorted(self.arrows):
            for end, places in sorted(self.arrows[begin].items()):
                room, other = room_of(begin), room_of(end)
                if room is not None and other is not None and not may_use(room, other):
                    path, line, what = min(places)
                    offences.append(f"{path}:{line}: {what}: {room}/ may not use {other}/")
                for file, forbidden, why in FORBIDDEN:
                    for path, line, what in sorted(places):
                        if re.fullmatch(file, path) and re.fullmatch(forbidden, what):
                            offences.append(f"{path}:{line}: {what}: {why}")
        for circle in self.circles():
            offences.append(f"a circle of {len(circle)} files:")
            for begin in circle:
                for end in sorted(set(self.arrows[begin]) & set(circle)):
                    path, line, what = min(self.arrows[begin][end])
                    offences.append(f"    {begin} -> {end}   {path}:{line}: {what}")
        return offences

    def circles(self):
        """The strongly connected parts of more than one file (Tarjan), each sorted."""
        index, low, stack, found = {}, {}, [], []
        sys.setrecursionlimit(10000)

        def visit(unit):
            index[unit] = low[unit] = len(index)
            stack.append(unit)
            for other in sorted(self.arrows[unit]) if unit in self.arrows else ():
                if other not in index:
                    visit(other)
                    low[unit] = min(low[unit], low[other])
                elif other in stack:
                    low[unit] = min(low[unit], index[other])
            if low[unit] == index[unit]:
                at = stack.index(unit)
                part, stack[at:] = stack[at:], []
                if len(part) > 1:
                    found.append(sorted(part))

        for unit in sorted(self.arrows):
            if unit not in index:
                visit(unit)
        return found


PLANTS = [  # a file, what is written at its end, and what must be said of it
    ("shim/link/files.h", '#include "shim/link/link.h"', "shim/link/files -> shim/link/link"),
    ("shim/tables/allocs.c", '#include "shim/tables/vmm.h"', "shim/tables/allocs -> shim/tables/vmm"),
    ("shim/driver/devices.c", '#include "shim/handlers/handlers.h"', "shim/driver/ may not use shim/handlers/"),
    ("shim/gate/gate.c", "int gm_link_start(void);\nint gm_planted(void)\n{\n    return gm_link_start();\n}",
     "names gm_link_start: shim/gate/ may not use shim/link/"),
    ("shim/link/link.h", "extern int gm_freed_n;", "shim/link/ may not use shim/memory/"),
    ("common/size.c", '#include "shim/gate/gate.h"', "common/ may not use shim/gate/"),
    ("daemon/core/sched.c", '#include "common/clock.h"\n#include "shim/gate/gate.h"', "daemon/core/ may not use shim/gate/"),
    ("daemon/views/status.c", '#include "daemon/engine/state/state.h"', "daemon/views/ may not use daemon/engine/"),
    ("daemon/engine/step/caps.c", '#include "common/log.h"', "includes common/log.h: what happens is an event"),
    ("daemon/engine/step/caps.c", '#include "daemon/core/table_write.h"', "core/table alone writes the table"),
    ("daemon/core/layout.c", "int gm_planted = (int)(long)gm_table_turn_chunk;", "names gm_table_turn_chunk: core/table alone"),
    ("daemon/engine/act/act.c", '#include "daemon/engine/step/step.h"', "daemon/engine/act/ may not use daemon/engine/step/"),
    ("daemon/engine/step/room.c", '#include "daemon/engine/step/step.h"', "daemon/engine/step/room -> daemon/engine/step/step"),
    ("daemon/engine/step/turns.c", '#include "daemon/engine/act/act.h"', "daemon/engine/step/ may not use daemon/engine/act/"),
    ("daemon/engine/state/groups.c", '#include "daemon/engine/act/act.h"', "daemon/engine/state/ may not use daemon/engine/act/"),
    ("daemon/engine/step/turns.c", "void gm_planted(struct gm_engine *e)\n{\n    e->now = gm_now();\n}", "names gm_now: the step knows no clock"),
    ("daemon/engine/act/device.c", "int gm_planted(void)\n{\n    return gm_thread_time() > 0;\n}", "names gm_thread_time: the daemon shows"),
    ("daemon/engine/step/gates.c", "void gm_planted(struct gm_engine *e)\n{\n    e->config.outlet.send(0, 0, 0, 0, 0, 0, 0);\n}",
     "names outlet.send: the step knows"),
    ("daemon/engine/step/memory.c", "void gm_planted(struct gm_engine *e)\n{\n    gm_hostpool_want(&e->pool, 0);\n}",
     "names gm_hostpool_want: the step"),
    ("daemon/engine/step/room.c", "void gm_planted(struct gm_engine *e)\n{\n    e->cuda.cuCtxSynchronize();\n}", "names cuCtxSynchronize:"),
    ("daemon/engine/step/round.c", "int gm_planted(uv_loop_t *loop)\n{\n    return uv_now(loop) > 0;\n}", "names uv_now: the step"),
    ("daemon/ctl/table.c", "int gm_planted(char *to, int at)\n{\n    return snprintf(to + at, 9, to);\n}", "gm_text_add"),
    ("common/size.c", "int gm_planted(char *to, int at)\n{\n    at += (int)snprintf(&to[at], 9, to);\n    return at;\n}", "gm_text_add"),
    ("daemon/ctl/metrics.c", "int gm_planted(void)\n{\n    return mux_metrics(0);\n}", "daemon/ctl/metrics -> daemon/ctl/exporter"),
    ("shim/stray.c", "int gm_planted;", "shim/stray.c: lies in no room"),
]


def plant(texts):
    """Whether each planted offence is found."""
    ok = True
    for path, text, expected in PLANTS:
        offences = Tree({**texts, path: texts.get(path, "") + "\n" + text + "\n"}).check()
        if not any(expected in offence for offence in offences):
            print(f"planted in {path}, and not found: {expected}")
            print("\n".join(offences))
            ok = False
    return ok


def main():
    root = sys.argv[1]
    texts = texts_of(root)
    tree = Tree(texts)
    offences = tree.check()
    for offence in offences:
        print(offence)
    if tree.files < 100:
        print(f"only {tree.files} files in {root}: is it the source tree?")
        return 1
    if "--plant" in sys.argv[2:] and not offences:
        if not plant(texts):
            return 1
        print(f"{len(PLANTS)} planted offences, all found")
    print(f"{tree.files} files, {sum(len(ends) for ends in tree.arrows.values())} arrows, no exception")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

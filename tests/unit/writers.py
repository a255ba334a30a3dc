#!/usr/bin/env python3
"""Each field of the engine's state is written by one file.

The structs of OWNED hold what the daemon knows. Of each of their fields this finds the files that write it: by an
assignment, a ++ or --, through a local pointer to it, or by a call that gets its address for a parameter that is not const.
A struct that lies in another one and is given to a function by its address is written where that function is. Who writes
a field writes what lies in it, too. x.c and x.h are one file, and so are those of core/table. A struct that is a local variable, and one that is written
as a whole, count for nothing.

The types are those of members, and of the variables and parameters of each function. What has another type is listed with
--unknown: at most expressions that no rule here reads.

writers.py ROOT checks the tree at ROOT; --plant also checks that second writers are found which are planted into a copy of
it; --list prints all fields with their writers.
"""
import collections
import os
import re
import shutil
import sys
import tempfile

FOLDERS = ("daemon/core", "daemon/engine", "daemon/views", "daemon/service")
DECLARED = FOLDERS + ("common", "daemon/memory")

# Whose fields have one writer.
OWNED = ("gm_engine", "gm_app", "gm_client", "gm_machine", "gm_group", "gm_groups", "gm_share", "gm_open", "gm_batch",
         "gm_table", "gm_table_app", "gm_chunk", "gm_frame", "gm_allocation", "gm_pool")

# Here all of an engine is made and freed, while nobody else runs.
MAKERS = ("daemon/engine/open",)

ASSIGN = r"(?:=(?!=)|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<=|>>=|\+\+|--)"
WORDS = {"return", "sizeof", "if", "while", "for", "switch", "else", "do", "case", "goto"}


def code_of(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", blank, text, flags=re.M)


def end_of(code, at, opening="{", closing="}"):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] == opening:
            depth += 1
        elif code[i] == closing:
            depth -= 1
            if depth == 0:
                return i + 1
    return len(code)


def unit(path):
    """Whose writing it is: that of x.c and x.h, and of the files that are the table."""
    return re.sub(r"^daemon/core/table_\w+$", "daemon/core/table", os.path.splitext(path)[0])


class Field:
    def __init__(self, kind, inner=None, is_pointer=False):
        self.kind = kind            # name of a struct, or ""
        self.inner = inner          # fields of a struct without a name
        self.is_pointer = is_pointer


def fields_of(body):
    """Fields of what stands between the brackets of a struct."""
    fields, at = {}, 0
    while True:
        match = re.compile(r"\s*(?:const\s+|volatile\s+|_Atomic\s+)*(struct|union)?\s*(\w+)?\s*").match(body, at)
        if not match or match.end() == at and at >= len(body.rstrip()):
            break
        brace = body.find("{", at)
        semicolon = body.find(";", at)
        if semicolon < 0:
            break
        if 0 <= brace < semicolon and match.group(1):
            end = end_of(body, brace)
            inner = fields_of(body[brace + 1:end - 1])
            semicolon = body.find(";", end)
            names = body[end:semicolon]
            if names.strip():
                for name in re.findall(r"(\**)\s*(\w+)\s*(?:\[[^\]]*\])*\s*(?:,|$)", names):
                    fields[name[1]] = Field(match.group(2) or "", inner, bool(name[0]))
            else:
                fields.update(inner)
        else:
            text = body[at:semicolon]
            kind = re.search(r"\b(?:struct|union)\s+(\w+)", text)
            pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text)
            if pointer:
                fields[pointer.group(1)] = Field("")
            else:
                text = re.sub(r"\[[^\]]*\]", "", text)
                for part in text.split(","):
                    name = re.search(r"(\**)\s*(\w+)\s*(?::\s*\w+)?\s*$", part)
                    if name:
                        fields[name.group(2)] = Field(kind.group(1) if kind else "", None, "*" in part)
        at = semicolon + 1
    return fields


class Reader:
    def __init__(self, root):
        self.structs, self.takes, self.writers, self.unknown = {}, {}, collections.defaultdict(dict), []
        texts = {}
        for folder in DECLARED:
            for path, _, names in os.walk(os.path.join(root, folder)):
                for name in sorted(names):
                    if name.endswith((".c", ".h")):
                        full = os.path.join(path, name)
                        with open(full, encoding="utf-8") as file:
                            texts[os.path.relpath(full, root)] = code_of(file.read())
        for path, code in sorted(texts.items()):
            for match in re.finditer(r"\bstruct\s+(\w+)\s*\{", code):
                end = end_of(code, match.end() - 1)
                self.structs[match.group(1)] = fields_of(code[match.end():end - 1])
            self.read_prototypes(code)
        for path, code in sorted(texts.items()):
            if path.startswith(FOLDERS):
                self.read_functions(path, code)

    def read_prototypes(self, code):
        """Which parameters of each function point at what it may write."""
        for match in re.finditer(r"^[A-Za-z][^;{}()=]*?\b(\w+)\(", code, re.M):
            end = end_of(code, match.end() - 1, "(", ")")
            if not re.match(r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?[;{]", code[end:], re.S):
                continue
            parameters = split(code[match.end():end - 1])
            self.takes[match.group(1)] = ["*" in p and not re.match(r"\s*const\b", p) for p in parameters]

    def read_functions(self, path, code):
        for match in re.finditer(r"^\{", code, re.M):
            end = end_of(code, match.start())
            before = code[:match.start()]
            begin = max(before.rfind("\n}"), before.rfind(";"), before.rfind("\n\n"))
            self.read_function(path, code, begin + 1, match.start(), end)

    def read_function(self, path, code, begin, body, end):
        text = code[begin:end]
        types = {}
        for match in re.finditer(r"\bstruct\s+(\w+)\s+((?:[^;{}()]|\([^()]*\))*?)(?=[;)=]|,\s*(?:const\s+)?(?:struct|u?int|enum|bool|char|pid|uid|void|size))", text):
            for part in split(match.group(2)):
                name = re.match(r"\s*(\**)\s*(?:const\s+)?(\w+)", part)
                if name:
                    types[name.group(2)] = (match.group(1), bool(name.group(1)))
        aliases = {} # local pointers to what lies in something
        # A chain: name, then ->name, .name or [index] any number of times.
        at = body - begin
        for match in re.finditer(r"\b([A-Za-z_]\w*)\s*(?=->|\.|\[)", text):
            start = match.start()
            if start < at or re.search(r"(->|\.)\s*$", text[max(0, start - 40):start]):
                continue
            chain, stop = self.chain_from(text, match.start(1), match.end(1))
            if not any(part != "[" for part in chain[1:]):
                continue
            prefix = text[max(0, start - 3):start]
            rest = text[stop:stop + 40].lstrip()
            is_address = bool(re.search(r"(^|[^&])&\s*$", prefix))
            is_written = bool(re.match(ASSIGN, rest) or re.search(r"(\+\+|--)\s*$", prefix))
            if is_address:
                is_written = self.is_taken(text, start)
            elif not is_written:
                is_written = self.is_filled(text, start)
            line = code.count("\n", 0, begin + start) + 1
            alias = is_address and re.search(r"(?:^|[;{}])\s*(const\s)?[\w\s]*\*\s*(?:const\s)?(\w+) = &$",
                                             text[:start])
            if alias and not alias.group(1):
                aliases[alias.group(2)] = chain
            elif is_written:
                if types.get(chain[0], ("",))[0] not in OWNED:
                    chain = aliases.get(chain[0], chain[:1]) + chain[1:]
                self.note(path, line, chain, types, is_address)
        for name, chain in aliases.items():
            for match in re.finditer(r"(?:[;{}]|\))\s*\*" + name + r"\s*" + ASSIGN, text):
                self.note(path, code.count("\n", 0, begin + match.start()) + 1, chain, types, False)

    def chain_from(self, text, start, end):
        chain, at = [text[start:end]], end
        while True:
            match = re.compile(r"\s*(?:->|\.)\s*(\w+)").match(text, at)
            if match:
                chain.append(match.group(1))
                at = match.end()
                continue
            match = re.compile(r"\s*\[").match(text, at)
            if match:
                at = end_of(text, match.end() - 1, "[", "]")
                chain.append("[")
                continue
            return chain, at

    def call_around(self, text, start):
        """The function whose argument begins at `start` (or before, with a cast), and which one it is."""
        depth, n, i = 0, 0, start - 1
        while i >= 0 and text[i] not in ";{}":
            c = text[i]
            if c in ")]":
                depth += 1
            elif c in "([":
                if depth == 0:
                    name = re.search(r"(\w+)\s*$", text[max(0, i - 80):i])
                    return (name.group(1) if name else "", n)
                depth -= 1
            elif c == "," and depth == 0:
                n += 1
            i -= 1
        return "", 0

    def is_taken(self, text, start):
        name, n = self.call_around(text, start)
        if name in ("memset", "memcpy", "memmove", "snprintf", "gm_text"):
            return n == 0
        takes = self.takes.get(name)
        return bool(takes and n < len(takes) and takes[n])

    def is_filled(self, text, start):
        """It is an array that snprintf or memcpy fills."""
        if text[max(0, start - 1):start] != "(":
            return False
        name, n = self.call_around(text, start)
        return n == 0 and name in ("memset", "memcpy", "memmove", "snprintf", "gm_text_copy", "strcpy")

    def note(self, path, line, chain, types, is_address):
        if chain[0] not in types:
            self.unknown.append(f"{path}:{line}: {'.'.join(chain)}")
            return
        owner, steps, kind = types[chain[0]][0], [], ""
        fields = self.structs.get(owner)
        for part in chain[1:]:
            if part == "[":
                continue
            if fields is None or part not in fields:
                if fields is None:
                    break
                self.unknown.append(f"{path}:{line}: {'.'.join(chain)}: no {part} in {owner}")
                return
            field = fields[part]
            if field.is_pointer and field.kind and part != [p for p in chain if p != "["][-1]:
                owner, steps, fields = field.kind, [], self.structs.get(field.kind)
                continue
            steps.append(part)
            kind = field.kind
            fields = field.inner if field.inner is not None else self.structs.get(field.kind)
        is_local = not types[chain[0]][1] and owner == types[chain[0]][0]
        if steps and owner in OWNED and not is_local and not (is_address and kind) and unit(path) not in MAKERS:
            self.writers[f"{owner}.{'.'.join(steps)}"].setdefault(unit(path), []).append(f"{path}:{line}")


def split(text):
    parts, depth, part = [], 0, ""
    for c in text:
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return parts + [part] if part.strip() else parts


PLANTS = [  # a file, what is written at its end, and the field that has two writers then
    ("daemon/engine/step/log.c", "void gm_planted(struct gm_engine *engine)\n{\n    engine->now = 0;\n}", "gm_engine.now"),
    ("daemon/engine/step/turns.c", "void gm_planted(struct gm_app *app)\n{\n    app->gate.closed_at++;\n}",
     "gm_app.gate.closed_at"),
    ("daemon/engine/step/log.c",
     "void gm_planted(struct gm_engine *engine)\n{\n    struct gm_app *app = &engine->apps[0];\n"
     "    memset(&app->idle.is_idle, 0, 1);\n}", "gm_app.idle.is_idle"),
    ("daemon/engine/step/log.c",
     "void gm_planted(struct gm_engine *engine)\n{\n    uint64_t *at = &engine->sample_at;\n    *at = 0;\n}",
     "gm_engine.sample_at"),
    ("daemon/core/layout.c",
     "void gm_planted(struct gm_table *table)\n{\n    struct gm_frame *frame = &table->frames[0];\n"
     "    frame->is_dirty = true;\n}", "gm_frame.is_dirty"),
]


def seconds_of(reader):
    """Fields with more than one writer: each, and a line about it."""
    lines = []
    for field, own in sorted(reader.writers.items()):
        files = dict(own)
        steps = field.split(".")
        for n in range(2, len(steps)):
            for file, places in reader.writers.get(".".join(steps[:n]), {}).items():
                files.setdefault(file, places)
        if len(files) > 1:
            lines.append((field, field + ": " + " ".join(places[0] for places in files.values())))
    return lines


def plant(root):
    """Whether what is planted into one copy of the tree is all found."""
    with tempfile.TemporaryDirectory() as copy:
        for top in ("common", "daemon"):
            shutil.copytree(os.path.join(root, top), os.path.join(copy, top))
        for path, text, expected in PLANTS:
            with open(os.path.join(copy, path), "a", encoding="utf-8") as file:
                file.write("\n" + text + "\n")
        found = {field for field, line in seconds_of(Reader(copy))}
    missed = [expected for path, text, expected in PLANTS if expected not in found]
    for field in missed:
        print(f"planted, and not found: a second writer of {field}")
    return not missed


def main():
    root = sys.argv[1]
    reader = Reader(root)
    if "--unknown" in sys.argv:
        print("\n".join(reader.unknown))
    if "--list" in sys.argv:
        for field, files in sorted(reader.writers.items()):
            print(field + ": " + " ".join(files))
    seconds = seconds_of(reader)
    for field, line in seconds:
        print("several writers: " + line)
    bad = bool(seconds)
    if len(reader.writers) < 200:
        print(f"only {len(reader.writers)} fields in {root}: is it the source tree?")
        bad = True
    if "--plant" in sys.argv and not plant(root):
        bad = True
    print(f"{len(reader.writers)} fields, {len(seconds)} with several writers, {len(PLANTS)} planted")
    return 1 if bad else 0


sys.exit(main())

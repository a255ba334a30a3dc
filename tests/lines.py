#!/usr/bin/env python3
"""tests/lines.py [COMMIT]: how many lines each part of the house has, beside what is enough for it; with COMMIT also how
many more or fewer than there. It counts .c, .h, .def, .cu, .py and .sh of git's files, without results and corpora."""
import os
import subprocess
import sys

KINDS = (".c", ".h", ".def", ".cu", ".py", ".sh")
PARTS = [ # what a part is called, its folders, and its lines at most
    ("core and engine", ("daemon/core/", "daemon/engine/"), 19000),
    ("daemon", ("daemon/",), 43000),
    ("shim and common", ("shim/", "common/"), 25000),
    ("bench", ("bench/",), 10000),
    ("tests", ("tests/",), 95000),
]
LEFT_OUT = ("bench/results/", "tests/fuzz/corpus/")


def git(*words):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return subprocess.run(("git", "-C", root) + words, check=True, capture_output=True).stdout


def lines_of(commit):
    """Path: lines, of a commit."""
    found = {}
    for line in git("grep", "-I", "-c", "", commit).decode().splitlines():
        path, _, n = line.removeprefix(commit + ":").rpartition(":")
        if path.endswith(KINDS) and not path.startswith(LEFT_OUT):
            found[path] = int(n)
    return found


def main():
    now, before = lines_of("HEAD"), lines_of(sys.argv[1]) if len(sys.argv) > 1 else None
    for name, folders, most in PARTS:
        n = sum(lines for path, lines in now.items() if path.startswith(folders))
        told = f"{name:16}{n:8}  (enough: {most})"
        if before is not None:
            told += f"  {n - sum(lines for path, lines in before.items() if path.startswith(folders)):+}"
        print(told)


if __name__ == "__main__":
    main()

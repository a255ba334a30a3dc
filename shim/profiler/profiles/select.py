#!/usr/bin/env python3
"""Chooses from a learned profile (common/profile.h) what is shipped.

    select.py IN OUT --most SIZE     writes what is good enough, at most so many bytes, and says how much that is
    select.py --check FOLDER         whether its *.profile files are what this would have chosen, and together small enough

A kernel is good enough if the launches that it was not learned from touched at most 0.5 % beside what its templates said,
and these said at most 10 % too much. It must have a template, or an address that it does not touch: else the profile says
nothing. Of what is good enough, kernels with most launches come first.
"""

import argparse
import os
import sys

SUM = 2 << 20  # bytes of all that is shipped
MISSED, EXCESS = 50, 1000  # parts per 10,000
HEAD = "gpumux-profile 1\n"


class Wrong(Exception):
    pass


class Kernel:
    """The lines of a kernel, and what the first of them says of it."""

    def __init__(self, line):
        words = line.split(" ")
        if len(words) != 8:
            raise Wrong(f"this is not a kernel: {line[:60]!r}")
        self.hash, self.launches = words[1], int(words[3])
        self.missed, self.excess = int(words[4]), int(words[5])
        self.lines = [line]

    def is_good(self):
        says = any(line.startswith(("touch ", "none ")) for line in self.lines[1:])
        return says and self.missed <= MISSED and self.excess <= EXCESS

    def size(self):
        return sum(map(len, self.lines))


def read(path):
    kernels = []
    with open(path, encoding="ascii", newline="") as file:
        lines = file.readlines()
    if not lines or lines[0] != HEAD or lines[-1] != f"end {sum(line.startswith('kernel ') for line in lines)}\n":
        raise Wrong(f"{path} is not a whole profile of version 1")
    for line in lines[1:-1]:
        if line.startswith("kernel "):
            kernels.append(Kernel(line))
        elif kernels:
            kernels[-1].lines.append(line)
        else:
            raise Wrong(f"{path}: what a kernel touches comes before the first kernel")
    return kernels


def text_of(kernels):
    kernels = sorted(kernels, key=lambda kernel: kernel.hash)
    return HEAD + "".join(line for kernel in kernels for line in kernel.lines) + f"end {len(kernels)}\n"


def choose(kernels, most):
    chosen, left = [], most - len(HEAD) - len(f"end {len(kernels)}\n")
    for kernel in sorted(filter(Kernel.is_good, kernels), key=lambda kernel: (-kernel.launches, kernel.hash)):
        if kernel.size() <= left:
            chosen.append(kernel)
            left -= kernel.size()
    return chosen


def check(folder):
    known, total = {}, 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".profile"):
            continue
        path = os.path.join(folder, name)
        kernels = read(path)
        total += os.path.getsize(path)
        with open(path, encoding="ascii", newline="") as file:
            if not kernels or file.read() != text_of(choose(kernels, SUM)):
                raise Wrong(f"{path} has what is not good enough, or is not in order: give it to select.py")
        for kernel in kernels:
            other = known.setdefault(kernel.hash, path)
            if other != path:
                raise Wrong(f"kernel {kernel.hash} is in {other} and in {path}")
    if total > SUM:
        raise Wrong(f"the profiles in {folder} have {total} bytes, and may have {SUM}")
    print(f"{len(known)} kernels, {total} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", metavar="FOLDER")
    parser.add_argument("--most", type=int, default=SUM)
    parser.add_argument("paths", nargs="*", metavar="IN OUT")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check(arguments.check)
            return
        if len(arguments.paths) != 2:
            parser.error("which profile, and where does what is chosen belong?")
        kernels = read(arguments.paths[0])
        chosen = choose(kernels, arguments.most)
        text = text_of(chosen)
        if chosen:
            with open(arguments.paths[1], "w", encoding="ascii", newline="") as file:
                file.write(text)
        print(f"{len(chosen)} of {len(kernels)} kernels, {len(text)} bytes")
    except (Wrong, ValueError, OSError) as error:
        sys.exit(f"select.py: {error}")


main()

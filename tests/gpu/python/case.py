"""A case of the framework matrix: a small program that does the same work again and again and sums up its results.

    python3 CASE-FILE NAME [--seconds S] [--rounds N] [--gib G] [--go FILE]

A file has several cases by name, each a function that prepares and returns a round: a function that computes from the
same state every time, and returns what it computed as numbers that are equal in two runs if every bit is. run()
repeats the round until S seconds have passed, N rounds at least, and prints one line of JSON:

    {"case", "rounds", "sums": [...], "values": [...], "spread": X, "extra": {...}}

`sums` are the different results that rounds had, in order of their appearance: one, if the program agrees with
itself. `values` are a few of the first round's results as floating-point numbers, to tell how far results are apart
that are not equal; `spread` is how far those of the other rounds were from them, at most and relatively.
--gib is memory that the case holds beside what it needs, by its own framework's allocator, all of which
takes part in the sum. A case whose package is not installed prints {"skip": why} and ends with code 77.

They know nothing of gpumux. --go: import, then wait for the file (tests/gpu/run.py's way to begin together).
"""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Skip(Exception):
    """The case cannot be run here; the text says why."""


def parse(cases):
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(cases))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the program out")
    parser.add_argument("--go")
    return parser.parse_args()


def wait_for_go(path):
    if path is None:
        return
    open(path + ".imported", "w", encoding="utf-8").close()
    while not os.path.exists(path):
        time.sleep(.02)


def skip(why):
    print(json.dumps({"skip": str(why)}), flush=True)
    sys.exit(77)


def apart(ones, others):
    """How far values are apart, at most and relatively to the largest."""
    scale = max((abs(value) for value in ones), default=0) or 1
    if len(ones) != len(others):
        return float("inf")
    return max((abs(one - other) for one, other in zip(ones, others)), default=0) / scale


def run(cases, imports=lambda: None, arguments=None):
    """cases: name to prepare(arguments), which returns round() or (round, extra); round() gives (sum, values)."""
    arguments = arguments or parse(cases)
    try:
        imports()
        wait_for_go(arguments.go)
        prepared = cases[arguments.name](arguments)
        one_round, extra = prepared if isinstance(prepared, tuple) else (prepared, dict)
        begun, rounds, sums, values, spread = time.monotonic(), 0, [], None, 0
        while rounds < arguments.rounds or time.monotonic() - begun < arguments.seconds:
            result, floats = one_round()
            values = floats if values is None else values
            spread = max(spread, apart(values, floats))
            if result not in sums:
                sums.append(result)
            rounds += 1
    except Skip as why:
        skip(why)
    except ImportError as error:
        skip(f"not installed: {error}")
    print(json.dumps({"case": arguments.name, "rounds": rounds, "sums": sums[:20],
                      "values": [float(value) for value in values], "spread": spread, "extra": extra()}), flush=True)

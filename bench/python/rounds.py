"""What programs of the benches in Python have in common: units and rounds, and the requests that ask for them (actor.py).

`model` has begin(given), unit() and sum(); touch() is a little work on the GPU to its end.
"""

import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import figures


def say(text):
    print(text, flush=True)


def milliseconds():
    """By the clock that a daemon's status has."""
    return time.monotonic() * 1000


class Rounds:
    def __init__(self, units):
        self.units, self.model = units, None
        self.sums, self.sum, self.mismatches = {}, 0, 0
        self.left, self.given = 0, 0

    def begin(self, given):
        self.model.begin(given)
        self.left, self.given = self.units, given

    def unit(self):
        self.model.unit()
        self.left -= 1
        if self.left == 0:
            self.sum = self.model.sum()
            self.mismatches += self.sums.setdefault(self.given, self.sum) != self.sum

    def serve(self, verb, least_ms, rest):
        is_turn = verb == "turn"
        asked = begun = milliseconds()
        first_ms, passes, before = 0, [], self.mismatches
        if is_turn:
            self.touch()
            first_ms = milliseconds() - begun
            self.begin(int(rest[0]) if rest else 0)
        begun = milliseconds()
        while True:
            at = milliseconds()
            if self.left == 0:
                self.begin(0)
            self.unit()
            now = milliseconds()
            passes.append((now, now - at))
            if self.left == 0 if is_turn else now - begun >= least_ms:
                break
        work_ms = milliseconds() - begun
        if not is_turn and rest:
            with open(rest[0], "w", encoding="ascii") as file:
                file.writelines(f"{end:.3f} {ms:.4f}\n" for end, ms in passes)
        took = [ms for _, ms in passes]
        say(f"first_ms={first_ms:.4f} first_unit_ms={passes[0][0] - asked:.4f} work_ms={work_ms:.4f} "
            f"pass_ms={figures.median(took):.4f} pass_max_ms={max(took):.4f} passes={len(passes)} mismatches={self.mismatches - before} sum={self.sum}")

    def answer(self):
        """Until the end of the input."""
        for line in iter(sys.stdin.readline, ""):
            verb, _, least_ms, *rest = line.split()
            self.serve(verb, float(least_ms), rest)

"""Comparing three processes that take turns in rounds: A and B, which are the same, and a third that may differ.

A round is the times of all three for the same work, (a, b, other), and a generation the rounds of the same three
processes. Of each round two ratios: the other to the geometric mean of A and B, and A to B, which is the same
measurement with nothing to be found. Given are

    ratio, native              the median of each over all rounds
    total, native_total        the same two of the times of all rounds together: a long stall that is rare moves this
                               one, and never a median

each with the interval of 95 % by a bootstrap: generations are drawn again, and in each its rounds. These are drawn
in blocks of consecutive ones, a block a cycle of ORDERS, so that an interval counts neither what the order does nor
what drifts within a cycle.
"""

import itertools
import math
import random

import figures

# Who comes when in a round, round after round. In a cycle each of the three comes twice in each place, nobody comes
# after himself, and everybody three times after each of the others: caches are cold after another process, and not
# after all equally.
ORDERS = ((0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0), (2, 0, 1))
RESAMPLES = 1000         # of a bootstrap ...
LEAST_RESAMPLES = 200
DRAWS = 2 * 10**6        # ... or fewer, so that this many rounds are drawn in all: about a second
WHOLE_CYCLES = 10        # with fewer of them in a generation a block is a round


class Block:
    """Consecutive rounds, as a resample needs them: logarithms of the ratios, and the sum of each one's times."""

    def __init__(self, rounds, totals):
        logs = [(math.log(a), math.log(b), math.log(other)) for a, b, other in rounds]
        self.ratios = [other - (a + b) / 2 for a, b, other in logs]
        self.natives = [a - b for a, b, _ in logs]
        self.sums = tuple(map(sum, zip(*totals)))


def blocks_of(rounds, totals):
    width = len(ORDERS) if len(rounds) >= WHOLE_CYCLES * len(ORDERS) else 1
    return [Block(rounds[at:at + width], totals[at:at + width]) for at in range(0, len(rounds), width)]


def summarize(blocks):
    """Logarithms of ratio, native, total and native_total."""
    a, b, other = map(math.log, map(sum, zip(*(block.sums for block in blocks))))
    flat = itertools.chain.from_iterable
    return (figures.median(flat(block.ratios for block in blocks)),
            figures.median(flat(block.natives for block in blocks)), other - (a + b) / 2, a - b)


def compare(generations, totals=None, resamples=RESAMPLES):
    """
    Of generations, each a list of rounds and none empty: "ratio", "native", "total" and "native_total", each with
    "median" (of totals: "value"), "low" and "high". `totals` are the same rounds with what totals are made of, where
    a time of a round is itself a median.
    """
    groups = [blocks_of(*both) for both in zip(generations, totals or generations)]
    count = sum(map(len, generations))
    resamples = min(resamples, max(LEAST_RESAMPLES, DRAWS // count))
    chance = random.Random(1)
    found = summarize([block for group in groups for block in group])
    drawn = []
    for _ in range(resamples):
        blocks = []
        for group in chance.choices(groups, k=len(groups)):
            blocks += chance.choices(group, k=len(group))
        drawn.append(summarize(blocks))
    result = {}
    for name, value, values in zip(("ratio", "native", "total", "native_total"), found, zip(*drawn)):
        values = sorted(values)
        result[name] = {"value" if "total" in name else "median": math.exp(value),
                        "low": math.exp(values[int(.025 * resamples)]),
                        "high": math.exp(values[int(.975 * resamples)])}
    return result

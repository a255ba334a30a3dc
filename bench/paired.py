"""Comparing three processes that take turns in rounds: A and B, which are the same, and a third that may differ.

A round is the times of all three for the same work, (a, b, other). A load is the rounds of what the three have once
loaded, and a generation the loads of the same three processes. Of a load are taken

    native                     the median over the rounds of A to B: the same measurement with nothing to be found
    ratio                      that of the other to A, and that of the other to B: their geometric mean

and of a generation the geometric means over its loads: where in its process a load came to lie makes it slower or
faster for as long as it lives. Beside them stands

    total, native_total        the same two of the times of all rounds of a generation together: a long stall that is
                               rare moves this one, and never a median

(The median of the other to the mean of A and B would be too low: times have a tail to one side alone, and of two that
are averaged one is more often in it. Of models on a GPU that was mostly .1 to .5 %, whoever of the three was the
other.) Given is of all generations the geometric mean, with the interval of 95 % by Student's t over the generations'
logarithms.

Generations are the sample, and nothing else is. Processes of one program differ by 1 to 1.5 % from start to start, and
no number of rounds makes up for few starts. What rounds add to it is in the generations' values already, as each has
its own rounds; so an interval over rounds has nothing to say beside this one. A bootstrap over the generations is too
narrow where they are few: of 3 it holds the truth in about 80 %. Student's t is exact for any number from 2 on if they
are spread normally, and rather too wide where outliers are more frequent. Of one generation there is no interval.
"""

import math
import statistics

import figures

# Who comes when in a round, round after round. In a cycle each of the three comes twice in each place, nobody comes
# after himself, and everybody three times after each of the others: caches are cold after another process, and not
# after all equally.
ORDERS = ((0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0), (2, 0, 1))
# Student's t that 2.5 % are above, by degrees of freedom from 1 on; for more than the last that one, a bit too wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def whole_cycles(generations):
    """
    Each load up to the end of its last whole cycle of ORDERS, without loads that have none, and generations without
    such loads, and True; if that leaves half of all loads or fewer, all rounds as they are, and False: then the order
    is in what they say.
    """
    whole = [[rounds[:len(rounds) // len(ORDERS) * len(ORDERS)] for rounds in loads] for loads in generations]
    whole = [[rounds for rounds in loads if rounds] for loads in whole]
    whole = [loads for loads in whole if loads]
    is_balanced = 2 * sum(map(len, whole)) > sum(map(len, generations))
    return (whole, True) if is_balanced else (generations, False)


def of_median(rounds):
    """Of a load, logarithms of ratio and native."""
    logs = [[math.log(one) for one in times] for times in rounds]
    to_a, to_b, native = (figures.median([one[at] - one[to] for one in logs]) for at, to in ((2, 0), (2, 1), (0, 1)))
    return (to_a + to_b) / 2, native


def interval(name, logs):
    """Of the generations' logarithms; "low" and "high" are None of one generation."""
    middle, low, high = figures.mean(logs), None, None
    if len(logs) > 1:
        reach = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = math.exp(middle - reach), math.exp(middle + reach)
    return {name: math.exp(middle), "low": low, "high": high}


def compare(generations, totals=None):
    """
    Of generations, each a list of loads, each a list of rounds, and none empty: "ratio", "native", "total" and
    "native_total", each with "median" (of totals: "value"), "low" and "high". `totals` are the same rounds with what
    totals are made of, where a time of a round is itself a median.
    """
    ratios, natives = zip(*(map(figures.mean, zip(*map(of_median, loads))) for loads in generations))
    sums = [tuple(map(sum, zip(*(times for rounds in loads for times in rounds)))) for loads in totals or generations]
    totals, native_totals = zip(*(of_median([times]) for times in sums))
    return {"ratio": interval("median", ratios), "native": interval("median", natives),
            "total": interval("value", totals), "native_total": interval("value", native_totals)}

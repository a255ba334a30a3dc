"""Figures of the benches: sizes and times as people write them, summaries, rates, tables.

Times are in milliseconds, rates in GB/s (10^9 bytes), sizes in bytes.
"""

import argparse
import math
import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def size(text):
    """Bytes of "24G", "512MiB", "1.5T"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 24G")
    return int(float(match.group(1)) * UNITS[match.group(2)])


def sizes(text):
    return [size(part) for part in text.split(",")]


def milliseconds(text):
    """Milliseconds of "30ms", "4s", "500" (plain numbers are milliseconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|)", text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not a time such as 30ms")
    return float(match.group(1)) * (1000 if match.group(2) == "s" else 1)


def some_of(names):
    """Of an option: a list of some of these names."""
    def parse(text):
        found = text.split(",")
        for one in found:
            if one not in names:
                raise argparse.ArgumentTypeError(f"{one} is none of {', '.join(names)}")
        return found
    return parse


def show_size(count):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if count >= unit:
            return f"{count / unit:.1f}".rstrip("0").rstrip(".") + " " + name
    return f"{count} B"


def percentile(values, part):
    """The nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mean(values):
    return sum(values) / len(values)


def spread(values):
    """The summary that every result uses; None without values."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"count": len(values), "median": median(values), "p10": percentile(values, .1),
            "p50": percentile(values, .5), "p90": percentile(values, .9), "p99": percentile(values, .99),
            "min": min(values), "max": max(values), "mean": mean(values)}


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def table(head, rows):
    """Columns, the first to the left and the others to the right."""
    rows = [head] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def show_goals(goals):
    """Each {goal, measured, wanted, is_met, is_share}: what the project wants, beside what was measured."""
    for goal in goals:
        shown = percent if goal.get("is_share") else number
        print(f"goal: {goal['goal']}: {shown(goal['measured'])} (wanted {shown(goal['wanted'])}): "
              f"{'met' if goal['is_met'] else 'missed'}")


def copy_ideal_ms(bytes_out, bytes_in, ceiling):
    """Least time for these bytes on a link of that ceiling: both ways at once, then the rest of one."""
    both = min(bytes_out, bytes_in)
    return (2 * both / ceiling["both"] + (bytes_out - both) / ceiling["d2h"] + (bytes_in - both) / ceiling["h2d"]) / 1e6

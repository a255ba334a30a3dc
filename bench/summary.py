#!/usr/bin/env python3
"""python3 bench/summary.py FILE...: one line about each result file, or a few. Used by run-gpu.sh."""

import json
import sys

from rig import number, percent, show_size


def middle(value, digits=1):
    return number(value and value["median"], digits)


def about_gate(result):
    yield f"{result['gate']['ns']:.1f} ns a call ({result['gate']['p10']:.1f} to {result['gate']['p90']:.1f})"


def about_link(result):
    best = {way: max(piece[way]["median"] for piece in result["pieces"]) for way in ("h2d", "d2h", "both")}
    yield f"{best['h2d']:.1f} GB/s to the GPU, {best['d2h']:.1f} from it, {best['both']:.1f} both ways"


def about_host(result):
    yield (f"{max(step['both']['median'] for step in result['copies']):.1f} GB/s between pinned and paged memory, "
           "both ways")


def about_copy(result):
    best = {way: max(step[way]["median"] for step in result["copies"])
            for way in ("out", "back", "both", "bare_out", "bare_back")}
    yield (f"GB/s between pinned and paged memory: {best['out']:.1f} out (bare threads {best['bare_out']:.1f}), "
           f"{best['back']:.1f} back ({best['bare_back']:.1f}), {best['both']:.1f} both ways")


def about_switch(result):
    of = result["summary"]["all"]
    yield (f"{middle(of['parts']['total_ms'])} ms a switch of {of['bytes_out']['median'] / 2**30:.1f} GiB out "
           f"and {of['bytes_in']['median'] / 2**30:.1f} in; {middle(of['rate'])} GB/s of {result['ceiling']['both']:.1f}; "
           f"to first kernel {number(of['first_ms']['p50'])} ms, p99 {number(of['first_ms']['p99'])}")
    for goal in result.get("goals", []):
        shown = percent if goal["wanted"] < 2 else number
        yield (f"{goal['goal']}: {shown(goal['measured'])} (wanted {shown(goal['wanted'])}): "
               f"{'met' if goal['is_met'] else 'missed'}")


def about_tiers(result):
    for one in result["runs"]:
        yield (f"{one['name']} ({show_size(one['options']['pinned'])}), work {one['work_ms']:.0f} ms: to first kernel "
               f"{number(one['first_ms']['p50'])} ms, longest {number(one['first_ms']['max'])}; "
               f"{percent(one['of_all_pinned'])} of all pinned; {percent(one['over_bound'] and one['over_bound']['p50'])} of the bound")


def about_oversize(result):
    for work, way in (("verify", "h2d"), ("rewrite", "both")):
        rate = result["sweeps"][work]["host_rate"]["median"]
        yield (f"{work}: {middle(result['sweeps'][work]['rate'])} GB/s, over the link {rate:.1f} of "
               f"{result['ceiling'][way]:.1f} ({percent(rate / result['ceiling'][way])})")


def about_prefetch(result):
    for one in result["runs"]:
        yield (f"{show_size(one['pinned'])} pinned, prefetch {one['prefetch']}: {middle(one['total_ms'])} ms a switch, "
               f"{len(one['switches'])} switches, {one['passes']} passes of {middle(one['pass_ms'])} ms")


def main():
    for file in sys.argv[1:]:
        with open(file, encoding="utf-8") as text:
            result = json.load(text)
        name = result["bench"]
        if result.get("outcome"):
            lines = [result["outcome"]]
        else:
            lines = globals()["about_" + name](result)
        for index, line in enumerate(lines):
            print(f"{name if index == 0 else '':10}{line}")


if __name__ == "__main__":
    main()

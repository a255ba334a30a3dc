#!/usr/bin/env python3
"""
python3 bench/summary.py FILE...: one line about each result file, or a few. Used by run-gpu.sh.

python3 bench/summary.py --keep FILE...: the same below machine, commit and command: what bench/results holds.
"""

import json
import re
import sys
from statistics import mean, median

from figures import number, outcome, percent, show_size
from actors import Failure


def middle(value, digits=1):
    return number(value and value["median"], digits)


def about_gate(result):
    yield f"{result['gate']['ns']:.1f} ns a call ({result['gate']['p10']:.1f} to {result['gate']['p90']:.1f})"


def about_link(result):
    best = {way: max(piece[way]["median"] for piece in result["pieces"]) for way in ("h2d", "d2h", "both")}
    yield f"{best['h2d']:.1f} GB/s to the GPU, {best['d2h']:.1f} from it, {best['both']:.1f} both ways"


def about_disk(result):
    step = result["steps"][-1]
    yield (f"{step['write']['median']:.2f} GB/s written, {step['read']['median']:.2f} read, "
           f"{step['both']['median']:.2f} both at once")


def about_copy(result):
    best = {way: max(step[way]["median"] for step in result["copies"])
            for way in ("out", "back", "both", "bare_out", "bare_back")}
    yield (f"GB/s between pinned and paged memory: {best['out']:.1f} out (bare threads {best['bare_out']:.1f}), "
           f"{best['back']:.1f} back ({best['bare_back']:.1f}), {best['both']:.1f} both ways")


def about_switch(result):
    of = result["summary"]["all"]
    first = of["first_ms"]
    yield (f"{middle(of['parts']['total_ms'])} ms a switch of {of['bytes_out']['median'] / 2**30:.1f} GiB out and "
           f"{of['bytes_in']['median'] / 2**30:.1f} in; {middle(of['rate'])} GB/s of {result['ceiling']['both']:.1f}; "
           f"to first kernel {number(first['p50'])} ms (p10 {number(first['p10'])}, p90 {number(first['p90'])}, "
           f"longest {number(first['max'])}, {first['count']} turns)")
    for peer in result["peers"].values():
        if peer["is_available"]:
            yield f"{peer['peer']}: {peer['ratio']:.1f} times slower"
    yield from about_goals(result)


def about_hash(result):
    yield "GB/s hashed, equal to the reference: " + ", ".join(
        f"{piece['kernel']['median']:.0f} in pieces of {piece['piece'] >> 20} MiB" for piece in result["pieces"])


def about_first(result):
    for one in result["first"]:
        ms = one["requests"]
        yield (f"{show_size(one['of'])} each {one['think_s']:g} s, {one['build']}: first {number(ms[0], 0)} ms, mean of 3 to 9 "
               f"{number(mean(ms[2:9]), 0)}, from 10 on {number(mean(ms[9:]), 0)}, median from 3 on "
               f"{number(median(ms[2:]), 0)}, longest {number(max(ms), 0)}; alone {number(median(one['alone']), 0)}, one switch "
               f"{number(median(one['switch']), 0)}; {one['switches']} switches in {one['seconds']:.1f} s")


def about_goals(result):
    """Those that were missed, and how many were met."""
    goals = result.get("goals", [])
    for goal in goals:
        shown = percent if goal.get("is_share") else number
        if not goal["is_met"]:
            yield f"{outcome(goal)}: {goal['goal']}: {shown(goal['measured'])} (wanted {shown(goal['wanted'])})"
    yield f"{sum(goal['is_met'] for goal in goals)} of {len(goals)} goals met"


def about_working(result):
    for row in result["rows"]:
        if "shares" not in row:
            continue
        text = (f"{row['cell']}, budget "
                f"{show_size(row['budget'])}: of native {', '.join(map(percent, row['shares']))}; "
                f"{number(row['bytes'] / 2**30, 2)} GiB moved, {row['switches']} switches")
        if "hidden_ms" in row:
            text += (f"; hidden reads, {show_size(row['on_host'])} on the host before: found after "
                     f"{number(row['found_s'])} s, slowest {number(row['hidden_ms']['max'])} ms "
                     f"(natively {number(row['hidden_native_ms'])}), then {', '.join(map(percent, row['hidden_shares']))}")
        yield text
    yield from about_goals(result)


def about_multi(result):
    for row in result["known"] + result["rows"]:
        if "ideal" not in row:
            continue
        one = row["ideal"]
        yield (f"{row['cell']}, budget {show_size(row['budget'])}: {percent(row['share'])} of in-memory throughput (least "
               f"{percent(row['least'])}), bound {percent(row['bound'])}, {percent(row['of_ideal'])} of the ideal; "
               f"{number(row['rate'] / 2**30)} GiB/s over the link, ideal {number(one and one['rate'] / 2**30)}")
    for name, why in result["left_out"]:
        yield f"not measured: {name}: {why}"
    yield from about_goals(result)


def about_mixes(result):
    yield f"{result['n_gpus']} GPUs, {show_size(result['card'])} each; seconds until all have ended, and in the mean"
    rows = result["known"] + result["rows"]
    alone = {row["mix"]: row["total_s"] for row in rows if row["side"] == "sa"}
    for row in rows:
        idle = ", ".join(map(percent, row["idle"]))
        yield (f"{row['cell']}: {number(row['total_s'])} ({number(alone.get(row['mix'], 0) / row['total_s'], 2)} times SA), "
               f"{number(row['mean_s'])}; idle {idle}" +
               (f"; forecast {number(row['forecast_s'])} s, its times SA {row['forecast_off'] * 100:+.0f} % off"
                if row.get("forecast_off") is not None else "") + (f"; {number(row['moved'] / 2**30)} GiB moved" if "moved" in row else "")
               + (f"; {len(row['failed'])} programs failed" if row["failed"] else ""))
    for name, why in result["left_out"]:
        yield f"not measured: {name}: {why}"
    yield from about_goals(result)


def about_predict(result):
    for row in result["rows"]:
        if "places" in row:
            yield (f"{row['kind']}, {len(row['windows'])} windows: not predicted {percent(row['places'][0])} of what was "
                   f"touched, predicted beyond it {percent(row['places'][1])}; by allocation {percent(row['allocations'][0])} and "
                   f"{percent(row['allocations'][1])}")
    yield from about_goals(result)


def about_tiers(result):
    for one in result["runs"]:
        if not one["turns"]:
            yield f"{one['name']}, work {one['work_ms']:.0f} ms: no turn was measured"
            continue
        first = one["first_ms"]
        yield (f"{one['name']} ({show_size(one['options']['pinned'])}), work {one['work_ms']:.0f} ms: to first kernel "
               f"{number(first['p50'])} ms (p90 {number(first['p90'])}, longest {number(first['max'])}, "
               f"{first['count']} turns); {percent(one['of_uncapped'])} of uncapped; {percent(one['over_bound'])} of "
               f"the bound ({one['slowest']})")
    yield from about_goals(result)


def about_oversize(result):
    for work, way in (("verify", "h2d"), ("rewrite", "both")):
        if "sweeps" not in result:
            break
        rate = result["sweeps"][work]["host_rate"]
        yield (f"{work}: over the link {rate['median']:.1f} GB/s ({rate['min']:.1f} to {rate['max']:.1f}) of "
               f"{result['ceiling'][way]:.1f} ({percent(rate['median'] / result['ceiling'][way])}); whole "
               f"{middle(result['sweeps'][work]['rate'])} GB/s")
    for what in result.get("models", []):
        took = what["app"]
        text = (f"{what['kind']} of {show_size(what['total'])} on {show_size(what['usable'])}: "
                f"{1000 / took['median']:.2f} a second ({1000 / took['max']:.2f} to {1000 / took['min']:.2f})")
        if what["kind"] != "resident":
            text += (f", {percent(what['of_bound'])} of the bound; zero-copy GB/s: read {middle(what['read'])}, write "
                     f"{middle(what['write'])}, rewrite {middle(what['rewrite'])}")
        if what["kind"] == "train":
            text += f"; {percent(what['of_fixed'])} of the best fixed places"
        yield text + f"; {percent(what['of_native'])} of native"


def about_plan(result):
    for one in result["workloads"]:
        yield (f"{one['name']}: {one['plan_warm_us']['p50']:.0f} us a decision (p99 {one['plan_warm_us']['p99']:.0f}), "
               f"with cold caches {one['plan_cold_us']['p50']:.0f} ({one['plan_cold_us']['p99']:.0f})")


def about_templates(result):
    yield (f"{result['kernels']} kernels: {result['usual_ns']:.0f} ns a launch, p99 {result['p99_ns']:.0f} "
           f"(with a look at the clock of {result['clock_ns']:.0f})")


def about_sched(result):
    for one in result["targets"]:
        yield (f"{one['apps']} programs: 99 of 100 decisions within {one['p99_us']:.1f} us (wanted "
               f"{one['target_us']:.0f})")
    yield "met" if result["met"] else "missed"


def about_idle(result):
    for one in result["runs"]:
        yield (f"{one['name']}: {100 * one['core']['median']:.4f} % of a core, "
               f"{number(one['wakes']['median'])} wake-ups a second")
    yield from about_goals(result)


def about_interactive(result):
    floors = result["floors"]
    yield f"a response alone {number(floors['alone_ms'])} ms, with one switch {number(floors['one_switch_ms'])}"
    for found in result["settings"]:
        for one in found["intervals"]:
            response = one["response_ms"]
            yield (f"{found['policy']}, every {one['interval_s']:g} s: mean {number(response['mean'])} ms (p50 "
                   f"{number(response['p50'])}, p90 {number(response['p90'])}, longest {number(response['max'])}, "
                   f"{one['requests']} requests); the other has {percent(one['of_left'])} of what they leave")
    yield from about_goals(result)


def about_batch(result):
    together = result["together"]
    of = together["rounds"] or together["all"]
    yield (f"total {percent(of['total'])} of ideal in {of['seconds']:.1f} s (" +
           (f"{of['count']} whole rounds" if together["rounds"] else "no whole round") + "); shares " +
           ", ".join(f"{one['name']} {number(share, 3)}" for one, share in zip(result["members"], of["shares"])) +
           ("; of the time " + ", ".join(number(share, 3) for share in of["time_shares"])
            if "time_shares" in of else ""))
    yield from about_goals(result)


def about_pipeline(result):
    for one in result["pipelines"]:
        yield (f"{one['pipeline']}: {number(one['trip_ms']['mean'])} ms, {percent(one['of_reference'])} of a GPU for "
               f"each stage and the bytes on the link ({one['trips']} trips)")
    yield from about_goals(result)


def about_overhead(result):
    for one in result["lines"]:
        than = "what it is without marking" if result.get("marking") else "native"
        yield (f"{one['case']:14}{one['ratio']:.4f} of {than} ({one['least']:.4f} to {one['most']:.4f} in "
               f"{one['starts']} starts; noise {percent(one['noise'])})")
    for name, why in result["absent"].items():
        yield f"not measured: {name}: {why}"
    yield from about_goals(result)


def about_latency(result):
    for table in result["workloads"]:
        yield f"{table['workload']}: {table['what']}; {len(table['rounds'])} rounds of {table['window_s']:.2f} s a row"
        for row in table["rows"]:
            sign = "" if row["row"] == "alone" else "+"
            line = (f"    {row['row']:11}mean {row['mean_us']:{sign}.0f} us, p50 {row['p50_us']:{sign}.0f}, p99 "
                    f"{row['p99_us']:{sign}.0f}; {percent(row['of_alone'])} of alone")
            if "total" in row:
                line += f"; best-effort {percent(row['best_effort'])}, total {percent(row['total'])}"
            yield line
        for name, why in table["not_offered"].items():
            yield f"    {name:11}not offered: {why}"
    for name, means in result["means"].items():
        yield f"all: {name}: {percent(means['of_alone'])} of alone, total {percent(means['total'])}"
    if result["goals"]:
        yield from about_goals(result)


def load(file):
    try:
        with open(file, encoding="utf-8") as text:
            result = json.load(text)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    except ValueError:
        raise Failure(f"{file} is no result") from None
    if not isinstance(result, dict) or "bench" not in result:
        raise Failure(f"{file} is no result")
    return result


def head(result):
    """Where a result comes from, a line each."""
    machine = result["machine"]
    yield f"date      {result['date']}"
    yield f"commit    {(result['commit'] or 'unknown')[:12]}"
    yield f"command   {' '.join(result['command'])}"
    driver = re.search(r"\d+\.\d+(\.\d+)*", machine.get("driver") or "")
    yield (f"machine   {machine['gpu'] or 'no GPU'}, driver {driver[0] if driver else 'none'}, {machine['cpu']}, "
           f"{machine['processors']} processors, {machine['memory_bytes'] >> 30} GiB")
    if result.get("ceiling"):
        yield "ceiling   " + ", ".join(f"{way} {rate:.1f} GB/s" for way, rate in result["ceiling"].items())


def tell(file, is_kept):
    """What one result says."""
    result = load(file)
    for line in head(result) if is_kept else ():
        print(line)
    name = result["bench"]
    lines = [result["outcome"]] if result.get("outcome") else []
    try:
        lines += globals()["about_" + name](result)
    except (LookupError, TypeError): # of a bench that was cut short
        if not lines:
            raise Failure(f"{file}: the result of another version of bench/{name}, to be read as it is") from None
    for index, line in enumerate(lines):
        print(f"{name if index == 0 else '':12}{line}")


def main():
    files = sys.argv[1:]
    is_kept = files[:1] == ["--keep"]
    try:
        for file in files[is_kept:]:
            tell(file, is_kept)
    except Failure as failure:
        sys.exit(f"summary: {failure}")


if __name__ == "__main__":
    main()

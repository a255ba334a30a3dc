#!/usr/bin/env python3
"""bench/oversize: programs that are larger than the budget. Parts, of which --parts picks:

sweep     One allocation that is larger than the budget, with --oversize host. The part that does not fit on the GPU is pinned
          host memory that kernels read over the link. The program fills the allocation, then sweeps it again and again:
          by turns reading (verify), and reading and writing (rewrite). Beside that: the same program natively, which the
          GPU must have the memory for. The ceiling is bench/link of the same run.
decode    A decoder (bench/app.c): each weight is read once a token. Activations and a workspace, of which each layer reads
          and writes 1M each, were allocated last, and must not be on the host for that. It may be larger by
          GPUMUX_OVERSIZE=host. The bound is what must be read over the link, (all it has - usable budget) / zero-copy rate.
train     The same with gradients: forward, backward, update, with activations of 8M and all of the workspace. The bound is what
          must cross the link in a step if each weight and gradient has one place for good, at the zero-copy rates of reading
          and writing.
resident  The decoder with a budget that holds all of it, beside native.

In the last three a native program takes turns with it, which also measures the ceilings: a kernel that reads, writes, or
rewrites pinned host memory, and one that reads resident weights. Every word that is read is checked, in every part.
"""

import argparse
import time

import rig as r

PARTS = ("sweep", "decode", "train", "resident")


def models_of(text):
    """Pairs of sizes: of the model, of the budget."""
    found = [[r.size(half) for half in one.split("/")] for one in text.split(",")]
    if any(len(one) != 2 for one in found):
        raise argparse.ArgumentTypeError(f"{text} is not a list such as 16G/12G,24G/16G")
    return found


def add_options(parser):
    parser.add_argument("--parts", type=r.some_of(PARTS), default=list(PARTS), metavar="PART,...", help="what to measure (all)")
    sweeps = parser.add_argument_group("sweep")
    sweeps.add_argument("--size", type=r.size, default=40 * 2**30, metavar="SIZE", help="of the allocation (40G)")
    sweeps.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    sweeps.add_argument("--pinned", type=r.size, metavar="SIZE", help="pinned memory (size less budget, and 2G)")
    sweeps.add_argument("--sweeps", type=int, default=10, metavar="N", help="of each kind, at most (10)")
    models = parser.add_argument_group("decode, train, resident")
    models.add_argument("--decode", type=models_of, default=models_of("16G/12G,24G/16G"), metavar="SIZE/BUDGET,...",
                        help="weights, and GPU memory (16G/12G,24G/16G)")
    models.add_argument("--train", type=models_of, default=models_of("16G/12G"), metavar="SIZE/BUDGET,...",
                        help="weights and gradients, and GPU memory (16G/12G)")
    models.add_argument("--resident", type=r.size, default=16 * 2**30, metavar="SIZE", help="weights (16G)")
    models.add_argument("--layer", type=r.size, default=2**27, metavar="SIZE", help="a weight (128M)")
    models.add_argument("--workspace", type=r.size, default=2**25, metavar="SIZE", help="(32M)")
    models.add_argument("--host", type=r.size, default=2**30, metavar="SIZE", help="pinned memory of the ceilings (1G)")
    models.add_argument("--warm", type=r.milliseconds, default=20000, metavar="TIME",
                        help="before the rounds: the daemon finds out what is used most (20s)")
    models.add_argument("--rounds", type=int, default=8, metavar="N", help="of ceilings, native and gpumux (8)")
    models.add_argument("--repeats", type=int, default=4, metavar="N", help="tokens or steps a round (4)")


def sweep(rig, app, until):
    """Sweeps of each kind by turns until then, at least two of each: the milliseconds of each."""
    found = {"verify": [], "rewrite": []}
    while len(found["verify"]) < 2 or (len(found["verify"]) < rig.args.sweeps and time.monotonic() < until):
        for work, took in found.items():
            turn = app.turn(work)
            took.append(turn["work_ms"] / turn["passes"])
    return found


def rates(took, size, bytes_on_host):
    """What the sweeps of each kind come to."""
    found = {}
    for work, ways in (("verify", 1), ("rewrite", 2)):
        found[work] = {"ms": r.spread(took[work]), "bytes_a_sweep": ways * size,
                       "rate": r.spread([ways * size / ms / 1e6 for ms in took[work]]),
                       "host_rate": r.spread([ways * bytes_on_host / ms / 1e6 for ms in took[work]])}
    return found


def pinned(args):
    return args.pinned or max(2**26, args.size - args.budget + min(2 * 2**30, args.budget // 2))


def run_sweep(rig):
    args = rig.args
    if args.size <= args.budget:
        raise r.Failure("the allocation fits into the budget")
    rig.link("before")
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=pinned(args), oversize="host")
    begun = time.monotonic()
    app = r.App(rig, "app", args.size, daemon, piece=args.size)
    start_s = time.monotonic() - begun
    status = daemon.status()
    mine = [one for one in status["apps"] if one["pid"] == app.pid][0]
    bytes_on_host = args.size - mine["resident_bytes"]
    if bytes_on_host < args.size - args.budget:
        raise r.Failure(f"{r.show_size(mine['resident_bytes'])} on the GPU are more than the budget")
    rig.result.update(bytes_on_host=bytes_on_host, start_s=start_s, app=mine, tiers=status["gpus"][0]["tiers"],
                      native=None)
    # With a limit of time: as long again for the end, the link and the native program as this took.
    until = time.monotonic() + rig.left() / len(args.parts) - start_s / 2 - 2 * rig.result["link"][0]["took_s"]
    rig.result["sweep_ms"] = sweep(rig, app, until)
    app.end()
    daemon.stop()
    rig.link("after")
    if rig.left() > 2:
        native = r.App(rig, "native", args.size, piece=args.size)
        until = time.monotonic() + rig.left() / len(args.parts) / 2
        rig.result["native"] = rates(sweep(rig, native, until), args.size, 0)
        native.end()


def conclude_sweep(rig):
    args, result = rig.args, rig.result
    ceiling = result["ceiling"] = rig.ceiling()
    sweeps = result["sweeps"] = rates(result.pop("sweep_ms"), args.size, result["bytes_on_host"])
    print(f"oversize: one allocation of {r.show_size(args.size)}, budget {r.show_size(args.budget)}: "
          f"{r.show_size(result['bytes_on_host'])} in host memory; every word checked in every sweep")
    print(f"link, GB/s: {ceiling['h2d']:.1f} to the GPU, {ceiling['d2h']:.1f} from it, {ceiling['both']:.1f} both "
          f"ways; ready after {result['start_s']:.1f} s")
    rows = []
    for work, way in (("verify", "h2d"), ("rewrite", "both")):
        one = sweeps[work]
        native = result["native"] and result["native"][work]["rate"]["median"]
        rows.append([work, one["ms"]["count"], *(r.number(one["ms"][key]) for key in ("median", "min", "max")),
                     *(r.number(one["host_rate"][key]) for key in ("median", "min", "max")),
                     r.percent(one["host_rate"]["median"] / ceiling[way]), r.number(one["rate"]["median"]),
                     r.number(native)])
    r.table(["sweep", "sweeps", "ms", "min", "max", "over the link, GB/s", "min", "max", "of the link's rate",
             "whole, GB/s", "native"], rows)


# ---- models ----

def start_model(rig, name, what, daemon=None):
    """bench/app as a model, with its memory filled: under a daemon, or natively."""
    args = rig.args
    options = ["--activation", what["activation"], "--workspace", args.workspace, "--used", what["used"]]
    options += ["--gradients"] * what["has_gradients"] + ([] if daemon else ["--host", args.host])
    return r.App(rig, name, what["layers"] * args.layer, daemon, piece=args.layer, patience=180, options=options,
                 environment={"GPUMUX_OVERSIZE": "host"} if daemon else None)


def work(app, verb, count):
    """Milliseconds of one: of so many tokens or steps the median."""
    return app.ask(f"{verb} {count}", 180)["ms"]


def fixed_places(uses, capacity, read_ms, write_ms):
    """
    The least milliseconds over the link in a round, if the GPU has room for `capacity` blocks and each block has one place
    for good: those that cost least are on the host. `uses`: in a round, (block, is_read, is_written) each; a block costs
    read_ms to read over the link and write_ms to write.
    """
    costs = {}
    for block, is_read, is_written in uses:
        costs[block] = costs.get(block, 0) + is_read * read_ms + is_written * write_ms
    return sum(sorted(costs.values())[:max(0, len(costs) - capacity)])


def uses_of_step(layers):
    """Of a step of bench/app: weights are the blocks from 0 on, gradients those from `layers` on."""
    forward = [(i, True, False) for i in range(layers)]
    backward, update = [], []
    for i in range(layers):
        backward = [(i, True, False), (layers + i, False, True)] + backward
        update += [(layers + i, True, False), (i, True, True)]
    return forward + backward + update


def small_of(args, kind):
    """What is allocated last: its parts, and what they take on the GPU."""
    is_train = kind == "train"
    activation = min(args.layer // 2, 2**23 if is_train else 2**20)
    used = args.workspace if is_train else min(args.workspace, 2**20)
    whole = sum(-(-one // 2**21) * 2**21 for one in (activation, activation, args.workspace))
    return {"activation": activation, "used": used, "small": whole}


def run_model(rig, kind, count, budget, share):
    """One model, natively and under gpumux by turns; `share` of the time that is left. What was measured."""
    args = rig.args
    until = time.monotonic() + rig.left() * share
    has_gradients = kind == "train"
    layers = max(1, count // args.layer // (2 if has_gradients else 1))
    what = {"kind": kind, "layers": layers, "has_gradients": has_gradients, "bytes": count, "budget": budget,
            **small_of(args, kind)}
    verb = "steps" if has_gradients else "tokens"
    pinned_bytes = max(0, count + what["small"] - budget) + 2**26 + min(2 * 2**30, budget // 2) # 64 MiB to move through
    begun = time.monotonic()
    native = start_model(rig, f"native-{kind}-{len(rig.result['models'])}", what)
    daemon = r.Daemon(rig, f"daemon-{kind}-{len(rig.result['models'])}", gpu_budget=budget, pinned=pinned_bytes)
    app = start_model(rig, f"app-{kind}-{len(rig.result['models'])}", what, daemon)
    what["start_s"] = time.monotonic() - begun
    warm_until = min(time.monotonic() + args.warm / 1000, (time.monotonic() + until) / 2)
    what["warm_ms"] = [work(app, verb, 1)]
    while time.monotonic() < warm_until:
        what["warm_ms"].append(work(app, verb, 1))
    found = {"native": [], "app": [], "read": [], "write": [], "rewrite": [], "resident": []}
    while len(found["app"]) < args.rounds and (len(found["app"]) < 1 or time.monotonic() < until):
        answer = native.ask("rates", 180)
        for rate in ("read", "write", "rewrite", "resident"):
            found[rate].append(answer[rate])
        found["native"].append(work(native, verb, args.repeats))
        found["app"].append(work(app, verb, args.repeats))
    status = daemon.status()
    mine = [one for one in status["apps"] if one["pid"] == app.pid][0]
    what.update({key: r.spread(values) for key, values in found.items()})
    what.update(total=mine["total_bytes"], usable=status["gpus"][0]["usable_bytes"],
                on_host=mine["on_host_bytes"], exchanged=mine["exchanged_bytes"])
    app.end()
    native.end()
    daemon.stop()
    return what


def judge(args, what):
    """Set what the measured times are compared with."""
    took, read, write = (what[key]["median"] for key in ("app", "read", "write"))
    what["of_native"] = what["native"]["median"] / took
    if what["has_gradients"]:
        room = max(0, what["usable"] - what["small"]) // args.layer
        costs = room, args.layer / read / 1e6, args.layer / write / 1e6
        what["bound_ms"] = fixed_places(uses_of_step(what["layers"]), *costs)
    else:
        what["bound_ms"] = max(0, what["total"] - what["usable"]) / read / 1e6
    what["of_bound"] = what["bound_ms"] / took


def conclude_models(rig):
    rows = []
    for what in rig.result["models"]:
        judge(rig.args, what)
        is_larger = what["kind"] != "resident"
        rows.append([what["kind"], r.show_size(what["total"]), r.show_size(what["usable"]), r.show_size(what["on_host"]),
                     *(r.number(what["app"][key]) for key in ("median", "min", "max")),
                     r.number(1000 / what["app"]["median"]),
                     r.number(what["bound_ms"]) if is_larger else "-", r.percent(what["of_bound"]) if is_larger else "-",
                     r.number(what["native"]["median"]),
                     r.percent(what["of_native"])])
    r.table(["model", "has", "budget", "on host", "ms", "min", "max", "a second", "bound, ms", "of bound",
             "native, ms", "of native"], rows)
    for what in rig.result["models"]:
        rates_of = ", ".join(f"{name} {r.number(what[key]['median'])}" for key, name in (
            ("read", "zero-copy read"), ("write", "write"), ("rewrite", "rewrite"), ("resident", "resident read")))
        print(f"{what['kind']} of {r.show_size(what['total'])}: GB/s: {rates_of}; first {r.number(what['warm_ms'][0])} ms; "
              f"{r.show_size(what['exchanged'])} exchanged; every word that was read is right")


# ---- all ----

def run(rig):
    args = rig.args
    if "sweep" in args.parts:
        run_sweep(rig)
    wanted = [(kind, *one) for kind, sizes in (("decode", args.decode), ("train", args.train)) for one in sizes
              if kind in args.parts]
    if "resident" in args.parts:
        small = small_of(args, "resident")["small"]
        wanted.append(("resident", args.resident, args.resident + small + max(2**26, args.resident // 16)))
    rig.result["models"] = []
    for i, (kind, count, budget) in enumerate(wanted):
        rig.result["models"].append(run_model(rig, kind, count, budget, .9 / (len(wanted) - i)))


def conclude(rig):
    if "sweep_ms" in rig.result:
        conclude_sweep(rig)
    if rig.result.get("models"):
        conclude_models(rig)


if __name__ == "__main__":
    r.main("oversize", __doc__, add_options, run, conclude)

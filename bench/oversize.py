#!/usr/bin/env python3
"""bench/oversize: one allocation that is larger than the budget, with --oversize host.

The part that does not fit on the GPU is pinned host memory that kernels read over the link. The program fills the
allocation, then sweeps it again and again: by turns reading (verify), and reading and writing (rewrite); every word is
checked in every sweep. Beside that: the same program natively, which the GPU must have the memory for; and with
--oversize refuse, where the allocation has to fail with out-of-memory. The ceiling is bench/link of the same run: the
part in host memory cannot be read faster than the link's rate to the GPU.
"""

import time

import rig as r


def add_options(parser):
    parser.add_argument("--size", type=r.size, default=40 * 2**30, metavar="SIZE", help="of the allocation (40G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--pinned", type=r.size, metavar="SIZE", help="pinned memory (size less budget, and 2G)")
    parser.add_argument("--sweeps", type=int, default=10, metavar="N", help="of each kind, at most (10)")
    parser.add_argument("--skip-native", action="store_true", help="leave the native program out")


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


def refuses(rig):
    """The same allocation with --oversize refuse: out of memory, and nothing else."""
    args = rig.args
    daemon = r.Daemon(rig, "daemon-refuse", gpu_budget=args.budget, pinned=pinned(args), oversize="refuse")
    try:
        r.App(rig, "app-refused", args.size, daemon, piece=args.size)
    except r.Failure as failure:
        text = str(failure)
    else:
        raise r.Failure("with --oversize refuse the allocation was granted")
    if "CUDA_ERROR_OUT_OF_MEMORY" not in text:
        raise r.Failure(f"with --oversize refuse: {text}")
    daemon.stop()
    return text


def pinned(args):
    return args.pinned or max(2**26, args.size - args.budget + min(2 * 2**30, args.budget // 2))


def run(rig):
    args = rig.args
    if args.size <= args.budget:
        raise r.Failure("the allocation fits into the budget")
    if not rig.has_option("oversize"):
        raise r.Absent("this gpumuxd has no --oversize")
    rig.link("before")
    rig.result["refused"] = refuses(rig)
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
    until = time.monotonic() + rig.left() - start_s / 2 - 2 * rig.result["link"][0]["took_s"]
    rig.result["sweep_ms"] = sweep(rig, app, until)
    app.end()
    daemon.stop()
    rig.link("after")
    if not args.skip_native and rig.left() > 2:
        native = r.App(rig, "native", args.size, piece=args.size)
        rig.result["native"] = rates(sweep(rig, native, time.monotonic() + rig.left() / 2), args.size, 0)
        native.end()


def conclude(rig):
    args, result = rig.args, rig.result
    if "sweep_ms" not in result:
        return
    ceiling = result["ceiling"] = rig.ceiling()
    sweeps = result["sweeps"] = rates(result.pop("sweep_ms"), args.size, result["bytes_on_host"])
    print(f"oversize: one allocation of {r.show_size(args.size)}, budget {r.show_size(args.budget)}: "
          f"{r.show_size(result['bytes_on_host'])} in host memory; every word checked in every sweep; refused with "
          "--oversize refuse")
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


if __name__ == "__main__":
    r.main("oversize", __doc__, add_options, run, conclude)

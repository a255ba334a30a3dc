#!/usr/bin/env python3
"""bench/oversize: one allocation that is larger than the budget, with --oversize host.

The part that does not fit on the GPU is pinned host memory that kernels read over the link. The program fills the
allocation, then sweeps it again and again: first reading (verify), then reading and writing (rewrite); every word is
checked in every sweep. Beside that: the same program natively, if the GPU has the memory; and with --oversize
refuse, where the allocation has to fail with out-of-memory. The ceiling is bench/link of the same run: the part in
host memory cannot be read faster than the link's rate to the GPU.
"""

import time

import rig as r


def add_options(parser):
    parser.add_argument("--size", type=r.size, default=40 * 2**30, metavar="SIZE", help="of the allocation (40G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--pinned", type=r.size, metavar="SIZE", help="pinned memory (size less budget, and 2G)")
    parser.add_argument("--sweeps", type=int, default=10, metavar="N", help="of each kind (10)")
    parser.add_argument("--skip-native", action="store_true", help="leave the native program out")


def sweep(rig, app, bytes_on_host):
    """Rates of the sweeps of each kind."""
    found = {}
    for work, ways in (("verify", 1), ("rewrite", 2)):
        turns = [app.turn(work) for _ in range(rig.args.sweeps)]
        took = [turn["work_ms"] / turn["passes"] for turn in turns]
        found[work] = {"ms": r.spread(took), "bytes_a_sweep": ways * app.bytes,
                       "rate": r.spread([ways * app.bytes / ms / 1e6 for ms in took]),
                       "host_rate": r.spread([ways * bytes_on_host / ms / 1e6 for ms in took])}
    return found


def refuses(rig):
    """The same allocation with --oversize refuse: out of memory, and nothing else."""
    args = rig.args
    daemon = r.Daemon(rig, "daemon-refuse", gpu_budget=args.budget, pinned=pinned(args), oversize="refuse")
    try:
        r.App(rig, "app-refused", args.size, piece=args.size)
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
    rig.result["refused"] = refuses(rig)
    rig.link("before")
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=pinned(args), oversize="host")
    begun = time.monotonic()
    app = r.App(rig, "app", args.size, piece=args.size)
    start_s = time.monotonic() - begun
    status = daemon.status()
    mine = [one for one in status["apps"] if one["pid"] == app.pid][0]
    bytes_on_host = args.size - mine["resident_bytes"]
    if bytes_on_host < args.size - args.budget:
        raise r.Failure(f"{r.show_size(mine['resident_bytes'])} on the GPU are more than the budget")
    sweeps = sweep(rig, app, bytes_on_host)
    app.end()
    daemon.stop()
    rig.link("after")
    ceiling = rig.ceiling()
    rig.result.update(bytes_on_host=bytes_on_host, start_s=start_s, sweeps=sweeps, ceiling=ceiling, app=mine,
                      tiers=status["gpus"][0]["tiers"], native=None)
    if not args.skip_native:
        native = r.App(rig, "native", args.size, is_native=True, piece=args.size)
        rig.result["native"] = sweep(rig, native, 0)
        native.end()
    print(f"oversize: one allocation of {r.show_size(args.size)}, budget {r.show_size(args.budget)}: "
          f"{r.show_size(bytes_on_host)} in host memory; every word checked in every sweep; refused with --oversize "
          "refuse")
    print(f"link, GB/s: {ceiling['h2d']:.1f} to the GPU, {ceiling['d2h']:.1f} from it, {ceiling['both']:.1f} both ways")
    rows = []
    for work, way in (("verify", "h2d"), ("rewrite", "both")):
        one = sweeps[work]
        native = rig.result["native"] and rig.result["native"][work]["rate"]["median"]
        rows.append([work, r.number(one["ms"]["median"]), r.number(one["rate"]["median"]),
                     r.number(one["host_rate"]["median"]), r.percent(one["host_rate"]["median"] / ceiling[way]),
                     r.number(native)])
    r.table(["sweep", "ms", "GB/s", "of it over the link", "of the link's rate", "native GB/s"], rows)
    rig.result["is_verified"] = True # or the app would have ended the run


if __name__ == "__main__":
    r.main("oversize", __doc__, add_options, run)

#!/usr/bin/env python3
"""bench/tiers: three programs in turn, with less and less pinned memory, the rest paged, then on disk.

Together the programs need more than the budget; the difference has to be in host memory. Pinned memory for a copy
of everything is the run that the others are compared with; then pinned memory is capped at fractions of the
difference, with ordinary memory (--paged) for the rest; then at --disk-pinned with a disk and no paged memory. In
each turn a program that was idle is asked to work, as in bench/switch: time from before its first GPU call to the
end of an empty kernel, then all of its memory verified and rewritten, for --work (each program computes that long
before the next one is asked, which is when a daemon can prepare for it). Ceilings of the same run: bench/link, and
bench/host for copies between pinned and paged memory and for the disk.

The bound of a turn is the time that its bytes need on the slowest of what they must pass: the link; and between
pinned and paged memory, or the disk, what cannot stay in pinned memory from one turn of a program to the next, less
the time that the program before worked.
"""

import os

import rig as r


def fractions(text):
    found = []
    for part in text.split(","):
        over, _, under = part.partition("/")
        found.append((part, float(over) / float(under or 1)))
    return found


def times(text):
    return [r.milliseconds(part) for part in text.split(",")]


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[12 * 2**30] * 3, metavar="SIZE,...",
                        help="of the programs (12G,12G,12G)")
    parser.add_argument("--budget", type=r.size, default=14 * 2**30, metavar="SIZE", help="of GPU memory (14G)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--fractions", type=fractions, default=fractions("2/3,1/3,1/6"), metavar="F,...",
                        help="of pinned memory, of what does not fit on the GPU (2/3,1/3,1/6)")
    parser.add_argument("--work", type=times, default=[0, 700], metavar="TIME,...",
                        help="that each turn computes; each configuration is run with each (0,700ms)")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="measured turns of each program (6)")
    parser.add_argument("--warm", type=int, default=2, metavar="N", help="turns of each before those (2)")
    parser.add_argument("--disk", default="/var/tmp", metavar="DIR", help="folder for the disk tier (/var/tmp); '': none")
    parser.add_argument("--disk-pinned", type=r.size, default=4 * 2**30, metavar="SIZE",
                        help="pinned memory with the disk (4G)")
    parser.add_argument("--disk-rounds", type=int, default=2, metavar="N", help="measured turns of each with it (2)")
    parser.add_argument("--host-bytes", type=r.size, default=2**30, metavar="SIZE",
                        help="copied when host memory is measured (1G)")
    parser.add_argument("--host-disk-bytes", type=r.size, default=4 * 2**30, metavar="SIZE",
                        help="written and read when the disk is measured (4G)")


def measure_host(rig):
    """Rates of copies in host memory and of the disk."""
    args = rig.args
    options = ["--bytes", args.host_bytes, "--rounds", 3]
    if args.disk:
        options += ["--disk", args.disk, "--disk-bytes", args.host_disk_bytes]
    result = rig.run_tool("host", *options)
    rates = {way: max(step[way]["median"] for step in result["copies"]) for way in ("out", "back", "both")}
    for way in ("write", "read", "both"):
        rates["disk_" + way] = max((step[way]["median"] for step in result["disk"]), default=None)
    rig.result["host"] = {**rates, "copies": result["copies"], "disk": result["disk"],
                          "disk_is_direct": result["disk_is_direct"]}
    return rates


def configurations(rig):
    """(name, daemon options, is_disk), and why one is left out."""
    args = rig.args
    total = sum(args.sizes)
    rest = total - args.budget
    if rest <= 0:
        raise r.Failure("the programs fit into the budget together")
    rig.result["rest_bytes"] = rest
    # The daemon wants whole slabs of 32 MiB, and room in the lowest tier for what passes through.
    slab = 2**25

    def cap(share):
        return max(2 * slab, int(rest * share) // slab * slab)

    found = [("all pinned", {"pinned": total}, False)]
    if rig.has_option("paged"):
        found += [(f"{name} pinned", {"pinned": cap(share), "paged": total}, False)
                  for name, share in args.fractions]
    else:
        print("note: this gpumuxd has no --paged: only all pinned is run")
    if not args.disk:
        pass
    elif rig.has_option("disk"):
        found += [("pinned and disk", {"pinned": args.disk_pinned, "paged": 0,
                                       "disk": f"{args.disk}:{total}"}, True)]
    else:
        print("note: this gpumuxd has no --disk")
    return found


def bound_ms(record, rates, ceiling, options, rest, gap):
    """
    The least time of a turn. Both ways of the link at once; and what is to come from a lower tier. Of the `rest`
    bytes that are not on the GPU, `pinned` hold their share; of a program's bytes that come in, as much has to come
    from below as does not fit there, and the same amount has to go down. That can begin while the program before
    works and idles.
    """
    link = r.copy_ideal_ms(record["bytes_out"], record["bytes_in"], ceiling)
    below = max(0, rest - options["pinned"])
    through = min(record["bytes_in"], below)
    if options.get("disk"):
        lower = 2 * through / rates["disk_both"] / 1e6
    else:
        lower = 2 * through / rates["both"] / 1e6
    lower = max(0, lower - record["work_ms"] - gap)
    return max(link, lower), link, lower


def measure(rig, name, options, is_disk):
    """One configuration: a list of runs, one for each --work (with the disk, whose time it is then, the first)."""
    args = rig.args
    daemon = r.Daemon(rig, gpu_budget=args.budget, **options)
    apps = [r.App(rig, f"app-{index}", count, piece=args.piece, patience=400 if is_disk else 120)
            for index, count in enumerate(args.sizes)]
    runs = []
    for work_ms in args.work[:1] if is_disk else args.work:
        for _ in range(1 if is_disk else args.warm):
            for app in apps:
                r.turn(rig, daemon, app, least_ms=work_ms)
        daemon.settle()
        records = [r.turn(rig, daemon, app, least_ms=work_ms)
                   for _ in range(args.disk_rounds if is_disk else args.rounds) for app in apps]
        runs.append({"name": name, "options": options, "work_ms": work_ms, "turns": records, "is_verified": True})
    for app in apps:
        app.end()
    daemon.stop()
    return runs


def digest(rig, found, rates):
    """What a run's turns come to."""
    ceiling = rig.ceiling()
    options, work_ms, records = found["options"], found["work_ms"], found["turns"]
    tiers = [record.pop("tiers") for record in records]
    for record in records:
        record["bound_ms"], record["link_ms"], record["lower_bound_ms"] = bound_ms(
            record, rates, ceiling, options, rig.result["rest_bytes"], rig.args.gap)
        record["over_bound"] = record["first_ms"] / record["bound_ms"] if record["bound_ms"] else None
    parts = [record["parts"] for record in records if record["parts"]]
    for key in ("first_ms", "bound_ms", "over_bound"):
        found[key] = r.spread([record[key] for record in records])
    for key in ("total_ms", "lower_ms"):
        found[key] = r.spread([part[key] for part in parts])
    found["most"] = {key: max(tier.get(key, 0) for tier in tiers)
                     for key in ("pinned_used_bytes", "paged_used_bytes", "disk_used_bytes")}
    if options["pinned"] < found["most"]["pinned_used_bytes"]:
        raise r.Failure("more pinned memory was used than the cap")
    if options.get("disk") and found["most"]["disk_used_bytes"] == 0:
        raise r.Failure("the disk was not used")
    reference = next(one for one in rig.result["runs"] if one["work_ms"] == work_ms) # all pinned comes first
    found["of_all_pinned"] = found["first_ms"]["p50"] / reference["first_ms"]["p50"]
    # What the project wants: as fast as all pinned, or as the slowest of what the bytes must pass; no long stall.
    within = [what for what, value in (("all pinned", found["of_all_pinned"]),
                                       ("bound", found["over_bound"] and found["over_bound"]["p50"]))
              if value is not None and value <= 1.1]
    found["within_a_tenth_of"] = within
    found["has_long_stall"] = found["first_ms"]["max"] > 1000


def show(rig):
    result = rig.result
    ceiling, host = result["ceiling"], result["host"]
    print(f"tiers: programs of {' + '.join(map(r.show_size, rig.args.sizes))}, budget "
          f"{r.show_size(rig.args.budget)}, {r.show_size(result['rest_bytes'])} in host memory; every byte verified "
          "in every turn")
    print(f"ceilings, GB/s: link {ceiling['both']:.1f} both ways; pinned and paged memory {host['both']:.1f} both ways "
          f"({host['out']:.1f} out, {host['back']:.1f} back); disk {r.number(host['disk_write'], 2)} write, "
          f"{r.number(host['disk_read'], 2)} read, {r.number(host['disk_both'], 2)} both at once")
    print("time to first kernel, ms; the bound is of the slowest that the bytes must pass:")
    r.table(["pinned memory", "cap", "work", "p50", "p99", "longest", "of all pinned", "bound", "over bound", "lower",
             "paged GiB", "disk GiB", "within 10 % of", "over 1 s"],
            [[one["name"], r.show_size(one["options"]["pinned"]), f"{one['work_ms']:.0f}",
              *(r.number(one["first_ms"][key]) for key in ("p50", "p99", "max")), r.percent(one["of_all_pinned"]),
              r.number(one["bound_ms"]["p50"]), r.percent(one["over_bound"] and one["over_bound"]["p50"]),
              r.number(one["lower_ms"] and one["lower_ms"]["p50"]),
              *(r.number(one["most"][key] / 2**30, 2) for key in ("paged_used_bytes", "disk_used_bytes")),
              ", ".join(one["within_a_tenth_of"]) or "neither", "yes" if one["has_long_stall"] else "no"]
             for one in result["runs"]])


def run(rig):
    args = rig.args
    if len(args.sizes) < 2 or min(args.rounds, args.disk_rounds) < 1:
        raise r.Failure("there are at least two programs and one round")
    if args.disk and not os.path.isdir(args.disk):
        raise r.Failure(f"no folder {args.disk}")
    rig.link("before")
    rates = measure_host(rig)
    rig.result["runs"] = []
    for name, options, is_disk in configurations(rig):
        rig.result["runs"] += measure(rig, name, options, is_disk)
    rig.link("after")
    rig.result["ceiling"] = rig.ceiling()
    for found in rig.result["runs"]:
        digest(rig, found, rates)
    show(rig)
    rig.result["is_verified"] = True # or an app would have ended the run


if __name__ == "__main__":
    r.main("tiers", __doc__, add_options, run)

#!/usr/bin/env python3
"""bench/shadows: what it saves that unchanged memory is not copied out, and what finding that out costs.

Two programs that do not fit together hand the GPU to each other, as in bench/switch. In one pair of rows they only read
what they hold, as models read their weights; in the other they rewrite every byte. Each with --shadows off and on. What a
turn moved, what it did not have to, and how long the switch took is what the daemon says (mux-ctl status --json); so is
how long the GPU hashed. The first turns are warm-up: what leaves the GPU for the first time is copied, and pinned memory
for shadows is made as it is found to be lacking (a GiB takes 0.2 s). All bytes are verified in every turn.

bench/hash of the same run says how fast the GPU hashes alone, and compares the kernel with a reference; bench/link says
what the link does one way and both ways at once. Where both ways at once are slower than one way, a switch that only
copies in is faster by that.
"""

import time

import rig as r

ROWS = (("read", "off"), ("read", "on"), ("rewrite", "off"), ("rewrite", "on"))
WORK = {"read": "verify", "rewrite": "rewrite"}


def add_options(parser):
    parser.add_argument("--sizes", type=r.sizes, default=[16 * 2**30, 16 * 2**30], metavar="SIZE,SIZE",
                        help="of the two programs (16G,16G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--pinned", type=r.size, metavar="SIZE", help="pinned memory (both sizes together, and 128M)")
    parser.add_argument("--piece", type=r.size, metavar="SIZE", help="allocations of the programs (1G)")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="measured turns of each program (10)")
    parser.add_argument("--warm", type=int, default=4, metavar="N", help="turns of each before those, twice (4)")
    parser.add_argument("--hash-bytes", type=r.size, default=4 * 2**30, metavar="SIZE", help="for bench/hash (4G)")


def counters(gpu):
    return {key: gpu[key] for key in ("bytes_out", "bytes_in", "bytes_clean", "bytes_zero", "bytes_hashed", "hash_ms")}


def measure_row(rig, what, shadows, until):
    args = rig.args
    daemon = r.Daemon(rig, f"daemon-{what}-{shadows}", gpu_budget=args.budget,
                      pinned=args.pinned or sum(args.sizes) + 2**27, shadows=shadows)
    apps = [r.App(rig, f"{what}-{shadows}-{index}", count, daemon, piece=args.piece)
            for index, count in enumerate(args.sizes)]
    row = {"work": what, "shadows": shadows, "warm": [], "turns": []}
    rig.result["rows"].append(row)
    for _ in range(2): # host memory grows by what was lacking in the first half, and holds it after the second
        for number in range(2 * args.warm):
            row["warm"].append(r.turn(rig, daemon, apps[number % 2], WORK[what]))
        daemon.settle()
    before = counters(daemon.gpu())
    while len(row["turns"]) < 2 * args.turns and (len(row["turns"]) < 2 or time.monotonic() < until):
        row["turns"].append(r.turn(rig, daemon, apps[len(row["turns"]) % 2], WORK[what]))
    gpu = daemon.gpu()
    after = counters(gpu)
    row["moved"] = {key: after[key] - before[key] for key in after}
    row["tiers"] = gpu["tiers"]
    row["is_hashing"] = gpu["is_hashing"]
    for app in apps:
        app.end()
    daemon.stop()
    if any(turn["switches"] == 0 for turn in row["turns"]):
        raise r.Failure("turns without a switch: the sizes fit into the budget together")
    if shadows == "on" and not gpu["is_hashing"]:
        raise r.Failure("the daemon does not hash on this GPU: its log says why")


def run(rig):
    args = rig.args
    if len(args.sizes) != 2 or min(args.turns, args.warm) < 1:
        raise r.Failure("--sizes takes two sizes; there is at least one turn of each kind")
    rig.result["rows"] = []
    rig.result["hash"] = rig.run_tool("hash", "--bytes", args.hash_bytes, "--rounds", 5)["pieces"]
    rig.link("before")
    for number, (what, shadows) in enumerate(ROWS):
        until = time.monotonic() + (rig.left() - rig.closing_s()) / (len(ROWS) - number)
        measure_row(rig, what, shadows, until)
    rig.link("after")


def digest(row):
    turns = row["turns"]
    parts = [turn["parts"] for turn in turns if turn["parts"]]
    moved = row["moved"]
    row["summary"] = {
        "bytes_out": moved["bytes_out"] / len(turns), "bytes_in": moved["bytes_in"] / len(turns),
        "bytes_clean": moved["bytes_clean"] / len(turns), "bytes_zero": moved["bytes_zero"] / len(turns),
        "switch_ms": r.spread([one["total_ms"] for one in parts]),
        "copy_ms": r.spread([one["copy_ms"] for one in parts]),
        "first_ms": r.spread([turn["first_ms"] for turn in turns]),
        "hash_ms": moved["hash_ms"] / len(turns),
        "hash_rate": moved["bytes_hashed"] / moved["hash_ms"] / 1e6 if moved["hash_ms"] else None,
        "warm_bytes_out": max(turn["bytes_out"] for turn in row["warm"]),
    }


def conclude(rig):
    rows = [row for row in rig.result.get("rows", []) if row["turns"] and "moved" in row]
    if not rows or not rig.result.get("link"):
        return
    args, ceiling = rig.args, rig.ceiling()
    rig.result["ceiling"] = ceiling
    for row in rig.result["rows"]:
        for turn in row["warm"] + row["turns"]:
            turn.pop("tiers", None)
    for row in rows:
        digest(row)
    print(f"shadows: programs of {' and '.join(map(r.show_size, args.sizes))}, budget {r.show_size(args.budget)}; "
          f"{len(rows[0]['turns'])} turns in turn after {len(rows[0]['warm'])} to warm up; every byte verified in every turn")
    print(f"link: to the GPU {ceiling['h2d']:.1f}, from it {ceiling['d2h']:.1f}, both ways at once {ceiling['both']:.1f} "
          "GB/s; hash alone: " + ", ".join(f"{one['kernel']['median']:.0f} GB/s in {r.show_size(one['piece'])}"
                                           for one in rig.result["hash"]))
    r.table(["programs", "shadows", "out GiB", "unchanged", "zero", "in GiB", "switch ms", "copies", "first kernel ms",
             "hash ms", "hash GB/s"],
            [[row["work"], row["shadows"],
              *(r.number(row["summary"][key] / 2**30, 2) for key in ("bytes_out", "bytes_clean", "bytes_zero", "bytes_in")),
              *(r.number(row["summary"][key] and row["summary"][key]["median"])
                for key in ("switch_ms", "copy_ms", "first_ms")),
              r.number(row["summary"]["hash_ms"], 2), r.number(row["summary"]["hash_rate"], 0)] for row in rows])
    judge(rig, {(row["work"], row["shadows"]): row["summary"] for row in rows})


def judge(rig, of):
    """What the project wants to reach, beside what was measured. Not a test: the exit code does not tell."""
    goals = []

    def goal(name, measured, wanted, is_share=True, is_least=False):
        if measured is not None:
            goals.append({"goal": name, "measured": measured, "wanted": wanted, "is_share": is_share,
                          "is_met": measured >= wanted if is_least else measured <= wanted})

    if ("read", "off") in of and ("read", "on") in of:
        off, on = of[("read", "off")], of[("read", "on")]
        goal("copied out of unchanged memory, of what it was", on["bytes_out"] / off["bytes_out"], .05)
        goal("a switch of unchanged memory, of what it was", on["first_ms"]["median"] / off["first_ms"]["median"], 1.0)
    if ("rewrite", "off") in of and ("rewrite", "on") in of:
        goal("a switch of changed memory, of what it was without hashes",
             of[("rewrite", "on")]["first_ms"]["median"] / of[("rewrite", "off")]["first_ms"]["median"], 1.03)
    for one in rig.result["hash"]:
        wanted = {2**25: 4000, 2**21: 2500}.get(one["piece"])
        if wanted:
            goal(f"GB/s of the hash in {r.show_size(one['piece'])}", one["kernel"]["median"], wanted, is_share=False,
                 is_least=True)
    r.show_goals(goals)
    rig.result["goals"] = goals


if __name__ == "__main__":
    r.main("shadows", __doc__, add_options, run, conclude)

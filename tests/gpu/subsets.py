"""python3 tests/gpu/subsets.py BUILD-DIR [--simcuda] [--bytes SIZE] [--piece SIZE] [--touch SIZE] [--budget SIZE]
       [--phase S] [--phases N] [--seed N] [--out DIR]

How well what programs use is found. Two programs gm_subsets, whose launches do not tell what they use, on a budget that
holds what both use, and not all that they have: so room is wanted. Each uses a random part of its memory, and every
--phase seconds another one (--phases of them; 3). What it uses is in its log; what the daemon takes for needed, in the
status. A piece that a program uses and that is not on the GPU is missed: its kernels take much longer then, as they
read it over the link. On simcuda that is what crosses the link, divided among all passes. What else is taken for needed
is so in vain: more bytes than it uses.

It fails if data is wrong, or if something is missed in the end. Into --out (the folder that OUT names, or .) go
subsets.json, with all samples, and a picture of each program, subsets-N.svg.
"""

import argparse
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time

from harness import Daemon, Failure, Place, Program, use_simcuda, wait_until

LINK = 55e9  # bytes a second that a kernel has over the link, about: of a piece that takes as long, all is missed
WAITED = 10  # ... and if one takes so many times as long, the program waited for its turn: nothing is known
QUIET = 1    # s in which nothing is missed: what is used is found
NOISE = 64   # of what is used, so little is nothing
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size(text):
    number, unit = re.fullmatch(r"([\d.]+)([KMG]?)", text).groups()
    return int(float(number) * UNITS[unit])


class Subsets:
    """A program, and what became of it: by the monotonic clock, in s."""

    def __init__(self, place, args, number):
        self.args = args
        self.program = Program(place, f"subsets-{number}",
                               [place.at("tests/gpu/gm_subsets"), "--bytes", args.bytes, "--piece", args.piece, "--touch", args.touch,
                                "--phase", int(args.phase * 1000), "--phases", args.phases, "--seed", args.seed + number,
                                *(["--rest-us", 10000] if args.simcuda else [])], under_gpumux=True, stdin=subprocess.PIPE)
        self.samples = []  # (at, on the GPU, needed)
        self.subsets, self.passes = [], []  # (at, pieces); (at, passes, us of each piece)
        self.read_to = 0

    def read(self):
        """What its log has more; whole lines."""
        with open(self.program.out, encoding="utf-8") as out:
            out.seek(self.read_to)
            text = out.read()
        text = text[:text.rfind("\n") + 1]
        self.read_to += len(text)
        for line in text.splitlines():
            at, kind, *numbers = line.split()
            if kind == "subset":
                self.subsets.append((float(at) / 1000, [int(one) for one in numbers]))
            elif kind == "pass":
                self.passes.append((float(at) / 1000, int(numbers[0]), [float(us) for us in numbers[1:]]))

    def missed(self, us, fast_us):
        """Bytes, of how long each piece took; None if it waited."""
        slow_us = self.args.piece / LINK * 1e6
        if max(us) > WAITED * slow_us:
            return None
        return sum(min(1, max(0, (one - fast_us) / slow_us)) for one in us) * self.args.piece

    def find(self):
        """(at, bytes used and not on the GPU) of its passes."""
        fast_us = min(min(us) for _, _, us in self.passes) * 2 # less is noise
        return [(at, found) for at, found in ((at, self.missed(us, fast_us)) for at, _, us in self.passes) if found is not None]


class Watch:
    """Looks at all of it now and then."""

    def __init__(self, place, args, daemon, programs):
        self.args, self.daemon, self.programs = args, daemon, programs
        self.link = os.path.join(place.work, "sim", "crossed0")
        self.crossed = [] # on simcuda (at, bytes that kernels read over the link, passes), all of both
        self.begun = time.monotonic()

    def look(self):
        status = self.daemon.status()
        at = time.monotonic()
        for one in self.programs:
            one.read()
            if not one.program.is_running():
                raise Failure(f"{one.program.name} ended: {one.program.complaint()}")
            app = next((app for app in status["apps"] if app["pid"] == one.program.process.pid), None)
            if app and one.subsets:
                one.samples.append((at, app["resident_bytes"], app["needed_bytes"]))
        if self.args.simcuda:
            with open(self.link, "rb") as file:
                crossed = struct.unpack("Q", file.read(8))[0]
            self.crossed.append((at, crossed - status["gpus"][0]["bytes_in"],
                                 sum(one.passes[-1][1] for one in self.programs if one.passes)))

    def found(self, one):
        """(at, bytes missed) of that program."""
        if not self.args.simcuda:
            return one.find()
        return [(at, min(self.args.touch, max(0, bytes_ - before) / max(1, passes - passes_before)))
                for (_, before, passes_before), (at, bytes_, passes) in zip(self.crossed, self.crossed[1:])]

    def is_quiet(self):
        """The last subsets were used for as long as the others, nothing was missed of late, and all have worked."""
        since = time.monotonic() - QUIET
        for one in self.programs:
            late = [missed for at, missed in self.found(one) if at > since] if one.passes else []
            if (len(one.subsets) < self.args.phases or time.monotonic() - one.subsets[-1][0] < max(QUIET, self.args.phase) or len(late) < 5 or
                    max(late) > self.args.touch / NOISE or one.passes[-1][0] < since + QUIET / 2):
                return False
        return True


def rows_of(watch, one):
    """[at, used, on the GPU, needed, missed, in vain], at each sample, in s from the begin and in bytes."""
    found, rows, index, last = watch.found(one), [], 0, 0
    for at, held, needed in one.samples:
        late = []
        while index < len(found) and found[index][0] <= at:
            late.append(found[index][1])
            index += 1
        last = round(max(late, default=last)) # none: it waited
        rows.append([round(at - watch.begun, 3), watch.args.touch, held, needed, last, max(0, needed - watch.args.touch)])
    return rows


def summary(args, begun, one, rows):
    """Of each subset: s until nothing was missed for a while, what was missed on average, and what was in vain in the end."""
    edges, result = [at - begun for at, _ in one.subsets] + [math.inf], []
    for begin, end in zip(edges, edges[1:]):
        inside = [row for row in rows if begin < row[0] <= end]
        bad = [begin] + [row[0] for row in inside if row[4] > args.touch / NOISE] + [inside[-1][0] if inside else begin]
        found = [one for one, after in zip(bad, bad[1:]) if after - one >= QUIET]
        if inside:
            result.append({"found_s": round(found[0] - begin, 2) if found else None, "in_vain_bytes": inside[-1][5],
                           "missed_mean_bytes": round(sum(row[4] for row in inside) / len(inside))})
    return result


def picture(args, name, draws, rows):
    """What is taken for needed over time: what is used, what is in vain; and what is missed."""
    left, top, width, height = 60, 72, 720, 232
    until, most = rows[-1][0], max(max(row[3] for row in rows), args.touch) * 1.05

    def path(column, colour):
        points = [(f"{left + width * row[0] / until:.1f}", f"{top + height * (1 - column(row) / most):.1f}") for row in rows]
        around = zip([None, *points], points, [*points[1:], None]) # those between two of the same height are not needed
        points = " ".join(",".join(point) for last, point, then in around if not last or not then or not last[1] == point[1] == then[1])
        return f'<polygon points="{left},{top + height} {points} {left + width},{top + height}" fill="{colour}"/>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 340" width="800" height="340" '
           'font-family="system-ui,Helvetica,Arial,sans-serif" font-size="13" fill="#1d2329">',
           '<rect width="800" height="340" fill="#fff"/>',
           f'<text x="12" y="24" font-size="15" font-weight="bold">{name}: {args.bytes >> 20} MiB, of which {args.touch >> 20} are used</text>']
    for x, colour, text in ((12, "#c4ccd4", "needed in vain"), (170, "#2f77b5", "used, on the GPU"), (320, "#e06c75", "used, not on the GPU")):
        out.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="47">{text}</text>')
    out += [path(lambda row: max(row[3], row[1]), "#c4ccd4"), path(lambda row: row[1], "#e06c75"),
            path(lambda row: row[1] - row[4], "#2f77b5")]
    for at in draws:
        x = left + width * at / until
        out.append(f'<path d="M{x:.1f} {top}V{top + height}" stroke="#1d2329" stroke-dasharray="3 3"/>')
    for part in range(5):
        out.append(f'<text x="{left + width * part / 4:.0f}" y="320" text-anchor="middle">{until * part / 4:.0f} s</text>'
                   f'<text x="{left - 6}" y="{top + height * (1 - part / 4) + 4:.0f}" text-anchor="end">{most * part / 4 / 2**20:.0f}</text>')
    return "\n".join(out + [f'<text x="{left - 6}" y="{top - 8}" text-anchor="end">MiB</text></svg>', ""])


def run(place, args):
    daemon = Daemon(place, "daemon", args.budget, 2 * args.bytes + 2**30, "125ms", ["--rule", "command=* class=batch", "--idle", "5ms"])
    programs = [Subsets(place, args, number) for number in (1, 2)]
    watch = Watch(place, args, daemon, programs)

    def is_done():
        watch.look()
        return watch.is_quiet()

    try:
        wait_until("nothing is missed", 120 + args.phase * args.phases, is_done)
        why = None
    except Failure as failure:
        why = str(failure)
    for one in programs:
        one.program.process.stdin.close()
    result = {"bytes": args.bytes, "piece": args.piece, "touch": args.touch, "budget": args.budget,
              "columns": ["s", "used", "on_gpu", "needed", "missed", "in_vain"], "programs": []}
    for one in programs:
        rows = rows_of(watch, one)
        draws = [[round(at - watch.begun, 3), pieces] for at, pieces in one.subsets]
        result["programs"].append({"name": one.program.name, "subsets": draws, "samples": rows,
                                   "found": summary(args, watch.begun, one, rows)})
        if rows:
            with open(os.path.join(args.out, one.program.name + ".svg"), "w", encoding="utf-8") as file:
                file.write(picture(args, one.program.name, [at for at, _ in draws], rows))
    with open(os.path.join(args.out, "subsets.json"), "w", encoding="utf-8") as file:
        json.dump(result, file)
        file.write("\n")
    for one, found in zip(programs, result["programs"]):
        passes = one.program.passed()["passes"]
        for number, subset in enumerate(found["found"], 1):
            after = "not found" if subset["found_s"] is None else f"found after {subset['found_s']:.1f} s"
            print(f"{found['name']}, subset {number}: {after}; {subset['missed_mean_bytes'] / 2**20:.1f} MiB of {args.touch >> 20} missed on "
                  f"average, in the end {subset['in_vain_bytes'] >> 20} of {args.bytes - args.touch >> 20} needed in vain")
        print(f"{found['name']}: data is right, {passes} passes")
    daemon.stop()
    if why:
        raise Failure(why)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--simcuda", action="store_true")
    for name, default in (("bytes", "16G"), ("piece", "64M"), ("touch", "2G"), ("budget", "20G")):
        parser.add_argument("--" + name, type=size, default=size(default), help=f"({default})")
    parser.add_argument("--phase", type=float, default=30, help="seconds (30)")
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    args = parser.parse_args()
    place = Place(args.build, "subsets")
    place.check_build()
    if args.simcuda:
        use_simcuda(place)
        os.environ["SIMCUDA_LINK_FACTOR"] = "64" # a simulated link is slow
    failed = 0
    try:
        run(place, args)
    except Failure as failure:
        print(f"FAIL: {failure}")
        failed = 1
    for program in place.started:
        program.stop(signal.SIGKILL)
    print("logs:", place.pack(is_kept=failed))
    print(f"{1 - failed} passed, {failed} failed")
    sys.exit(failed)


main()

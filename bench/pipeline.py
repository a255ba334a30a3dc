#!/usr/bin/env python3
"""bench/pipeline: programs that work in turn, each with what the one before it made, on a GPU with room for one.

Two pipelines: a language model expands a prompt and a model in the shape of those that make images uses the result;
and a planner (the same language model) with two workers, first that one, then another language model. Each is a
process (python/models.py), which begins when it has read the result of the one before; this program is the pipe.

The reference is a GPU for each: every stage alone with its memory on the GPU, measured in the same run in turn with
the pipelines, and beside that the time that the bytes which really moved need on the link, both ways at once, as
bench/link measures it. What is longer is what it takes to notice that a program has done its part, and to switch.

Every result of each stage is compared with the same computed alone, to the bit.
"""

import time

import programs as p
import rig as r

LEAST = .85
PIPELINES = {"expand": ("planner", "image"), "workers": ("planner", "image", "text")}
GIVEN = 7 # the prompt's number


def add_options(parser):
    p.add_options(parser)
    parser.add_argument("--sizes", type=r.sizes, default=[14 * 2**30] * 3, metavar="SIZE,SIZE,SIZE",
                        help="of the planner, the model for images, and the other worker (14G,14G,14G)")
    parser.add_argument("--budget", type=r.size, default=20 * 2**30, metavar="SIZE", help="of GPU memory (20G)")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="of each text (128)")
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="of an image (50)")
    parser.add_argument("--trips", type=int, default=4, metavar="N", help="through each pipeline in a block (4)")
    parser.add_argument("--blocks", type=int, default=4, metavar="N", help="of each pipeline, at most (4)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        type=lambda text: tuple(text.partition("=")[::2]),
                        help="of the daemon; may be given several times")


def plans(args):
    return {"planner": p.Plan("decoder", args.sizes[0], args.tokens, prompt=256, seed=21),
            "image": p.Plan("denoising", args.sizes[1], args.steps, seed=22),
            "text": p.Plan("decoder", args.sizes[2], args.tokens, prompt=256, seed=23)}


def measure_trip(programs, names):
    """Once through a pipeline: (ms, of each stage what it says and the response)."""
    given, stages = GIVEN, []
    begun = time.monotonic()
    for name in names:
        answer = programs[name].round(given)
        given = answer.get("sum", 0) % 2**31 # its result is what the next one works on
        stages.append({"name": name, **{key: answer[key] for key in ("response_ms", "first_ms", "work_ms")}})
    return (time.monotonic() - begun) * 1000, stages


def measure_alone(rig, programs, inputs):
    """Each stage with its memory on the GPU: twice the same, after something that brings it there."""
    for name, program in programs.items():
        program.units()
        for _ in range(2):
            rig.result["alone"][name].append(program.round(inputs[name])["response_ms"])


def measure_block(rig, daemon, programs, pipeline, names):
    measure_trip(programs, names) # it begins where the last one ended
    daemon.take()
    begun = time.monotonic()
    trips = [dict(zip(("ms", "stages"), measure_trip(programs, names))) for _ in range(rig.args.trips)]
    seconds = time.monotonic() - begun
    # The last stage's memory is where it is: its next turn, which is not measured, would move the rest.
    moved = daemon.take()
    rig.result["blocks"].append({"pipeline": pipeline, "seconds": seconds, "trips": trips,
                                 **{key: moved[key] for key in ("switches", "bytes_out", "bytes_in", "history")}})


def run(rig):
    args = rig.args
    if len(args.sizes) != 3:
        raise r.Failure("--sizes takes three sizes")
    if max(args.sizes) > args.budget or sum(sorted(args.sizes)[:2]) <= args.budget:
        raise r.Failure("each program fits into the budget, and no two together do")
    rig.result.update(blocks=[], alone={name: [] for name in plans(args)})
    rig.link("before")
    daemon = r.Daemon(rig, gpu_budget=args.budget, pinned=sum(args.sizes) + 2**28,
                      **{"turn": None, "idle": None, **dict(args.option)})
    rig.result["options"] = daemon.options
    programs = {name: p.make(rig, name, plan, daemon) for name, plan in plans(args).items()}
    for program in programs.values():
        program.load()
    for _ in range(2): # so that all host memory is there
        stages = measure_trip(programs, PIPELINES["workers"])[1]
    rig.result["warm"] = stages
    inputs, given = {}, GIVEN
    for name in PIPELINES["workers"]: # what each stage gets in a pipeline; each gets the same in both
        inputs[name] = given
        given = programs[name].round(given).get("sum", 0) % 2**31
    longest = 0
    for number in range(args.blocks):
        begun = time.monotonic()
        if number and rig.left() < longest * 1.2 + rig.closing_s() + 2:
            break
        measure_alone(rig, programs, inputs)
        for pipeline, names in PIPELINES.items():
            measure_block(rig, daemon, programs, pipeline, names)
        longest = max(longest, time.monotonic() - begun)
    for program in programs.values():
        program.end()
    daemon.stop()
    if rig.left() > 2 * rig.result["link"][0]["took_s"]:
        rig.link("after")


def digest(rig):
    result = rig.result
    ceiling = result["ceiling"] = rig.ceiling()
    result["alone_ms"] = {name: r.spread(values) for name, values in result["alone"].items()}
    result["pipelines"] = []
    for pipeline, names in PIPELINES.items():
        blocks = [block for block in result["blocks"] if block["pipeline"] == pipeline]
        trips = [trip for block in blocks for trip in block["trips"]]
        if not trips or not all(result["alone_ms"][name] for name in names):
            continue
        moved = {way: sum(block[way] for block in blocks) / len(trips) for way in ("bytes_out", "bytes_in")}
        alone = sum(result["alone_ms"][name]["median"] for name in names)
        link = r.copy_ideal_ms(moved["bytes_out"], moved["bytes_in"], ceiling)
        took = r.spread([trip["ms"] for trip in trips])
        stages = [{"name": name, "alone_ms": result["alone_ms"][name]["median"],
                   **{key: r.spread([trip["stages"][index][key] for trip in trips])
                      for key in ("response_ms", "first_ms", "work_ms")}} for index, name in enumerate(names)]
        result["pipelines"].append({"pipeline": pipeline, "trips": len(trips), "trip_ms": took, "alone_ms": alone,
                                    "link_ms": link, **moved, "stages": stages,
                                    "switches": sum(block["switches"] for block in blocks) / len(trips),
                                    "of_reference": (alone + link) / took["mean"],
                                    "of_dedicated": alone / took["mean"]})


def show(rig):
    args, result = rig.args, rig.result
    print(f"pipeline: programs of {', '.join(map(r.show_size, args.sizes))} ({result['programs']}), budget "
          f"{r.show_size(args.budget)}; link {result['ceiling']['both']:.1f} GB/s both ways; every result compared")
    r.table(["pipeline", "trips", "mean ms", "p50", "p90", "max", "stages alone", "switches", "out GiB", "in GiB",
             "on the link", "of alone", "of alone and link"],
            [[one["pipeline"], one["trips"], *(r.number(one["trip_ms"][key]) for key in ("mean", "p50", "p90", "max")),
              r.number(one["alone_ms"]), r.number(one["switches"], 2),
              *(r.number(one[way] / 2**30, 2) for way in ("bytes_out", "bytes_in")), r.number(one["link_ms"]),
              r.percent(one["of_dedicated"]), r.percent(one["of_reference"])] for one in result["pipelines"]])
    print("stages, ms:")
    r.table(["stage", "response", "p90", "to its first kernel", "p90", "its work", "alone"],
            [[f"{one['pipeline']}: {stage['name']}", *(r.number(stage["response_ms"][key]) for key in ("p50", "p90")),
              *(r.number(stage["first_ms"][key]) for key in ("p50", "p90")), r.number(stage["work_ms"]["p50"]),
              r.number(stage["alone_ms"])] for one in result["pipelines"] for stage in one["stages"]])


def judge(rig):
    goals = [{"goal": f"{one['pipeline']}: of a GPU for each stage and the bytes on the link",
              "measured": one["of_reference"], "wanted": LEAST, "is_share": True,
              "is_met": one["of_reference"] >= LEAST} for one in rig.result["pipelines"]]
    rig.result["goals"] = goals
    r.show_goals(goals)


def conclude(rig):
    if not rig.result.get("blocks") or not rig.result.get("link"):
        return
    digest(rig)
    show(rig)
    if p.measures(rig):
        judge(rig)


if __name__ == "__main__":
    r.main("pipeline", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""bench/first: the first requests of a program that began together with a batch program.

Each is nearly as large as the budget, so that they take turns. Both begin at the same time, with a daemon of its
default settings: one loads a language model and then answers requests, each a while after the answer before it
(--thinks); the other decodes token after token from the moment on that it is loaded. For each --think both are new, and
so is the daemon. A response is the time from when the request is sent to its last token, as its sender sees it; `alone`
is one with nothing beside it, afterwards.

With --due requests are due at fixed times, each so long after the one before. With --chat there is another such program
of that size, whose answers have 128 tokens, beside training: both fit, and nothing is moved.

Then two batch programs that begin together, for so long (--together): how often the GPU is switched between them.

With --old each is done with that build as well, in turn.
"""

import time

import programs as p
import rig as r

WORST_MS = 1000
ALONE = 3 # requests with nothing beside them; and as many that need a switch
CHAT = (2, 128, 8 * 2**30) # seconds between its requests, tokens, and bytes of the training beside it


def thinks(text):
    return [r.milliseconds(part) / 1000 for part in text.split(",")]


def add_options(parser):
    p.add_options(parser)
    p.add_decoder_options(parser)
    parser.add_argument("--sizes", type=r.sizes, default=[16 * 2**30] * 2, metavar="SIZE,SIZE",
                        help="of the program that answers, and of the other (16G,16G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="of an answer (16)")
    parser.add_argument("--prompt", type=int, default=256, metavar="N", help="tokens of its prompt (256)")
    parser.add_argument("--thinks", type=thinks, default=[1, 3, 6], metavar="TIME,...",
                        help="between an answer and the next request (1s,3s,6s)")
    parser.add_argument("--requests", type=int, default=5, metavar="N", help="of each (5)")
    parser.add_argument("--due", action="store_true", help="--thinks are from one request to the next")
    parser.add_argument("--chat", type=r.size, default=0, metavar="SIZE", help="also a chat that fits; 0: not (0)")
    parser.add_argument("--old", metavar="DIR", help="compare with this build")
    parser.add_argument("--beside", type=int, default=1, metavar="N", help="batch programs beside it (1)")
    parser.add_argument("--together", type=r.milliseconds, default=30000, metavar="TIME",
                        help="two batch programs, for so long; 0: not (30s)")
    parser.add_argument("--option", type=lambda text: text.partition("=")[::2], action="append", default=[],
                        metavar="NAME=VALUE", help="of the daemon; may be given several times")


def start(rig, name, models):
    """A daemon of default settings, and programs that begin together; those that decode are at work at once."""
    args = rig.args
    daemon = r.Daemon(rig, "daemon-" + name, gpu_budget=args.budget,
                      pinned=sum(size for _, size, _ in models) + 2**28,
                      **{"turn": None, "idle": None, **dict(args.option)})
    programs = [p.make(rig, f"{name}-{number}", p.Plan(model, size, units, prompt=args.prompt, seed=11 + number), daemon)
                for number, (model, size, units) in enumerate(models)]
    answers = [program is programs[0] for program in programs]
    for program in programs:
        program.begin_load()
    kept, loading = [], list(zip(programs, answers))
    end = time.monotonic() + programs[0].patience
    while loading:
        for one in list(loading):
            program, does_answer = one
            line = program.try_line(.005)
            if line is None:
                continue
            program.take_loaded(line)
            loading.remove(one)
            if not does_answer:
                kept.append(p.Kept(program))
                kept[-1].start()
        for one in kept:
            one.poll()
        if time.monotonic() > end:
            raise r.Failure(f"{loading[0][0].name} did not load within {programs[0].patience} s")
    return daemon, programs, kept


def finish(daemon, programs, kept):
    p.end_all(kept)
    for program in programs:
        program.end()
    daemon.stop()


def ask(program, kept):
    """A request; its time in ms."""
    begun = time.monotonic()
    program.ask_round()
    line = p.watch(kept, begun + program.patience, program)
    if line is None:
        raise r.Failure(f"{program.name} did not answer within {program.patience} s")
    program.take(line)
    return (time.monotonic() - begun) * 1000


def measure_first(rig, name, models, found):
    args, think = rig.args, found["think_s"]
    daemon, programs, kept = start(rig, name, models)
    daemon.take()
    begun = due = time.monotonic()
    for _ in range(args.requests):
        due = max(due + think, time.monotonic()) if args.due else time.monotonic() + think
        p.watch(kept, due)
        found["requests"].append(ask(programs[0], kept))
        if len(found["requests"]) == 1: # what its time went to
            found["first_switches"] = daemon.take()["history"]
    end = time.monotonic()
    found.update(seconds=end - begun, switches=daemon.take()["switches"] + len(found["first_switches"]),
                 units=sum(one.done(begun, end) for one in kept))
    p.end_all(kept)
    for _ in range(ALONE):
        programs[1].units()
        for kind in ("switch", "alone"):
            time.sleep(.3) # who worked last is idle, and gives way
            found[kind].append(ask(programs[0], []))
    finish(daemon, programs, kept)


def measure_all_first(rig):
    """With each build in turn."""
    args = rig.args
    models = [("decoder", args.sizes[0], args.tokens)] + [(p.decoder(args), args.sizes[1], 128)] * args.beside
    cases = [(think, models) for think in args.thinks]
    if args.chat:
        beside = args.chat if args.simcuda else CHAT[2]
        cases.append((CHAT[0], [("decoder", args.chat, CHAT[1]), ("training", beside, 16)]))
    new = rig.build
    for number, (think, models) in enumerate(cases):
        for build in (args.old, new) if args.old else (new,):
            if rig.result["first"] and rig.left() < args.requests * (think + 1) + 30:
                return
            found = {"think_s": think, "build": "old" if build is args.old else "new", "of": models[0][1],
                     "requests": [], "alone": [], "switch": []}
            rig.result["first"].append(found)
            rig.use(build)
            measure_first(rig, f"first{number}-{found['build']}", models, found)
    rig.use(new)


def measure_together(rig, found):
    args = rig.args
    daemon, programs, kept = start(rig, "together", [(p.decoder(args), args.sizes[1], 128)] * 2)
    found["loading"] = daemon.take()["switches"]
    begun = time.monotonic()
    p.watch(kept, begun + args.together / 1000)
    end = time.monotonic()
    found.update(seconds=end - begun, switches=daemon.take()["switches"],
                 units=[one.done(begun, end) for one in kept])
    finish(daemon, programs, kept)


def run(rig):
    args = rig.args
    if len(args.sizes) != 2 or max(args.sizes) > args.budget or sum(args.sizes) <= args.budget:
        raise r.Failure("--sizes takes two sizes: each fits into the budget, and both together do not")
    rig.result.update(first=[], together=None)
    measure_all_first(rig)
    if args.together and rig.left() > args.together / 1000 + 20:
        rig.result["together"] = {}
        measure_together(rig, rig.result["together"])


def conclude(rig):
    args, result, goals = rig.args, rig.result, []
    rows = [one for one in result.get("first", []) if one["requests"]]
    if not rows:
        return
    print(f"first: programs of {' and '.join(map(r.show_size, args.sizes))} ({result['programs']}), budget "
          f"{r.show_size(args.budget)}, begun together with {args.beside} that never rests; responses in ms")
    r.table(["of", "think", "build", "alone", "a switch", "first", "3 to 9", "10 on", "p90 of 3 on", "worst", "switches",
             "in s", "units/s of the other", "each"],
            [[r.show_size(one["of"]), f"{one['think_s']:g} s", one["build"], *(
                r.number(r.median(one[kind]) if one[kind] else None) for kind in ("alone", "switch")),
              r.number(one["requests"][0]), *(
                  r.number(r.mean(part) if part else None) for part in (one["requests"][2:9], one["requests"][9:])),
              r.number(r.percentile(one["requests"][2:], .9) if one["requests"][2:] else None),
              r.number(max(one["requests"])), one.get("switches", "-"),
              r.number(one.get("seconds")), r.number(one["units"] / one["seconds"] if one.get("seconds") else None),
              " ".join(r.number(each, 0) for each in one["requests"])] for one in rows])
    for one in rows:
        for parts in one.get("first_switches", []):
            times = [f"{name} {value:.0f}" for name, value in parts.items() if name.endswith("ms") and value >= 1]
            print(f"{one['build']}, {one['think_s']:g} s, a switch until the first answer: {', '.join(times)}")
    together = result["together"]
    if together and together.get("seconds"):
        print(f"two that never rest: {together['switches']} switches in {together['seconds']:.1f} s, and "
              f"{together['loading']} before, while they were loaded; "
              f"{' and '.join(str(units) for units in together['units'])} units")
    if not p.measures(rig):
        return
    for one in rows:
        worst = max(one["requests"][:5])
        goals.append({"goal": f"worst of the first requests ({one['build']}), think {one['think_s']:g} s, ms",
                      "measured": worst, "wanted": WORST_MS, "is_share": False, "is_met": worst <= WORST_MS})
    result["goals"] = goals
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("first", __doc__, add_options, run, conclude)

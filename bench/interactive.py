#!/usr/bin/env python3
"""bench/interactive: requests to a program that answers, beside another that works without a pause.

The one is a language model that completes a prompt; the other decodes token after token. Each is nearly as large as the
budget, so that every switch moves memory. Requests are due at fixed times (--intervals); one that is due while the one before
it is not done yet begins when that ends. A response is the time from when a request could begin to its last token, as its
sender sees it. With --chat another case: a model whose answers have 128 tokens, one every 2 s, beside training; both fit, and
nothing is moved.

In each case daemon and programs are new and begin together, so that nothing is known of them at the first requests; the later
ones show what the daemon makes of a program that it knows. With --old each case is done with that build as well.

The floors are measured afterwards in the same processes, with nothing else running: `alone` is a request whose program has its
memory on the GPU, `one switch` a request while the other program's memory is there. The other's throughput is set beside what
the requests leave it: its rate alone, measured before that, times the share of time in which no request was computed. Every
answer is compared with the same one before, to the bit.
"""

import time

import programs as p
import rig as r

FLOORS = 3 # requests with nothing beside them; and as many that need a switch
SETTLE_S, BESIDE_S = 1, 2.5 # until the other has the GPU again; for which it works alone
CHAT_S, CHAT_TOKENS = 2, 128 # between its requests; of an answer
FIRST_MS, OVER_FLOOR, LEFT = 1000, 1.15, .85 # what the project wants


def times(text):
    return [r.milliseconds(part) / 1000 for part in text.split(",")]


def add_options(parser):
    p.add_options(parser)
    parser.add_argument("--sizes", type=r.sizes, default=[16 * 2**30] * 2, metavar="SIZE,SIZE",
                        help="of the program that answers, and of the other (16G,16G)")
    parser.add_argument("--budget", type=r.size, default=24 * 2**30, metavar="SIZE", help="of GPU memory (24G)")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="of an answer (16)")
    parser.add_argument("--prompt", type=int, default=256, metavar="N", help="tokens of its prompt (256)")
    parser.add_argument("--intervals", type=times, default=[1, 3], metavar="TIME,...", help="between requests (1s,3s)")
    parser.add_argument("--requests", type=int, default=20, metavar="N", help="of each case (20)")
    parser.add_argument("--chat", type=r.sizes, metavar="SIZE,SIZE", help="also a chat and training, which fit (not)")
    parser.add_argument("--old", metavar="DIR", help="compare with this build")
    parser.add_argument("--option", type=lambda text: text.partition("=")[::2], action="append", default=[],
                        metavar="NAME=VALUE", help="of the daemon; may be given several times")


def start(rig, name, models):
    """A daemon, and two programs that begin together; the other is at work from the moment on that it is loaded."""
    args = rig.args
    daemon = r.Daemon(rig, "daemon-" + name, gpu_budget=args.budget, pinned=sum(size for _, size, _ in models) + 2**28,
                      **{"turn": None, "idle": None, **dict(args.option)})
    answerer, other = (p.make(rig, f"{name}-{number}", p.Plan(model, size, units, prompt=args.prompt, seed=11 + number), daemon)
                       for number, (model, size, units) in enumerate(models))
    kept = p.Kept(other)
    for one in (answerer, other):
        one.begin_load()
    loading, end = [answerer, other], time.monotonic() + answerer.patience
    while loading:
        for one in list(loading):
            line = one.try_line(.005)
            if line is not None:
                one.take_loaded(line)
                loading.remove(one)
                if one is other:
                    kept.start()
        kept.poll()
        if time.monotonic() > end:
            raise r.Failure(f"{loading[0].name} did not load within {answerer.patience} s")
    return daemon, answerer, kept


def ask(program, kept):
    """A request."""
    program.ask_round()
    line = p.watch(kept, time.monotonic() + program.patience, program)
    if line is None:
        raise r.Failure(f"{program.name} did not answer within {program.patience} s")
    program.take(line)
    return time.monotonic()


def measure(rig, found, models):
    daemon, answerer, kept = start(rig, f"{len(rig.result['cases'])}-{found['build']}", models)
    daemon.take()
    begun = due = previous = time.monotonic()
    for _ in range(rig.args.requests):
        due += found["interval_s"]
        p.watch([kept], due)
        could = max(due, previous)
        previous = ask(answerer, [kept])
        found["ms"].append((previous - could) * 1000)
        if len(found["ms"]) == 2:
            begun = previous # from here on units are counted
    end = max(previous, due)
    moved = daemon.take()
    found.update(seconds=end - begun, units=kept.done(begun, end), switches=moved["switches"],
                 bytes=moved["bytes_in"] + moved["bytes_out"])
    begun = time.monotonic() + SETTLE_S
    p.watch([kept], begun + BESIDE_S)
    found["rate"] = kept.rate(begun, time.monotonic())
    kept.end()
    for _ in range(FLOORS):
        kept.program.units()
        for kind in ("switch", "alone"):
            time.sleep(.3) # who worked last is idle, and gives way
            asked = time.monotonic()
            found[kind].append((ask(answerer, []) - asked) * 1000)
    for program in (answerer, kept.program):
        program.end()
    daemon.stop()


def run(rig):
    args = rig.args
    if args.chat and (len(args.chat) != 2 or sum(args.chat) > args.budget):
        raise r.Failure("--chat takes two sizes that fit into the budget together")
    if len(args.sizes) != 2 or max(args.sizes) > args.budget or sum(args.sizes) <= args.budget:
        raise r.Failure("--sizes takes two sizes: each fits into the budget, and both together do not")
    rig.result["cases"] = []
    models = [("decoder", args.sizes[0], args.tokens), ("decoder-graphs", args.sizes[1], 128)]
    cases = [(interval, models) for interval in args.intervals]
    if args.chat:
        cases.append((CHAT_S, [("decoder", args.chat[0], CHAT_TOKENS), ("training", args.chat[1], 16)]))
    new = rig.build
    builds = ([("old", args.old)] if args.old else []) + [("new", new)]
    rig.link("before")
    for interval, models in cases:
        for name, build in builds:
            if rig.result["cases"] and rig.left() < args.requests * (interval + 1) + 30:
                print(f"no time left for requests every {interval:g} s")
                return
            found = {"of": models[0][1], "interval_s": interval, "build": name, "ms": [], "alone": [], "switch": []}
            rig.result["cases"].append(found)
            rig.use(build)
            measure(rig, found, models)
    rig.use(new)


def digest(one):
    alone, known = r.median(one["alone"]), one["ms"][2:]
    one["alone_ms"], one["switch_ms"] = alone, r.median(one["switch"])
    one["known_ms"] = r.spread(one["ms"][9:] or known)
    busy = len(known) * alone / 1000 / one["seconds"]
    one["of_left"] = one["units"] / one["seconds"] / one["rate"] / (1 - busy) if one["rate"] and busy < 1 else None


def conclude(rig):
    args, goals = rig.args, []
    rows = [one for one in rig.result.get("cases", []) if one.get("seconds") and one["switch"] and len(one["ms"]) > 2]
    if not rows:
        return
    rig.result["ceiling"] = rig.ceiling()
    for one in rows:
        digest(one)
    print(f"interactive: programs of {' and '.join(map(r.show_size, args.sizes))} ({rig.result['programs']}), budget "
          f"{r.show_size(args.budget)}, begun together; an answer of {args.tokens} tokens to {args.prompt}; ms")
    r.table(["of", "every", "build", "alone", "one switch", "first", "mean of 3 to 9", "from 10", "p50", "p90", "max",
             "switches", "other's units/s", "alone then", "of left"],
            [[r.show_size(one["of"]), f"{one['interval_s']:g} s", one["build"], r.number(one["alone_ms"]),
              r.number(one["switch_ms"]), r.number(one["ms"][0]), r.number(r.mean(one["ms"][2:9])),
              *(r.number(one["known_ms"][key]) for key in ("mean", "p50", "p90")), r.number(max(one["ms"])), one["switches"],
              r.number(one["units"] / one["seconds"]), r.number(one["rate"]), r.percent(one["of_left"])] for one in rows])
    for one in rows:
        print(f"every {one['interval_s']:g} s, {one['build']}: " + " ".join(f"{ms:.0f}" for ms in one["ms"]))
    if not p.measures(rig):
        return

    def goal(text, measured, wanted, is_share=True):
        goals.append({"goal": text, "measured": measured, "wanted": wanted, "is_share": is_share,
                      "is_met": measured <= wanted})

    for one in rows:
        if one["build"] == "new":
            name = f"{r.show_size(one['of'])}, every {one['interval_s']:g} s"
            goal(f"{name}: longest of the first five, ms", max(one["ms"][:5]), FIRST_MS, is_share=False)
            goal(f"{name}: mean response, of one switch", one["known_ms"]["mean"] / one["switch_ms"], OVER_FLOOR)
            if one["of_left"] is not None:
                goals.append({"goal": f"{name}: the other's throughput, of what is left", "measured": one["of_left"],
                              "wanted": LEFT, "is_share": True, "is_met": one["of_left"] >= LEFT})
    rig.result["goals"] = goals
    r.show_goals(goals)


if __name__ == "__main__":
    r.main("interactive", __doc__, add_options, run, conclude)

#!/usr/bin/env python3
"""bench/interactive: short requests every few seconds to one program, beside another that never rests.

The one is a language model in fp16 with random weights that completes a prompt (python/models.py); the other decodes
token after token, each a CUDA graph (or not: --launches). Each is nearly as large as the budget, so that every switch
moves memory both ways. Requests are due at fixed times; one that is due while the one before it is not done yet begins
when that ends. A response is the time from when a request could begin to its last token, as its sender sees it;
since_due counts from when it was due.

Policies are compared in turn, each with a daemon and programs of its own: what the daemon does by default, and round
robin with one quantum and another (--round-robin). A block is the decoder alone, until it has run for so long that it
is at level 3 (--level) of the scheduler's queues, as it would be if it had run for hours: a program that answers often
is at level 2 at times. Then comes a window of requests at each interval, in rising order or, every other round, in
falling order. The last policy has one block only.

The floors are measured in the same run, with nothing else running: `alone` is a request whose program has its memory
on the GPU; `one switch` is a request while the other program's memory is there. The decoder's throughput is set beside
what the other leaves it: its rate alone, times the share of time in which no request was computed. Its rate alone is
measured before and after each window, because the processors of a host that is not one's own are not as fast at one
minute as at another, and with --launches a decoder waits for them. So policies are compared by the share of that rate
as well.

At the end the program that answers is replaced by a new one, beside the running decoder: nothing is known of it.

Every answer is compared with that of the same model without gpumux, to the bit.
"""

import time

import programs as p
import rig as r

SHARE_LEFT = .85 # of what the requests leave it, the decoder is to have so much at the longest interval
OVER_FLOOR = 1.15
SETTLE_S = 1     # after the last request, until the decoder has the GPU again
NEW_REQUEST = 2  # the third of a new program is answered as fast as those of one that is known


def times(text):
    return [r.milliseconds(part) / 1000 for part in text.split(",")]


def pairs(text):
    name, _, value = text.partition("=")
    return name, value


def add_options(parser):
    p.add_options(parser)
    p.add_decoder_options(parser)
    parser.add_argument("--sizes", type=r.sizes, default=[14 * 2**30] * 2, metavar="SIZE,SIZE",
                        help="of the program that answers, and of the other (14G,14G)")
    parser.add_argument("--budget", type=r.size, default=18 * 2**30, metavar="SIZE", help="of GPU memory (18G)")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="of an answer (16)")
    parser.add_argument("--prompt", type=int, default=256, metavar="N", help="tokens of its prompt (256)")
    parser.add_argument("--intervals", type=times, default=[1, 3, 6], metavar="TIME,...",
                        help="between requests (1s,3s,6s)")
    parser.add_argument("--windows", type=times, default=[15, 30, 42], metavar="TIME,...",
                        help="of so long at each, at most; with quanta of 10 s or more a little more than a quantum "
                        "(15s,30s,42s)")
    parser.add_argument("--round-robin", type=lambda text: text.split(","), default=["4s", "30s"], metavar="TIME,...",
                        help="quanta to compare with (4s,30s)")
    parser.add_argument("--option", type=pairs, action="append", default=[], metavar="NAME=VALUE",
                        help="of the daemon that is measured; may be given several times")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="blocks of each policy, at most (1)")
    parser.add_argument("--beside", type=r.milliseconds, default=2500, metavar="TIME",
                        help="the decoder alone between the windows: its rate then (2.5s)")
    parser.add_argument("--warm", type=r.milliseconds, default=4000, metavar="TIME",
                        help="the decoder alone before the windows, at least (4s)")
    parser.add_argument("--level", type=int, default=3, metavar="N", help="... and until it is at that level (3)")
    parser.add_argument("--level-within", type=r.milliseconds, default=28000, metavar="TIME",
                        help="... if it comes there within so long (28s)")
    parser.add_argument("--floors", type=int, default=6, metavar="N", help="requests to measure either floor (6)")
    parser.add_argument("--rest", type=r.milliseconds, default=250, metavar="TIME",
                        help="between those: longer than a program must do nothing to be idle (250ms)")
    parser.add_argument("--new", type=int, default=6, metavar="N", help="requests to the new program; 0: none (6)")
    parser.add_argument("--skip-native", action="store_true", help="not without gpumux")


class Setting:
    """A policy with its daemon and its two programs."""

    def __init__(self, rig, name, options, quantum_s=0):
        args = rig.args
        self.rig, self.name, self.options, self.quantum_s = rig, name, options, quantum_s
        self.daemon = None
        plans = plan(args)
        self.found = {"policy": name, "options": None, "alone": [], "one_switch": [], "warm": [], "blocks": [],
                      "windows": []}
        rig.result["settings"].append(self.found)
        self.daemon = r.Daemon(rig, "daemon-" + name, gpu_budget=args.budget, pinned=sum(args.sizes) + 2**28,
                               **{"turn": None, "idle": None, **options})
        self.found["options"] = self.daemon.options
        self.answerer, self.decoder = (p.make(rig, f"{name}-{which}", one, self.daemon)
                                       for which, one in zip(("answers", "decodes"), plans))
        self.kept = p.Kept(self.decoder)
        self.rate_now = None # of the decoder alone, measured last

    def end(self):
        for program in (self.answerer, self.decoder):
            program.end()
        self.daemon.stop()


def plan(args):
    return (p.Plan("decoder", args.sizes[0], args.tokens, prompt=args.prompt, seed=11),
            p.Plan(p.decoder(args), args.sizes[1], 128, seed=12))


# --- measuring ---

def measure_native(rig):
    """Both without gpumux: the answers that all others are compared with, and how fast they are."""
    answerer, decoder = (p.make(rig, "native-" + name, one) for name, one in zip(("answers", "decodes"),
                                                                               plan(rig.args)))
    p.load_all((answerer, decoder))
    found = {"alone": [answerer.round() for _ in range(rig.args.floors)]}
    kept = p.Kept(decoder)
    begun = time.monotonic()
    kept.start()
    p.watch([kept], begun + rig.args.warm / 1000)
    kept.end()
    found["rate"] = kept.rate(begun, time.monotonic())
    for program in (answerer, decoder):
        program.end()
    return found


def measure_floors(rig, setting, count, warm=2):
    """
    Requests with the other's memory on the GPU, and with the own, in turn; nothing else runs. A program that the
    daemon has not found idle yet when the other asks gets the GPU back by itself: then the request needs no switch,
    and the pair is kept with the warm ones and measured again.
    """
    rest = rig.args.rest / 1000
    number = tries = 0
    while number < warm + count and tries < 4 * (warm + count):
        if number > warm and rig.left() < 30:
            break
        tries += 1
        setting.decoder.units()
        time.sleep(rest)
        setting.daemon.take()
        pair = {}
        for kind in ("one_switch", "alone"):
            answer = setting.answerer.round()
            time.sleep(rest)
            moved = setting.daemon.take()
            pair[kind] = {key: answer[key] for key in ("response_ms", "first_ms", "work_ms")}
            pair[kind].update({key: moved[key] for key in ("switches", "bytes_out", "bytes_in")})
        is_floor = pair["one_switch"]["switches"] == 1 and pair["alone"]["switches"] == 0
        for kind, record in pair.items():
            setting.found[kind if is_floor and number >= warm else "warm"].append(record)
        number += is_floor or number < warm


def measure_window(rig, setting, program, interval, found, length=0, most=None):
    """Requests every `interval` s for so long, or so many; the decoder's units meanwhile. All goes into `found`."""
    setting.daemon.take()
    begin = due = previous = time.monotonic()
    requests = found["requests"] = []
    found["interval_s"] = interval
    while (due < begin + length if most is None else len(requests) < most) and (
            not requests or rig.left() > setting.quantum_s * 1.2 + 3 + rig.closing_s()):
        p.watch([setting.kept], due)
        could = max(due, previous)
        program.ask_round()
        line = p.watch([setting.kept], time.monotonic() + program.patience, program)
        if line is None:
            raise r.Failure(f"{program.name} did not answer within {program.patience} s")
        previous = time.monotonic()
        answer = program.take(line)
        requests.append({"at_s": due - begin, "response_ms": (previous - could) * 1000,
                         "since_due_ms": (previous - due) * 1000, "first_ms": answer["first_ms"],
                         "work_ms": answer["work_ms"]})
        due += interval
    if most is None:
        p.watch([setting.kept], begin + length)
    end = max(previous, begin + length if most is None else 0)
    moved = setting.daemon.take()
    found.update(seconds=end - begin, units=setting.kept.done(begin, end), levels=levels(setting),
                 **{key: moved[key] for key in ("switches", "bytes_out", "bytes_in", "history")})


def window_s(rig, setting, number):
    """With a long quantum as long as that, so that each program has a turn in it."""
    return rig.args.windows[number] if setting.quantum_s < 10 else 1.1 * setting.quantum_s


def levels(setting):
    """The scheduler's levels of the two programs."""
    by_pid = {app["pid"]: app.get("level") for app in setting.daemon.status()["apps"]}
    return {"answers": by_pid.get(setting.answerer.pid), "decodes": by_pid.get(setting.decoder.pid)}


def start_decoder(rig, setting):
    """Keep it at work, alone until it is at its level; its rate after the first second, when the switch is over."""
    warm = rig.args.warm / 1000
    begun = time.monotonic()
    most = begun + max(warm, min(rig.args.level_within / 1000, rig.left() / 4))
    setting.kept.start()
    p.watch([setting.kept], begun + warm)
    while not setting.quantum_s and time.monotonic() < most and (levels(setting)["decodes"] or 0) < rig.args.level:
        p.watch([setting.kept], time.monotonic() + .25)
    now = time.monotonic()
    setting.found["blocks"].append({"rate": setting.kept.rate(begun + warm / 4, now), "seconds": now - begun,
                                    "level": levels(setting)["decodes"]})
    setting.rate_now = setting.kept.rate(max(begun + warm / 4, now - rig.args.beside / 1000), now)


def measure_rate(rig, setting):
    """The decoder's rate with nothing beside it, at this time: a host is not as fast at one minute as at another."""
    begin = time.monotonic() + SETTLE_S # until it has the GPU again
    p.watch([setting.kept], begin + rig.args.beside / 1000)
    setting.rate_now = setting.kept.rate(begin, time.monotonic())


def measure_block(rig, setting, number, scale, is_last):
    """The decoder alone, then beside requests at each interval; and at the very end beside a new program."""
    args = rig.args
    start_decoder(rig, setting)
    order = list(range(len(args.intervals)))
    for index in order if number % 2 == 0 else order[::-1]:
        interval = args.intervals[index]
        if setting.found["windows"] and rig.left() < interval + setting.quantum_s + rig.closing_s():
            break
        length = max(1.5 * interval, scale * window_s(rig, setting, index))
        found = {"block": number}
        setting.found["windows"].append(found)
        found["rate_before"] = setting.rate_now
        measure_window(rig, setting, setting.answerer, interval, found, length=length)
        measure_rate(rig, setting)
        found["rate_after"] = setting.rate_now
    if is_last and args.new and rig.left() > new_s(rig) + rig.closing_s():
        measure_new(rig, setting)
    setting.kept.end()


def new_s(rig):
    """About how long the new program takes."""
    return 6 + rig.args.new * median_interval(rig.args)


def median_interval(args):
    return sorted(args.intervals)[len(args.intervals) // 2]


def measure_new(rig, setting):
    """The program that answers ends, and a new one takes its place."""
    setting.answerer.end()
    new = setting.answerer = rig.new_answerer
    new.begin_load()
    line = p.watch([setting.kept], time.monotonic() + new.patience, new)
    if line is None:
        raise r.Failure(f"{new.name} did not load within {new.patience} s")
    new.take_loaded(line)
    interval = median_interval(rig.args)
    p.watch([setting.kept], time.monotonic() + interval)
    rig.result["new"] = {}
    measure_window(rig, setting, new, interval, rig.result["new"], most=rig.args.new)


def run(rig):
    args = rig.args
    if len(args.sizes) != 2 or len(args.intervals) != len(args.windows):
        raise r.Failure("--sizes takes two sizes, and --windows as many times as --intervals")
    if max(args.sizes) > args.budget or sum(args.sizes) <= args.budget:
        raise r.Failure("each program fits into the budget, and both together do not")
    rig.result.update(settings=[], new=None, native=None)
    rig.link("before")
    settings = [Setting(rig, "default", dict(args.option))]
    for quantum in args.round_robin:
        settings.append(Setting(rig, "rr-" + quantum, {"turn": quantum},
                                r.milliseconds(quantum) / 1000))
    if args.new:
        rig.new_answerer = p.make(rig, "new", plan(args)[0], settings[0].daemon)
    if not args.skip_native:
        rig.result["native"] = measure_native(rig)
    for name in ("decoder", "answerer"): # one after the other: the first gives way to the second
        p.load_all(getattr(setting, name) for setting in settings)
    for setting in settings:
        measure_floors(rig, setting, args.floors if setting is settings[0] else max(2, args.floors // 2))
    for number, setting, scale, is_last in blocks(rig, settings):
        measure_block(rig, setting, number, scale(), is_last)
    for setting in settings:
        setting.end()
    if rig.left() > 2 * rig.result["link"][0]["took_s"]:
        rig.link("after")


def blocks(rig, settings):
    """
    (number, setting, a function for how much of its windows there is time for, is it the measured policy's last) in
    order: policies in turn, the last but once. As many rounds as there is time for with windows of half their length.
    """
    def fixed(setting):
        return .5 + (rig.args.warm if setting.quantum_s else rig.args.level_within) / 1000 + len(
            rig.args.intervals) * (SETTLE_S + rig.args.beside / 1000)

    def windows(setting):
        return sum(window_s(rig, setting, index) for index in range(len(rig.args.intervals)))

    last = settings[-1]
    for rounds in range(rig.args.rounds, 0, -1):
        order = [(number, setting) for number in range(rounds) for setting in settings
                 if number == 0 or setting is not last or len(settings) < 3]
        new = new_s(rig) if rig.args.new else 0
        left = rig.left() - new - rig.closing_s() - 2
        if left >= sum(fixed(setting) + .5 * windows(setting) for _, setting in order):
            break
    measured = [index for index, (_, setting) in enumerate(order) if setting is settings[0]]
    for index, (number, setting) in enumerate(order):
        def scale(index=index):
            left = rig.left() - rig.closing_s() - 2 - (new if index <= measured[-1] else 0)
            rest = order[index:]
            return min(1, max(0, (left - sum(fixed(one) for _, one in rest)) / sum(windows(one) for _, one in rest)))
        yield number, setting, scale, index == measured[-1]


# --- what it comes to ---

def digest_window(rig, found, interval):
    """All windows of a policy at an interval as one; without one that was cut short."""
    windows = [one for one in found["windows"] if one.get("interval_s") == interval and "seconds" in one]
    requests = [request for one in windows for request in one["requests"]]
    if not requests:
        return None
    result = rig.result
    seconds = sum(one["seconds"] for one in windows)
    alone, rate = result["floors"]["alone_ms"], found["rate"]
    near = [(one["seconds"], (one["rate_before"] + one["rate_after"]) / 2) for one in windows
            if one.get("rate_before") and one.get("rate_after")]
    if near and len(near) == len(windows):
        rate = sum(length * of for length, of in near) / seconds
    busy = len(requests) * alone / 1000 / seconds
    got = sum(one["units"] for one in windows) / seconds
    # With every request answered at once there are two switches a request.
    switch = result["floors"]["one_switch_ms"] - alone
    most = (1 - len(requests) * (alone + 2 * switch) / 1000 / seconds) / (1 - busy) if busy < 1 else None
    return {"interval_s": interval, "requests": len(requests), "seconds": seconds,
            "response_ms": r.spread([one["response_ms"] for one in requests]),
            "since_due_ms": r.spread([one["since_due_ms"] for one in requests]),
            "over_floor": r.mean([one["response_ms"] for one in requests]) / result["floors"]["one_switch_ms"],
            "switches": sum(one["switches"] for one in windows), "busy": busy,
            "levels": " ".join(f"{one['levels']['answers']}/{one['levels']['decodes']}" for one in windows),
            "units_a_second": got, "rate": rate,
            "of_alone": got / rate if rate else None,
            "of_left": got / (rate * (1 - busy)) if rate and busy < 1 else None, "most_of_left": most}


def digest(rig):
    result = rig.result
    measured = result["settings"][0]
    floor = {kind + "_ms": r.spread([one["response_ms"] for one in measured[kind]]) for kind in ("alone", "one_switch")}
    result["floors"] = {key: value["median"] for key, value in floor.items()}
    for found in result["settings"]:
        for kind in ("alone", "one_switch"):
            found[kind + "_ms"] = r.spread([one["response_ms"] for one in found[kind]])
            found[kind + "_first_ms"] = r.spread([one["first_ms"] for one in found[kind]])
        found["switch_bytes"] = {way: r.spread([one[way] for one in found["one_switch"]])
                                 for way in ("bytes_out", "bytes_in")}
        rates = [one["rate"] for one in found["blocks"] if one["rate"]]
        found["rate"] = r.median(rates) if rates else None
        found["intervals"] = [one for one in (digest_window(rig, found, interval) for interval in rig.args.intervals)
                              if one]
    new = result["new"]
    if new and new.get("requests"):
        new["over_floor"] = [one["response_ms"] / result["floors"]["one_switch_ms"] for one in new["requests"]]


def show(rig):
    args, result = rig.args, rig.result
    print(f"interactive: programs of {' and '.join(map(r.show_size, args.sizes))} ({result['programs']}), budget "
          f"{r.show_size(args.budget)}; an answer of {args.tokens} tokens to {args.prompt}; every answer compared")
    if result.get("ceiling"):
        print(f"link {result['ceiling']['both']:.1f} GB/s both ways")
    native = result["native"]
    if native:
        alone = r.spread([one["response_ms"] for one in native["alone"]])
        print(f"without gpumux: a response {alone['median']:.1f} ms ({alone['min']:.1f} to {alone['max']:.1f}), the "
              f"other {r.number(native['rate'])} units/s")
    print("floors, with nothing else running, ms:")

    def cells(of):
        return [r.number(of and of[key]) for key in ("median", "p10", "p90")]

    r.table(["policy", "alone", "p10", "p90", "one switch", "p10", "p90", "its first kernel", "out GiB", "in GiB",
             "other alone, units/s"],
            [[one["policy"], *cells(one["alone_ms"]), *cells(one["one_switch_ms"]),
              r.number(one["one_switch_first_ms"] and one["one_switch_first_ms"]["median"]),
              *(r.number(one["switch_bytes"][way] and one["switch_bytes"][way]["median"] / 2**30, 2)
                for way in ("bytes_out", "bytes_in")), r.number(one["rate"])] for one in result["settings"]])
    print("responses, ms; the other's units a second, its rate alone then, of that, of what the requests leave it, and "
          "what of that it could have at most if each is answered at once; levels of both at the end:")
    r.table(["policy", "every", "requests", "mean", "p50", "p90", "max", "mean/floor", "since due", "switches",
             "units/s", "alone then", "of alone", "of left", "at most", "levels"],
            [[found["policy"], f"{one['interval_s']:g} s", one["requests"],
              *(r.number(one["response_ms"][key]) for key in ("mean", "p50", "p90", "max")),
              r.number(one["over_floor"], 2), r.number(one["since_due_ms"]["mean"]), one["switches"],
              r.number(one["units_a_second"]), r.number(one["rate"]),
              *(r.percent(one[key]) for key in ("of_alone", "of_left", "most_of_left")),
              one["levels"]]
             for found in result["settings"] for one in found["intervals"]])
    new = result["new"]
    if new and new.get("requests"):
        print("a new program's requests, ms: " + ", ".join(r.number(one["response_ms"]) for one in new["requests"]) +
              "; over one switch: " + ", ".join(f"{ratio:.2f}" for ratio in new["over_floor"]))


def judge(rig):
    result, goals = rig.result, []
    by_policy = {found["policy"]: {one["interval_s"]: one for one in found["intervals"]}
                 for found in result["settings"]}
    own = by_policy["default"]
    for interval, one in own.items():
        goals.append({"goal": f"every {interval:g} s: mean response, of one switch", "measured": one["over_floor"],
                      "wanted": OVER_FLOOR, "is_share": True, "is_met": one["over_floor"] <= OVER_FLOOR})
    longest = max(rig.args.intervals)
    if longest in own and own[longest]["of_left"] is not None:
        share = own[longest]["of_left"]
        goals.append({"goal": f"every {longest:g} s: the other's throughput, of what is left", "measured": share,
                      "wanted": SHARE_LEFT, "is_share": True, "is_met": share >= SHARE_LEFT})
    peer = by_policy.get("rr-" + rig.args.round_robin[0], {}) if rig.args.round_robin else {}
    for interval, one in own.items():
        if interval in peer and peer[interval]["of_alone"] and one["of_alone"] is not None:
            ratio = one["of_alone"] / peer[interval]["of_alone"]
            goals.append({"goal": f"every {interval:g} s: the other's throughput, of that under round robin "
                          f"{rig.args.round_robin[0]}", "measured": ratio, "wanted": 1, "is_share": True,
                          "is_met": ratio > 1})
    new = result["new"]
    if new and len(new.get("requests", [])) > NEW_REQUEST:
        ratio = new["over_floor"][NEW_REQUEST]
        goals.append({"goal": f"request {NEW_REQUEST + 1} of a new program, of one switch", "measured": ratio,
                      "wanted": OVER_FLOOR, "is_share": True, "is_met": ratio <= OVER_FLOOR})
    result["goals"] = goals
    r.show_goals(goals)


def conclude(rig):
    settings = rig.result.get("settings")
    if not settings or not settings[0]["warm"]:
        return
    if not (settings[0]["alone"] and settings[0]["one_switch"]):
        print("no floor was measured: no request needed one switch, and the one after it none")
        p.measures(rig)
        return
    if rig.result.get("link"):
        rig.result["ceiling"] = rig.ceiling()
    digest(rig)
    show(rig)
    if p.measures(rig):
        judge(rig)


if __name__ == "__main__":
    r.main("interactive", __doc__, add_options, run, conclude)

"""bench/ideal: what programs that take turns on one GPU would get if the future were known.

Nothing here is shared with the daemon. A schedule is simulated in blocks of memory: turns in a fixed order, each of so
much work, during which a program touches all of its blocks, in order. Before a turn's first work all of its blocks are on
the GPU.

- The victim is the block whose next turn is furthest away (Belady); memory that did not change since it came is not
  copied out.
- While a turn works, the link brings what comes next, as far as victims are found that are not of the running program and
  are used later than what they make room for.
- What is then still missing crosses the link after the turn, and only that makes the GPU wait; less one pass, for
  a program may begin with what has arrived.

A block costs its bytes at the rate one way, and at half the summed rate of both ways where a block goes out for it.
"""

BLOCK = 2**24


class App:
    """A program: blocks that it only reads, blocks that it writes, and how long one pass over them takes."""

    def __init__(self, clean, dirty, pass_ms):
        self.blocks = [False] * -(-clean // BLOCK) + [True] * -(-dirty // BLOCK)
        self.pass_ms = pass_ms


class Gpu:
    """Which blocks are there, and what came and went."""

    def __init__(self, capacity, link):
        self.room = capacity // BLOCK
        self.ms_alone = BLOCK / link["h2d"] / 1e6
        self.ms_with_out = max(self.ms_alone, BLOCK / (link["both"] / 2) / 1e6)
        self.here = {} # block -> was it written since it came
        self.of = {}   # app -> its blocks that are here
        self.bytes_in = self.bytes_out = 0

    def take(self, block, victim):
        """Bring a block in, in the place of another. Returns how long the link is busy."""
        has_copy = False
        if victim is not None:
            has_copy = self.here.pop(victim)
            self.of[victim[0]].remove(victim)
        self.here[block] = False
        self.of.setdefault(block[0], []).append(block)
        self.bytes_in += BLOCK
        self.bytes_out += BLOCK * has_copy
        return self.ms_with_out if has_copy else self.ms_alone

    def victim(self, order, kept):
        """Of the programs in this order, furthest first, without those that are kept. None: there is none."""
        for app in order:
            if app not in kept and self.of.get(app):
                return self.of[app][-1]
        return None


def simulate(apps, turns, capacity, link, counted=(0, None)):
    """
    `turns`: (app, ms of work) each; of these count those in counted[0]:counted[1]. Returns the share of the time that was
    work, and what crossed the link in those turns. None if an app does not fit by itself.
    """
    gpu = Gpu(capacity, link)
    if any(len(app.blocks) > gpu.room for app in apps):
        return None
    work_ms = wait_ms = 0
    for at, (app, ms) in enumerate(turns[:counted[1]]):
        if at == counted[0]:
            gpu.bytes_in = gpu.bytes_out = work_ms = wait_ms = 0
        after = [] # the apps of the coming turns, each once, soonest first
        for later, _ in turns[at + 1:at + 1 + 4 * len(apps)]:
            if later not in after:
                after.append(later)
        order = [one for one in range(len(apps)) if one not in after] + after[::-1]
        stall = 0
        for block in ((app, i) for i in range(len(apps[app].blocks))):
            if block not in gpu.here:
                victim = gpu.victim(order, (app,)) if len(gpu.here) >= gpu.room else None
                stall += gpu.take(block, victim)
        stall = max(0, stall - apps[app].pass_ms)
        for i, is_written in enumerate(apps[app].blocks):
            if is_written:
                gpu.here[app, i] = True
        left = ms
        for place, later in enumerate(one for one in after if one != app):
            for block in ((later, i) for i in range(len(apps[later].blocks))):
                if left <= 0:
                    break
                if block in gpu.here:
                    continue
                victim = None
                if len(gpu.here) >= gpu.room:
                    sooner = {app, *[one for one in after if one != app][:place + 1]}
                    victim = gpu.victim(order, sooner)
                    if victim is None:
                        break
                left -= gpu.take(block, victim)
        work_ms += ms
        wait_ms += stall
    return {"share": work_ms / (work_ms + wait_ms), "bytes_in": gpu.bytes_in, "bytes_out": gpu.bytes_out,
            "work_ms": work_ms, "wait_ms": wait_ms}


def in_turns(apps, turn_ms, capacity, link, rounds=24):
    """The same of programs that take turns of that length, all with as much work; half of the rounds count."""
    turns = [(app, turn_ms) for _ in range(rounds + 4) for app in range(len(apps))]
    return simulate(apps, turns, capacity, link, counted=(rounds // 2 * len(apps), rounds * len(apps)))

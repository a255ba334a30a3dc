"""The programs of bench/latency in PyTorch, which know nothing of gpumux but for its hint. Asked by lines.

    python3 serving.py [--device cpu]

bench/serving.c says what it is asked and what it answers; this one also says "absent why" and ends if something is
missing. A request is an image or a sentence: it is copied in from pinned memory, goes through a model that is one CUDA
graph, and the result is copied out. A unit is

    resnet50, resnet152, vgg19, bert   an inference of one image or sentence, as above but without the copies
    chat        as a request, an answer of 128 tokens by a decoder of 4 GiB, each waited for; as a unit, one of them
    training    a step of training a ResNet-152 with 16 images, fp32, each kernel launched by itself
    stencil     a kernel of 17 ms: each point of a grid anew from the 31 by 31 around it
    bfs         a whole search through a random graph of a million nodes, level by level
    pagerank    ten steps on that graph

NAMExN is an inference or a step of training of N images: what takes much memory.

The models have random weights and the shapes of those of these names; they need no package but PyTorch. SIZE is the
stencil's number of rows. With 0 it measures how many take 17 ms; programs that are compared are given the same.

--device cpu: tiny models on the processor, to try this out.
"""

import argparse
import collections
import ctypes
import gc
import os
import sys
import time
import types

# Before torch: what makes two runs of the same program agree to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F

    import figures
    import models
except ImportError as error:
    print(f"absent no PyTorch: {error}", flush=True)
    sys.exit(0)

LATE_NS = 10**9      # as GM_LATE_NS
SPIN_NS = 200_000    # before an arrival: a sleep may end that much late
CHAT_PROMPT, CHAT_TOKENS = 64, 128
CHAT_BYTES = 2**32
STENCIL_MS = 17      # a kernel of it
STENCIL_REACH = 15   # points to each side
STENCIL_CHANNELS = 8
STENCIL_COLUMNS = 2048
TRAINING_IMAGES = 16
PR_SET_TIMERSLACK = 29


class Place:
    """Where models compute, and in what sizes."""

    def __init__(self, device):
        self.device, self.is_tiny = device, device == "cpu"
        self.dtype = torch.float32 if self.is_tiny else torch.float16
        self.side = 32 if self.is_tiny else 224
        self.nodes = 2**10 if self.is_tiny else 2**20
        self.pin = not self.is_tiny

    def synchronize(self):
        if not self.is_tiny:
            torch.cuda.current_stream().synchronize()

    def event(self):
        return Now() if self.is_tiny else torch.cuda.Event()


class Now:
    """On the processor everything is done when the call returns."""

    def record(self):
        pass

    synchronize = record


def make_vgg19():
    layers, inside = [], 3
    for width, depth in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(depth):
            layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU(True)]
            inside = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(True),
                         nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 1000))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.attention(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.norms[0](x + self.mixed(found))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


def make_bert():
    """BERT-base: 12 layers of 768, a sentence of 128 tokens."""
    return nn.Sequential(nn.Embedding(30522, 768), nn.LayerNorm(768), *(EncoderLayer(768, 12) for _ in range(12)))


NETWORKS = {"resnet50": lambda: models.known_model("resnet50", False),
            "resnet152": lambda: models.known_model("resnet152", False), "vgg19": make_vgg19, "bert": make_bert}


class Inference:
    """A request is answered by answer(). unit() is the model alone."""

    size = 0

    def __init__(self, place, name, images=1):
        self.place = place
        with torch.device(place.device):
            self.network = NETWORKS[name]().eval().to(place.dtype)
        if name == "bert":
            given = torch.randint(0, 30522, (1, 128))
        else:
            given = torch.randn(2 if place.is_tiny and images > 1 else images, 3, place.side, place.side).to(place.dtype)
        self.given = given.pin_memory() if place.pin else given
        self.input = self.given.to(place.device)
        self.output = self.graph = None
        if place.is_tiny:
            self.step()
        else:
            self.graph = models.record(self.step)
        self.unit()
        place.synchronize()
        self.found = torch.empty(self.output.shape, dtype=self.output.dtype, pin_memory=place.pin)
        self.found.copy_(self.output)
        self.right = self.bits().clone()

    def step(self):
        self.output = self.network(self.input)

    def unit(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            with torch.inference_mode():
                self.step()

    def answer(self):
        self.input.copy_(self.given, non_blocking=True)
        self.unit()
        self.found.copy_(self.output, non_blocking=True)
        self.place.synchronize()

    def bits(self):
        """Of the last answer: as numbers, one that is none would not be equal to itself."""
        return self.found.view(torch.int32 if self.found.dtype == torch.float32 else torch.int16)

    def wrong(self):
        """Is the last answer another than the first?"""
        return not torch.equal(self.bits(), self.right)

    def check(self):
        """The same of the last unit."""
        self.found.copy_(self.output)
        return self.wrong()


class Chat:
    size = 0

    def __init__(self, place):
        shape = types.SimpleNamespace(device=place.device, is_tiny=place.is_tiny, dtype=place.dtype, seed=1,
                                      prompt=CHAT_PROMPT, units=CHAT_TOKENS)
        self.decoder, self.left = models.GraphDecoder(shape, CHAT_BYTES), 0
        self.answer()
        self.right = self.decoder.sum()

    def unit(self):
        if self.left == 0:
            self.decoder.begin(0)
            self.left = CHAT_TOKENS
        self.decoder.unit()
        self.left -= 1

    def answer(self):
        self.left = 0
        for _ in range(CHAT_TOKENS):
            self.unit()

    def wrong(self):
        return self.decoder.sum() != self.right

    def check(self):
        while self.left:
            self.unit()
        return self.wrong()


class Training:
    size = 0

    def __init__(self, place, images=TRAINING_IMAGES):
        images = 2 if place.is_tiny else images
        with torch.device(place.device):
            self.network = NETWORKS["resnet50" if place.is_tiny else "resnet152"]().train()
            self.images = torch.randn(images, 3, place.side, place.side)
            self.labels = torch.randint(0, 1000, (images,))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=.001, momentum=.9)
        self.loss = None

    def unit(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.network(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()

    def check(self):
        return not bool(self.loss.isfinite())


class Stencil:
    """The grid is weighed anew with weights that add up to 1, so that it stays as large as it is: all ones."""

    def __init__(self, place, size):
        self.place = place
        edge = 2 * STENCIL_REACH + 1
        self.weights = torch.full((STENCIL_CHANNELS, 1, edge, edge), 1 / edge**2, device=place.device)
        self.size = size or (edge if place.is_tiny else self.fit(edge))
        self.grid = self.make_grid(self.size)

    def make_grid(self, rows):
        columns = 64 if self.place.is_tiny else STENCIL_COLUMNS
        return torch.ones(1, STENCIL_CHANNELS, rows, columns, device=self.place.device)

    def fit(self, rows):
        """How many rows make a kernel of STENCIL_MS."""
        for _ in range(2): # the second with enough rows to be right
            self.grid = self.make_grid(rows)
            took = []
            for _ in range(4):
                begun = time.monotonic()
                self.unit()
                self.place.synchronize()
                took.append((time.monotonic() - begun) * 1000)
            rows = max(1, min(16384, round(rows * STENCIL_MS / min(took))))
        return rows

    def unit(self):
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False): # one kernel of PyTorch's own
            self.last = F.conv2d(self.grid, self.weights, padding=STENCIL_REACH, groups=STENCIL_CHANNELS)

    def check(self):
        middle = self.last[0, 0, self.size // 2, self.last.shape[3] // 2].item()
        return not 0 < middle < 1.001


class Graph:
    """A random graph with 16 edges a node: where each begins and ends."""

    size = 0

    def __init__(self, place):
        self.nodes = place.nodes
        generator = torch.Generator(place.device).manual_seed(5)
        self.begins, self.ends = torch.randint(0, self.nodes, (2, 16 * self.nodes), generator=generator,
                                               device=place.device)


class Search(Graph):
    """Breadth first: each level gathers at the edges' begins, scatters at their ends, and waits for the count."""

    reached = 0

    def unit(self):
        reached = torch.zeros(self.nodes, dtype=torch.int32, device=self.begins.device)
        reached[0] = 1
        before, now = 0, 1
        while now != before:
            reached = reached.scatter_reduce(0, self.ends, reached[self.begins], "amax")
            before, now = now, int(reached.sum())
        self.reached = now

    def check(self):
        return self.reached < self.nodes * .9 # with 16 edges a node nearly all can be reached


class PageRank(Graph):
    def __init__(self, place):
        super().__init__(place)
        self.share = .85 / torch.bincount(self.begins, minlength=self.nodes).clamp(min=1)
        self.rank = torch.full((self.nodes,), 1 / self.nodes, device=place.device)

    def unit(self):
        for _ in range(10):
            given = (self.rank * self.share)[self.begins]
            self.rank = torch.full_like(self.rank, .15 / self.nodes).index_add_(0, self.ends, given)

    def check(self):
        return not 0 < float(self.rank.sum()) < 1.01


def make(place, name, size):
    name, _, images = name.partition("x")
    if name in NETWORKS:
        return Inference(place, name, int(images or 1))
    if name == "training" and images:
        return Training(place, int(images))
    if name == "stencil":
        return Stencil(place, size)
    return {"chat": Chat, "training": Training, "bfs": Search, "pagerank": PageRank}[name](place)


def say(text):
    print(text, flush=True)


class Program:
    def __init__(self, device):
        self.place = Place(device)
        self.model, self.service_us = None, 0
        try:
            self.expect = ctypes.CDLL(None).gpumux_expect
            self.expect.argtypes, self.expect.restype = (ctypes.c_uint64, ctypes.c_uint64), None
        except AttributeError:
            self.expect = None

    def make(self, name, size):
        """Take this part, in place of the one before."""
        self.model = None
        gc.unfreeze()
        gc.collect()
        if not self.place.is_tiny:
            torch.cuda.empty_cache()
        torch.manual_seed(1)
        # Training's sums need not agree, and what agrees is slower.
        torch.backends.cudnn.deterministic = not name.startswith("training")
        if name == "none":
            say("made size=0")
            return
        self.model = make(self.place, name, size)
        once = getattr(self.model, "answer", self.model.unit)
        took = []
        for _ in range(8):
            begun = time.monotonic_ns()
            once()
            self.place.synchronize()
            took.append((time.monotonic_ns() - begun) / 1000)
        self.service_us = round(figures.median(took))
        gc.collect()
        gc.freeze() # else the collector now and then looks through all of PyTorch
        say(f"made size={self.model.size} unit_us={self.service_us}")

    def serve(self, begin, end, ahead_us, path, arrivals):
        with open(arrivals, encoding="ascii") as file:
            at_us = [float(line) for line in file]
        answer, wrong, now = self.model.answer, self.model.wrong, time.monotonic_ns
        took, mismatches, served, hints = [], 0, 0, 0
        for offset in at_us:
            at = begin + round(offset * 1000)
            if ahead_us and self.expect is not None and now() < at - ahead_us * 1000:
                wait_until(at - ahead_us * 1000)
                self.expect(ahead_us, self.service_us)
                hints += 1
            wait_until(at)
            if now() < end + LATE_NS:
                answer()
                took.append((now() - at) / 1000)
                served += 1
                mismatches += wrong()
            else:
                took.append((now() - at) / 1000)
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{offset:.1f} {us:.1f}\n" for offset, us in zip(at_us, took))
        say(f"requests={len(at_us)} served={served} hints={hints} mismatches={mismatches}")

    def work(self, begin, end, path):
        """One unit is queued while another runs, but for those that wait in between themselves."""
        now, unit = time.monotonic_ns, self.model.unit
        ends, queued, count = [now()], collections.deque(), 0
        while queued or not count:
            if now() < end or not count:
                unit()
                event = self.place.event()
                event.record()
                queued.append(event)
                count += 1
            if len(queued) > 1 or now() >= end:
                queued.popleft().synchronize()
                ends.append(now())
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{(at - begin) / 1000:.1f}\n" for at in ends)
        say(f"units={count} mismatches={int(self.model.check())}")


def wait_until(at):
    """Sleep, and for the last moment look at the clock: how late a sleep ends is not to be measured."""
    left = at - time.monotonic_ns() - SPIN_NS
    if left > 0:
        time.sleep(left / 1e9)
    while time.monotonic_ns() < at:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    torch.set_num_threads(1)
    if device == "cuda":
        if not torch.cuda.is_available():
            say("absent PyTorch sees no GPU")
            return
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
    torch.backends.cudnn.benchmark = False
    program = Program(device)
    say(f"open expects={int(program.expect is not None)}")
    for line in iter(sys.stdin.readline, ""):
        verb, *rest = line.split()
        if verb == "make":
            program.make(rest[0], int(rest[1]))
            continue
        begin, end = int(rest[0]), int(rest[0]) + round(float(rest[1]) * 1e9)
        if verb == "serve":
            program.serve(begin, end, int(rest[2]), rest[3], rest[4])
        else:
            program.work(begin, end, rest[2])


main()

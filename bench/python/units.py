"""The models of bench/overhead in PyTorch, which know nothing of gpumux. Asked by lines, it answers by lines.

    python3 units.py [--device cpu] [--core N] [--vmm] [--lane IN:OUT:gpumux|native|alone|vmm ...]

It imports PyTorch and prints "imported pid=...". After that a request is one of

    load NAME         make this model, in place of the one before and elsewhere in host memory, and compute a few
                      units: "loaded bytes=... is_new=1 sum=..."
    run COUNT WARM    WARM units that are not counted, then COUNT that are: "unit_ns=... sum=..."
    load hook-NAME    the same model, for requests of the next kind: that which "load NAME" has just made (is_new=0), or
                      a new one
    hook COUNT WARM   the same by the ways of hooks.py, in SQUARE: "unit_ns=... own_ns=... hook_ratio=...
                      jump_ratio=... is_hooked=... sum=...", which are the time with the hooks, what follows for the
                      driver alone, the ratio of the two, that to the way with one jump, at which the hooks seem to
                      cost less than they do, and whether there are hooks

A unit is an inference of one image (resnet18 to resnet152), one decoded token (decode: each kernel launched by itself,
decode-graphs: one CUDA graph) or one step of training (training), each waited for. `sum` is a checksum of what was
computed: of the same units at every load, and of the last inference or of the last whole round of tokens in every
run; a training's is that of its first steps. Models whose package is missing are answered by "absent why".

--core N: the main thread computes on this core, and so does what it then starts and waits for (autograd's thread,
which begins with the first unit of a training). Not so the threads of the driver, which began with the context, nor
the making of a model, which may use all cores: two programs that are to be compared share a core, as the cores of a
machine are not equally fast, but three imports on one core would take all of the time.

--lane: when PyTorch is imported it forks one program for each, which reads from descriptor IN and writes to OUT, and
waits for all to end. What they had before (where it lies, and in which pages of the machine) is so the same in all.
What is preloaded stays in that of gpumux; the one that is alone keeps it and finds no daemon; the others take it out
(hooks.py) before they make their first CUDA call, and vmm is as with

--vmm: PyTorch maps memory by the driver's VMM (its expandable segments), natively.

--device cpu computes tiny models on the processor, to try this out. The end of the input ends the program.
"""

import argparse
import copy
import ctypes
import functools
import gc
import os
import random
import sys
import time

# Before torch: what makes two runs of the same program agree to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"): # whose memory it is, is what is compared
    os.environ.pop(variable, None)
# Something of another size in each start, so that what comes later lies elsewhere in its pages (bench/calls.c).
OFFSET = bytearray(16 * os.urandom(1)[0])

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    import torch
    from torch.nn import functional as F

    import hooks
    import models
    from actors import LIBC, end_with_parent
except ImportError as error:
    print(f"absent no PyTorch: {error}", flush=True)
    sys.exit(0)


LIBC.malloc.argtypes, LIBC.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
LIBC.free.argtypes, LIBC.free.restype = (ctypes.c_void_p,), None


class Absent(Exception):
    """What a model needs is not installed."""


@functools.lru_cache(maxsize=None) # all four have .6 GB
def made_resnet(name):
    """A ResNet with random weights, made on the processor, so that it is the same everywhere. To copy."""
    torch.manual_seed(1)
    try:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)
    except ImportError:
        pass
    try:
        import timm

        return timm.create_model(name, pretrained=False)
    except ImportError:
        raise Absent("neither torchvision nor timm") from None


class Inference:
    """One image after the other in fp16 (tiny: fp32)."""

    def __init__(self, place, name):
        side, dtype = (32, torch.float32) if place.is_tiny else (224, torch.float16)
        self.place = place
        self.model = copy.deepcopy(made_resnet(name)).eval().to(device=place.device, dtype=dtype)
        generator = torch.Generator("cpu").manual_seed(2)
        self.image = torch.randn(1, 3, side, side, generator=generator).to(device=place.device, dtype=dtype)
        self.last = None

    def begin(self):
        pass

    def unit(self):
        with torch.inference_mode():
            self.last = self.model(self.image)
        self.place.synchronize()

    def sum(self):
        return models.to_int(models.checksum(self.last))


class Decode:
    """Greedy decoding by a Llama-shaped model (that of 1.1 billion weights, fp16) whose shapes never change."""

    ROUND = 16  # tokens from the same state; as many as there is a cache for

    def __init__(self, place, is_graph):
        hidden, ffn, layers, self.heads, vocab = (64, 128, 2, 4, 256) if place.is_tiny else (2048, 5632, 22, 32, 32000)
        self.place, self.size = place, hidden // self.heads
        dtype, device = (torch.float32 if place.is_tiny else torch.float16), place.device
        generator = torch.Generator(device).manual_seed(3)

        def weight(rows, columns):
            tensor = torch.empty(rows, columns, dtype=dtype, device=device)
            return tensor.normal_(0, columns**-.5, generator=generator)

        self.embedding, self.head = weight(vocab, hidden), weight(vocab, hidden)
        self.layers = [(weight(3 * hidden, hidden), weight(hidden, hidden), weight(2 * ffn, hidden),
                        weight(hidden, ffn)) for _ in range(layers)]
        self.cache = torch.zeros(layers, 2, self.heads, self.ROUND, self.size, dtype=dtype, device=device)
        self.places = torch.arange(self.ROUND, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.ids = torch.zeros(1, dtype=torch.int64, device=device)
        self.number, self.tokens, self.whole, self.graph = 0, [], [], None
        if is_graph:
            self.capture()

    def step(self):
        """From the token in ids at `position` to the next in both; every call launches the same kernels."""
        x = F.embedding(self.ids, self.embedding)
        width = (x.shape[1],)
        mask = self.places[None, None, :] <= self.position[:, None, None]
        for number, (attention, mixed, gate_up, down) in enumerate(self.layers):
            q, k, v = F.linear(F.rms_norm(x, width), attention).view(1, 3, self.heads, self.size).permute(1, 2, 0, 3)
            keys, values = self.cache[number]
            keys.index_copy_(1, self.position, k)
            values.index_copy_(1, self.position, v)
            scores = (q @ keys.transpose(1, 2)) * self.size**-.5
            found = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ values
            x = x + F.linear(found.transpose(0, 1).reshape(x.shape), mixed)
            gate, up = F.linear(F.rms_norm(x, width), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        logits = F.linear(F.rms_norm(x, width), self.head)
        self.ids.copy_(logits.argmax(dim=-1))
        self.position.add_(1)

    def capture(self):
        if self.place.is_tiny:
            raise Absent("no CUDA graphs on the processor")
        self.graph = models.record(self.step)

    def begin(self):
        self.number, self.tokens = 0, []
        self.position.zero_()
        self.ids.fill_(1)
        self.cache.zero_()

    def unit(self):
        if self.number == self.ROUND:
            self.begin()
        with torch.inference_mode():
            if self.graph is not None:
                self.graph.replay()
            else:
                self.step()
        self.tokens.append(int(self.ids))  # waits for it
        self.number += 1
        if self.number == self.ROUND:
            self.whole = self.tokens

    def sum(self):
        """Of the last whole round."""
        while not self.whole:
            self.unit()
        value = 0
        for token in self.whole:
            value = (value * 1000003 + token + 1) % 2**61
        return value


class Training:
    """Steps of training a ResNet-50 in fp32, SGD with momentum, on made-up images."""

    def __init__(self, place):
        batch, side = (2, 32) if place.is_tiny else (32, 224)
        self.place = place
        self.model = copy.deepcopy(made_resnet("resnet50")).train().to(place.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.001, momentum=.9)
        generator = torch.Generator("cpu").manual_seed(4)
        self.images = torch.randn(batch, 3, side, side, generator=generator).to(place.device)
        self.labels = torch.randint(0, 1000, (batch,), generator=generator).to(place.device)
        self.losses = []

    def begin(self):
        pass

    def unit(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        value = loss.detach().item()
        if value != value:
            raise RuntimeError("the loss is not a number")
        if len(self.losses) < 3:
            self.losses.append(value)

    def sum(self):
        """Of the first losses, which every load computes anew."""
        return int.from_bytes("".join(loss.hex() for loss in self.losses).encode(), "big") % (2**61 - 1)


class Place:
    """Where models compute."""

    def __init__(self, device, core):
        self.device, self.is_tiny = device, device == "cpu"
        self.core, self.cores = core, os.sched_getaffinity(0)

    def settle(self, is_computing):
        """On its core while it computes."""
        if self.core is not None:
            os.sched_setaffinity(0, {self.core} if is_computing else self.cores)

    def synchronize(self):
        if not self.is_tiny:
            torch.cuda.synchronize()

    def used_bytes(self):
        return 0 if self.is_tiny else torch.cuda.memory_reserved()

    def make(self, name):
        if name.startswith("resnet"):
            return Inference(self, name)
        if name in ("decode", "decode-graphs"):
            return Decode(self, name == "decode-graphs")
        if name == "training":
            return Training(self)
        raise Absent(f"there is no model {name}")

    def check_memory(self, is_vmm):
        """That PyTorch maps its memory itself, or does not, as far as it tells."""
        if not self.is_tiny and any(one.get("is_expandable", is_vmm) != is_vmm for one in torch.cuda.memory_snapshot()):
            raise RuntimeError("memory is not as it should be: expandable segments")


def say(text):
    print(text, flush=True)


class Scattered:
    """
    Pieces of host memory, so many and so large as is drawn, and holes between them: what comes later lies elsewhere
    than it would, and not side by side, as in another start of the program. Until they are dropped.
    """

    MOST = 4096       # some 2 MB
    MOST_BYTES = 1024 # Python's own allocator has those of up to 512, and the C library all

    def __init__(self):
        drawn = random.SystemRandom()
        sizes = [drawn.randint(1, self.MOST_BYTES) for _ in range(drawn.randint(2, self.MOST))]
        self.pieces = [(bytes(size), LIBC.malloc(size)) for size in sizes]
        drawn.shuffle(self.pieces)
        self.drop(len(sizes) // 2)

    def drop(self, count):
        for _, piece in self.pieces[:count]:
            LIBC.free(piece)
        del self.pieces[:count]

    def drop_all(self):
        self.drop(len(self.pieces))


def clean(place):
    """After a model, before the next."""
    place.settle(False)
    gc.unfreeze()
    gc.collect()
    if not place.is_tiny:
        torch.cuda.empty_cache()


def load(place, name):
    torch.zeros(1, device=place.device)  # the context, if there is none yet, and with it the driver's threads
    place.synchronize()
    model = place.make(name)
    place.settle(True)
    model.begin()
    for _ in range(3):
        model.unit()
    gc.collect()
    gc.freeze()  # else the collector now and then looks through all of PyTorch, in one process or another
    return model


def compute(model, count, warm):
    """Nanoseconds for so many units."""
    for _ in range(warm):  # what was idle gets going again
        model.unit()
    begun = time.monotonic_ns()
    for _ in range(count):
        model.unit()
    return time.monotonic_ns() - begun


def run(model, count, warm):
    took = compute(model, count, warm)
    say(f"unit_ns={took / count:.1f} sum={model.sum()}")


class Switched:
    """Units with the hooks and without them, in one process."""

    # Three times all of them, each once first, second and third; what the first of all does cold is not counted.
    SQUARE = (hooks.ON, hooks.ONE_JUMP, hooks.TWO_JUMPS, hooks.ONE_JUMP, hooks.TWO_JUMPS, hooks.ON, hooks.TWO_JUMPS,
              hooks.ON, hooks.ONE_JUMP)

    def __init__(self):
        try:
            self.hooks = hooks.Hooks()
        except hooks.Unavailable as why:
            raise Absent(why) from None

    def run(self, model, count, warm):
        took = dict.fromkeys(hooks.WAYS, 0)
        compute(model, count, warm)
        try:
            for way in self.SQUARE:
                self.hooks.switch(way)
                took[way] += compute(model, count, warm)
        finally:
            self.hooks.switch(hooks.ON)
        units = count * self.SQUARE.count(hooks.ON)
        own = took[hooks.ONE_JUMP]**2 / took[hooks.TWO_JUMPS]
        say(f"unit_ns={took[hooks.ON] / units:.1f} own_ns={own / units:.1f} hook_ratio={took[hooks.ON] / own:.6f} "
            f"jump_ratio={took[hooks.ON] / took[hooks.ONE_JUMP]:.6f} is_hooked={int(bool(self.hooks))} "
            f"sum={model.sum()}")


def lane(text):
    fd_in, fd_out, what = text.split(":")
    if what not in ("gpumux", "native", "alone", "vmm"):
        raise ValueError(what)
    return int(fd_in), int(fd_out), what


def map_memory():
    """From now on by expandable segments. False: unknown here."""
    for module, name in ((torch._C, "_accelerator_setAllocatorSettings"),
                         (torch.cuda.memory, "_set_allocator_settings")):
        if hasattr(module, name):
            getattr(module, name)("expandable_segments:True")
            return True
    return False


def fork_lanes(lanes):
    """Returns in each of the programs, True in one with --vmm; ends the one that forks them, with 1 if one failed."""
    for fd_in, fd_out, what in lanes:
        if os.fork() != 0:
            continue
        end_with_parent()
        os.dup2(fd_in, 0)
        os.dup2(fd_out, 1)
        for fd in {fd for one in lanes for fd in one[:2]} - {0, 1}:
            os.close(fd)
        if what == "alone":
            os.environ["GPUMUX_SOCKET"] = os.devnull
        elif what != "gpumux":
            try:
                if not hooks.take_out():
                    raise hooks.Unavailable("there is nothing preloaded to take out")
            except hooks.Unavailable as why:
                say(f"absent {why}")
                sys.exit(0)
        return what == "vmm"
    for fd in {fd for one in lanes for fd in one[:2]}:
        os.close(fd)
    sys.exit(int(any([os.wait()[1] != 0 for _ in lanes])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--core", type=int, metavar="N")
    parser.add_argument("--vmm", action="store_true")
    parser.add_argument("--lane", action="append", default=[], type=lane, metavar="IN:OUT:WHAT")
    args = parser.parse_args()
    if args.lane and args.vmm:
        parser.error("--vmm is of one program: --lane IN:OUT:vmm")
    is_vmm = fork_lanes(args.lane) if args.lane else args.vmm
    if is_vmm and not map_memory():
        say("absent this PyTorch cannot be told to map its memory itself")
        return
    place = Place(args.device, args.core)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.set_num_threads(1)  # several would share the one core
    if not place.is_tiny and not torch.cuda.is_available():
        say("absent PyTorch sees no GPU")
        return
    say(f"imported pid={os.getpid()}")
    model = switched = last = scattered = None
    for line in iter(sys.stdin.readline, ""):
        verb, *what = line.split()
        if verb == "run":
            run(model, *map(int, what))
            continue
        if verb == "hook":
            switched.run(model, *map(int, what))
            continue
        name, = what
        try:
            switched = Switched() if name.startswith("hook-") else None
            is_new = name != f"hook-{last}"
            if is_new:
                model = last = None
                clean(place)
                if scattered:
                    scattered.drop_all()
                scattered = Scattered()
                model = load(place, name.removeprefix("hook-"))
            last = name
            place.check_memory(is_vmm)
            say(f"loaded bytes={place.used_bytes()} is_new={int(is_new)} sum={model.sum()}")
        except Absent as absent:
            say(f"absent {absent}")


main()

"""The models of bench/overhead in PyTorch, which know nothing of gpumux. Asked by lines, it answers by lines.

    python3 units.py [--device cpu] [--core N] [--file FILE]

It imports PyTorch and prints "imported pid=...". After that a request is one of

    model NAME   make this model, in place of the one before, and compute a few units: "made bytes=..."
    run COUNT    so many units, behind one that is not counted: "unit_ns=... sum=..."
    load         read FILE, in pieces as tensors have, into new GPU memory, and free it again: "unit_ns=... sum=..."

A unit is an inference of one image (resnet18 to resnet152), one decoded token (decode: each kernel launched by itself,
decode-graphs: one CUDA graph) or one step of training (training), each waited for. `sum` is a checksum of what was
computed or read. Models whose package is missing are answered by "absent why".

--core N: the main thread computes on this core: two programs that are compared share a core, as the cores of a
machine are not equally fast. The driver's threads and the making of a model may use all cores.

--device cpu computes tiny models on the processor, to try this out. The end of the input ends the program.
"""

import argparse
import copy
import functools
import gc
import os
import sys
import time

# Before torch: what makes two runs of the same program agree to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"): # whose memory it is, is what is compared
    os.environ.pop(variable, None)

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    import torch
    from torch.nn import functional as F

    import models
except ImportError as error:
    print(f"absent no PyTorch: {error}", flush=True)
    sys.exit(0)


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


def say(text):
    print(text, flush=True)


def clean(place):
    """After a model, before the next."""
    place.settle(False)
    gc.unfreeze()
    gc.collect()
    if not place.is_tiny:
        torch.cuda.empty_cache()


def make(place, name):
    model = place.make(name)
    place.settle(True)
    model.begin()
    for _ in range(3):
        model.unit()
    gc.collect()
    gc.freeze()  # else the collector now and then looks through all of PyTorch, in one process or another
    return model


def run(model, count):
    model.unit()  # what was idle gets going again
    begun = time.monotonic_ns()
    for _ in range(count):
        model.unit()
    say(f"unit_ns={(time.monotonic_ns() - begun) / count:.1f} sum={model.sum()}")


PIECES = (2**28, 2**26, 2**24, 2**24, 2**13)  # of a file, again and again: an embedding, layers, norms


def read_file(place, path):
    """The file as a model's tensors, one after the other, as loaders of mapped model files do."""
    size = os.path.getsize(path)
    words = torch.from_file(path, shared=False, size=size // 8, dtype=torch.int64)
    begun, at, tensors = time.monotonic_ns(), 0, []
    while at < len(words):
        piece = words[at:at + PIECES[len(tensors) % len(PIECES)] // 8]
        tensors.append(piece.to(place.device))
        at += len(piece)
    place.synchronize()
    took = time.monotonic_ns() - begun
    say(f"unit_ns={took} sum={sum(int(tensor.sum()) for tensor in tensors) % 2**63}")
    del tensors
    clean(place)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--core", type=int, metavar="N")
    parser.add_argument("--file", metavar="FILE")
    args = parser.parse_args()
    place = Place(args.device, args.core)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.set_num_threads(1)  # several would share the one core
    if not place.is_tiny and not torch.cuda.is_available():
        say("absent PyTorch sees no GPU")
        return
    torch.zeros(1, device=place.device)  # the context, and with it the driver's threads
    place.synchronize()
    say(f"imported pid={os.getpid()}")
    model = None
    for line in iter(sys.stdin.readline, ""):
        verb, *what = line.split()
        try:
            if verb == "run":
                run(model, int(what[0]))
            elif verb == "load":
                read_file(place, args.file)
            else:
                model = None
                clean(place)
                model = make(place, what[0])
                say(f"made bytes={place.used_bytes()}")
        except Absent as absent:
            say(f"absent {absent}")


main()

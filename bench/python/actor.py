"""A program of the benches in PyTorch, which knows nothing of gpumux. Asked by lines, it answers by lines.

    python3 actor.py --model NAME --bytes N --units N [--prompt N] [--seed N] [--spare N] [--file FILE] [--device cpu]

It imports PyTorch and prints "imported"; the GPU it touches only when it has read "load". Then it makes the model,
computes one round (models.py), and prints "ready open_ms=... fill_ms=... bytes=... peak=... sum=...". After that a request is
one of bench/app's (bench/app.c): "turn round 0 [INPUT]" is an empty kernel to its end and a whole round, "run units
MS FILE" is unit after unit, round after round, until MS have passed, at least one. `sum` is the last whole round's
checksum, `mismatches` counts the rounds whose checksum is not that of the first of the same input. `first_unit_ms` is
from the request to the end of its first unit.

--device cpu computes tiny models on the processor, to try this out. The end of the input ends the program.
"""

import argparse
import gc
import os
import sys
import time

# Before torch: what makes two runs of the same program agree to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    import torch

    import models
    from rounds import Rounds, milliseconds, say
except ImportError as error:
    print(f"absent no PyTorch: {error}", flush=True)
    sys.exit(0)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=tuple(models.MODELS), required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--units", type=int, required=True)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spare", type=int, default=0)
    parser.add_argument("--file")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args()


class Actor(Rounds):
    """Where a model computes, and its rounds."""

    def __init__(self, arguments):
        super().__init__(arguments.units)
        self.device, self.seed, self.file = arguments.device, arguments.seed, arguments.file
        self.prompt, self.spare = arguments.prompt, arguments.spare
        self.is_tiny = self.device == "cpu"
        self.dtype = torch.float32 if self.is_tiny else torch.float16
        begun = milliseconds()
        self.flag = torch.zeros(1, device=self.device)
        self.synchronize()
        self.open_ms = milliseconds() - begun
        begun = milliseconds()
        self.model = models.MODELS[arguments.model](self, arguments.bytes)
        for _ in range(2):  # the first prepares much, the second has its ballast
            self.sums.clear()
            self.begin(0)
            while self.left:
                self.unit()
            self.peak_bytes = self.used_bytes() if self.is_tiny else torch.cuda.max_memory_allocated()
            if not self.is_tiny:
                torch.cuda.reset_peak_memory_stats() # the second round is like all later ones
        self.synchronize()
        self.fill_ms = milliseconds() - begun

    def synchronize(self):
        if not self.is_tiny:
            torch.cuda.synchronize()

    def used_bytes(self):
        """Of device memory, by the allocator."""
        return 2**30 if self.is_tiny else torch.cuda.memory_reserved()

    def touch(self):
        self.flag.add_(1)
        self.synchronize()


def set_deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would prepare itself anew for every length


def main():
    arguments = parse()
    say("imported")
    if sys.stdin.readline().strip() != "load":
        return
    set_deterministic()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("absent PyTorch sees no GPU")
        return
    actor = Actor(arguments)
    gc.collect()
    gc.freeze()  # else the collector now and then looks through all of PyTorch
    say(f"ready open_ms={actor.open_ms:.3f} fill_ms={actor.fill_ms:.3f} bytes={actor.used_bytes()} "
        f"peak={actor.peak_bytes} sum={actor.sum}")
    actor.answer()


main()

"""A program of the benches in JAX, with the pool that JAX allocates at its start. Its requests and answers are those of actor.py.

    python3 pool.py --bytes N --spare N --units N [--prompt N] [--seed N] [--device cpu]

A pool of --bytes and --spare, of which a unit reads and rewrites --bytes: each word becomes the next one of a generator.
"""

import argparse
import ctypes
import os
import sys

from rounds import Rounds, milliseconds, say

try:
    import jax
    from jax import numpy as jnp
except ImportError as error:
    print(f"absent no JAX: {error}", flush=True)
    sys.exit(0)


def gpu_bytes():
    """What JAX takes its pool for a fraction of."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
                   cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))):
        if result != 0:
            raise RuntimeError(f"the driver says {result}")
    return total.value


class Words:
    """A round begins with the same words."""

    def __init__(self, count, seed):
        self.fill = jax.jit(lambda given: jnp.arange(count // 4, dtype=jnp.uint32) * jnp.uint32(2654435761) + given)
        self.next = jax.jit(lambda words: words * jnp.uint32(1664525) + jnp.uint32(1013904223), donate_argnums=0)
        self.add = jax.jit(lambda words: (words ^ (words >> 15)).sum(dtype=jnp.uint32))
        self.seed, self.words = seed, None

    def begin(self, given):
        self.words = None # or there would be two
        self.words = self.fill(jnp.uint32(self.seed * 1000003 + given))

    def unit(self):
        self.words = self.next(self.words).block_until_ready()

    def sum(self):
        return int(self.add(self.words))


class Pool(Rounds):
    def touch(self):
        jnp.zeros(1).block_until_ready()


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("bytes", None), ("spare", 0), ("units", None), ("prompt", 0), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--model")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    say("imported")
    if sys.stdin.readline().strip() != "load":
        return
    pool, count = arguments.bytes + arguments.spare, arguments.bytes
    begun = milliseconds()
    if arguments.device == "cpu":
        count = min(count, 2**20)
        os.environ["JAX_PLATFORMS"] = "cpu"
        jax.config.update("jax_platforms", "cpu")
    else:
        try:
            os.environ.update(XLA_PYTHON_CLIENT_PREALLOCATE="true", XLA_PYTHON_CLIENT_MEM_FRACTION=f"{pool / gpu_bytes():.6f}")
            if jax.default_backend() != "gpu":
                raise RuntimeError("it takes another device")
        except (OSError, RuntimeError) as error:
            say(f"absent JAX sees no GPU: {error}".replace("\n", " "))
            return
    actor = Pool(arguments.units)
    actor.touch()
    open_ms, begun = milliseconds() - begun, milliseconds()
    actor.model = Words(count, arguments.seed)
    actor.begin(0)
    while actor.left:
        actor.unit()
    say(f"ready open_ms={open_ms:.3f} fill_ms={milliseconds() - begun:.3f} bytes={pool} peak={count} sum={actor.sum}")
    actor.answer()


main()

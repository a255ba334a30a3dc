"""A case of the framework matrix: kernels in Numba. case.py says how it is run."""

import os
import sys

import case

if "cpu" in sys.argv:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

try:
    import numpy as np
    from numba import cuda
except ImportError as error:
    case.skip(f"not installed: {error}")


@cuda.jit
def stir(words, seed):
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        z = words[i] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed + i)
        words[i] = z ^ (z >> np.uint64(31))


@cuda.jit
def smooth(out, source):
    i = cuda.grid(1)
    if 0 < i < source.size - 1:
        out[i] = (source[i - 1] + source[i] + source[i + 1]) / np.float32(3)


@cuda.jit
def sum_up(out, words):
    total = np.uint64(0)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        total += words[i] * np.uint64(2 * i + 1)
    out[cuda.grid(1)] = total


def fold(array):
    words = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    return int((words * np.arange(1, 2 * words.size, 2, dtype=np.uint64)).sum(dtype=np.uint64))


def kernels(arguments):
    is_tiny = arguments.device == "cpu"
    if not cuda.is_available():
        raise case.Skip("Numba sees no GPU")
    size = 2**8 if is_tiny else 2**20
    count = 1 if is_tiny else max(1, int(arguments.gib * 2**30) // 2**28)
    blocks = (1, 32) if is_tiny else (1024, 256)
    pieces = []
    for number in range(count):
        piece = cuda.to_device(np.full(size if is_tiny else 2**25, 7 + number, dtype=np.uint64))
        stir[blocks](piece, number)
        pieces.append(piece)
    sums = cuda.to_device(np.zeros(blocks[0] * blocks[1], dtype=np.uint64))
    first = np.arange(size, dtype=np.float32) % np.float32(1000)

    def one_round():
        words, floats = cuda.to_device(np.arange(size, dtype=np.uint64)), cuda.to_device(first)
        other = cuda.to_device(first)
        for seed in range(4):
            stir[blocks](words, seed)
            smooth[(size + 255) // 256, 256](other, floats)
            floats, other = other, floats
        value = fold(words.copy_to_host()) * 31 + fold(floats.copy_to_host())
        for piece in pieces:
            sum_up[blocks](sums, piece)
            value = value * 1000003 + fold(sums.copy_to_host())
        return value % 2**64, floats.copy_to_host()[:4].tolist()

    return one_round


if __name__ == "__main__":
    case.run({"numba": kernels})

"""Cases of the framework matrix: CuPy, raw kernels and its pools. case.py says how they are run."""

import case

try:
    import cupy
except ImportError as error:
    case.skip(f"not installed: {error}")

SOURCE = r"""
extern "C" __global__ void stir(unsigned long long *words, unsigned long long n, unsigned long long seed)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long z = words[i] + seed + i * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        words[i] = z ^ (z >> 27);
    }
}
"""


def ready(arguments):
    if arguments.device == "cpu":
        raise case.Skip("no CuPy on the processor")
    if cupy.cuda.runtime.getDeviceCount() == 0:
        raise case.Skip("CuPy sees no GPU")


def digest(array):
    words = array.reshape(-1).view(cupy.uint32).astype(cupy.uint64)
    places = cupy.arange(1, 2 * words.size, 2, dtype=cupy.uint64)
    return int((words * places).sum())


def hold(arguments):
    count = int(arguments.gib * 2**30)
    pieces = [cupy.full(2**25, 7 + number, dtype=cupy.uint64) for number in range(max(1, count // 2**28))]
    stir = cupy.RawKernel(SOURCE, "stir")
    for number, piece in enumerate(pieces):
        stir((1024,), (256,), (piece, cupy.uint64(piece.size), cupy.uint64(number)))
    return lambda: [int(piece.sum(dtype=cupy.uint64)) for piece in pieces]


def work(arguments):
    """Raw kernels, elementwise kernels, a sort and a matrix product, with memory that comes and goes."""
    held = hold(arguments)
    stir = cupy.RawKernel(SOURCE, "stir")
    scaled = cupy.ElementwiseKernel("float32 x, float32 s", "float32 y", "y = x * s + 1", "gm_scaled")

    def one_round():
        words = cupy.arange(2**22, dtype=cupy.uint64)
        for seed in range(5):
            stir((512,), (256,), (words, cupy.uint64(words.size), cupy.uint64(seed)))
        floats = ((words >> cupy.uint64(40)).astype(cupy.float32) / 2**24).reshape(2048, 2048)
        product = scaled(floats @ floats.T, cupy.float32(.5))
        ordered = cupy.sort(words)
        temporaries = [cupy.zeros(size * 2**17, dtype=cupy.uint64) for size in (3, 70, 11, 150)]
        total = sum(int(one.sum()) for one in temporaries)
        del temporaries
        value = 0
        for part in (digest(words), digest(product), digest(ordered), total, *held()):
            value = (value * 1000003 + part) % 2**64
        return value, product[0, :4].tolist()

    return one_round


def raw(arguments):
    ready(arguments)
    return work(arguments)


def pool(arguments):
    """The same from the driver's stream-ordered pool."""
    ready(arguments)
    memory = cupy.cuda.MemoryAsyncPool()
    cupy.cuda.set_allocator(memory.malloc)
    return work(arguments)


if __name__ == "__main__":
    case.run({"raw": raw, "pool": pool})

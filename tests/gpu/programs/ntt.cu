/*
 * Fast Fourier transforms modulo a prime, forward and back, of many blocks of 2^18 numbers: bit
 * reversal, the first stages in shared memory, the others one a launch.
 *
 * One random coefficient of every block is computed by the definition, from the generator; and
 * forward and back must give every number again.
 */
#include "common.cuh"

constexpr unsigned BITS = 18, SIZE = 1 << BITS, THREADS = 1024, TILE = 2 * THREADS;

__device__ static uint32_t number_of(uint64_t seed, uint64_t i)
{
    return (uint32_t)(mix(seed, i) % PRIME);
}

__global__ void reverse_bits(uint32_t *data, uint64_t n)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t other = i / SIZE * SIZE + (__brev((unsigned)(i % SIZE)) >> (32 - BITS));
        if (i < other) {
            uint32_t value = data[i];
            data[i] = data[other];
            data[other] = value;
        }
    }
}

/* a, b -> a + w b, a - w b */
__device__ static void butterfly(uint32_t &a, uint32_t &b, uint32_t w)
{
    uint32_t product = (uint32_t)((uint64_t)b * w % PRIME), old = a;
    a = old + product < PRIME ? old + product : old + product - PRIME;
    b = old >= product ? old - product : old + PRIME - product;
}

/* All stages within a tile; roots[k] is the k-th power of the root of order SIZE. */
__global__ void stages_in_tile(uint32_t *data, const uint32_t *roots)
{
    __shared__ uint32_t tile[TILE];
    uint64_t begin = (uint64_t)blockIdx.x * TILE;
    tile[threadIdx.x] = data[begin + threadIdx.x];
    tile[threadIdx.x + THREADS] = data[begin + threadIdx.x + THREADS];
    __syncthreads();
    for (unsigned half = 1; half < TILE; half *= 2) {
        unsigned k = threadIdx.x & (half - 1), i = 2 * threadIdx.x - k;
        butterfly(tile[i], tile[i + half], roots[k * (SIZE / 2 / half)]);
        __syncthreads();
    }
    data[begin + threadIdx.x] = tile[threadIdx.x];
    data[begin + threadIdx.x + THREADS] = tile[threadIdx.x + THREADS];
}

__global__ void stage(uint32_t *data, uint64_t pairs, const uint32_t *roots, unsigned half)
{
    for (uint64_t pair = thread_index(); pair < pairs; pair += thread_count()) {
        uint64_t k = pair & (half - 1), i = 2 * pair - k;
        butterfly(data[i], data[i + half], roots[k * (SIZE / 2 / half)]);
    }
}

static void transform(uint32_t *data, uint64_t n, const uint32_t *roots)
{
    reverse_bits<<<blocks_for(n), 256>>>(data, n);
    stages_in_tile<<<(unsigned)(n / TILE), THREADS>>>(data, roots);
    for (unsigned half = TILE; half < SIZE; half *= 2)
        stage<<<blocks_for(n / 2), 256>>>(data, n / 2, roots, half);
    CHECK(cudaGetLastError());
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "ntt", 512);
    const uint64_t blocks = work.bytes() / sizeof(uint32_t) / SIZE, n = blocks * SIZE;
    uint32_t *data = allocate<uint32_t>(n), *roots = allocate<uint32_t>(SIZE),
             *back = allocate<uint32_t>(SIZE);
    const uint32_t root = modular_power(3, (PRIME - 1) / SIZE),
                   scale = modular_power(SIZE, PRIME - 2);
    each(SIZE, [=] __device__(uint64_t i) {
        roots[i] = modular_power(root, i);
        back[i] = modular_power(root, (SIZE - i) % SIZE);
    });

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(n, [=] __device__(uint64_t i) { data[i] = number_of(seed, i); });
        transform(data, n, roots);

        /* the same random coefficient of all blocks, each block with a random factor */
        const uint64_t k = mix(seed, n) % SIZE;
        auto factor = [=] __device__(uint64_t block) -> uint64_t {
            return number_of(~seed, block);
        };
        uint64_t found = sum(blocks, [=] __device__(uint64_t block) -> uint64_t {
            return data[block * SIZE + k] * factor(block) % PRIME;
        });
        uint64_t expected = sum(n, [=] __device__(uint64_t i) -> uint64_t {
            uint64_t term =
                (uint64_t)number_of(seed, i) * modular_power(root, i % SIZE * k % SIZE) % PRIME;
            return term * factor(i / SIZE) % PRIME;
        });
        same("a coefficient", found % PRIME, expected % PRIME);

        transform(data, n, back);
        verify("forward and back", n, [=] __device__(uint64_t i) {
            return (uint64_t)data[i] * scale % PRIME == number_of(seed, i);
        });
    }
    release(data, roots, back);
    return work.passed();
}

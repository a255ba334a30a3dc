/*
 * A bitonic sort of 64-bit keys in place, short distances in shared memory.
 *
 * The generator is a bijection: undone, each sorted key says which input it was. All of them are
 * inputs of this round and all are different, so none is missing.
 */
#include "common.cuh"

constexpr unsigned THREADS = 1024, TILE = 2 * THREADS;

/* The i of which value is mix(seed, i). */
__device__ static uint64_t unmix(uint64_t seed, uint64_t value)
{
    uint64_t z = value;
    z ^= z >> 31 ^ z >> 62;
    z *= 0x319642B2D24D8EC3ull;
    z ^= z >> 27 ^ z >> 54;
    z *= 0x96DE1B173F119089ull;
    z ^= z >> 30 ^ z >> 60;
    return (z - seed) * 0xF1DE83E19937733Dull - 1;
}

__device__ static void exchange(uint64_t &low, uint64_t &high, bool is_rising)
{
    if ((low > high) == is_rising) {
        uint64_t other = low;
        low = high;
        high = other;
    }
}

/* One step: compares over `distance`, in runs of `length` that rise and fall in turn. */
__global__ void compare(uint64_t *keys, uint64_t pairs, uint64_t distance, uint64_t length)
{
    for (uint64_t pair = thread_index(); pair < pairs; pair += thread_count()) {
        uint64_t i = 2 * pair - (pair & (distance - 1));
        exchange(keys[i], keys[i + distance], (i & length) == 0);
    }
}

/* All steps of the lengths from first to last that stay within a tile. */
__global__ void compare_in_tile(uint64_t *keys, uint64_t first, uint64_t last)
{
    __shared__ uint64_t tile[TILE];
    uint64_t begin = (uint64_t)blockIdx.x * TILE;
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS)
        tile[i] = keys[begin + i];
    __syncthreads();
    for (uint64_t length = first; length <= last; length *= 2)
        for (unsigned distance = (unsigned)min(length / 2, (uint64_t)THREADS); distance > 0;
             distance /= 2) {
            unsigned i = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
            exchange(tile[i], tile[i + distance], ((begin + i) & length) == 0);
            __syncthreads();
        }
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS)
        keys[begin + i] = tile[i];
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "bitonic", 512);
    const uint64_t n = power_of_two_below(work.bytes() / sizeof(uint64_t));
    const unsigned tiles = (unsigned)(n / TILE);
    uint64_t *keys = allocate<uint64_t>(n);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(n, [=] __device__(uint64_t i) { keys[i] = mix(seed, i); });
        compare_in_tile<<<tiles, THREADS>>>(keys, 2, TILE);
        for (uint64_t length = 2 * TILE; length <= n; length *= 2) {
            for (uint64_t distance = length / 2; distance > THREADS; distance /= 2)
                compare<<<blocks_for(n / 2), 256>>>(keys, n / 2, distance, length);
            compare_in_tile<<<tiles, THREADS>>>(keys, length, length);
            CHECK(cudaGetLastError());
        }
        verify("sorted keys", n, [=] __device__(uint64_t i) {
            return unmix(seed, keys[i]) < n && (i == 0 || keys[i - 1] < keys[i]);
        });
    }
    release(keys);
    return work.passed();
}

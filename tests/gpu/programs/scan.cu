/*
 * Exclusive prefix sums of a large array: tiles of 2048 by the up-sweep and down-sweep in shared
 * memory, the tiles' sums by the same on the next level. Each round changes the input in place.
 *
 * Proved by differences: each sum is the one before and the generator's input more.
 */
#include "common.cuh"

constexpr unsigned THREADS = 1024, TILE = 2 * THREADS;

/* Also turns each input into input ^ change. */
template <class T>
__global__ void scan_tiles(T *inputs, T change, uint64_t n, uint64_t *sums, uint64_t *of_tiles)
{
    __shared__ uint64_t tile[TILE];
    uint64_t begin = (uint64_t)blockIdx.x * TILE;
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS) {
        tile[i] = 0;
        if (begin + i < n)
            tile[i] = inputs[begin + i] ^= change;
    }
    __syncthreads();
    for (unsigned distance = 1; distance < TILE; distance *= 2) { /* up */
        unsigned at = (threadIdx.x + 1) * 2 * distance - 1;
        if (at < TILE)
            tile[at] += tile[at - distance];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        of_tiles[blockIdx.x] = tile[TILE - 1];
        tile[TILE - 1] = 0;
    }
    __syncthreads();
    for (unsigned distance = TILE / 2; distance > 0; distance /= 2) { /* down */
        unsigned at = (threadIdx.x + 1) * 2 * distance - 1;
        if (at < TILE) {
            uint64_t left = tile[at - distance];
            tile[at - distance] = tile[at];
            tile[at] += left;
        }
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < TILE && begin + i < n; i += THREADS)
        sums[begin + i] = tile[i];
}

__global__ void add_tiles(uint64_t *sums, uint64_t n, const uint64_t *of_tiles)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        sums[i] += of_tiles[i / TILE];
}

template <class T> static void scan(T *inputs, T change, uint64_t n, uint64_t *sums)
{
    unsigned tiles = divide_up(n, TILE);
    uint64_t *of_tiles = allocate<uint64_t>(tiles), *before = allocate<uint64_t>(tiles);
    scan_tiles<<<tiles, THREADS>>>(inputs, change, n, sums, of_tiles);
    CHECK(cudaGetLastError());
    if (tiles > 1) {
        scan<uint64_t>(of_tiles, 0, tiles, before);
        add_tiles<<<blocks_for(n), 256>>>(sums, n, before);
        CHECK(cudaGetLastError());
    }
    release(of_tiles, before);
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "scan", 1024);
    const uint64_t n = work.bytes() / (sizeof(uint32_t) + sizeof(uint64_t)), seed = work.seed;
    uint32_t *inputs = allocate<uint32_t>(n), changed = 0;
    uint64_t *sums = allocate<uint64_t>(n);
    each(n, [=] __device__(uint64_t i) { inputs[i] = (uint32_t)mix(seed, i); });

    while (work.next()) {
        const uint32_t change = (uint32_t)mix(seed + 1, work.rounds), all = changed ^ change;
        scan(inputs, change, n, sums);
        changed = all;
        verify("the sums", n, [=] __device__(uint64_t i) {
            return sums[i] == (i == 0 ? 0 : sums[i - 1] + ((uint32_t)mix(seed, i - 1) ^ all));
        });
    }
    release(inputs, sums);
    return work.passed();
}

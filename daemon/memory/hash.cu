/*
 * The kernel that hashes chunks where they are, on the GPU. hash.ptx is made from it by hash.sh and
 * is part of the source, as a build needs no nvcc. hash.c launches it and finishes the hash.
 *
 * The hash is keyed, and tells two contents of one size apart but for chance: two different
 * contents that were chosen without the key have the same hash with a probability below 2^-114.
 * Four levels make it; p is the prime 2^61 - 1:
 *
 *   string  A thread hashes 512 bytes: 32 vectors of 16 bytes, each 4 KiB after the one before, so
 *           that the threads of a warp read 512 bytes in a row. For each of four passes it sums,
 *           modulo 2^64, (m[2i] + k[2i]) * (m[2i+1] + k[2i+1]) over the 32-bit words m: NH, the
 *           inner hash of UMAC. Each pass has a key of its own.
 *   fold    The four sums are eight words of 32 bits. Each of two lanes makes one number below p of
 *           them: their sum modulo p, each times a key of its own.
 *   tree    The 256 threads of a tile are the leaves of a tree of eight levels. A node is, modulo
 *           p, its left child plus its right child times the key of the level.
 *   chunk   hash.c sums the tiles modulo p, each times a key of its own.
 *
 * Why the bound holds. Let two contents differ, and look at one string in which they do. NH has the
 * same sum for two different strings of one length with a probability of 2^-32 at most (Black et
 * al., UMAC, theorem 4.2). The four passes have independent keys, so all four sums are the same
 * with 2^-128 at most. Else some word of the eight differs. Then one lane has the same value at the
 * end only if the difference vanishes at one of the ten steps on the way from that string to the
 * end: fold, eight nodes, sum. At each step the difference is d + k * e modulo p, where e is not
 * zero, or k is not used and d is not; k is the step's own random number below p, chosen
 * independently of d and e. So it vanishes for at most one k in p. A word is below 2^32 and a tile
 * below p, so a difference that is not zero is not zero modulo p either. That makes 10 / p, below
 * 2^-57, for a lane; the two lanes have independent keys: below 2^-115. The sum of both
 * probabilities is below 2^-114.
 *
 * The key is drawn anew at each start of the daemon, and no hash leaves it. So no program can
 * choose contents by it. What a program might learn, whether a chunk of its own was found
 * unchanged, is one bit a try.
 *
 * Speed. A vector costs one load, 8 multiply-adds and 16 additions, whose keys are operands from
 * constant memory: parameters of the kernel, with all indices known when it is compiled. With fold
 * and tree that makes 54 instructions a vector (counted for sm_90). At 4.4 TB/s that is half of what
 * the multiprocessors of an H100 can issue, so memory is the limit.
 */
#include "daemon/memory/hash_layout.h"

#define GROUP 8 /* loads under way of a thread */

static __device__ __forceinline__ uint64_t reduce(uint64_t x)
{
    return (x & GM_HASH_PRIME) + (x >> 61); /* below 2^61 + 8 */
}

/* a * b modulo p, below 2^61 + 8: both are below 2^61 + 8. */
static __device__ __forceinline__ uint64_t multiply(uint64_t a, uint64_t b)
{
    const uint64_t low = a * b, high = __umul64hi(a, b);
    return reduce((low & GM_HASH_PRIME) + ((low >> 61) | (high << 3)));
}

static __device__ __forceinline__ uint64_t last_reduce(uint64_t x)
{
    x = reduce(x);
    return x >= GM_HASH_PRIME ? x - GM_HASH_PRIME : x;
}

static __device__ __forceinline__ uint64_t node(uint64_t left, uint64_t key, uint64_t right)
{
    return reduce(left + multiply(key, right));
}

extern "C" __global__ void __launch_bounds__(GM_HASH_THREADS, 4)
    gm_hash(const __grid_constant__ struct gm_hash_launch launch)
{
    __shared__ uint64_t of_warp[GM_HASH_LANES][GM_HASH_THREADS / 32];
    const struct gm_hash_job job = launch.jobs[blockIdx.y];
    const uint32_t tile = blockIdx.x, thread = threadIdx.x;
    uint64_t sum[GM_HASH_PASSES] = {0, 0, 0, 0}, value[GM_HASH_LANES];
    uint32_t any = 0;

    if (tile >= job.tiles)
        return;
    const uint4 *at = (const uint4 *)(job.address + (uint64_t)tile * GM_HASH_TILE) + thread;
#pragma unroll
    for (int first = 0; first < GM_HASH_VECTORS; first += GROUP) {
        uint4 v[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            v[i] = __ldcs(at + (first + i) * GM_HASH_THREADS);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            any |= v[i].x | v[i].y | v[i].z | v[i].w;
#pragma unroll
            for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
                const uint32_t *k = &launch.key.nh[pass][4 * (first + i)];
                sum[pass] += (uint64_t)(v[i].x + k[0]) * (v[i].y + k[1]);
                sum[pass] += (uint64_t)(v[i].z + k[2]) * (v[i].w + k[3]);
            }
        }
    }

#pragma unroll
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        value[lane] = 0;
#pragma unroll
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            const uint64_t *k = &launch.key.fold[lane][2 * pass];
            value[lane] = node(value[lane], k[0], (uint32_t)sum[pass]);
            value[lane] = node(value[lane], k[1], sum[pass] >> 32);
        }
#pragma unroll
        for (int level = 0; level < 5; level++)
            value[lane] = node(value[lane], launch.key.tree[lane][level],
                               __shfl_down_sync(~0u, value[lane], 1u << level));
        if (thread % 32 == 0)
            of_warp[lane][thread / 32] = value[lane];
    }

    const int has_data = __syncthreads_or(any != 0);
    if (thread >= GM_HASH_THREADS / 32)
        return;
#pragma unroll
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        value[lane] = of_warp[lane][thread];
#pragma unroll
        for (int level = 5; level < GM_HASH_LEVELS; level++)
            value[lane] = node(value[lane], launch.key.tree[lane][level],
                               __shfl_down_sync(0xffu, value[lane], 1u << (level - 5)));
        value[lane] = last_reduce(value[lane]);
    }
    if (thread > 0)
        return;
    ulonglong2 *result = (ulonglong2 *)launch.results + job.result + tile;
    *result = make_ulonglong2(value[0] | (has_data ? GM_HASH_HAS_DATA : 0), value[1]);
}

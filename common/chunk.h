/*
 * Chunks: how an allocation is cut into them, and where their data can be. Pure; calls nothing.
 *
 * One frame backs a chunk. A chunk is a power of two from 2 to 32 MiB, cut greedily from the start
 * of the allocation: VMM calls cost per handle, and 32 MiB is the largest size that costs kernels
 * nothing (gpumux(7), "Memory"). Shim and daemon both cut with these functions, so messages
 * need not carry the chunks.
 */
#ifndef GM_COMMON_CHUNK_H
#define GM_COMMON_CHUNK_H

#include <stdint.h>

#define GM_NONE UINT32_MAX /* no chunk, frame, page, app */

/* Where the authoritative copy of a chunk is, from near the GPU to far. */
enum gm_tier { GM_TIER_NONE, GM_TIER_GPU, GM_TIER_PINNED, GM_TIER_PAGED, GM_TIER_DISK, GM_TIERS };

/* Directions of copies over the link. */
enum gm_way { GM_WAY_OUT, GM_WAY_IN, GM_WAYS };

#define GM_CHUNK_SHIFT 21u  /* log2 of the smallest chunk */
#define GM_CHUNK_CLASSES 5u /* 2, 4, 8, 16, 32 MiB */
#define GM_CHUNK_MIN (1ull << GM_CHUNK_SHIFT)
#define GM_CHUNK_MAX (GM_CHUNK_MIN << (GM_CHUNK_CLASSES - 1u))
#define GM_SMALL_MAX (1ull << 20) /* allocations below 1 MiB go to the real driver */

/* Bytes of a chunk of size class `class` (0 .. GM_CHUNK_CLASSES-1). */
static inline uint64_t gm_class_bytes(unsigned class)
{
    return GM_CHUNK_MIN << class;
}

/* `bytes` in whole smallest chunks, rounded down: what of a limit can be had. */
static inline uint64_t gm_chunk_floor(uint64_t bytes)
{
    return bytes & ~(GM_CHUNK_MIN - 1);
}

/* ... and up: what something takes. 0 stays 0; the caller bounds `bytes`. */
static inline uint64_t gm_chunk_round(uint64_t bytes)
{
    return (bytes + GM_CHUNK_MIN - 1) & ~(GM_CHUNK_MIN - 1);
}

/* Size class of the next chunk when `left` bytes (a positive multiple of GM_CHUNK_MIN) remain. */
static inline unsigned gm_chunk_next(uint64_t left)
{
    unsigned class = GM_CHUNK_CLASSES - 1u;
    while (class > 0 && gm_class_bytes(class) > left)
        class --;
    return class;
}

/* Number of chunks that `bytes` (a multiple of GM_CHUNK_MIN) is cut into. */
static inline uint64_t gm_chunk_count(uint64_t bytes)
{
    uint64_t count = bytes / GM_CHUNK_MAX;
    for (uint64_t tail = (bytes % GM_CHUNK_MAX) >> GM_CHUNK_SHIFT; tail > 0; tail >>= 1)
        count += tail & 1; /* one chunk per power of two */
    return count;
}

#endif

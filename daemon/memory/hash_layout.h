/*
 * What the kernel of hash.cu and the code that launches it share: the key, the jobs, the results.
 * hash.cu says what is computed.
 */
#ifndef GM_DAEMON_MEMORY_HASH_LAYOUT_H
#define GM_DAEMON_MEMORY_HASH_LAYOUT_H

#include <stdint.h>

#define GM_HASH_KERNEL "gm_hash"

#define GM_HASH_THREADS 256 /* of a block, which hashes one tile */
#define GM_HASH_VECTORS 32  /* of 16 bytes, that a thread hashes */
#define GM_HASH_TILE (16 * GM_HASH_THREADS * GM_HASH_VECTORS) /* 128 KiB; a chunk is whole tiles   \
                                                               */
#define GM_HASH_TILES 256                                     /* of the largest chunk */
#define GM_HASH_PASSES 4
#define GM_HASH_LANES 2
#define GM_HASH_LEVELS 8 /* of the tree over a tile's threads */
#define GM_HASH_JOBS 64  /* chunks of a launch, at most */

/* All numbers are random: of 32 bits, or below GM_HASH_PRIME. */
#define GM_HASH_PRIME ((1ull << 61) - 1)
struct gm_hash_key {
    uint32_t nh[GM_HASH_PASSES][4 * GM_HASH_VECTORS];
    uint64_t fold[GM_HASH_LANES][2 * GM_HASH_PASSES];
    uint64_t tree[GM_HASH_LANES][GM_HASH_LEVELS];
};

/* A chunk. Its tile n goes to results[result + n]. */
struct gm_hash_job {
    uint64_t address;
    uint32_t tiles;
    uint32_t result;
};

/* Of a tile: lane by lane, below GM_HASH_PRIME. The top bit of the first says that a byte of the
 * tile is not zero. */
#define GM_HASH_HAS_DATA (1ull << 63)
struct gm_hash_tile {
    uint64_t lane[GM_HASH_LANES];
};

/* The kernel's only parameter. A grid is as wide as the largest job has tiles, and as high as there
 * are jobs. */
struct gm_hash_launch {
    struct gm_hash_key key;
    uint64_t results; /* address of struct gm_hash_tile[] */
    struct gm_hash_job jobs[GM_HASH_JOBS];
};

#endif

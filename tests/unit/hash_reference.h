/*
 * The hash of daemon/memory/hash.cu by its definition, slowly: no tree and no reductions on the
 * way. A tile is the sum over its threads t of fold(t), times the keys of all levels whose bit is
 * set in t. For tests, and for bench/hash on a GPU.
 */
#ifndef GM_TESTS_HASH_REFERENCE_H
#define GM_TESTS_HASH_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "daemon/memory/hash_layout.h"

static inline uint64_t reference_times(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b % GM_HASH_PRIME);
}

static inline uint64_t reference_plus(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a + b) % GM_HASH_PRIME);
}

static inline uint32_t reference_word(const unsigned char *tile, uint32_t thread, uint32_t word)
{
    uint32_t value;
    const uint32_t vector = word / 4;
    memcpy(&value, tile + ((uint64_t)vector * GM_HASH_THREADS + thread) * 16 + word % 4 * 4, 4);
    return value;
}

static inline uint64_t reference_nh(const uint32_t *key, const unsigned char *tile, uint32_t thread)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4 * GM_HASH_VECTORS; i += 2) {
        const uint32_t a = reference_word(tile, thread, i) + key[i];
        const uint32_t b = reference_word(tile, thread, i + 1) + key[i + 1];
        sum += (uint64_t)a * b;
    }
    return sum;
}

static inline uint64_t reference_tile(const struct gm_hash_key *key, int lane,
                                      const unsigned char *tile)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < GM_HASH_THREADS; t++) {
        uint64_t leaf = 0, factor = 1;
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            const uint64_t nh = reference_nh(key->nh[pass], tile, t);
            const uint64_t *k = &key->fold[lane][2 * pass];
            leaf = reference_plus(leaf, reference_times(nh & UINT32_MAX, k[0]));
            leaf = reference_plus(leaf, reference_times(nh >> 32, k[1]));
        }
        for (uint32_t level = 0; level < GM_HASH_LEVELS; level++)
            if (t & (1u << level))
                factor = reference_times(factor, key->tree[lane][level]);
        sum = reference_plus(sum, reference_times(leaf, factor));
    }
    return sum;
}

static inline void reference_hash(const struct gm_hash_key *key,
                                  const uint64_t tiles[GM_HASH_LANES][GM_HASH_TILES],
                                  const void *data, uint64_t bytes, uint64_t hash[GM_HASH_LANES])
{
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        hash[lane] = 0;
        for (uint64_t i = 0; i < bytes / GM_HASH_TILE; i++) {
            const uint64_t tile =
                reference_tile(key, lane, (const unsigned char *)data + i * GM_HASH_TILE);
            hash[lane] = reference_plus(hash[lane], reference_times(tiles[lane][i], tile));
        }
    }
}

#endif

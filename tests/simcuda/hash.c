/*
 * The daemon's kernel on the host: what daemon/memory/hash.cu does, in the same order, so that each
 * step can be compared. (tests/unit/test_hash.c has a reference that is written another way.)
 */
#include "tests/simcuda/sim.h"

#include <string.h>

#include "daemon/memory/hash_layout.h"

#define THREADS GM_HASH_THREADS
#define WORDS 4 /* of a vector */

static uint64_t node(uint64_t left, uint64_t key, uint64_t right)
{
    return (uint64_t)((left + (unsigned __int128)key * right) % GM_HASH_PRIME);
}

static void fold(const struct gm_hash_key *key, uint64_t sums[GM_HASH_PASSES][THREADS], int lane,
                 uint64_t *values)
{
    for (uint32_t t = 0; t < THREADS; t++) {
        values[t] = 0;
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            values[t] = node(values[t], key->fold[lane][2 * pass], (uint32_t)sums[pass][t]);
            values[t] = node(values[t], key->fold[lane][2 * pass + 1], sums[pass][t] >> 32);
        }
    }
}

static void hash_tile(const struct gm_hash_key *key, const uint32_t *words,
                      struct gm_hash_tile *tile)
{
    uint64_t sums[GM_HASH_PASSES][THREADS] = {{0}}, values[THREADS];
    uint32_t any = 0;
    for (uint32_t v = 0; v < GM_HASH_VECTORS; v++)
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            const uint32_t *k = &key->nh[pass][WORDS * v];
            const uint32_t *m = words + v * THREADS * WORDS;
            for (uint32_t t = 0; t < THREADS; t++, m += WORDS) {
                any |= m[0] | m[1] | m[2] | m[3];
                sums[pass][t] += (uint64_t)(m[0] + k[0]) * (m[1] + k[1]) +
                                 (uint64_t)(m[2] + k[2]) * (m[3] + k[3]);
            }
        }
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        fold(key, sums, lane, values);
        for (uint32_t level = 0; level < GM_HASH_LEVELS; level++)
            for (uint32_t t = 0; t < THREADS; t += 2u << level)
                values[t] = node(values[t], key->tree[lane][level], values[t + (1u << level)]);
        tile->lane[lane] = values[0];
    }
    tile->lane[0] |= any != 0 ? GM_HASH_HAS_DATA : 0;
}

void sim_hash_chunks(const struct gm_hash_launch *launch)
{
    struct gm_hash_tile *results = (struct gm_hash_tile *)(uintptr_t)launch->results;
    for (int i = 0; i < GM_HASH_JOBS; i++) {
        const struct gm_hash_job *job = &launch->jobs[i];
        for (uint32_t tile = 0; tile < job->tiles; tile++) {
            const uint64_t at = job->address + (uint64_t)tile * GM_HASH_TILE;
            hash_tile(&launch->key, (const uint32_t *)(uintptr_t)at, &results[job->result + tile]);
            sim_pause_point();
        }
    }
}

/*
 * The daemon's kernel on the host: what daemon/memory/hash.cu does, in the same order, so that each
 * step can be compared. (tests/unit/test_hash.c has a reference that is written another way.)
 */
#include "tests/simcuda/sim.h"

#include <stdbool.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "daemon/memory/hash_layout.h"

#define THREADS GM_HASH_THREADS
#define WORDS 4 /* of a vector */

/* x modulo the prime, for x below 2^122. */
static uint64_t reduce(unsigned __int128 x)
{
    uint64_t y = (uint64_t)(x & GM_HASH_PRIME) + (uint64_t)(x >> 61);
    y = (y & GM_HASH_PRIME) + (y >> 61);
    return y >= GM_HASH_PRIME ? y - GM_HASH_PRIME : y;
}

/* Add the vectors `m` of all threads to their sums, each in two halves. Whether any word is not
 * zero. Tests hash as much as they swap, so this must be fast. */
#if defined(__SSE2__)
typedef __m128i half_sums;
static bool add_vectors(const struct gm_hash_key *key, uint32_t v, const uint32_t *m,
                        half_sums sums[THREADS][GM_HASH_PASSES])
{
    const __m128i *vectors = (const __m128i *)(const void *)m;
    __m128i any = _mm_setzero_si128(), k[GM_HASH_PASSES];
    for (int pass = 0; pass < GM_HASH_PASSES; pass++)
        k[pass] = _mm_loadu_si128((const __m128i *)(const void *)&key->nh[pass][WORDS * v]);
    for (uint32_t t = 0; t < THREADS; t++) {
        const __m128i vector = _mm_loadu_si128(vectors + t);
        any = _mm_or_si128(any, vector);
#pragma GCC unroll 4
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            const __m128i word = _mm_add_epi32(vector, k[pass]);
            sums[t][pass] =
                _mm_add_epi64(sums[t][pass], _mm_mul_epu32(word, _mm_srli_epi64(word, 32)));
        }
    }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) != 0xffff;
}

static uint64_t whole(const half_sums *sum)
{
    uint64_t halves[2];
    memcpy(halves, sum, sizeof halves);
    return halves[0] + halves[1];
}
#else
typedef uint64_t half_sums;
static bool add_vectors(const struct gm_hash_key *key, uint32_t v, const uint32_t *m,
                        half_sums sums[THREADS][GM_HASH_PASSES])
{
    uint32_t any = 0;
    for (uint32_t t = 0; t < THREADS; t++, m += WORDS)
        for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
            const uint32_t *k = &key->nh[pass][WORDS * v];
            any |= m[0] | m[1] | m[2] | m[3];
            sums[t][pass] +=
                (uint64_t)(m[0] + k[0]) * (m[1] + k[1]) + (uint64_t)(m[2] + k[2]) * (m[3] + k[3]);
        }
    return any != 0;
}

static uint64_t whole(const half_sums *sum)
{
    return *sum;
}
#endif

static uint64_t fold(const uint64_t key[2 * GM_HASH_PASSES], const half_sums sums[GM_HASH_PASSES])
{
    unsigned __int128 value = 0; /* of 8 products below 2^93 */
    for (int pass = 0; pass < GM_HASH_PASSES; pass++) {
        const uint64_t sum = whole(&sums[pass]);
        value += (unsigned __int128)key[2 * pass] * (uint32_t)sum;
        value += (unsigned __int128)key[2 * pass + 1] * (sum >> 32);
    }
    return reduce(value);
}

static void hash_tile(const struct gm_hash_key *key, const uint32_t *words,
                      struct gm_hash_tile *tile)
{
    half_sums sums[THREADS][GM_HASH_PASSES];
    uint64_t values[THREADS];
    bool has_data = false;
    memset(sums, 0, sizeof sums);
    for (uint32_t v = 0; v < GM_HASH_VECTORS; v++)
        has_data |= add_vectors(key, v, words + v * THREADS * WORDS, sums);
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        for (uint32_t t = 0; t < THREADS; t++)
            values[t] = fold(key->fold[lane], sums[t]);
        for (uint32_t level = 0; level < GM_HASH_LEVELS; level++)
            for (uint32_t t = 0; t < THREADS; t += 2u << level)
                values[t] = reduce(values[t] + (unsigned __int128)key->tree[lane][level] *
                                                   values[t + (1u << level)]);
        tile->lane[lane] = values[0];
    }
    tile->lane[0] |= has_data ? GM_HASH_HAS_DATA : 0;
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

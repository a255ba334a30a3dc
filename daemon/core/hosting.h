/*
 * Hosting: which chunks of a program that is larger than the budget should be on the GPU. Pure:
 * owns the chunks' heat, which follows from reported uses, and chooses pairs of chunks to exchange.
 * Called by the engine. Reads the table.
 *
 * Heat says how often a chunk's bytes were used lately, whatever its size: GM_HOSTING_USE for every
 * use of all of it, half of that for a use of half of it. Every report halves it first, so recent
 * uses count most.
 *
 * A use names a place, the start of something such as a tensor. It stands for everything from there
 * to the next place in the same allocation. Places are remembered for a while: a use ends at the
 * next place also if that was not used in the report.
 */
#ifndef GM_CORE_HOSTING_H
#define GM_CORE_HOSTING_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

/* Bytes moved to the GPU in one go at most. */
#define GM_HOSTING_AT_ONCE ((uint64_t)GM_HOSTING_PAIRS << GM_CHUNK_SHIFT)

struct gm_use {
    uint64_t va;
    uint32_t count;
};

/* Two chunks of one app and one size: `hot` is hosted, `cold` is on the GPU. */
struct gm_hosting_pair {
    uint32_t hot, cold;
};

/* Halve the heat of all chunks of `app`. */
void gm_hosting_cool(struct gm_table *table, uint32_t app);

/* Add `n` uses, ascending by va, to the heat of the chunks of `app`. Ignores places outside of
 * them. */
void gm_hosting_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses, uint32_t n);

/* Whether exchanging them pays. */
bool gm_hosting_pays(const struct gm_table *table, const struct gm_hosting_pair *pair);

/* Whether they can be exchanged now: both are settled and as struct gm_hosting_pair says. */
bool gm_hosting_is_pair(const struct gm_table *table, uint32_t app,
                        const struct gm_hosting_pair *pair);

/*
 * Choose pairs of `app` whose exchange pays, those that gain most first: at most `room` and
 * GM_HOSTING_PAIRS of them, and GM_HOSTING_AT_ONCE bytes. No chunk is in two pairs. Returns their
 * number. After these exchanges no pair of the same chunks pays until heat has changed.
 */
uint32_t gm_hosting_choose(const struct gm_table *table, uint32_t app,
                           struct gm_hosting_pair *pairs, uint32_t room);

#endif

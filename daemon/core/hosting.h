/*
 * Hosting: which chunks of a program that is larger than the budget are worth their place on the
 * GPU. Pure policy: heat from reported uses, and pairs of chunks that should change
 * places.
 *
 * Heat says how often a chunk's bytes were used lately, whatever its size: GM_HOSTING_USE for every
 * use of all of it, half of that if half of it was used. It is halved at every report, so it is the
 * sum of the last few, the newest counting most.
 *
 * A use names a place, the start of something (a tensor's address in a launch's arguments), and
 * stands for everything from there to the next place in the same allocation. Places are remembered
 * for a while: one that is not used in a report ends the reach of the one before it all the same.
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

/* Two chunks of one app and size: `hot` is hosted, `cold` is on the GPU. */
struct gm_hosting_pair {
    uint32_t hot, cold;
};

/* Halve the heat of all chunks of `app`. */
void gm_hosting_cool(struct gm_table *table, uint32_t app);

/* Add `n` uses, ascending by va, to the heat of the chunks of `app`. Places outside of them are
 * left out. */
void gm_hosting_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses, uint32_t n);

/* Whether it pays that the two, which can be exchanged, are. */
bool gm_hosting_pays(const struct gm_table *table, const struct gm_hosting_pair *pair);

/* Whether the two can be exchanged now: settled where a pair's chunks must be, and alike. */
bool gm_hosting_is_pair(const struct gm_table *table, uint32_t app,
                        const struct gm_hosting_pair *pair);

/*
 * Choose pairs of `app` whose exchange pays, those first that gain most a byte: at most `room`
 * (GM_HOSTING_PAIRS at most) and GM_HOSTING_AT_ONCE bytes. No chunk is in two pairs. Returns their
 * number. After all exchanges, none of the same chunks make a pair again until heat has changed.
 */
uint32_t gm_hosting_choose(const struct gm_table *table, uint32_t app,
                           struct gm_hosting_pair *pairs, uint32_t room);

#endif

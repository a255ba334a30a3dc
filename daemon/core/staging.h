/*
 * Staging, which is what gm_plan_prefetch plans: whether it keeps up with the switches, and what is
 * left to them where it does not. Pure policy.
 *
 * Once pinned memory is full, what is staged for the next program costs a later one its place
 * there. If there is time between switches for all of that, it is free. If not, some switches move
 * too much below pinned memory, and others, which bring in what was staged, nothing at all. Then a
 * third is left to the switch itself, which can bring it up beside the link: an H100's host copies
 * 37 GB/s beside a link that moves 80 (bench/results/tiers.txt). Nothing goes down
 * for programs that come after the next one either.
 *
 * There is no time enough if a switch finds more than two fifths still below pinned memory; that
 * counts for the next GM_STAGING_BEHIND_FOR switches. In simulations of three to five programs a
 * third is right from there on, and all of it before.
 */
#ifndef GM_CORE_STAGING_H
#define GM_CORE_STAGING_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

struct gm_staging {
    uint32_t behind; /* switches until it counts as keeping up again; 0: it does */
};

/* A switch to `app` begins: was there time to stage most of what it needs? */
void gm_staging_note(struct gm_staging *staging, const struct gm_table_app *app);

/*
 * gm_plan_input.left_paged in bytes, of `app`, which is the next (`is_next`) or comes later: of
 * what it has in paged memory so much stays there rather than that something goes down for it.
 */
uint64_t gm_staging_left(const struct gm_staging *staging, const struct gm_table_app *app,
                         bool is_next);

#endif

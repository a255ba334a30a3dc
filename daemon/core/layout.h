/*
 * The layout: whose memory is to be on the GPU, whose is to leave it, and how much. The one place
 * where that is decided, for switches, for growing programs, for caps, for what comes next. Pure;
 * owns no state. Called by the engine, which says where each app stands on the timeline; core/plan
 * then makes the moves. Which chunks of an app that may not have all of its memory there are on the
 * GPU says place.h.
 *
 * Room is given in the order of the next use (MSched section 5: Belady's rule on the scheduler's
 * timeline):
 *
 *   now     who runs or is about to gets all that it lacks. Others lose as much as that needs and
 *           no more, the one whose next turn is farthest first.
 *   above   who has more than its room, by a cap or as it is to leave, loses what is above that.
 *   ahead   whose turn comes next gets what room there is. While it waits, others that wait and
 *           come later make way for it: so of apps in turn on a GPU with room for little more than
 *           one, that room is always the next one's. Nobody knows when an idle app comes: for it
 *           nobody makes way, nor are free frames of others taken, and it keeps what it has
 *           until somebody needs the room now.
 *
 * The objective. First, the victim whose turn is nearest loses as few bytes as possible; given
 * that, the next nearest; and so on. Second, given that, every victim loses the smallest sum that
 * the sizes of its chunks allow. Frames of the wrong size or user count as room: they can be
 * destroyed and made anew (90 us, against 330 us in each direction for 16 MiB over the link).
 *
 * A layout says of each app how many bytes; which chunks those are follows from the order of its
 * lists (table.h), with unchanged ones first.
 */
#ifndef GM_CORE_LAYOUT_H
#define GM_CORE_LAYOUT_H

#include "daemon/core/table.h"

/* Where an app stands on the timeline. */
enum gm_stand {
    GM_STAND_GROWS, /* it runs, and a thread of it waits for memory */
    GM_STAND_COMES, /* its gate opens as soon as nothing of it is missing */
    GM_STAND_WAITS, /* for its next turn */
    GM_STAND_IDLE,  /* nobody knows when it wants one; or it drains */
    GM_STAND_STAYS, /* nothing of it can move now */
};

struct gm_layout_app {
    uint32_t app;
    uint8_t stand;     /* enum gm_stand */
    bool comes_ahead;  /* its memory may come ahead of its turn */
    uint32_t turn;     /* it comes after those with a lower number, together with its group */
    uint64_t may_have; /* bytes on the GPU, beside what is fixed */
};

struct gm_layout_victim {
    uint32_t app;
    uint64_t may_lose; /* bytes */
    uint64_t loses;    /* ... in whole chunks */
};

/* What is to change. */
struct gm_layout {
    uint32_t *targets; /* get what they lack, most urgent first; the caller's memory, as below */
    struct gm_layout_victim *victims; /* farthest next use first. Their data below the GPU may go
                                         further down */
    uint32_t n_targets, n_victims;
    uint64_t fits;   /* bytes for which the targets have room then */
    bool is_growing; /* the first target runs, whole but for what it waits for */
    bool is_ahead;   /* nobody waits for it; there is one target, or none */
    bool is_sparing; /* free frames of others stay as they are */
};

/* A decision is made in steps, from the first on, until one has something to do. */
#define GM_LAYOUT_NOW 0u   /* what somebody waits for; if nobody does: what is above its room */
#define GM_LAYOUT_AHEAD 1u /* for the first app that can come ahead; the next step: the second */

/*
 * Step `step` of the layout, of `apps` in the order of their next use. Both arrays of `layout` have
 * room for `n`. False: there is no such step.
 */
bool gm_layout_make(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                    uint32_t step, struct gm_layout *layout);

/* Say what the victims lose so that the targets get what they lack, as far as `may_lose` of each
 * allows; without targets each loses that. Linear in victims and frames that leave. */
void gm_layout_share(const struct gm_table *table, struct gm_layout *layout);

/* The first leaving frame from `frame` on whose app is not silent: only those can be counted on. */
static inline uint32_t gm_layout_leaving_frame(const struct gm_table *table, uint32_t frame)
{
    while (frame != GM_NONE && table->apps[table->chunks[table->frames[frame].chunk].app].is_silent)
        frame = table->frames[frame].next;
    return frame;
}

#endif

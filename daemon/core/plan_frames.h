/* Where chunks can go on the GPU: the order of filling, frames, victims. For core/plan*.c only. */
#ifndef GM_CORE_PLAN_FRAMES_H
#define GM_CORE_PLAN_FRAMES_H

#include "daemon/core/planning.h"

/* Begin a walk at target number `target`, over the stages `from` to `to`. */
void gm_plan_open_walk(const struct gm_planning *p, struct gm_plan_walk *walk, uint32_t target,
                       unsigned from, unsigned to);
/* The next missing chunk, GM_NONE at the end; walk->target is its app. */
uint32_t gm_plan_next_chunk(const struct gm_planning *p, struct gm_plan_walk *walk);
/* Go to the frames of `pool`, and count what its targets need. */
void gm_plan_open_pool(struct gm_planning *p, uint32_t pool);
/* The next frame of the current pool that is or will be free; GM_NONE: none. */
uint32_t gm_plan_take_frame(struct gm_planning *p, unsigned class);
/* The next frame of any pool that no target of this plan takes; GM_NONE: none. */
uint32_t gm_plan_next_surplus(struct gm_planning *p);
/* Set the cursors to victim number `victim` of the input. */
void gm_plan_open_victim(struct gm_planning *p, uint32_t victim);
/* The next chunk of the current victim to evict; of `class`, or of any: the smallest that makes
 * enough room, else the largest. GM_NONE: none. */
uint32_t gm_plan_take_victim(struct gm_planning *p, unsigned class);
uint32_t gm_plan_take_any_victim(struct gm_planning *p, unsigned class);

#endif

/* Makes plans (plan.h). */
#ifndef GM_CORE_PLAN_MOVES_H
#define GM_CORE_PLAN_MOVES_H

#include "daemon/core/plan.h"

uint64_t gm_plan_reserve(const struct gm_plan_input *input);

/*
 * Make the plan. Each move is possible once those before it, and what is under way, have ended:
 * after every move the frames fit the budget, and each tier its cap. Chunks in flight to a tier
 * below the GPU count as there. If the plan is not complete, carry out its moves and plan again.
 * Linear in the moves and the missing chunks of the targets.
 *
 * Ahead of a target's turn, what of it has no place on the GPU is promoted to pinned memory, as far
 * as that leaves the window free. A victim's data goes down only if that brings the target's up.
 * If nothing of the target would come nearer, the plan is empty.
 */
void gm_plan_make(const struct gm_table *table, const struct gm_plan_input *input,
                  struct gm_plan *plan);
/* How many of its moves are of that kind. */
uint32_t gm_plan_count(const struct gm_plan *plan, enum gm_move_kind kind);

/*
 * The plan of what somebody waits for: that of gm_plan_make, unless a tier is closed and the others
 * have no room for what would leave. Then targets are dropped from the layout, the least urgent
 * first, until the rest have room.
 * If the first alone has none, a plan that would evict is empty instead: a program that is whole
 * can run, two halves cannot. Only a first target that grows takes what it can get.
 *
 * This looks at one plan only. If the tiers are so full that only a second plan could go on, the
 * switch waits (8 of 125,000 did in random worlds).
 *
 * Returns how many targets, the first ones, have room: all while no tier is closed, 0 if not even
 * the first. Each target that is dropped costs the time of one more plan.
 */
uint32_t gm_plan_switch(const struct gm_table *table, struct gm_plan_input *input,
                        struct gm_plan *plan);

#endif

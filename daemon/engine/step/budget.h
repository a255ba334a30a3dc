/* The budget follows what the device has; memory that goes back on request. */
#ifndef GM_DAEMON_ENGINE_STEP_BUDGET_H
#define GM_DAEMON_ENGINE_STEP_BUDGET_H

#include "daemon/engine/state/state.h"

/* What gm_engine_trim does. */
void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, bool is_admin,
                           struct gm_trimmed *trimmed);
/* Let the budget follow what the device has. `refused`: why no more frames can be made than there
 * are; NONE: they can. */
void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused);
/* The same for a frame that was refused in a move, when the moves are made: it frees spares, which
 * the plan still names. */
void gm_engine_follow_refusal(struct gm_engine *engine);
/* ... if it is time to. */
void gm_engine_check_budget(struct gm_engine *engine);
/* From now on the budget is all that the device has left, whatever the option says. */
void gm_engine_take_device(struct gm_engine *engine);
/* Whether memory that leaves has not reached the system yet. */
bool gm_engine_is_trimming(const struct gm_engine *engine);

#endif

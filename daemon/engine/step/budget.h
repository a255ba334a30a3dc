/* The budget of the device, and the end of the daemon. */
#ifndef GM_DAEMON_ENGINE_STEP_BUDGET_H
#define GM_DAEMON_ENGINE_STEP_BUDGET_H

#include "daemon/engine/state/state.h"

/* What gm_engine_trim does. */
void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, bool is_admin,
                           struct gm_trimmed *trimmed);
/* ... and what has gone below the GPU; `leaving`: of pinned memory before. */
void gm_engine_trimmed(struct gm_engine *engine, struct gm_trimmed *trimmed, uint64_t leaving,
                       uid_t asker, bool is_all);
/* Let the budget follow what the device has, if that is known just now. `refused`: why no more
 * frames can be made than there are; NONE: they can. */
void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused);
/* The same for a frame that was refused in a move, when the moves are made: it frees spares, which
 * the plan still names. */
void gm_engine_follow_refusal(struct gm_engine *engine);
/* ... if it is time to. */
void gm_engine_check_budget(struct gm_engine *engine);
/* Whether memory that leaves has not reached the system yet. */
bool gm_engine_is_trimming(const struct gm_engine *engine);
/* What gm_engine_save does. */
void gm_engine_begin_saving(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg);
/* While the daemon is about to end: decide whose gates are to be open. */
void gm_engine_choose_saved(struct gm_engine *engine);
/* The daemon did not run for so long. */
void gm_engine_put_off_end(struct gm_engine *engine, uint64_t ns);
/* When it must be looked at again, whatever happens. */
uint64_t gm_engine_saving_due(const struct gm_engine *engine);

#endif

/* When groups over several GPUs take their turns, and give them back. */
#ifndef GM_DAEMON_ENGINE_STEP_GRANTS_H
#define GM_DAEMON_ENGINE_STEP_GRANTS_H

#include "daemon/engine/state/state.h"

/* Whether the gate of `app`, which is whole, may open: all of its group are whole, or run. */
bool gm_group_may_open(const struct gm_engine *engine, uint32_t app);

/* The scheduler takes the turn of `app` back before it ran: those of its group have theirs
 * together, so all yield. Not if it gave its turn back itself, or if its group did. */
void gm_group_dropped(struct gm_engine *engine, uint32_t app);

/* The other GPU that its group waits for: nobody of it can run there now, or not all is there yet.
 * NULL: none. */
const struct gm_engine *gm_group_awaits(const struct gm_engine *engine, uint32_t app);

/* When its group gives its turns back, or takes them, though nothing happens. */
uint64_t gm_group_due(const struct gm_engine *engine, uint32_t app);

/* At the start of a step: groups that were united since the last one are one app to the scheduler.
 */
void gm_engine_gather_groups(struct gm_engine *engine);

/* Do for this engine's apps what the states of the others in their groups ask for. */
void gm_engine_follow_groups(struct gm_engine *engine);
#endif

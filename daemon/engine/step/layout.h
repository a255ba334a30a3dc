/* Where memory is to lie, and the plan that brings it about. */
#ifndef GM_DAEMON_ENGINE_STEP_LAYOUT_H
#define GM_DAEMON_ENGINE_STEP_LAYOUT_H

#include "daemon/engine/state/state.h"

/* Whether things are no more as the plan takes them to be. */
bool gm_engine_is_plan_stale(const struct gm_engine *engine);
void gm_engine_plan(struct gm_engine *engine);
/* Whether the newest plan left the app out because the disk cannot be written. */
bool gm_engine_is_short_of_disk(const struct gm_engine *engine, uint32_t app);
/* It gave its turn back while the disk could not be written, and its threads wait. */
bool gm_engine_awaits_disk(const struct gm_engine *engine, uint32_t app);

#endif

/* Planning, and carrying plans out. */
#ifndef GM_DAEMON_ENGINE_MOVES_H
#define GM_DAEMON_ENGINE_MOVES_H

#include "daemon/engine/state.h"

/* Whether things are no more as the plan takes them to be. */
bool gm_engine_is_plan_stale(const struct gm_engine *engine);
void gm_engine_plan(struct gm_engine *engine);
void gm_engine_move(struct gm_engine *engine);

#endif

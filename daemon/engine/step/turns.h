/* Best-effort programs take turns beside a latency-critical one. */
#ifndef GM_DAEMON_ENGINE_STEP_TURNS_H
#define GM_DAEMON_ENGINE_STEP_TURNS_H

#include "daemon/engine/state/state.h"

/* Give the next best-effort program its turn, if it is time. */
void gm_engine_take_turns(struct gm_engine *engine);
uint64_t gm_engine_turn_due(const struct gm_engine *engine);

#endif

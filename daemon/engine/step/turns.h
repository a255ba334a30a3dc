/* Best-effort programs take turns beside a latency-critical one. */
#ifndef GM_DAEMON_ENGINE_STEP_TURNS_H
#define GM_DAEMON_ENGINE_STEP_TURNS_H

#include "daemon/engine/state/state.h"

/* EXPECT. True: the engine must look again at gm_engine_hints_due. */
bool gm_engine_expect(struct gm_engine *engine, uint32_t app, const struct gm_msg_expect *expect);
/* Hold programs for the hints whose time has come. */
void gm_engine_follow_hints(struct gm_engine *engine);
uint64_t gm_engine_hints_due(const struct gm_engine *engine);

/* Tell programs their timeslices, as far as these are others now. */
void gm_engine_tell_timeslices(struct gm_engine *engine);

/* Give the next best-effort program its turn, if it is time. */
void gm_engine_take_turns(struct gm_engine *engine);
uint64_t gm_engine_turn_due(const struct gm_engine *engine);

#endif

/* Holding others for a request that is announced. */
#ifndef GM_DAEMON_ENGINE_STEP_HINTS_H
#define GM_DAEMON_ENGINE_STEP_HINTS_H

#include "daemon/engine/state/state.h"

/* Whether the work of a running program can be made to stand still; and do so for `for_ns`. */
bool gm_engine_can_hold(const struct gm_engine *engine, uint32_t app);
void gm_engine_send_hold(struct gm_engine *engine, uint32_t app, uint64_t for_ns);
/* EXPECT. True: the engine must look again at gm_engine_hints_due. */
bool gm_engine_expect(struct gm_engine *engine, uint32_t app, const struct gm_msg_expect *expect);
/* Hold programs for the hints whose time has come. */
void gm_engine_follow_hints(struct gm_engine *engine);
uint64_t gm_engine_hints_due(const struct gm_engine *engine);

#endif

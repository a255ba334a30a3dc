/* The executor: what moves memory to where it is to lie. */
#ifndef GM_DAEMON_ENGINE_STEP_MOVES_H
#define GM_DAEMON_ENGINE_STEP_MOVES_H

#include "daemon/engine/state/state.h"

/* Whether memory of an app that is not to run can leave the GPU. */
bool gm_engine_can_lose(const struct gm_engine *engine, uint32_t app);
/* Bytes that are used in a tier below the GPU. Those of shadows can be had. */
uint64_t gm_engine_used_of(const struct gm_engine *engine, enum gm_tier tier);
/* There is a new plan. */
void gm_engine_begin_moves(struct gm_engine *engine);
/* Each round: begin what can begin. */
void gm_engine_move(struct gm_engine *engine);
/* Each round: the next step of chunks that are to be mapped on the host, */
void gm_engine_map_on_host(struct gm_engine *engine);
/* ... and then the pinned memory that those lack which found none. */
void gm_engine_make_units(struct gm_engine *engine);

#endif

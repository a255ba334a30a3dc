/* Makes memory below the GPU, and gives it back. */
#ifndef GM_DAEMON_ENGINE_ACT_TIERS_H
#define GM_DAEMON_ENGINE_ACT_TIERS_H

#include "daemon/engine/state/state.h"

/* As gm_hostpool_want, gm_hostpool_make_units, gm_stores_want and gm_stores_trim. */
void gm_engine_make_pinned(struct gm_engine *engine, uint64_t bytes);
void gm_engine_make_pinned_units(struct gm_engine *engine);
void gm_engine_make_paged(struct gm_engine *engine, uint64_t bytes);
uint64_t gm_engine_trim_paged(struct gm_engine *engine);

#endif

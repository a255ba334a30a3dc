/* Takes freed memory back that programs keep, when room is wanted. */
#ifndef GM_DAEMON_ENGINE_STEP_RECLAIM_H
#define GM_DAEMON_ENGINE_STEP_RECLAIM_H

#include "daemon/engine/state/state.h"

/* Take back as many spares of `app` as make `least` bytes, or all. Returns how many bytes. */
uint64_t gm_engine_take_spares(struct gm_engine *engine, uint32_t app, uint64_t least);
void gm_engine_take_all_spares(struct gm_engine *engine);
/* Take those back that were there when GM_SPARES_KEEP_NS ago somebody looked. */
void gm_engine_age_spares(struct gm_engine *engine, uint32_t app);
/* `asker` is about to have `bytes`: take back the spares that are in the way. */
void gm_engine_make_room(struct gm_engine *engine, uint32_t asker, uint64_t bytes);

/* Of an app that has come back: the daemon before was about to take these. */
void gm_engine_take_busy_spares(struct gm_engine *engine, uint32_t app);

#endif

/* Programs that stand still, or have not come back. */
#ifndef GM_DAEMON_ENGINE_STEP_STOPS_H
#define GM_DAEMON_ENGINE_STEP_STOPS_H

#include "daemon/engine/state/state.h"

/* See who stands still, if it is time to, and do what follows from that. */
void gm_engine_find_stops(struct gm_engine *engine);
/* An answer of the app to this engine is overdue, or is not. */
void gm_engine_note_owing(struct gm_engine *engine, uint32_t app, bool is_owing);
uint64_t gm_engine_stops_due(const struct gm_engine *engine);
/* Of one that stands still: how, which process, and what it keeps on the GPU. */
struct gm_reason gm_engine_why_stopped(const struct gm_engine *engine, uint32_t app);
/* Of one that has not come back since the daemon was restarted: the same, and since when. */
struct gm_reason gm_engine_why_lost(const struct gm_engine *engine, uint32_t app);

#endif

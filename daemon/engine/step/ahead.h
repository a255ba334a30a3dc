/* Memory ahead of a growing program. */
#ifndef GM_DAEMON_ENGINE_STEP_AHEAD_H
#define GM_DAEMON_ENGINE_STEP_AHEAD_H

#include "daemon/engine/state/state.h"

/* An allocation that nobody waits for (GM_ALLOC_AHEAD). False: refused, nothing changed. */
bool gm_engine_admit_ahead(struct gm_engine *engine, uint32_t app,
                           const struct gm_msg_alloc *alloc);
/* Those of `app` that are not there yet are refused. */
void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t app);

#endif

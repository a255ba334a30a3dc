/* Whether cold memory is cold: what crosses the link while programs run tells. */
#ifndef GM_DAEMON_ENGINE_STEP_CHECK_H
#define GM_DAEMON_ENGINE_STEP_CHECK_H

#include "daemon/engine/state/state.h"

/* The meter has news: it is off, or there are samples. */
void gm_engine_take_samples(struct gm_engine *engine);
/* At the end of each run: who runs, with what on the host, and whether anything is copied. */
void gm_engine_follow_check(struct gm_engine *engine);

#endif

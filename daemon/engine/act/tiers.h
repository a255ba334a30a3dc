/* Makes memory below the GPU, and gives it back. */
#ifndef GM_DAEMON_ENGINE_ACT_TIERS_H
#define GM_DAEMON_ENGINE_ACT_TIERS_H

#include "daemon/engine/state/state.h"

/* Have what is wanted made. */
void gm_engine_make_wanted(struct gm_engine *engine);

#endif

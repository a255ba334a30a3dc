/* Carries actions out. */
#ifndef GM_DAEMON_ENGINE_ACT_ACT_H
#define GM_DAEMON_ENGINE_ACT_ACT_H

#include "daemon/engine/state/state.h"

/* Carry out what is posted, in its order, and note in each action what came of it. */
void gm_engine_act(struct gm_engine *engine);

#endif

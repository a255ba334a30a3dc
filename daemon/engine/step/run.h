/*
 * Goes round: decision -> app states -> moves -> gates. Every event (a message, a timer, the end of
 * a copy) changes the state and ends with gm_engine_run, which goes round until nothing more can be
 * done now. It never blocks.
 */
#ifndef GM_DAEMON_ENGINE_STEP_RUN_H
#define GM_DAEMON_ENGINE_STEP_RUN_H

#include "daemon/engine/state/state.h"

void gm_engine_run(struct gm_engine *engine);

#endif

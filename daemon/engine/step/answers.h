/* What follows from the answers to batches. */
#ifndef GM_DAEMON_ENGINE_STEP_ANSWERS_H
#define GM_DAEMON_ENGINE_STEP_ANSWERS_H

#include "daemon/engine/state/state.h"

void gm_engine_batch_done(struct gm_engine *engine, uint32_t app, uint64_t batch, int32_t result);

#endif

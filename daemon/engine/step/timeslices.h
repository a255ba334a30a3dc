/* How long each program's kernels keep the GPU. */
#ifndef GM_DAEMON_ENGINE_STEP_TIMESLICES_H
#define GM_DAEMON_ENGINE_STEP_TIMESLICES_H

#include "daemon/engine/state/state.h"

/* Tell programs their timeslices, as far as these are others now. */
void gm_engine_tell_timeslices(struct gm_engine *engine);

#endif

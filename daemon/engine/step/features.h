/* What programs do without. */
#ifndef GM_DAEMON_ENGINE_STEP_FEATURES_H
#define GM_DAEMON_ENGINE_STEP_FEATURES_H

#include "daemon/engine/state/state.h"

/* Put into the log what programs do without, each feature once; what that changes, change. */
void gm_engine_note_features(struct gm_engine *engine);

#endif

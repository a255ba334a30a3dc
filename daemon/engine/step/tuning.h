/* Rules and options that change while the daemon runs. */
#ifndef GM_DAEMON_ENGINE_STEP_TUNING_H
#define GM_DAEMON_ENGINE_STEP_TUNING_H

#include "daemon/engine/state/state.h"

/* What gm_engine_tune does. */
void gm_engine_take_tuning(struct gm_engine *engine, const struct gm_engine_tuning *tuning);
/* It says that it shares by MPS: a part of the GPU that a rule gave it takes the place of the
 * rule's share= now. A lie costs others what a gate that does not close costs them. */
void gm_engine_take_part(struct gm_engine *engine, uint32_t app);

#endif

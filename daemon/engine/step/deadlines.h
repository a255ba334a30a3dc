/* The timer: answers that do not come, retries. */
#ifndef GM_DAEMON_ENGINE_STEP_DEADLINES_H
#define GM_DAEMON_ENGINE_STEP_DEADLINES_H

#include "daemon/engine/state/state.h"

void gm_engine_check_deadlines(struct gm_engine *engine);
/* Set the timer to the next thing that time alone brings about. */
void gm_engine_set_alarm(struct gm_engine *engine);

#endif

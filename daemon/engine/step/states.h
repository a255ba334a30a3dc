/* The states of apps. */
#ifndef GM_DAEMON_ENGINE_STEP_STATES_H
#define GM_DAEMON_ENGINE_STEP_STATES_H

#include "daemon/engine/state/state.h"

/* The one setter of app states; false when the event is not legal in the app's state. */
bool gm_engine_turn(struct gm_engine *engine, uint32_t app, enum gm_app_event event);

#endif

/* Windows of programs, and what they touched in them. */
#ifndef GM_DAEMON_ENGINE_STEP_WINDOWS_H
#define GM_DAEMON_ENGINE_STEP_WINDOWS_H

#include "daemon/engine/state/state.h"

/* Account for running time, and end the windows whose time has come. Once a run, before anything
 * is decided. */
void gm_engine_follow_windows(struct gm_engine *engine);
/* When the window of the app may end if it runs on; GM_TIME_NEVER: it does not run, or marks
 * nothing. */
uint64_t gm_engine_window_due(const struct gm_engine *engine, uint32_t app);

/* The meter has news: it is off, or there are samples. */
void gm_engine_take_samples(struct gm_engine *engine);
/* At the end of each run: who runs, with what on the host, and whether anything is copied. */
void gm_engine_follow_check(struct gm_engine *engine);

#endif

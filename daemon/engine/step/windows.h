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

/* A window has ended, of which this was read: `n` uses, which are freed here; n < 0: it could not
 * be. `is_whole`: these are all. */
void gm_engine_take_window(struct gm_engine *engine, uint32_t app, uint32_t before, bool is_whole,
                           struct gm_use *uses, int64_t n);

/* The meter has news: a sample (NULL: none), and why there is no meter (NULL: there is, or may be).
 */
void gm_engine_take_sample_in(struct gm_engine *engine, const struct gm_meter_sample *sample,
                              const char *why_none);
/* Why nothing is judged now though there is a meter; NULL: there is no reason. */
const char *gm_engine_why_unjudged(const struct gm_engine *engine);
/* Of programs whose turns have ended something is tried: it does not come for their next ones. That
 * costs less than to move it while they run. Once a run, before anything is decided. */
void gm_engine_prepare_trials(struct gm_engine *engine);
/* Before each plan: whether the link is to be free for a trial, so that nothing comes ahead. */
void gm_engine_keep_link(struct gm_engine *engine);
/* When what may come ahead is decided anew, as the link was kept free for a trial. */
uint64_t gm_engine_link_due(const struct gm_engine *engine);
/* At the end of each run: who runs, with what on the host, and whether anything is copied. */
void gm_engine_follow_check(struct gm_engine *engine);

#endif

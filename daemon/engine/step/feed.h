/* What the scheduler is told, and what it decided. */
#ifndef GM_DAEMON_ENGINE_STEP_FEED_H
#define GM_DAEMON_ENGINE_STEP_FEED_H

#include "daemon/engine/state/state.h"

/* The daemon is about to end: the first `n` of `set` are to run, whatever the scheduler says. The
 * memory stays the caller's. */
void gm_engine_decide(struct gm_engine *engine, uint32_t *set, uint32_t n);
/* Whether the app is to have its turn now. */
bool gm_engine_is_chosen(const struct gm_engine *engine, uint32_t app);
/* The user as whose it has its turns: with --fair programs, all are one user's. */
uint32_t gm_engine_user_of(const struct gm_engine *engine, uint32_t id);
/* Make the scheduler. 0, -ENOMEM or -EINVAL; its memory is freed with the tables. */
int gm_engine_open_sched(struct gm_engine *engine);
/* Tell the scheduler what happened. */
void gm_engine_feed(struct gm_engine *engine, enum gm_sched_event_kind kind, uint32_t app,
                    uint64_t bytes);
/* The app has come back: of a daemon before it had this level, and was charged so much there. */
void gm_engine_feed_return(struct gm_engine *engine, uint32_t app, uint32_t level,
                           uint64_t charged_ns);
/* The app is idle, and was for `ago_ns` already. */
void gm_engine_feed_idle(struct gm_engine *engine, uint32_t app, uint64_t ago_ns);
/* What holds for it and its group now; `is_evicted`: while they are paused, their memory is to
 * leave the GPU. */
void gm_engine_feed_policy(struct gm_engine *engine, uint32_t app,
                           const struct gm_sched_policy *policy, bool is_evicted);
/* The members of its group here are one unit from now on, if groups were united. False: they were.
 */
bool gm_engine_join_units(struct gm_engine *engine, uint32_t app);
/* It stands by until all of its group could have their turns, or does not. */
void gm_engine_tie(struct gm_engine *engine, uint32_t app, bool is_tied);
/* It has its turn, or could have it and is tied. */
bool gm_engine_is_ready(const struct gm_engine *engine, uint32_t app);
/* One of those that are one app to the scheduler wants its turn. */
bool gm_engine_unit_wants(const struct gm_engine *engine, const struct gm_app *app);
/* As the functions of core/sched.h: of the unit of the app; `ahead` names an app. */
bool gm_engine_account(const struct gm_engine *engine, uint32_t app,
                       struct gm_sched_account *account);
uint64_t gm_engine_expected(const struct gm_engine *engine, uint32_t app);
bool gm_engine_is_later(const struct gm_engine *engine, uint32_t a, uint32_t b);

#endif

/* What the scheduler is told, and what it decided. */
#ifndef GM_DAEMON_ENGINE_STEP_FEED_H
#define GM_DAEMON_ENGINE_STEP_FEED_H

#include "daemon/core/ledger_clients.h"
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
/* ... how much room the app needs. */
void gm_engine_feed_size(struct gm_engine *engine, uint32_t app);
/* The app has come back: of a daemon before it had this level, and was charged so much there. */
void gm_engine_feed_return(struct gm_engine *engine, uint32_t app, uint32_t level,
                           uint64_t charged_ns);
/* The app is idle, and was for `ago_ns` already. */
void gm_engine_feed_idle(struct gm_engine *engine, uint32_t app, uint64_t ago_ns);
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

/* ---- settings ---- */

/* Lay `over` over `under`. */
void gm_engine_overlay(struct gm_settings *under, const struct gm_settings *over);
/* What holds for an app. */
struct gm_settings gm_engine_settings_of(const struct gm_app *app);
bool gm_engine_says_pause(const struct gm_settings *settings);
bool gm_engine_says_until_call(const struct gm_settings *settings);
bool gm_engine_are_same_settings(const struct gm_settings *a, const struct gm_settings *b);
/* False: it has ended, or has yet to come back. */
bool gm_engine_can_be_set(const struct gm_app *app);

/* ---- who may say what ---- */

/* Whether an administrator's rule or setting keeps the program's user from saying so. */
bool gm_engine_forbids_oversize(const struct gm_settings *admin, const struct gm_settings *said);
/* Whether the app's own user may say so; if not, with a line in `why`. */
bool gm_engine_may_say(const struct gm_engine *engine, uint32_t app, const struct gm_settings *said,
                       char *why, size_t size);

/* ---- what is said ---- */

/* Its own user says so, and may. */
void gm_engine_set_own(struct gm_app *app, const struct gm_settings *said);
/* An administrator says so. */
void gm_engine_set_admin(struct gm_app *app, const struct gm_settings *said, uid_t asker);
/* Rules say so. Of the settings in `may` (enum gm_set_setting) that takes the place of what rules
 * said before, but not of what an administrator said. */
void gm_engine_set_ruled(struct gm_app *app, const struct gm_settings *said, uint32_t may);
/* The settings in `which` are no more in what its user said, */
void gm_engine_unset_own(struct gm_app *app, uint32_t which);
/* ... and in what rules and administrators did. */
void gm_engine_unset_admin(struct gm_app *app, uint32_t which);
/* It has called: a pause until then is over. */
void gm_engine_unset_called(struct gm_app *app);
/* What the daemon before knew of it. */
void gm_engine_set_again(struct gm_app *app, const struct gm_client_record *record);

/* Have the scheduler know what holds for the app. Returns that. */
struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t app);
/* How its group is paused: until its next call only if nobody of it is for longer. */
struct gm_settings gm_engine_common_pause(const struct gm_engine *engine, uint32_t app);
/* The class that holds for it. */
enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t app);

/* The one setter of app states; false when the event is not legal in the app's state. */
bool gm_engine_turn(struct gm_engine *engine, uint32_t app, enum gm_app_event event);

#endif

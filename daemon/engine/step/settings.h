/* What was said of programs, and what holds of that. */
#ifndef GM_DAEMON_ENGINE_STEP_SETTINGS_H
#define GM_DAEMON_ENGINE_STEP_SETTINGS_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

/* ---- settings ---- */

/* How good a class is: 0 is the best. */
unsigned gm_engine_class_rank(unsigned class);
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

#endif

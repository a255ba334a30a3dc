/* The settings that a program begins with. */
#ifndef GM_DAEMON_ENGINE_STEP_WISHES_H
#define GM_DAEMON_ENGINE_STEP_WISHES_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

/* A new app's policy, known to the scheduler: what rules say of it, and its own wishes. */
void gm_engine_first_policy(struct gm_engine *engine, uint32_t app, const struct gm_wishes *wishes);
/* What the daemon before knew of an app that has yet to come back; */
void gm_engine_keep_policy(struct gm_engine *engine, uint32_t app,
                           const struct gm_client_record *record);
/* ... and it is back: the scheduler is to know it. */
void gm_engine_policy_again(struct gm_engine *engine, uint32_t app);

#endif

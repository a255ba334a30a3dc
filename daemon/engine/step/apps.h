/* Apps from join to end. */
#ifndef GM_DAEMON_ENGINE_STEP_APPS_H
#define GM_DAEMON_ENGINE_STEP_APPS_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

/* ALLOC, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed. */
int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client);

/* Of the daemon before (core/model.h, LOST). It is awaited: 0; -ENOENT: the ledger has no such app,
 * or says that it is another user's. */
int gm_engine_await_app(struct gm_engine *engine, struct gm_client *client,
                        const struct gm_client_record *record);
/* Its client has a session again. It stays LOST. */
void gm_engine_connect_app(struct gm_engine *engine, uint32_t app);
/* ... and the scheduler and its group know it. */
void gm_engine_rejoin_app(struct gm_engine *engine, uint32_t app);
/* Its process has ended (`is_over`), or says that it is another program now: then host frames wait
 * for its end. Those that nobody awaits have ended. 0 or -ENOMEM: there are more. */
void gm_engine_give_up_app(struct gm_engine *engine, uint32_t app, bool is_over);
int gm_engine_give_up_rest(struct gm_engine *engine);

#endif

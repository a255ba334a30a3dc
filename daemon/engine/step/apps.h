/* Apps from join to end. */
#ifndef GM_DAEMON_ENGINE_STEP_APPS_H
#define GM_DAEMON_ENGINE_STEP_APPS_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

/* Whether the gate of `app`, which is whole, may open: all of its group are whole, or run. */
bool gm_group_may_open(const struct gm_engine *engine, uint32_t app);

/* The scheduler takes the turn of `app` back before it ran: those of its group have theirs
 * together, so all yield. Not if it gave its turn back itself, or if its group did. */
void gm_group_dropped(struct gm_engine *engine, uint32_t app);

/* The other GPU that its group waits for: nobody of it can run there now, or not all is there yet.
 * NULL: none. */
const struct gm_engine *gm_group_awaits(const struct gm_engine *engine, uint32_t app);

/* When its group gives its turns back, or takes them, though nothing happens. */
uint64_t gm_group_due(const struct gm_engine *engine, uint32_t app);

/* At the start of a step: groups that were united since the last one are one app to the scheduler.
 */
void gm_engine_gather_groups(struct gm_engine *engine);

/* Do for this engine's apps what the states of the others in their groups ask for. */
void gm_engine_follow_groups(struct gm_engine *engine);

/* What a lost program says that it has of this GPU, once it is checked. It holds until the app
 * returns, and nothing of the app changes before. */
struct gm_holdings;

/* Of several GPUs each looks at its own entries. 0, and the caller has *out; or -EPROTO (it cannot
 * be) or -ENOMEM, and one line in `why`. Nothing has changed in any case. */
int gm_engine_read_holds(const struct gm_engine *engine, uint32_t app,
                         const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                         struct gm_holdings **out, char *why, size_t why_size);
void gm_engine_free_holds(struct gm_holdings *has); /* NULL is none */
/* It has a session again (WELCOME is sent): what it has mapped becomes what the ledger says. When
 * it has, it is PAUSED or RUNNING. */
void gm_engine_app_returns(struct gm_engine *engine, uint32_t app, const struct gm_holdings *has);
/* It has unmapped or dropped some of what is not its own any more. */
void gm_engine_stray_done(struct gm_engine *engine, uint32_t app);

/* ALLOC, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app, bool has_hung_up);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed. -EAGAIN: room for it is being made. */
int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client);

/* Of the daemon before (core/model.h, LOST). It is awaited: 0; -ENOENT: the ledger has no such app,
 * or says that it is another user's. */
int gm_engine_await_app(struct gm_engine *engine, struct gm_client *client,
                        const struct gm_client_record *record);
/* Its process has ended (`is_over`), or says that it is another program now: then host frames wait
 * for its end. Those that nobody awaits have ended. 0 or -ENOMEM: there are more. */
void gm_engine_give_up_app(struct gm_engine *engine, uint32_t app, bool is_over);
int gm_engine_give_up_rest(struct gm_engine *engine);

#endif

/* What comes from outside: each event enters there. */
#ifndef GM_DAEMON_ENGINE_INLET_H
#define GM_DAEMON_ENGINE_INLET_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

struct gm_holdings;

/* For open.c. */
void gm_engine_on_copies(void *engine);
void gm_engine_on_grown(void *engine);
void gm_engine_on_hashes(void *engine);
void gm_engine_on_link(void *engine);
void gm_engine_on_host_copied(void *engine, uint32_t chunk, int error);
void gm_engine_on_alarm(void *engine);
/* For gm_client_await: the process of a client has ended. */
void gm_engine_on_exit(void *unused, struct gm_client *client);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed (-EEXIST: its id is in use here, by one that has not ended yet; -ESHUTDOWN:
 * the daemon is about to end). */
int gm_engine_join(struct gm_engine *engine, struct gm_client *client);
/* What WELCOME says of the GPU. */
void gm_engine_describe(struct gm_engine *engine, struct gm_gpu_entry *gpu);
/*
 * The daemon is about to end: serve nobody new, and bring as many programs as possible to where
 * they survive it (step/budget.c). `on_saved(arg)` is called once from the loop, or from within
 * this call, within GM_SAVING_NS; then all gates that may open are open, and the engine does
 * nothing any more. Called again it does nothing.
 */
void gm_engine_save(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg);
/* A decoded message from app `app`. May call outlet.send and outlet.end. */
void gm_engine_message(struct gm_engine *engine, uint32_t app,
                       const struct gm_wire_message *message);
/* The app has imported memory of the partner. */
void gm_engine_imported(struct gm_engine *engine, uint32_t app, struct gm_client *partner);
/* The session of `app` is gone (exit, crash, protocol error). `session` is not used any more. */
void gm_engine_leave(struct gm_engine *engine, uint32_t app, bool has_hung_up);
/* Options and rules have changed. What rules say of memory (oversize=, cap=, and what a user may
 * have) holds for programs that come from now on, all else at once. */
void gm_engine_tune(struct gm_engine *engine, const struct gm_engine_tuning *tuning);
/* Bring everything up to date, before a snapshot. */
void gm_engine_refresh(struct gm_engine *engine);
/* Give memory that no program needs back to the system, also what was needed lately, and move
 * paused programs off the GPU: all, if an administrator asks, or a user beside whom there is no
 * other; else that of the asker's programs and of users who have none. It goes after this call
 * returns. */
void gm_engine_trim(struct gm_engine *engine, uid_t asker, bool is_admin,
                    struct gm_trimmed *trimmed);
/*
 * Change what is said of programs, of all that are selected or of none. Returns 0 and *done; or
 * -ENOENT (there are none), -EPERM (the asker may not) or another -errno, with one line in `why`,
 * and then nothing is changed.
 */
int gm_engine_set(struct gm_engine *engine, const struct gm_set_request *request,
                  struct gm_set_done *done, char *why, size_t why_size);

/*
 * After an engine has taken a GPU over from a daemon before (adopt.c): the client of that record
 * has this GPU's memory, and has yet to come back. It has no session; its areas are mapped. 0; or
 * -ENOENT: the ledger has no such app, or was refused: the client cannot come back. And then: there
 * are no more, so what others have is given up. 0 or -ENOMEM: another start may do better.
 */
int gm_engine_await(struct gm_engine *engine, struct gm_client *client,
                    const struct gm_client_record *record);
int gm_engine_awaited(struct gm_engine *engine);
/*
 * It has come back, and has what it said (HOLDS), which each of its GPUs has read before WELCOME
 * (gm_engine_read_holds, step/apps.h): nothing can be wrong any more. Its client has a session,
 * to which WELCOME was sent, its epoch, `is_parked` and `again`; its state is QUIET, and its gate
 * is closed. The gate opens again from here.
 */
void gm_engine_return(struct gm_engine *engine, uint32_t app, const struct gm_holdings *has);
/* It does not come back: its process has ended (`is_over`), or says that it is another one now. */
void gm_engine_give_up(struct gm_engine *engine, uint32_t app, bool is_over);

#endif

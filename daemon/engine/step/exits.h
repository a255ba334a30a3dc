/* Processes that end. */
#ifndef GM_DAEMON_ENGINE_STEP_EXITS_H
#define GM_DAEMON_ENGINE_STEP_EXITS_H

#include "daemon/engine/state/state.h"

/* What the app has mapped waits for the end of its process, which its client hears of
 * (gm_client_await). Where the system gives no pidfds the end of the connection must do. */
void gm_engine_watch_exit(struct gm_engine *engine, uint32_t app);
void gm_engine_stop_watching(struct gm_app *app);
/* Its connection has ended. `has_hung_up`: nobody has that any more; `was_idle`: no work of it was
 * on the GPU then. */
void gm_engine_await_exit(struct gm_engine *engine, uint32_t app, bool has_hung_up, bool was_idle);
/* Its process has ended, or is taken to have: as far as can be known, nothing of it is on the GPU
 * any more. */
void gm_engine_exited(struct gm_engine *engine, uint32_t app);
/* ... and with it all that had copies of what it had open. */
void gm_engine_copies_ended(struct gm_engine *engine, uint32_t app);
/* It has not, and was waited for long enough, or says that it is another program now. */
void gm_engine_exit_late(struct gm_engine *engine, uint32_t app);

/* Its process has yet to end, or others have copies of what it had open. */
static inline bool gm_engine_is_left(const struct gm_app *app)
{
    return app->exit.is_awaited || (app->client && app->client->copies);
}

/* Whether its process may have the frame mapped: until it has said that it dropped that, or ended.
 */
static inline bool gm_engine_may_reach(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const struct gm_app *app = &engine->apps[id];
    return gm_table_has_import(engine->table, id, frame) &&
           (app->state != GM_APP_GONE || gm_engine_is_left(app));
}

/* ... and that may take for ever: it was waited for long enough, or only others that have copies of
 * what it had open are left. */
static inline bool gm_engine_is_left_for_good(const struct gm_app *app)
{
    return app->state == GM_APP_GONE && (app->exit.is_late || !app->exit.is_awaited);
}

/* Whether nothing of an app that is gone is on the GPU, surely: its process was seen to end, and
 * nobody has, or had then, copies of what it had open. Under MPS its work is the server's, and may
 * outlast it. */
bool gm_engine_is_over(const struct gm_engine *engine, uint32_t app);

/* An app but `but` that is gone, and whose process may have the frame mapped: it maps what it
 * shared or opened until it ends. GM_NONE: there is none. */
uint32_t gm_engine_leaving_with(const struct gm_engine *engine, uint32_t frame, uint32_t but);

#endif

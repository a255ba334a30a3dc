/* Messages of the shims: join, leave, ALLOC, FREE, WANT, DRAINED, DONE. */
#ifndef GM_DAEMON_ENGINE_APPS_H
#define GM_DAEMON_ENGINE_APPS_H

#include "daemon/engine/client.h"
#include "daemon/engine/state.h"

/* ALLOC, FREE, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_frees(struct gm_engine *engine, uint32_t app, const struct gm_msg_free *free_msg);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app);
/* Answer ALLOC of a pending allocation, once. On failure the allocation is taken back. */
void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t allocation, CUresult result);
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t app);
/* Commit what an ALLOC asks for. Else why it cannot be had now, and nothing has changed. */
enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t app,
                             const struct gm_msg_alloc *alloc);
void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t app, uint64_t cookie);
/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
void gm_engine_take_back(struct gm_engine *engine, uint32_t allocation);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* The process of a GONE app has ended, or is taken to have. */
void gm_engine_exited(struct gm_engine *engine, uint32_t app);
/* ... and with it all that had copies of what it had open. */
void gm_engine_copies_ended(struct gm_engine *engine, uint32_t app);
/* It has not, and was waited for long enough. */
void gm_engine_exit_late(struct gm_engine *engine, uint32_t app);
/* Its process has yet to end, or others have copies of what it had open. */
static inline bool gm_engine_is_left(const struct gm_app *app)
{
    return app->exit.poll || (app->client && app->client->copies);
}

/* Whether its process may have the frame mapped: until it has said that it dropped that, or ended.
 */
static inline bool gm_engine_may_reach(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const struct gm_app *app = &engine->apps[id];
    return gm_table_has_import(engine->table, id, frame) &&
           (app->state != GM_APP_GONE || gm_engine_is_left(app));
}

/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed (-EEXIST: its id is in use here, by one that has not ended yet; -ESHUTDOWN:
 * the daemon is about to end). */
int gm_engine_join(struct gm_engine *engine, struct gm_client *client);
/* What WELCOME says of the GPU. */
void gm_engine_describe(struct gm_engine *engine, struct gm_gpu_entry *gpu);

#endif

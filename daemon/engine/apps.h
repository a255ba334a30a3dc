/* Messages of the shims: join, leave, ALLOC, FREE, WANT, DRAINED, DONE. */
#ifndef GM_DAEMON_ENGINE_APPS_H
#define GM_DAEMON_ENGINE_APPS_H

#include "daemon/engine/state.h"

/* ALLOC, FREE, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_frees(struct gm_engine *engine, uint32_t app, const struct gm_msg_free *free_msg);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app);
/* Answer ALLOC of a pending allocation, once. On failure the allocation is taken back. */
void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t allocation, CUresult result);
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t app);
/* Those that were refused since. */
void gm_engine_answer_refused(struct gm_engine *engine);
/* Commit what an ALLOC asks for. Else why it cannot be had now, and nothing has changed. */
enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t app,
                             const struct gm_msg_alloc *alloc);
void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t app, uint64_t cookie);
/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
void gm_engine_take_back(struct gm_engine *engine, uint32_t allocation);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed. */
int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client);

#endif

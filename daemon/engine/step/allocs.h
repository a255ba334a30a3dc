/* Allocations: committed, answered, refused and freed. */
#ifndef GM_DAEMON_ENGINE_STEP_ALLOCS_H
#define GM_DAEMON_ENGINE_STEP_ALLOCS_H

#include "daemon/engine/state/state.h"

/* Answer ALLOC of a pending allocation, once. On failure the allocation is taken back. */
void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t allocation, CUresult result);
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t app);
/* Of an app that has come back and runs: what it does not have in place is of ALLOCs that come
 * again, and waits for them. */
void gm_engine_expect_again(struct gm_engine *engine, uint32_t app);
/* ALLOC of what the daemon before has committed: its answer is pending now. False: it is not. */
bool gm_engine_asked_again(struct gm_engine *engine, uint32_t app,
                           const struct gm_msg_alloc *alloc);
/* Those that were refused since. */
void gm_engine_answer_refused(struct gm_engine *engine);
/* Commit what an ALLOC asks for. Else why it cannot be had now, and nothing has changed. */
enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t app,
                             const struct gm_msg_alloc *alloc);
void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t app, uint64_t cookie);
/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
void gm_engine_take_back(struct gm_engine *engine, uint32_t allocation);
/* FREE. */
void gm_engine_frees(struct gm_engine *engine, uint32_t app, const struct gm_msg_free *free_msg);
/* `app` is gone: nothing is answered, and all that it has is freed. */
void gm_engine_free_allocations(struct gm_engine *engine, uint32_t app);

#endif

/* Allocations: committed, answered, refused and freed. */
#ifndef GM_DAEMON_ENGINE_STEP_ALLOCS_H
#define GM_DAEMON_ENGINE_STEP_ALLOCS_H

#include "daemon/engine/state/state.h"

/* An allocation that nobody waits for (GM_ALLOC_AHEAD): committed or refused, if need be when the
 * frames that it lacks are made (gm_engine_admit_made). */
void gm_engine_admit_ahead(struct gm_engine *engine, uint32_t app,
                           const struct gm_msg_alloc *alloc);
void gm_engine_admit_made(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
/* Those of `app` that are not there yet are refused. */
void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t app);

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
/* FREE. */
void gm_engine_frees(struct gm_engine *engine, uint32_t app, const struct gm_msg_free *free_msg);
/* `app` is gone: nothing is answered, and all that it has is freed. */
void gm_engine_free_allocations(struct gm_engine *engine, uint32_t app);

/* Take back as many spares of `app` as make `least` bytes, or all. Returns how many bytes. */
uint64_t gm_engine_take_spares(struct gm_engine *engine, uint32_t app, uint64_t least);
void gm_engine_take_all_spares(struct gm_engine *engine);
/* Take those back that were there when GM_SPARES_KEEP_NS ago somebody looked. */
void gm_engine_age_spares(struct gm_engine *engine, uint32_t app);
/* `asker` is about to have `bytes`: take back the spares that are in the way. */
void gm_engine_make_room(struct gm_engine *engine, uint32_t asker, uint64_t bytes);

/* Of an app that has come back: the daemon before was about to take these. */
void gm_engine_take_busy_spares(struct gm_engine *engine, uint32_t app);

#endif

/* Copies of chunks that are on the GPU. */
#ifndef GM_DAEMON_ENGINE_STEP_SHADOWS_H
#define GM_DAEMON_ENGINE_STEP_SHADOWS_H

#include "daemon/engine/state/state.h"

/* Whose programs: all, or those of one user. */
struct gm_scope {
    bool is_all;
    uid_t uid;
};

static inline bool gm_engine_is_in(const struct gm_engine *engine, uint32_t app,
                                   const struct gm_scope *scope)
{
    return scope->is_all || engine->apps[app].uid == scope->uid;
}

/* Whether there is a hasher, and the GPU has not refused it. */
static inline bool gm_engine_can_hash(const struct gm_engine *engine)
{
    return engine->hasher && !engine->is_hashing_off;
}

/* Pinned bytes that hold data, without shadows. */
uint64_t gm_engine_pinned_used(const struct gm_engine *engine);
/* Take pinned pages for `bytes`, of shadows if need be; GM_NONE: there are too few. */
uint32_t gm_engine_take_pinned(struct gm_engine *engine, uint64_t bytes);
/* Drop the shadow that is used last. False: there is none. */
bool gm_engine_yield_shadow(struct gm_engine *engine);
/* Bytes for which shadows are to have pages: those that are kept, and that are lost. */
uint64_t gm_engine_wanted_shadows(const struct gm_engine *engine);
/* Drop the shadows of an allocation or an app, or all. */
void gm_engine_drop_shadows(struct gm_engine *engine, uint32_t allocation);
void gm_engine_drop_shadows_of(struct gm_engine *engine, uint32_t app);
void gm_engine_drop_all_shadows(struct gm_engine *engine);
/* Pinned memory is not to grow by what is lost. */
void gm_engine_forget_lost(struct gm_engine *engine, const struct gm_scope *scope);
/* The chunk has settled on the GPU and its pages are of no other use: keep them, if they are of
 * this. */
void gm_engine_keep_shadow(struct gm_engine *engine, uint32_t chunk);
/* The app's gate opens: what it has on the GPU may change. */
void gm_engine_opened(struct gm_engine *engine, uint32_t app);

#endif

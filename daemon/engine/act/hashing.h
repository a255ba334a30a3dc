/* Has the GPU hash chunks. */
#ifndef GM_DAEMON_ENGINE_ACT_HASHING_H
#define GM_DAEMON_ENGINE_ACT_HASHING_H

#include "daemon/engine/state/state.h"

/* Whether there is a hasher, and the GPU has not refused it. */
static inline bool gm_engine_can_hash(const struct gm_engine *engine)
{
    return engine->hasher && !engine->is_hashing_off;
}

/* `on_hashes` is called when some have ended. */
void gm_engine_open_hasher(struct gm_engine *engine, void (*on_hashes)(void *engine));
/* Begin to hash the chunk, which its owner has unmapped. False: it cannot be now. */
bool gm_engine_hash(struct gm_engine *engine, uint32_t chunk);
/* The next hash that has ended; false: there is none. */
bool gm_engine_take_hash(struct gm_engine *engine, uint32_t *chunk, CUresult *result,
                         struct gm_hashed *hashed);

#endif

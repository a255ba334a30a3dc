/* Has the GPU hash chunks. */
#ifndef GM_DAEMON_ENGINE_ACT_HASHING_H
#define GM_DAEMON_ENGINE_ACT_HASHING_H

#include "daemon/engine/state/actions.h"

/* `on_hashes` is called when some have ended. */
void gm_engine_open_hasher(struct gm_engine *engine, void (*on_hashes)(void *engine));
/* For HASH. */
void gm_engine_begin_hash(struct gm_engine *engine, const struct gm_action *action);
/* Those that have ended and are not taken yet, in their order. Returns how many. */
uint32_t gm_engine_list_hashes(const struct gm_engine *engine,
                               struct gm_ended_hash ended[GM_HASH_DEPTH]);

#endif

/* Unchanged chunks are not copied out. */
#ifndef GM_DAEMON_ENGINE_STEP_HASHES_H
#define GM_DAEMON_ENGINE_STEP_HASHES_H

#include "daemon/engine/state/state.h"

/* The chunk is being evicted, its owner has unmapped it and it has pages: copy it out, if it has
 * changed. True: it has left, and nothing is copied. */
bool gm_engine_vacate(struct gm_engine *engine, uint32_t chunk);
/* Take the next hash that has ended: its chunk, and whether it has left. False: there is none. */
bool gm_engine_next_hash(struct gm_engine *engine, uint32_t *chunk, bool *has_left);

#endif

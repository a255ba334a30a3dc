/* Bringing chunks to their places on the host. */
#ifndef GM_DAEMON_ENGINE_STEP_ON_HOST_H
#define GM_DAEMON_ENGINE_STEP_ON_HOST_H

#include "daemon/engine/state/state.h"

/* Pinned pages for a chunk that leaves the GPU; GM_NONE: none now. */
uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk);
/* Each round: the next step of chunks that are to be mapped on the host, */
void gm_engine_map_on_host(struct gm_engine *engine);
/* ... and then the pinned memory that those lack which found none. */
void gm_engine_make_units(struct gm_engine *engine);

#endif

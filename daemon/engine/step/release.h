/* Frames and pages that a chunk lets go of. */
#ifndef GM_DAEMON_ENGINE_STEP_RELEASE_H
#define GM_DAEMON_ENGINE_STEP_RELEASE_H

#include "daemon/engine/state/state.h"

/* The chunk's pages are none of its own any more, nor its shadow. */
void gm_engine_free_pages(struct gm_engine *engine, uint32_t chunk);
/* The chunk's frame is nobody's any more; it is mapped nowhere, or its app is gone. */
void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t chunk);

/* An app that was lost has ended, or left: what only it may have mapped is nobody's. */
void gm_engine_end_awaiting(struct gm_engine *engine, uint32_t app);

#endif

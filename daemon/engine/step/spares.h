/* Freed memory that programs keep. */
#ifndef GM_DAEMON_ENGINE_STEP_SPARES_H
#define GM_DAEMON_ENGINE_STEP_SPARES_H

#include "daemon/engine/state/state.h"

/* Whether it can have any; and the allocation that a word of it says is one. GM_NONE: it says none.
 */
bool gm_engine_has_spares(const struct gm_engine *engine, uint32_t app);
uint32_t gm_engine_spare_of(const struct gm_engine *engine, uint32_t app, uint64_t word);
/* Bytes that `app` freed and keeps, as it says. */
uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t app);

#endif

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

/* The last of the client's GPUs answers for what none has, as all others have sent what they have
 * to unmap: whether another one is to do that, as it is behind this one or has an allocation there.
 */
bool gm_engine_is_of_another(const struct gm_engine *engine, uint32_t app, uint64_t va);

#endif

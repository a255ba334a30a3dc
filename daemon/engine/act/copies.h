/* Copies of the mover and of the stores, as they are posted. */
#ifndef GM_DAEMON_ENGINE_ACT_COPIES_H
#define GM_DAEMON_ENGINE_ACT_COPIES_H

#include "daemon/engine/state/actions.h"

/* For COPY, CLEAR and COPY_BELOW. */
void gm_engine_begin_copy(struct gm_engine *engine, struct gm_action *action);
void gm_engine_begin_clear(struct gm_engine *engine, const struct gm_action *action);
void gm_engine_begin_below(struct gm_engine *engine, const struct gm_action *action);
/* Those of the mover that have ended and are not taken yet, each way in its order. Returns how
 * many.
 */
uint32_t gm_engine_list_ended(const struct gm_engine *engine,
                              struct gm_ended ended[GM_WAYS * GM_WAY_DEPTH]);

#endif

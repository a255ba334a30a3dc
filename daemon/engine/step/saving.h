/* The end of the daemon: giving programs their memory back. */
#ifndef GM_DAEMON_ENGINE_STEP_SAVING_H
#define GM_DAEMON_ENGINE_STEP_SAVING_H

#include "daemon/engine/state/state.h"

/* What gm_engine_save does. */
void gm_engine_begin_saving(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg);
/* While the daemon is about to end: decide whose gates are to be open. */
void gm_engine_choose_saved(struct gm_engine *engine);
/* The daemon did not run for so long. */
void gm_engine_put_off_end(struct gm_engine *engine, uint64_t ns);
/* When it must be looked at again, whatever happens. */
uint64_t gm_engine_saving_due(const struct gm_engine *engine);

#endif

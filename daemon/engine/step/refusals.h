/* Refusals of memory, and why. */
#ifndef GM_DAEMON_ENGINE_STEP_REFUSALS_H
#define GM_DAEMON_ENGINE_STEP_REFUSALS_H

#include "daemon/engine/state/state.h"

/* An allocation of `app` is refused, for the reason that was decided on. */
void gm_engine_refused(struct gm_engine *engine, uint32_t app, uint64_t bytes, enum gm_why reason);
/* Put into the log what programs were refused, once a second each. */
void gm_engine_note_refusals(struct gm_engine *engine);
/* `app` leaves: what is not in the log yet. */
void gm_engine_note_last_refusal(struct gm_engine *engine, uint32_t app);
/* A client of a daemon before: what its program was refused until now, that has told. */
void gm_engine_skip_refusals(struct gm_client *client);
/* When gm_engine_note_refusals has something to do though nothing happens. */
uint64_t gm_engine_refusals_due(const struct gm_engine *engine);

#endif

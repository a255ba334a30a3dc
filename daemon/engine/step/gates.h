/* The gates of programs. */
#ifndef GM_DAEMON_ENGINE_STEP_GATES_H
#define GM_DAEMON_ENGINE_STEP_GATES_H

#include "daemon/engine/state/state.h"

/* Open the gate of an app that loads, and is whole. */
void gm_engine_open_gate(struct gm_engine *engine, uint32_t app);
/* Close the gate of a running app, and ask for its answer. */
void gm_engine_close_gate(struct gm_engine *engine, uint32_t app);
/* Of a daemon before, it has come back: it runs, and its work goes on; or its gate is closed. */
void gm_engine_run_on(struct gm_engine *engine, uint32_t app);
void gm_engine_rest(struct gm_engine *engine, uint32_t app);
/* The answer to CLOSE; NULL: none came in time. */
void gm_engine_drained(struct gm_engine *engine, uint32_t app,
                       const struct gm_msg_drained *drained);
/* Close the gates of running apps for exchanges, as places.c wants; the scheduler is not told. */
void gm_engine_hold_gates(struct gm_engine *engine);
/* It has answered CLOSE, or a batch. */
void gm_engine_heard(struct gm_engine *engine, uint32_t app);
/* It stood still: the time for its answers begins anew. */
void gm_engine_awaits_anew(struct gm_engine *engine, uint32_t app);
/* The scheduler wants the turn of an app that is held: it ends here. */
void gm_engine_release(struct gm_engine *engine, uint32_t app);

#endif

/* How long switches took. */
#ifndef GM_DAEMON_ENGINE_STEP_SWITCHES_H
#define GM_DAEMON_ENGINE_STEP_SWITCHES_H

#include "daemon/engine/state/state.h"

/* `app` was chosen: its switch begins. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t app);
/* A step begins, and ends: what has passed, and what is under way until the next. */
void gm_engine_pass(struct gm_engine *engine);
void gm_engine_look_under_way(struct gm_engine *engine);
/* Its gate opens: write down where the time went. */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t app);

#endif

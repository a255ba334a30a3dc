/* The time, and whether there is another round. */
#ifndef GM_DAEMON_ENGINE_STATE_ROUND_H
#define GM_DAEMON_ENGINE_STATE_ROUND_H

#include "daemon/engine/state/state.h"

/* An event has come, at this time. */
void gm_engine_set_time(struct gm_engine *engine, uint64_t now);
/* What a plan follows from has changed, but for what the table knows of by itself. */
void gm_engine_replan(struct gm_engine *engine);
/* A plan is made. */
void gm_engine_planned(struct gm_engine *engine);
/* The scheduler is asked. */
void gm_engine_decides(struct gm_engine *engine);
/* Go round once more. */
void gm_engine_again(struct gm_engine *engine);
/* Go round soon: something in another engine has changed. */
void gm_engine_call(struct gm_engine *engine);
/* Have an event of its own come at this time, if none comes before. */
void gm_engine_wake_at(struct gm_engine *engine, uint64_t at);
/* When its alarm is to go off, if that is another time than before; else 0. */
uint64_t gm_engine_take_wake(struct gm_engine *engine);
/* A part of the step took so long: it counts if scheduler or planner were asked in it. */
void gm_engine_count_deciding(struct gm_engine *engine, uint64_t ns);
/* ... since this was last asked; 0: nothing was decided. */
uint64_t gm_engine_take_deciding(struct gm_engine *engine);
/* A run begins: false, if one is under way, or none is to be any more. */
bool gm_engine_begin_run(struct gm_engine *engine);
void gm_engine_end_run(struct gm_engine *engine);
void gm_engine_begin_round(struct gm_engine *engine);
/* Decide and begin nothing any more. Who was to be saved and is not yet, is lost; `on_saved` is not
 * called. */
void gm_engine_halt(struct gm_engine *engine);

#endif

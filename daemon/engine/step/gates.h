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
/* The scheduler wants the turn of an app that is held: it ends here. */
void gm_engine_release(struct gm_engine *engine, uint32_t app);

/* Look which apps do something, and ask those running ones that seem not to. */
void gm_engine_sample(struct gm_engine *engine);
/* An app began to run, or was paused: its idleness is noticed in time although all were idle. */
void gm_engine_sample_soon(struct gm_engine *engine);
/* Its gate opens; for a turn of its own, or only after exchanges. */
void gm_engine_begin_work(struct gm_engine *engine, uint32_t app, bool is_turn);
/* It is new. */
void gm_engine_begin_idle(struct gm_engine *engine, uint32_t app);
/* It gave its turn back though it has work: it asks again in a while. */
void gm_engine_want_later(struct gm_engine *engine, uint32_t app);
/* Its group has it stand in line, or not any more. */
void gm_engine_stand_in_line(struct gm_engine *engine, uint32_t app, bool is_wanting);
/* A thread of it waits at the closed gate. */
void gm_engine_wants(struct gm_engine *engine, uint32_t app);
/* The answer to QUERY. */
void gm_engine_quiet(struct gm_engine *engine, uint32_t app, const struct gm_msg_quiet *quiet);
/* It has submitted something since it was last sampled, or does just now. */
bool gm_engine_has_called(const struct gm_app *app);
/* False: it was idle, and has made no call since: no work of it is on the GPU. */
bool gm_engine_may_have_work(const struct gm_engine *engine, uint32_t app);
/* It has work that waits for its turn, as far as can be seen. */
bool gm_engine_awaits_turn(const struct gm_app *app);
/* It wants nothing now, whatever it does. */
void gm_engine_rests(struct gm_engine *engine, uint32_t app);

/* Ask who stands still, if it is time to; what a look at the process of the app has found; and do
 * what follows from all answers. */
void gm_engine_find_stops(struct gm_engine *engine);
void gm_engine_found_stop(struct gm_engine *engine, uint32_t app, enum gm_why why);
void gm_engine_follow_stops(struct gm_engine *engine);
/* An answer of the app to this engine is overdue, or is not. */
void gm_engine_note_owing(struct gm_engine *engine, uint32_t app, bool is_owing);
uint64_t gm_engine_stops_due(const struct gm_engine *engine);
/* Of one that stands still: how, which process, and what it keeps on the GPU. */
struct gm_reason gm_engine_why_stopped(const struct gm_engine *engine, uint32_t app);
/* Of one that has not come back since the daemon was restarted: the same, and since when. */
struct gm_reason gm_engine_why_lost(const struct gm_engine *engine, uint32_t app);

#endif

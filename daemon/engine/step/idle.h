/* Which apps are idle. */
#ifndef GM_DAEMON_ENGINE_STEP_IDLE_H
#define GM_DAEMON_ENGINE_STEP_IDLE_H

#include "daemon/engine/state/state.h"

/* Look which apps do something, and ask those running ones that seem not to. */
void gm_engine_sample(struct gm_engine *engine);
/* An app began to run, or was paused: its idleness is noticed in time although all were idle. */
void gm_engine_sample_soon(struct gm_engine *engine);
/* It did something just now. */
void gm_engine_was_active(struct gm_engine *engine, uint32_t app);
/* Its gate opens; for a turn of its own, or only after exchanges. */
void gm_engine_begin_work(struct gm_engine *engine, uint32_t app, bool is_turn);
/* It is new. */
void gm_engine_begin_idle(struct gm_engine *engine, uint32_t app);
/* It gave its turn back though it has work: it asks again in a while. */
void gm_engine_want_later(struct gm_engine *engine, uint32_t app);
/* Its group has it stand in line, or not any more. */
void gm_engine_stand_in_line(struct gm_engine *engine, uint32_t app, bool is_wanting);
/* False: it was idle, and has made no call since: no work of it is on the GPU. */
bool gm_engine_may_have_work(const struct gm_engine *engine, uint32_t id);
/* A thread of it waits at the closed gate. */
void gm_engine_wants(struct gm_engine *engine, uint32_t app);
/* The answer to QUERY. */
void gm_engine_quiet(struct gm_engine *engine, uint32_t app, const struct gm_msg_quiet *quiet);
/* The calls of it that have returned, as it says. */
uint64_t gm_engine_calls(const struct gm_app *app);
/* It has work that waits for its turn, as far as can be seen. */
bool gm_engine_awaits_turn(const struct gm_app *app);
/* It wants nothing now, whatever it does. */
void gm_engine_rests(struct gm_engine *engine, uint32_t app);

#endif

/* When places of chunks are chosen, for programs that may not have all of their memory on the GPU.
 */
#ifndef GM_DAEMON_ENGINE_STEP_PLACES_H
#define GM_DAEMON_ENGINE_STEP_PLACES_H

#include "daemon/engine/state/state.h"

/* What an app touched in the window that has just ended, ascending by va. `is_whole`: nothing
 * else. What it needs may be another part of its memory now (gm_engine_fit). */
void gm_engine_uses(struct gm_engine *engine, uint32_t app, const struct gm_use *uses, uint32_t n,
                    bool is_whole);
/* Places for the chunks of a new allocation. */
void gm_engine_place_new(struct gm_engine *engine, uint32_t allocation);
/* What is to be on the GPU of the app, or on the host, has changed: its chunks get new places
 * before its next turn. And whether they have. */
void gm_engine_need_places(struct gm_engine *engine, uint32_t app);
bool gm_engine_has_places(const struct gm_engine *engine, uint32_t app);
/* The app is quiet or will soon be: its chunks are to get new places then. */
void gm_engine_begin_places(struct gm_app *app);
/* Whether anything of the app is to come from the host to the GPU, as its heat is now. Its gate is
 * closed for that as soon as may be. */
bool gm_engine_want_exchange(struct gm_engine *engine, uint32_t app);
/* The allocation ends: nothing waits for its places. */
void gm_engine_forget_newest(struct gm_engine *engine, uint32_t allocation);
/* Its gate may be closed for exchanges at once. */
void gm_engine_hold_at_once(struct gm_engine *engine, uint32_t app);
void gm_engine_want_places(struct gm_engine *engine, uint32_t app);
/* The app may have less on the GPU than it has: it has freed memory on the host, and another member
 * of its group has the room. It gets new places at once. */
void gm_engine_fit_places(struct gm_engine *engine, uint32_t app);
/* Whether the gate of an app that runs on is to be closed, so that its chunks can move. If none has
 * to, it wants no new places any more. */
bool gm_engine_is_to_hold(struct gm_engine *engine, uint32_t app);
/* Each round: new places for who is quiet. */
void gm_engine_place(struct gm_engine *engine);
/* Tell what of programs that run is read over the link, when that has changed. */
void gm_engine_note_places(struct gm_engine *engine);
/* Whether the gate of a loaded app waits for chunks that leave. */
bool gm_engine_is_placing(const struct gm_engine *engine, uint32_t app);
/* The app's gate opens, or it is paused: what has not got to its new place stays. `is_over`: its
 * turn is over. */
void gm_engine_end_placing(struct gm_engine *engine, uint32_t app, bool is_over);
/* When the gate of a loaded app opens in any case. */
uint64_t gm_engine_placing_due(const struct gm_engine *engine, uint32_t app);
/* An app whose gate was closed for exchanges did not drain. */
void gm_engine_hold_failed(struct gm_engine *engine, uint32_t app);
/* A program waits for host memory, and there is no more: who has more of it than its part takes
 * that back. */
void gm_engine_call_back(struct gm_engine *engine);

#endif

/* How much memory is made, kept and given back; the budget. */
#ifndef GM_DAEMON_ENGINE_STEP_MEMORY_H
#define GM_DAEMON_ENGINE_STEP_MEMORY_H

#include "daemon/engine/state/state.h"

/* Pinned memory has grown, or was refused, for this reason of the driver. */
void gm_engine_pinned_grew(struct gm_engine *engine, const char *error);

/* Have memory made as it is needed now; after any change of what is committed or of the budget. */
void gm_engine_want_memory(struct gm_engine *engine);
/* Give back what was not needed lately; and when there may be some without any event. */
void gm_engine_give_back(struct gm_engine *engine);
uint64_t gm_engine_give_back_at(const struct gm_engine *engine);
/* What was needed lately is kept no longer. */
void gm_engine_forget_frames(struct gm_engine *engine);
void gm_engine_forget_pinned(struct gm_engine *engine);
/* What the app needs to run, with what is fixed: a group is one. */
uint64_t gm_engine_needed_with(const struct gm_engine *engine, uint32_t app);
/* The scheduler and the planner go by it. */
void gm_engine_set_budget(struct gm_engine *engine, uint64_t bytes, enum gm_why why);
/* The budget has room for what the app needs, whatever the device has. */
void gm_engine_need_budget(struct gm_engine *engine, uint32_t app);
/* Other GPUs may have taken pinned memory, or given it back: plan and grow by what is left. */
void gm_engine_follow_host(struct gm_engine *engine);
/* The app is paused, and its memory is to leave the GPU. */
bool gm_engine_is_vacating(const struct gm_engine *engine, uint32_t app);

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

/* Pinned pages for a chunk that leaves the GPU; GM_NONE: none now. */
uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk);
/* Each round: the next step of chunks that are to be mapped on the host, */
void gm_engine_map_on_host(struct gm_engine *engine);
/* ... and then the pinned memory that those lack which found none. */
void gm_engine_make_units(struct gm_engine *engine);

#endif

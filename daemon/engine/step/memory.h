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
/* A program comes: what others have left may serve it, and to end that now would hold it up. */
void gm_engine_hold_frames(struct gm_engine *engine);
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

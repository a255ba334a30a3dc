/* How much memory is made, kept and given back; the budget. */
#ifndef GM_DAEMON_ENGINE_MEMORY_H
#define GM_DAEMON_ENGINE_MEMORY_H

#include "daemon/engine/state.h"

/* Pinned memory has grown, or was refused. */
void gm_engine_pinned_grew(struct gm_engine *engine);
/* What gm_engine_trim does. */
void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, struct gm_trimmed *trimmed);

/* Have memory made as it is needed now; after any change of what is committed or of the budget. */
void gm_engine_want_memory(struct gm_engine *engine);
/* Give back what was not needed lately; and when there may be some without any event. */
void gm_engine_give_back(struct gm_engine *engine);
uint64_t gm_engine_give_back_at(const struct gm_engine *engine);
/* The budget has room for what the app needs, whatever the device has. */
void gm_engine_need_budget(struct gm_engine *engine, uint32_t app);
/* Let the budget follow what the device has. `refused`: why no more frames can be made than there
 * are; NONE: they can. */
void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused);
/* The same for a frame that was refused in a move, when the moves are made: it frees spares, which
 * the plan still names. */
void gm_engine_follow_refusal(struct gm_engine *engine);
/* Other GPUs may have taken pinned memory, or given it back: plan and grow by what is left. */
void gm_engine_follow_host(struct gm_engine *engine);
/* ... if it is time to. */
void gm_engine_check_budget(struct gm_engine *engine);
/* The app is paused, and its memory is to leave the GPU. */
bool gm_engine_is_vacating(const struct gm_engine *engine, uint32_t app);
/* From now on the budget is all that the device has left, whatever the option says. */
void gm_engine_take_device(struct gm_engine *engine);
/* Whether memory that leaves has not reached the system yet. */
bool gm_engine_is_trimming(const struct gm_engine *engine);

#endif

/* Notes of decisions. */
#ifndef GM_DAEMON_ENGINE_STEP_LOG_H
#define GM_DAEMON_ENGINE_STEP_LOG_H

#include "daemon/engine/state/state.h"

/* `app` does not run any more: it yielded, or ended (`has_left`). */
void gm_engine_note_leaver(struct gm_engine *engine, uint32_t app, bool has_left);
/* `app` is about to run; `took`: if that is a switch, else NULL. */
void gm_engine_note_switch(struct gm_engine *engine, uint32_t app, const struct gm_switch *took);
/* `app` was refused memory, `n` times since the last note of that. */
void gm_engine_note_refusal(struct gm_engine *engine, uint32_t app, const struct gm_reason *refusal,
                            uint64_t n);
/* The app is new. */
void gm_engine_begin_notes(struct gm_engine *engine, uint32_t app);
/* Levels that changed by themselves. */
void gm_engine_note_levels(struct gm_engine *engine);
/* `by` changed what is said of `app`; its level now is no news. */
void gm_engine_note_set(struct gm_engine *engine, uint32_t app, uid_t by,
                        const struct gm_settings *said, const struct gm_sched_policy *policy);

/* `app` was chosen: its switch begins. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t app);
/* A step begins, and ends: what has passed, and what is under way until the next. */
void gm_engine_pass(struct gm_engine *engine);
void gm_engine_look_under_way(struct gm_engine *engine);
/* Its gate opens: write down where the time went. */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t app);

#endif

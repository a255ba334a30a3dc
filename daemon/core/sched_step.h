/* The scheduler: made, and stepped by events (sched.h). */
#ifndef GM_CORE_SCHED_STEP_H
#define GM_CORE_SCHED_STEP_H

#include "daemon/core/sched.h"

/* Bytes that gm_sched_init needs for `config`; 0 if the config is invalid. */
size_t gm_sched_size(const struct gm_sched_config *config);
/* Make a scheduler in `memory` (gm_sched_size bytes, 16-aligned, the caller's). NULL if invalid. */
struct gm_sched *gm_sched_init(void *memory, const struct gm_sched_config *config);

/*
 * One event at time `now` (nanoseconds, never decreasing; an earlier value counts as the latest
 * seen). Fills *decision. Returns 0, or a positive enum gm_sched_fault when the event is not legal
 * (an unknown app, a JOIN of a known one): then nothing changed and *decision repeats the last one.
 */
int gm_sched_step(struct gm_sched *sched, uint64_t now, const struct gm_sched_event *event,
                  struct gm_sched_decision *decision);
/* The same for new settings of `app`, all at once. */
int gm_sched_set(struct gm_sched *sched, uint64_t now, uint32_t app,
                 const struct gm_sched_policy *policy, struct gm_sched_decision *decision);

#endif

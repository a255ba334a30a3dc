/* The set, the timeline and wake_at. For daemon/core/sched_*.c only. */
#ifndef GM_CORE_SCHED_DECIDE_H
#define GM_CORE_SCHED_DECIDE_H

#include "daemon/core/sched_state.h"

/* Decide anew, from the state. */
void gm_sched_decide(struct gm_sched *s);

#endif

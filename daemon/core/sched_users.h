/* What the programs of each user ran together, and who goes behind others for it. For
 * daemon/core/sched_*.c only. */
#ifndef GM_CORE_SCHED_USERS_H
#define GM_CORE_SCHED_USERS_H

#include "daemon/core/sched_state.h"

/* Time passes, up to `now`. Before gm_sched_pass. */
void gm_sched_pass_users(struct gm_sched *s, uint64_t now);

/* Say who yields now. After gm_sched_settle. */
void gm_sched_settle_users(struct gm_sched *s);

/* When that changes by time alone; GM_TIME_NEVER: it does not. */
uint64_t gm_sched_users_at(const struct gm_sched *s);

#endif

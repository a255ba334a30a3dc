/* The lists in which apps stand. For daemon/core/sched_*.c only. */
#ifndef GM_CORE_SCHED_PLACES_H
#define GM_CORE_SCHED_PLACES_H

#include "daemon/core/sched_state.h"

/* An app's place changes by these only. */
uint32_t gm_sched_rank_of(const struct gm_sched *s, const struct gm_sched_app *a);
void gm_sched_remove(struct gm_sched *s, uint32_t id);
/* Put `id` into the list of `place` (and rank) right behind `after`; NIL: at its head. */
void gm_sched_insert(struct gm_sched *s, uint32_t id, enum gm_sched_place place, uint32_t rank,
                     uint32_t after);
/* ... where those that come enter it: at its tail; QUEUE goes by user first. */
void gm_sched_append(struct gm_sched *s, uint32_t id, enum gm_sched_place place, uint32_t rank);
/* Put it where it belongs by what it does and what is said of it; where it stands already it keeps
 * its place. */
void gm_sched_stand(struct gm_sched *s, uint32_t id);

#endif

/* What time does: charges, levels, shares, slices, boosts. For daemon/core/sched_*.c only. */
#ifndef GM_CORE_SCHED_LEVELS_H
#define GM_CORE_SCHED_LEVELS_H

#include "daemon/core/sched_state.h"

/* Run time after which it drops; GM_TIME_NEVER: it cannot. */
uint64_t gm_sched_allotment(const struct gm_sched *s, const struct gm_sched_app *a);
/* Let it drop, or rise while it is idle, by one level if it has to by `now`, up to which it is
 * charged. Counts nobody. */
bool gm_sched_drop(const struct gm_sched *s, struct gm_sched_app *a, uint64_t now);
bool gm_sched_rise(const struct gm_sched *s, struct gm_sched_app *a, uint64_t now);
/* Take the time since the last charge into its accounts, and to the level that follows from it. */
void gm_sched_charge(struct gm_sched *s, uint32_t id);
/* It was idle for the last `ns`, charged as run time: take that back. */
void gm_sched_take_back(const struct gm_sched *s, struct gm_sched_app *a, uint64_t ns);
/* It did not drain: what it owes of its share is limited from now on. */
void gm_sched_limit_debt(struct gm_sched_app *a);
/* It hardly used its turn: what is left of that is charged, too. */
void gm_sched_waste(struct gm_sched *s, uint32_t id);
/* Change what an app does, with its accounts. */
void gm_sched_turn_into(struct gm_sched *s, uint32_t id, bool is_open, bool is_wanting);
/* New settings, within their bounds. */
void gm_sched_apply_policy(struct gm_sched *s, uint32_t id, const struct gm_sched_policy *policy);
/* The length of its slice where it stands; as of the last gm_sched_settle. */
uint64_t gm_sched_slice(const struct gm_sched *s, const struct gm_sched_app *a);
/* Run time that is left of its slice. */
uint64_t gm_sched_left(const struct gm_sched *s, const struct gm_sched_app *a);
/* ... is not worth a switch. A boosted app has its slice whole. */
bool gm_sched_has_little(const struct gm_sched *s, const struct gm_sched_app *a);
/* It comes back from a rest: what it saved up by it, and whether it goes first for that. */
void gm_sched_come_back(const struct gm_sched *s, struct gm_sched_app *a);
/* It rests again: what it did not use up of that. */
void gm_sched_end_lead(const struct gm_sched *s, struct gm_sched_app *a);
/* Time passes: what who wants the GPU has of it. */
void gm_sched_pass(struct gm_sched *s, uint64_t now);
/* Its turn is over: what is left of its slice is added to its next one. */
void gm_sched_end_turn(const struct gm_sched *s, struct gm_sched_app *a);
/* It is left out, and has waited for so long that it goes first. */
bool gm_sched_needs_boost(const struct gm_sched *s, const struct gm_sched_app *a);
/* Everything that time alone brought about since the last step. */
void gm_sched_settle(struct gm_sched *s);
/* When time alone will bring about something of this kind again. */
uint64_t gm_sched_settle_at(const struct gm_sched *s);

#endif

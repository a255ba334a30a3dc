/* What is known of an app, and when it is expected: for who asks (sched.h). */
#ifndef GM_CORE_SCHED_ACCOUNT_H
#define GM_CORE_SCHED_ACCOUNT_H

#include "daemon/core/sched.h"

/* Whether `app` waits, is tied, and would be in the set if it were not. It stays ready until
 * somebody of a better rank comes, or takes the room of a turn before it. */
bool gm_sched_is_ready(const struct gm_sched *sched, uint32_t app);
/* What is known of `app` at `now`. Returns false for an unknown app. */
bool gm_sched_account(const struct gm_sched *sched, uint64_t now, uint32_t app,
                      struct gm_sched_account *account);

/*
 * When `app` is expected to use the GPU next. Who is in the set: `now`. Who waits: when its slice
 * will begin if everybody before it on the timeline uses up his. Who is idle: if it wanted the GPU
 * again and again, after as long as usual, even if that is over (it is overdue); when it is overdue
 * for long, after as long again; GM_TIME_NEVER if nothing is known (it is new, or has wanted it
 * once only) or it may not run. This is the order of next use, by which memory is moved; no turn
 * depends on it.
 */
uint64_t gm_sched_expect(const struct gm_sched *sched, uint64_t now, uint32_t app);
/* Whether `a` is expected later than `b` (both below max_apps). Of those of which nothing is known,
 * the one that has not wanted the GPU for longer counts as later; then the lower id. */
bool gm_sched_is_later(const struct gm_sched *sched, uint64_t now, uint32_t a, uint32_t b);

/*
 * The longest that an app which fits the budget, is not paused and has no limit on its share waits
 * from WANT to OPENED, with `n` apps of `users` users runnable or open at some time meanwhile
 * (itself included), whose drain takes no longer than drain_ns and whose memory is moved within
 * load_ns, none that does not drain, and none that is hurried. sched_step.c derives it.
 * GM_TIME_NEVER if that is beyond 64 bits.
 */
uint64_t gm_sched_bound(const struct gm_sched_config *config, uint32_t n, uint32_t users,
                        uint64_t drain_ns, uint64_t load_ns);

#endif

/* mux-ctl set. */
#ifndef GM_DAEMON_ENGINE_STEP_SET_H
#define GM_DAEMON_ENGINE_STEP_SET_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/feed.h"

/* Set whether a new client may have more memory than the budget, as rules and its wishes have it.
 */
void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client);

/* The rule from which it has a setting (enum gm_set_setting). False: from none. */
bool gm_engine_rule_of(const struct gm_engine *engine, uint32_t app, uint32_t setting, char *text,
                       size_t size);
/* The rule that bounds the GPU memory of all programs of its user. False: none does. */
bool gm_engine_total_rule_of(const struct gm_engine *engine, uint32_t app, char *text, size_t size);

/* It is paused by a setting, its own or that of another of its group. No group is walked for it. */
bool gm_engine_is_paused(const struct gm_engine *engine, uint32_t app);
/* enum gm_set_paused: how it and its group are paused. */
uint32_t gm_engine_pause_of(const struct gm_engine *engine, uint32_t app);
/* It is paused, and its memory is to leave the GPU as long as it is. */
bool gm_engine_is_evicted(const struct gm_engine *engine, uint32_t app);
/* Who was evicted until its next call, and calls, goes on. */
void gm_engine_follow_calls(struct gm_engine *engine);
/* Who paused it, as text ends: "alice", "the rule command=train* paused". Returns `text`. */
char *gm_engine_pauser(const struct gm_engine *engine, uint32_t app, char *text, size_t size);

/* A new app's policy, known to the scheduler: what rules say of it, and its own wishes. */
void gm_engine_first_policy(struct gm_engine *engine, uint32_t app, const struct gm_wishes *wishes);
/* What the daemon before knew of an app that has yet to come back; */
void gm_engine_keep_policy(struct gm_engine *engine, uint32_t app,
                           const struct gm_client_record *record);
/* ... and it is back: the scheduler is to know it. */
void gm_engine_policy_again(struct gm_engine *engine, uint32_t app);

/* What gm_engine_tune does. */
void gm_engine_take_tuning(struct gm_engine *engine, const struct gm_engine_tuning *tuning);

/* Put into the log what programs do without, each feature once; what that changes, change. */
void gm_engine_note_features(struct gm_engine *engine);

/* Whether this GPU and its host memory can have what is asked for: 0, or -errno with one line in
 * `why`. All GPUs are asked before one is changed. */
int gm_engine_check_set(struct gm_engine *engine, const struct gm_set_request *request, char *why,
                        size_t why_size);
/* What gm_engine_set does. */
int gm_engine_apply_set(struct gm_engine *engine, const struct gm_set_request *request,
                        struct gm_set_done *done, char *why, size_t why_size);
/* mux-ctl prefetch: its memory is to come ahead of its turn, though nobody expects that. */
bool gm_engine_is_asked_ahead(const struct gm_engine *engine, uint32_t app);

#endif

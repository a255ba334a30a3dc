/* Who is paused, by whom, and until when. */
#ifndef GM_DAEMON_ENGINE_STEP_PAUSES_H
#define GM_DAEMON_ENGINE_STEP_PAUSES_H

#include "daemon/engine/state/state.h"

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

#endif

/* What the scheduler is told of a group. */
#ifndef GM_DAEMON_ENGINE_STEP_POLICY_H
#define GM_DAEMON_ENGINE_STEP_POLICY_H

#include "daemon/engine/step/settings.h"

/* Have the scheduler know what holds for the app. Returns that. */
struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t app);
/* How its group is paused: until its next call only if nobody of it is for longer. */
struct gm_settings gm_engine_common_pause(const struct gm_engine *engine, uint32_t app);
/* The class that holds for it. */
enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t app);

#endif

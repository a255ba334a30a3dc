/* Allocations for which there is no room now. */
#ifndef GM_DAEMON_ENGINE_STEP_WAITING_H
#define GM_DAEMON_ENGINE_STEP_WAITING_H

#include "daemon/engine/state/state.h"

/* What an ALLOC asks for: have it, wait for it, or be refused. */
void gm_engine_admit(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
/* Retry the allocations that wait for room. */
void gm_engine_admit_waiting(struct gm_engine *engine);
/* Why an allocation of `app` waits, which does. */
enum gm_why gm_engine_waits_for(const struct gm_engine *engine, uint32_t app);
bool gm_engine_is_waiting_at(const struct gm_engine *engine, uint32_t app, uint64_t va);
/* `app` is gone. */
void gm_engine_forget_waiting(struct gm_engine *engine, uint32_t app);

#endif

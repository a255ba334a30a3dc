/* Apps from join to end. */
#ifndef GM_DAEMON_ENGINE_STEP_APPS_H
#define GM_DAEMON_ENGINE_STEP_APPS_H

#include "daemon/engine/state/state.h"

/* ALLOC, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);
/* The client (client.h) is an app of this engine from now on, with its own id. 0, or -errno and
 * nothing has changed. */
int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client);

#endif

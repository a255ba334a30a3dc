/* Opening and closing. */
#ifndef GM_DAEMON_ENGINE_OPEN_H
#define GM_DAEMON_ENGINE_OPEN_H

#include "daemon/engine/state/state.h"

/*
 * Open the GPU and make an engine on `loop`. Returns 0, or -errno with one line for a person in
 * `why` (no CUDA driver, no such GPU, a budget above the device, ...); then nothing is left behind.
 */
int gm_engine_open(struct gm_engine **engine, uv_loop_t *loop,
                   const struct gm_engine_config *config, char *why, size_t why_size);
/* Whether what its programs have can outlive the daemon, if there is a keeper: else nothing is put
 * there. */
bool gm_engine_can_outlive(const struct gm_engine *engine);
/* Stop everything and free it. Sessions must have left. The loop must still run once to close
 * handles. */
void gm_engine_close(struct gm_engine *engine);

#endif

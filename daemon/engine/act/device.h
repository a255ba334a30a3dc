/* What the engine asks the driver and the kernel, and has the answer at once. */
#ifndef GM_DAEMON_ENGINE_ACT_DEVICE_H
#define GM_DAEMON_ENGINE_ACT_DEVICE_H

#include "daemon/engine/state/state.h"

/* What the driver says is free on the GPU, and what there is. */
void gm_engine_ask_device(const struct gm_engine *engine, struct gm_device_room *room);
/* The driver's name of a result. */
const char *gm_engine_error_text(const struct gm_engine *engine, CUresult result);
/* Numbers that nobody can guess. False: there are none. */
bool gm_engine_draw_nonce(uint64_t nonce[2]);

#endif

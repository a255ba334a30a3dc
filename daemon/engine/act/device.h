/* What the engine asks the driver, the kernel and the service, and has the answer at once. */
#ifndef GM_DAEMON_ENGINE_ACT_DEVICE_H
#define GM_DAEMON_ENGINE_ACT_DEVICE_H

#include "daemon/engine/state/state.h"

/* What the driver says is free on the GPU, and what there is. False: it does not say. */
bool gm_engine_ask_device(const struct gm_engine *engine, uint64_t *free_bytes, uint64_t *total);
/* The driver's name of a result. */
const char *gm_engine_error_text(const struct gm_engine *engine, CUresult result);
/* Whether it can be seen that a process stands still; and whether that of the app does, and why. */
static inline bool gm_engine_sees_stops(const struct gm_engine *engine)
{
    return engine->config.outlet.stop_of != NULL;
}

enum gm_why gm_engine_ask_stop(const struct gm_engine *engine, uint32_t app);
/* Numbers that nobody can guess. False: there are none. */
bool gm_engine_draw_nonce(uint64_t nonce[2]);

/* Nanoseconds, to tell how long something took: what deciding takes is shown. */
uint64_t gm_engine_stopwatch(void);

#endif

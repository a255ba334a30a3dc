/* When to try again what failed. */
#ifndef GM_DAEMON_ENGINE_STATE_BACKOFF_H
#define GM_DAEMON_ENGINE_STATE_BACKOFF_H

#include "daemon/engine/state/state.h"

/* It failed: no more of that for a while. */
void gm_engine_back_off(struct gm_engine *engine, enum gm_retry retry);
void gm_engine_went_well(struct gm_engine *engine, enum gm_retry retry);
static inline bool gm_engine_is_off(const struct gm_engine *engine, enum gm_retry retry)
{
    return engine->retries[retry].at > engine->now;
}

/* True once: the time to try again has come. */
bool gm_engine_retry_comes(struct gm_engine *engine, enum gm_retry retry);
/* Memory of the app came nearer, or it waits for nothing. */
void gm_engine_progressed(struct gm_engine *engine, uint32_t app);
/* The same for the loading of an app. */
void gm_engine_back_off_app(struct gm_engine *engine, uint32_t app);
void gm_engine_app_went_well(struct gm_engine *engine, uint32_t app);
static inline bool gm_engine_is_app_off(const struct gm_engine *engine, uint32_t app)
{
    return engine->apps[app].retry.at > engine->now;
}

bool gm_engine_app_retry_comes(struct gm_engine *engine, uint32_t app);
void gm_engine_retry_at_once(struct gm_engine *engine, uint32_t app);

#endif

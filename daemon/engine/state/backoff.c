/*
 * What is left alone after it failed (core/backoff.h). Owns the back-offs of the engine and of
 * apps, and when memory of an app last came nearer. Called by the files whose work failed;
 * step.c sees when the time has come.
 */
#include "daemon/engine/state/backoff.h"

#include "daemon/engine/state/round.h"

void gm_engine_back_off(struct gm_engine *engine, enum gm_retry retry)
{
    gm_backoff_fail(&engine->retries[retry], engine->now);
    gm_engine_replan(engine);
}

void gm_engine_went_well(struct gm_engine *engine, enum gm_retry retry)
{
    gm_backoff_go_well(&engine->retries[retry], engine->now);
}

bool gm_engine_retry_comes(struct gm_engine *engine, enum gm_retry retry)
{
    return gm_backoff_come(&engine->retries[retry], engine->now);
}

void gm_engine_back_off_app(struct gm_engine *engine, uint32_t id)
{
    gm_backoff_fail(&engine->apps[id].retry, engine->now);
}

void gm_engine_app_went_well(struct gm_engine *engine, uint32_t id)
{
    gm_backoff_go_well(&engine->apps[id].retry, engine->now);
}

bool gm_engine_app_retry_comes(struct gm_engine *engine, uint32_t id)
{
    return gm_backoff_come(&engine->apps[id].retry, engine->now);
}

void gm_engine_retry_at_once(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].retry = (struct gm_backoff){0};
}

void gm_engine_progressed(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].progress_at = engine->now;
}

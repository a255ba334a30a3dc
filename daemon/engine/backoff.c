/*
 * When to try again what failed: one rule for all of it. After a failure it is left alone for
 * GM_RETRY_NS, twice as long after each further one, up to GM_RETRY_MOST_NS. What fails while it is
 * left alone had begun before, and does not count. Owns the back-offs of the engine and of apps,
 * and when memory of an app last came nearer. Called by the files whose work failed; deadlines.c
 * sees when the time has come.
 */
#include "daemon/engine/inside.h"

static void fail(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at > now)
        return;
    const uint64_t wait = backoff->wait == 0 ? GM_RETRY_NS : 2 * backoff->wait;
    backoff->wait = wait < GM_RETRY_MOST_NS ? wait : GM_RETRY_MOST_NS;
    backoff->at = now + backoff->wait;
}

static void go_well(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at <= now)
        backoff->wait = 0;
}

static bool come(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at == 0 || backoff->at > now)
        return false;
    backoff->at = 0;
    return true;
}

void gm_engine_back_off(struct gm_engine *engine, enum gm_retry retry)
{
    fail(&engine->retries[retry], engine->now);
    gm_engine_replan(engine);
}

void gm_engine_went_well(struct gm_engine *engine, enum gm_retry retry)
{
    go_well(&engine->retries[retry], engine->now);
}

bool gm_engine_retry_comes(struct gm_engine *engine, enum gm_retry retry)
{
    return come(&engine->retries[retry], engine->now);
}

void gm_engine_back_off_app(struct gm_engine *engine, uint32_t id)
{
    fail(&engine->apps[id].retry, engine->now);
}

void gm_engine_app_went_well(struct gm_engine *engine, uint32_t id)
{
    go_well(&engine->apps[id].retry, engine->now);
}

bool gm_engine_app_retry_comes(struct gm_engine *engine, uint32_t id)
{
    return come(&engine->apps[id].retry, engine->now);
}

void gm_engine_retry_at_once(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].retry = (struct gm_backoff){0};
}

void gm_engine_progressed(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].progress_at = engine->now;
}

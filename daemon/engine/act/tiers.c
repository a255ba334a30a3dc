/*
 * Makes memory below the GPU, and gives it back: workers do, and say when they have (inlet.c).
 */
#include "daemon/engine/act/tiers.h"

void gm_engine_make_pinned(struct gm_engine *engine, uint64_t bytes)
{
    gm_hostpool_want(&engine->pool, bytes);
}

void gm_engine_make_pinned_units(struct gm_engine *engine)
{
    gm_hostpool_make_units(&engine->pool);
}

void gm_engine_make_paged(struct gm_engine *engine, uint64_t bytes)
{
    gm_stores_want(engine->stores, bytes);
}

uint64_t gm_engine_trim_paged(struct gm_engine *engine)
{
    return gm_stores_trim(engine->stores);
}

/*
 * Makes memory below the GPU, and gives it back: workers do, and say when they have (inlet.c).
 */
#include "daemon/engine/act/tiers.h"

#include "daemon/engine/state/actions.h"

void gm_engine_make_wanted(struct gm_engine *engine)
{
    const struct gm_wants wants = gm_engine_take_wants(engine);
    if (wants.has_pinned)
        gm_hostpool_want(&engine->pool, wants.pinned);
    if (wants.has_units)
        gm_hostpool_make_units(&engine->pool);
    if (wants.has_paged)
        gm_stores_want(engine->stores, wants.paged);
}

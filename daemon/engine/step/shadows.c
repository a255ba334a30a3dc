/*
 * Clean chunks never move. A chunk that comes to the GPU keeps the pinned copy that it came from, a
 * *shadow*, as long as nobody wants those pages. When it is evicted and has not changed, its shadow
 * is its copy again and nothing moves. It has not changed if
 *
 *   its app's gate has not opened since, or
 *   the hash of its frame is that which was taken when the copy was made (memory/hash.h).
 *
 * Where the GPU does not hash (chunks.c), the first rule is left.
 *
 * Pages of shadows count as free (gm_engine_pinned_used): plans, needs, admission and what programs
 * are promised know nothing of them. Who takes pinned pages gets them here (gm_engine_take_pinned);
 * shadows make way. What is lost so is remembered until its chunk leaves the GPU, and pinned memory
 * grows by it, as far as it may. A shadow's next use is the eviction of its chunk. So the first to
 * go are those of apps that run or are about to, whose eviction is farthest away; then those of the
 * app whose turn comes next, and so on; and of an app the oldest.
 *
 * Called by chunks.c, and by those who take pinned memory; calls the table and the stores.
 */
#include "daemon/engine/step/shadows.h"

#include "daemon/engine/step/feed.h"

/* ---- pages ---- */

uint64_t gm_engine_pinned_used(const struct gm_engine *engine)
{
    return gm_stores_used(engine->stores, GM_TIER_PINNED) - engine->table->shadows;
}

static void drop_shadow(struct gm_engine *engine, uint32_t index)
{
    const uint8_t shadow = engine->table->chunks[index].shadow;
    if (shadow != GM_SHADOW_KEPT && shadow != GM_SHADOW_LOST)
        return;
    const uint32_t page = gm_table_leave_pages(engine->table, index);
    if (page != GM_NONE)
        gm_stores_free(engine->stores, GM_TIER_PINNED, page);
}

void gm_engine_drop_shadows(struct gm_engine *engine, uint32_t allocation)
{
    uint32_t index = engine->table->allocations[allocation].first;
    for (; index != GM_NONE; index = engine->table->chunks[index].sibling)
        drop_shadow(engine, index);
}

void gm_engine_drop_shadows_of(struct gm_engine *engine, uint32_t id)
{
    while (engine->table->apps[id].shadows.count > 0)
        drop_shadow(engine, engine->table->apps[id].shadows.tail);
}

void gm_engine_drop_all_shadows(struct gm_engine *engine)
{
    for (uint32_t id = 0; engine->table->shadows > 0 && id < engine->config.max_apps; id++)
        gm_engine_drop_shadows_of(engine, id);
}

void gm_engine_forget_lost(struct gm_engine *engine, const struct gm_scope *scope)
{
    for (uint32_t i = 0; engine->table->lost > 0 && i < engine->table->max_chunks; i++)
        if (engine->table->chunks[i].shadow == GM_SHADOW_LOST &&
            gm_engine_is_in(engine, engine->table->chunks[i].app, scope))
            drop_shadow(engine, i);
}

/* Whether the shadows of `id` are used later than those of `other`. */
static bool is_used_later(const struct gm_engine *engine, uint32_t id, uint32_t other)
{
    const bool is_paused = engine->apps[id].state == GM_APP_PAUSED;
    if (is_paused != (engine->apps[other].state == GM_APP_PAUSED))
        return !is_paused;
    return gm_engine_is_later(engine, other, id);
}

/* Drop the shadow that is used last. False: there is none. */
static bool drop_one(struct gm_engine *engine)
{
    uint32_t last = GM_NONE;
    if (engine->table->shadows == 0)
        return false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->table->apps[id].is_used && engine->table->apps[id].shadows.count > 0 &&
            (last == GM_NONE || is_used_later(engine, id, last)))
            last = id;
    if (last == GM_NONE)
        return false;
    const uint32_t page =
        gm_table_lose_shadow(engine->table, engine->table->apps[last].shadows.tail);
    if (page != GM_NONE)
        gm_stores_free(engine->stores, GM_TIER_PINNED, page);
    return page != GM_NONE;
}

uint32_t gm_engine_take_pinned(struct gm_engine *engine, uint64_t bytes)
{
    uint32_t page;
    do
        page = gm_stores_take(engine->stores, GM_TIER_PINNED, bytes);
    while (page == GM_NONE && drop_one(engine));
    return page;
}

bool gm_engine_yield_shadow(struct gm_engine *engine)
{
    return drop_one(engine);
}

uint64_t gm_engine_wanted_shadows(const struct gm_engine *engine)
{
    return engine->table->shadows + engine->table->lost;
}

/* ---- on the way in ---- */

void gm_engine_keep_shadow(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const struct gm_app *app = &engine->apps[chunk->app];
    const bool is_quiet = app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING;
    if (engine->stopping.is_on || (!gm_engine_can_hash(engine) && !is_quiet) || chunk->is_freed)
        return;
    /* Of an app that runs already it is not known. */
    gm_table_keep_shadow(engine->table, index, is_quiet ? app->gate.opens : app->gate.opens - 1);
}

void gm_engine_opened(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].gate.opens++;
    if (!gm_engine_can_hash(engine)) /* nobody can tell what it changes */
        gm_engine_drop_shadows_of(engine, id);
}

/*
 * Brings chunks to their places on the host. A chunk that is mapped there lies in a unit of pinned
 * memory, whose handle the program imports: its data stays where an eviction had put it. On its way
 * it takes these steps, each as soon as it can (gm_engine_map_on_host):
 *
 *   resident       the plan evicts it, into a unit if there is one
 *   never written  its unit is cleared before the program can see it
 *   elsewhere      in pages that are no unit, or in a lower tier: a worker copies it to one
 *   in a unit      it gets a host frame and is mapped
 *
 * From the host to the GPU it is unmapped (UNMAPPING), and the plan fills it like others. Called by
 * run.c and moves.c; calls hostpool.c, frames.c and places.c, which chooses.
 */
#include "daemon/engine/step/on_host.h"

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/tiers.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/shadows.h"

/* Whether a slab can be emptied is asked again after that. The look at 100,000 chunks is
 * bounded so to a part of the daemon's time, however often it is called. */
#define GM_EMPTY_AGAIN_NS (10 * GM_MS)

static uint32_t owner_of(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return (uint32_t)engine->apps[chunk->app].uid;
}

uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    uint32_t page = GM_NONE;
    if (chunk->is_on_host)
        page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    else if (chunk->class == GM_CHUNK_CLASSES - 1)
        page = gm_hostpool_take_idle(&engine->pool, owner_of(engine, chunk));
    return page != GM_NONE ? page : gm_engine_take_pinned(engine, gm_chunk_bytes(chunk));
}

/* Pinned memory cannot grow by such a chunk, nor will it soon. */
static bool is_at_cap(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return gm_hostpool_size(&engine->pool) + gm_chunk_bytes(chunk) >
               gm_hostpool_cap(&engine->pool) &&
           gm_hostpool_leaving(&engine->pool) == 0;
}

/* A unit for the chunk that leaves what evictions need; GM_NONE: not now. */
static uint32_t take_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint64_t cap = gm_hostpool_cap(&engine->pool), used = gm_engine_pinned_used(engine);
    const uint64_t kept = engine->plan_evicts > 0 ? engine->host->reserve : 0;
    const bool has_room = used + kept + gm_chunk_bytes(chunk) <= cap;
    uint32_t page = GM_NONE;
    do
        if (has_room)
            page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    while (has_room && page == GM_NONE && is_at_cap(engine, chunk) &&
           gm_engine_yield_shadow(engine));
    engine->is_short_of_units = engine->is_short_of_units || page == GM_NONE;
    engine->is_cut_up = engine->is_cut_up || (page == GM_NONE && has_room);
    engine->is_out_of_units =
        engine->is_out_of_units || (page == GM_NONE && (!has_room || is_at_cap(engine, chunk)));
    return page;
}

/* If the system gives no memory for it, an allocation that waits is refused; others try again. */
static void lack_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint32_t at = chunk->allocation;
    if (engine->pool.refusal == CUDA_SUCCESS)
        return;
    if (engine->stopping.is_on)
        gm_engine_back_off_app(engine, chunk->app);
    if (!engine->table->allocations[at].is_pending)
        return;
    gm_engine_refused(engine, chunk->app, engine->table->allocations[at].bytes, GM_WHY_HOST);
    gm_table_refuse(engine->table, at);
}

static void map_in_place(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = gm_engine_make_host_frame(engine, index);
    if (frame != GM_NONE && gm_table_map(engine->table, index, frame))
        gm_engine_map(engine, index);
}

/* The next step of a chunk that is to be mapped on the host. */
static void step(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const struct gm_app *app = &engine->apps[chunk->app];
    if (!gm_chunk_is_still(chunk))
        return;
    if (chunk->tier == GM_TIER_PINNED &&
        gm_hostpool_is_unit(&engine->pool, chunk->page, chunk->class)) {
        if (app->batches.unanswered_maps >= GM_MAPS_AT_ONCE)
            return;
        map_in_place(engine, index);
        return;
    }
    if (chunk->tier == GM_TIER_NONE && !gm_engine_has_room(engine, GM_WAY_IN))
        return;
    if (chunk->tier != GM_TIER_NONE &&
        gm_engine_copied_below(engine, chunk->tier, GM_TIER_PINNED) >= GM_BELOW_AT_ONCE)
        return;
    const uint32_t page = take_unit(engine, chunk);
    if (page == GM_NONE) {
        lack_unit(engine, chunk);
    } else if (chunk->tier != GM_TIER_NONE) {
        gm_engine_copy_below(engine, index, GM_TIER_PINNED, page);
    } else {
        gm_table_clear(engine->table, index, page);
        gm_engine_clear_pages(engine, index);
    }
}

/* It runs, and waits until it is quiet so that its new memory can be on the GPU. */
static bool waits_for_quiet(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    return app->places.is_wanted && app->places.is_urgent &&
           chunk->allocation == app->places.newest &&
           engine->table->allocations[chunk->allocation].is_pending;
}

/*
 * Pinned memory cannot grow, and what is free of it lies in slabs of which others use a part, so no
 * unit can be made. The data in the slab with least of it moves to what is free in the others.
 * While there is a free slab, it becomes units first: data would move to it, and then back.
 */
static void empty_slab(struct gm_engine *engine)
{
    struct gm_pages *pages = &engine->pool.pages;
    const uint32_t copies = engine->host_copies;
    const uint32_t slab = gm_hostpool_emptiest(&engine->pool);
    for (uint32_t i = 0; slab != GM_NONE && i < engine->table->max_chunks; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[i];
        if (chunk->state != GM_CHUNK_AWAY || chunk->is_freed || chunk->tier != GM_TIER_PINNED ||
            !gm_pages_touch(pages, chunk->page, slab))
            continue;
        const uint32_t page = gm_pages_take_beside(pages, gm_chunk_bytes(chunk), slab);
        if (page == GM_NONE)
            break;
        gm_engine_copy_below(engine, i, GM_TIER_PINNED, page);
    }
    /* It looks at all chunks: in vain not with each event. */
    engine->empty_at = engine->host_copies > copies ? 0 : engine->now + GM_EMPTY_AGAIN_NS;
}

void gm_engine_map_on_host(struct gm_engine *engine)
{
    engine->is_short_of_units = engine->is_out_of_units = engine->is_cut_up = false;
    gm_hostpool_forget_wants(&engine->pool);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        const bool is_saved = engine->stopping.is_on && engine->stopping.host == id;
        if ((app->state != GM_APP_LOADING && app->state != GM_APP_RUNNING && !is_saved) ||
            gm_engine_is_app_off(engine, id) || app->batches.ping != 0)
            continue;
        const struct gm_list *list = &engine->table->apps[id].to_map;
        for (uint32_t at = list->head, next; at != GM_NONE; at = next) {
            const struct gm_chunk *chunk = &engine->table->chunks[at];
            next = chunk->next;
            if (!waits_for_quiet(engine, chunk) &&
                !engine->table->allocations[chunk->allocation].is_refused)
                step(engine, at);
        }
    }
}

void gm_engine_make_units(struct gm_engine *engine)
{
    if (engine->is_short_of_units != engine->short_told)
        gm_engine_want_memory(engine);
    if (engine->is_out_of_units && !engine->out_told) {
        gm_engine_call_back(engine);
        gm_engine_replan(engine);
        gm_engine_again(engine);
    }
    if (engine->is_out_of_units && engine->is_cut_up && engine->host_copies == 0 &&
        engine->pool.pages.free_slabs == 0 && engine->now >= engine->empty_at)
        empty_slab(engine);
    engine->short_told = engine->is_short_of_units;
    engine->out_told = engine->is_out_of_units;
    gm_engine_make_pinned_units(engine);
}

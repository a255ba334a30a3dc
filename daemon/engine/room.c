/*
 * What programs can still allocate. Writes it to each ctl page, from which cuMemGetInfo and NVML
 * take it (shim/memory/budget.c). Owns gm_ctl.room and changes nothing else. Called by engine.c,
 * apps.c, refusals.c, waiting.c and views/status.c.
 */
#include "daemon/engine/inside.h"

#include "common/sums.h"
#include "daemon/memory/files.h"

/* What of `room` in the budget can be had. `left`: what all tiers can still hold. By option a
 * program waits for memory, so only the budget bounds it. */
static uint64_t can_have(const struct gm_engine *engine, uint64_t room, uint64_t left)
{
    return room < left || engine->config.is_waiting_when_full ? room : left;
}

uint64_t gm_engine_left(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const uint64_t taken = table->committed + gm_engine_orphaned(engine);
    const uint64_t capacity = gm_engine_capacity(engine);
    return taken < capacity ? capacity - taken : 0;
}

/* What of other apps keeps its files whoever runs, at most: shared memory, and host memory. */
static uint64_t files_of_others(const struct gm_engine *engine, uint32_t id)
{
    uint64_t files = gm_engine_orphaned(engine) >> GM_CHUNK_SHIFT;
    for (uint32_t other = 0; other < engine->config.max_apps; other++) {
        const struct gm_table_app *app = &engine->table->apps[other];
        if (app->is_used && (id == GM_NONE || !gm_group_is_one(engine, id, other)))
            files += gm_least(app->chunks, (app->fixed + app->on_host) >> GM_CHUNK_SHIFT);
    }
    return files;
}

/* Chunks of the programs that run together with it, on all their GPUs. */
static uint64_t files_of_group(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    uint64_t files = 0;
    for (; client; client = client->next)
        for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
            files += client->engines[i] ? client->engines[i]->table->apps[client->id].chunks : 0;
    return files;
}

uint64_t gm_engine_files_for(const struct gm_engine *engine, uint32_t id, bool is_alone)
{
    const uint32_t all = gm_files_for_frames();
    if (all == UINT32_MAX)
        return UINT32_MAX;
    const uint64_t own = id == GM_NONE ? 0 : files_of_group(engine, id);
    return gm_less(all, own + (is_alone ? 0 : files_of_others(engine, id)));
}

uint64_t gm_engine_total(const struct gm_engine *engine, bool is_oversize)
{
    return gm_engine_offered(engine) + (is_oversize ? gm_engine_host_room(engine) : 0);
}

uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize)
{
    const uint64_t budget = gm_engine_offered(engine), fixed = engine->table->fixed;
    uint64_t left = gm_engine_left(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        left += gm_engine_spare_bytes(engine, id);
    uint64_t room = budget > fixed ? budget - fixed : 0;
    const uint64_t on_host = gm_engine_host_room(engine), beyond = engine->table->beyond;
    if (is_oversize && on_host > beyond)
        room += on_host - beyond;
    room = gm_least(room, gm_engine_files_for(engine, GM_NONE, false) * GM_CHUNK_MAX);
    return can_have(engine, room, left);
}

void gm_engine_tell_room(struct gm_engine *engine)
{
    const uint64_t left = gm_engine_left(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_ctl *ctl = engine->apps[id].ctl;
        if (ctl)
            __atomic_store_n(&ctl->room[engine->config.index],
                             can_have(engine, gm_engine_room_for(engine, id), left),
                             __ATOMIC_RELAXED);
    }
}

/*
 * Spares: what programs freed and keep mapped for their next allocation of that size
 * (shim/memory/spares.h). A program lists its spares in shared memory (gm_stat.spares), so that a
 * free and the allocation after it cost no message. A word is believed only if it names an
 * allocation of that program. reclaim.c takes them back.
 */
#include "daemon/engine/step/spares.h"

#include "common/sums.h"

/* The allocation that a word says is a spare. GM_NONE: it says none. */
uint32_t gm_engine_spare_of(const struct gm_engine *engine, uint32_t id, uint64_t word)
{
    if (word == 0 || (word & GM_SPARE_BUSY) != 0)
        return GM_NONE;
    const uint32_t index = gm_table_find_allocation(engine->table, id, word & ~(GM_CHUNK_MIN - 1));
    return index != GM_NONE && !engine->table->allocations[index].is_pending ? index : GM_NONE;
}

bool gm_engine_has_spares(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].session && engine->apps[id].stat;
}

uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t committed = engine->table->apps[id].committed;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < GM_SPARES_MAX && gm_engine_has_spares(engine, id); i++) {
        const uint32_t index =
            gm_engine_spare_of(engine, id, atomic_load(&engine->apps[id].stat->spares[i]));
        bytes += index != GM_NONE ? engine->table->allocations[index].bytes : 0;
    }
    return bytes < committed ? bytes : committed; /* it may name one of them twice */
}

/* Freed or not: of one that is, the program hears when nothing of it is left. */
bool gm_engine_is_of_another(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    const struct gm_client *client = engine->apps[id].client;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        if (client->engines[i] && client->engines[i] != engine &&
            (i > engine->config.index || gm_table_has_any(client->engines[i]->table, id, va)))
            return true;
    return false;
}

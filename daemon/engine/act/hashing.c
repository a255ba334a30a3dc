/*
 * Has the GPU hash chunks, and takes over what came of it. Owns the hashes under way. Called by
 * chunks.c; calls the hasher.
 */
#include "daemon/engine/act/hashing.h"

#include "daemon/engine/act/device.h"
#include "daemon/engine/state/events.h"

static void count_hash(struct gm_engine *engine, uint32_t index, bool is_more)
{
    const uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[index]);
    engine->hashing.copies += is_more ? 1 : -1u;
    engine->hashing.bytes += is_more ? bytes : -bytes;
}

bool gm_engine_hash(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (!gm_engine_can_hash(engine) || gm_hasher_room(engine->hasher) == 0)
        return false;
    const uint64_t number = gm_hasher_submit(
        engine->hasher, engine->frames.handles[chunk->frame].va, gm_chunk_bytes(chunk));
    engine->hash_ring[number % GM_HASH_DEPTH] = index;
    count_hash(engine, index, true);
    gm_table_begin_copy(engine->table, index);
    return true;
}

/* The GPU has refused a hash: chunks are copied without from now on. */
static void give_up_hashing(struct gm_engine *engine, CUresult result)
{
    if (!engine->is_hashing_off)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_HASH_OFF,
                                          .app = GM_NONE,
                                          .hash_off = {.why = gm_engine_error_text(engine, result),
                                                       .was_on = true}});
    engine->is_hashing_off = true;
}

bool gm_engine_take_hash(struct gm_engine *engine, uint32_t *chunk, CUresult *result,
                         struct gm_hashed *hashed)
{
    if (engine->hashes_taken >= gm_hasher_done(engine->hasher))
        return false;
    const uint64_t number = ++engine->hashes_taken;
    *result = gm_hasher_result(engine->hasher, number, hashed);
    *chunk = engine->hash_ring[number % GM_HASH_DEPTH];
    count_hash(engine, *chunk, false);
    gm_table_end_copy(engine->table, *chunk, false);
    if (*result != CUDA_SUCCESS && !engine->table->chunks[*chunk].is_freed)
        give_up_hashing(engine, *result);
    return true;
}

void gm_engine_open_hasher(struct gm_engine *engine, void (*on_hashes)(void *engine))
{
    char why[256];
    if (gm_hasher_open(&engine->hasher, engine->loop, &engine->cuda, engine->context, on_hashes,
                       engine, why, sizeof why) == 0)
        return;
    engine->hasher = NULL;
    gm_engine_emit(
        engine, &(struct gm_event){.kind = GM_EVENT_HASH_OFF, .app = GM_NONE, .hash_off.why = why});
}

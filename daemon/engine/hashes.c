/*
 * Chunks on their way out of the GPU: each is hashed before it is copied, as soon as its owner has
 * unmapped it, and the hash stays with the copy, in whatever tier. One that is what its shadow is
 * moves nothing (shadows.c). One that is all zero leaves no copy: it is as one that was never
 * written.
 *
 * Owns the hashes under way. Called by chunks.c; calls the table, release.c, copies.c and the
 * hasher.
 */
#include "daemon/engine/hashes.h"

#include <string.h>

#include "daemon/engine/copies.h"
#include "daemon/engine/events.h"
#include "daemon/engine/release.h"
#include "daemon/engine/shadows.h"

/* These leave the frame; the first two copy nothing, so the chunk has left. */

static void leave_clean(struct gm_engine *engine, uint32_t index)
{
    engine->sums.clean += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_table_leave_frame(engine->table, index, 0);
}

/* Its frame needs no clearing, either. */
static void leave_zero(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = engine->table->chunks[index].frame;
    engine->sums.zero += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_table_leave_frame(engine->table, index, 0);
    gm_table_clean_frame(engine->table, frame, 0);
    gm_engine_free_pages(engine, index);
}

/* `hash`: of what is copied; NULL: not known. */
static void leave_copied(struct gm_engine *engine, uint32_t index, const uint64_t *hash)
{
    gm_table_set_hash(engine->table, index, hash);
    gm_engine_copy_out(engine, index);
}

static void count_hash(struct gm_engine *engine, uint32_t index, bool is_more)
{
    const uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[index]);
    engine->hashing.copies += is_more ? 1 : -1u;
    engine->hashing.bytes += is_more ? bytes : -bytes;
}

bool gm_engine_vacate(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->shadow == GM_SHADOW_CLAIMED && chunk->opens == engine->apps[chunk->app].gate.opens) {
        leave_clean(engine, index);
        return true;
    }
    if (!gm_engine_can_hash(engine) || gm_hasher_room(engine->hasher) == 0) {
        leave_copied(engine, index, NULL);
        return false;
    }
    const uint64_t number = gm_hasher_submit(
        engine->hasher, engine->frames.handles[chunk->frame].va, gm_chunk_bytes(chunk));
    engine->hash_ring[number % GM_HASH_DEPTH] = index;
    count_hash(engine, index, true);
    gm_table_begin_copy(engine->table, index);
    return false;
}

/* The GPU has refused a hash: chunks are copied without from now on. */
static void give_up_hashing(struct gm_engine *engine, CUresult result)
{
    if (!engine->is_hashing_off)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_HASH_OFF,
                                          .app = GM_NONE,
                                          .hash_off = {.why = gm_cuda_text(&engine->cuda, result),
                                                       .was_on = true}});
    engine->is_hashing_off = true;
}

/* Whether the chunk has left. */
static bool take_hash(struct gm_engine *engine, uint32_t index, CUresult result,
                      const struct gm_hashed *hashed)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const bool is_known = chunk->has_hash && chunk->shadow == GM_SHADOW_CLAIMED;

    count_hash(engine, index, false);
    gm_table_end_copy(engine->table, index, false);
    if (chunk->is_freed) { /* nobody needs the data */
        gm_engine_give_up_frame(engine, index);
        return true;
    }
    if (result != CUDA_SUCCESS) {
        give_up_hashing(engine, result);
        leave_copied(engine, index, NULL);
        return false;
    }
    if (hashed->is_zero) {
        leave_zero(engine, index);
        return true;
    }
    if (is_known && memcmp(chunk->hash, hashed->hash, sizeof chunk->hash) == 0) {
        leave_clean(engine, index);
        return true;
    }
    leave_copied(engine, index, hashed->hash);
    return false;
}

bool gm_engine_next_hash(struct gm_engine *engine, uint32_t *chunk, bool *has_left)
{
    if (engine->hashes_taken >= gm_hasher_done(engine->hasher))
        return false;
    struct gm_hashed hashed;
    const uint64_t number = ++engine->hashes_taken;
    const CUresult result = gm_hasher_result(engine->hasher, number, &hashed);
    *chunk = engine->hash_ring[number % GM_HASH_DEPTH];
    *has_left = take_hash(engine, *chunk, result, &hashed);
    return true;
}

/* ---- opening and closing ---- */

void gm_engine_open_hasher(struct gm_engine *engine, void (*on_hashes)(void *engine))
{
    char why[256];
    if (!engine->config.has_shadows)
        return;
    if (gm_hasher_open(&engine->hasher, engine->loop, &engine->cuda, engine->context, on_hashes,
                       engine, why, sizeof why) == 0)
        return;
    engine->hasher = NULL;
    gm_engine_emit(
        engine, &(struct gm_event){.kind = GM_EVENT_HASH_OFF, .app = GM_NONE, .hash_off.why = why});
}

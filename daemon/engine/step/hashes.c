/*
 * Chunks on their way out of the GPU: each is hashed before it is copied, as soon as its owner has
 * unmapped it, and the hash stays with the copy, in whatever tier. One that is what its shadow is
 * moves nothing (shadows.c). One that is all zero leaves no copy: it is as one that was never
 * written.
 *
 * Called by chunks.c; calls the table, release.c, copies.c and hashing.c.
 */
#include "daemon/engine/step/hashes.h"

#include <string.h>

#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/hashing.h"
#include "daemon/engine/step/release.h"

/* These leave the frame; the first two copy nothing, so the chunk has left. */

static void leave_clean(struct gm_engine *engine, uint32_t index)
{
    engine->sums.clean += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_engine_leave_frame(engine, index, 0);
}

/* Its frame needs no clearing, either, unless it is kept from others as a lost program may have it
 * mapped. Its pages go first: whoever looks finds it there or nowhere. */
static void leave_zero(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = engine->table->chunks[index].frame;
    engine->sums.zero += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_engine_free_pages(engine, index);
    gm_engine_leave_frame(engine, index, 0);
    if (engine->table->frames[frame].state == GM_FRAME_FREE)
        gm_table_clean_frame(engine->table, frame, 0);
}

/* `hash`: of what is copied; NULL: not known. */
static void leave_copied(struct gm_engine *engine, uint32_t index, const uint64_t *hash)
{
    gm_table_set_hash(engine->table, index, hash);
    gm_engine_copy_out(engine, index);
}

bool gm_engine_vacate(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->shadow == GM_SHADOW_CLAIMED && chunk->opens == engine->apps[chunk->app].gate.opens) {
        leave_clean(engine, index);
        return true;
    }
    if (!gm_engine_hash(engine, index))
        leave_copied(engine, index, NULL);
    return false;
}

/* Whether the chunk has left. */
static bool take_hash(struct gm_engine *engine, uint32_t index, CUresult result,
                      const struct gm_hashed *hashed)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const bool is_known = chunk->has_hash && chunk->shadow == GM_SHADOW_CLAIMED;

    if (chunk->is_freed) { /* nobody needs the data */
        gm_engine_give_up_frame(engine, index);
        return true;
    }
    if (result != CUDA_SUCCESS) {
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
    struct gm_hashed hashed;
    CUresult result;
    if (!gm_engine_take_hash(engine, chunk, &result, &hashed))
        return false;
    *has_left = take_hash(engine, *chunk, result, &hashed);
    return true;
}

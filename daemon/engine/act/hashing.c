/*
 * Has the GPU hash chunks. Called by act.c, inlet.c and open.c; calls the hasher.
 */
#include "daemon/engine/act/hashing.h"

#include <assert.h>

#include "daemon/engine/act/device.h"
#include "daemon/engine/state/events.h"

void gm_engine_begin_hash(struct gm_engine *engine, const struct gm_action *action)
{
    const CUdeviceptr at = gm_frames_reach(&engine->frames, action->hash.frame, action->hash.bytes);
    const uint64_t number = gm_hasher_submit(engine->hasher, at, action->hash.bytes);
    assert(number == action->hash.number);
    (void)number;
}

uint32_t gm_engine_list_hashes(const struct gm_engine *engine,
                               struct gm_ended_hash ended[GM_HASH_DEPTH])
{
    const uint64_t done = gm_hasher_done(engine->hasher);
    uint32_t n = 0;
    for (uint64_t number = engine->hashes_taken + 1; number <= done; number++) {
        struct gm_ended_hash *hash = &ended[n++];
        hash->result = gm_hasher_result(engine->hasher, number, &hash->hashed);
        hash->error = hash->result ? gm_engine_error_text(engine, hash->result) : NULL;
    }
    return n;
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

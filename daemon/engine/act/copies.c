/*
 * Hands copies to the mover and to the stores' workers. Called by act.c and inlet.c.
 */
#include "daemon/engine/act/copies.h"

#include <assert.h>

#include "daemon/engine/act/device.h"

void gm_engine_begin_copy(struct gm_engine *engine, struct gm_action *action)
{
    const CUdeviceptr at = gm_frames_reach(&engine->frames, action->copy.frame, action->copy.bytes);
    const uint64_t number =
        gm_mover_submit(engine->mover, action->copy.way, at, &engine->pool, action->copy.page,
                        action->copy.bytes, action->copy.fence);
    assert(number == action->copy.number);
    action->copy.is_refused =
        gm_mover_result(engine->mover, action->copy.way, number) != CUDA_SUCCESS;
}

void gm_engine_begin_clear(struct gm_engine *engine, const struct gm_action *action)
{
    const CUdeviceptr at =
        action->copy.frame != GM_NONE
            ? gm_frames_reach(&engine->frames, action->copy.frame, action->copy.bytes)
            : (CUdeviceptr)(uintptr_t)gm_hostpool_memory(&engine->pool, action->copy.page);
    const uint64_t number =
        gm_mover_clear(engine->mover, at, action->copy.bytes, action->copy.fence);
    assert(number == action->copy.number);
    (void)number;
}

void gm_engine_begin_below(struct gm_engine *engine, const struct gm_action *action)
{
    gm_stores_copy(engine->stores, action->below.chunk, action->below.from, action->below.page,
                   action->below.to, action->below.to_page, action->below.bytes);
}

uint32_t gm_engine_list_ended(const struct gm_engine *engine,
                              struct gm_ended ended[GM_WAYS * GM_WAY_DEPTH])
{
    uint32_t n = 0;
    for (unsigned way = 0; way < GM_WAYS; way++) {
        const uint64_t done = gm_mover_done(engine->mover, (enum gm_way)way);
        for (uint64_t number = engine->taken[way] + 1; number <= done; number++) {
            const CUresult result = gm_mover_result(engine->mover, (enum gm_way)way, number);
            ended[n++] =
                (struct gm_ended){.way = (enum gm_way)way,
                                  .number = number,
                                  .result = result,
                                  .error = result ? gm_engine_error_text(engine, result) : NULL};
        }
    }
    return n;
}

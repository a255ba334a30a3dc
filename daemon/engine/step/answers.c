/*
 * What follows from the answers to batches: chunks settle, allocations that could not be mapped are
 * refused, places of shared memory are open or shut. Called by step.c.
 */
#include "daemon/engine/step/answers.h"

#include <stdlib.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/returns.h"
#include "daemon/engine/step/shares.h"

/* Whether nobody waits for any of it. */
static bool is_all_ahead(const struct gm_engine *engine, const struct gm_batch *batch)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t at = engine->table->chunks[batch->items[i]].allocation;
        const struct gm_allocation *allocation = &engine->table->allocations[at];
        if (!allocation->is_ahead || !allocation->is_pending)
            return false;
    }
    return true;
}

static void map_failed(struct gm_engine *engine, uint32_t id, struct gm_batch *batch)
{
    struct gm_app *app = &engine->apps[id];
    if (!is_all_ahead(engine, batch))
        gm_engine_back_off_app(engine, id);
    app->moves.raise_error = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[batch->items[i]];
        const uint32_t at = chunk->allocation;
        gm_table_end_map(engine->table, batch->items[i], true);
        if ((app->state == GM_APP_RUNNING || app->places.is_held) &&
            engine->table->allocations[at].is_pending) {
            if (!engine->table->allocations[at].is_ahead)
                gm_engine_refused(engine, id, engine->table->allocations[at].bytes, GM_WHY_MAP);
            gm_engine_answer_alloc(engine, at, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
}

static void take(struct gm_engine *engine, uint32_t id, struct gm_batch *batch, int32_t result)
{
    if (batch->kind == GM_BATCH_MAP && result != 0)
        map_failed(engine, id, batch);
    else if (batch->kind == GM_BATCH_MAP)
        gm_engine_app_went_well(engine, id);
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t item = batch->items[i];
        if (batch->kind == GM_BATCH_DROP) {
            gm_table_end_drop(engine->table, item, id, true);
        } else {
            gm_table_end_map(engine->table, item, false);
            gm_engine_settle(engine, item);
        }
    }
    if (engine->table->first_condemned != GM_NONE)
        gm_engine_reap(engine);
}

void gm_engine_batch_done(struct gm_engine *engine, uint32_t id, uint64_t number, int32_t result)
{
    struct gm_batch *batch = gm_engine_take_answer(engine, id, number, result);
    if (!batch)
        return;
    gm_engine_heard(engine, id);
    if (batch->kind == GM_BATCH_STRAY)
        gm_engine_stray_done(engine, id);
    else if (batch->open)
        gm_engine_places_done(engine, batch, result);
    else
        take(engine, id, batch, result);
    free(batch);
}

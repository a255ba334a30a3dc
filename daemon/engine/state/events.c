/*
 * Events (common/events.def): counts them, and posts them for the one who reads (gm_engine_outlet).
 * Owns the counters of the engine and of apps. Called by the files in which something happens.
 */
#include "daemon/engine/state/events.h"

#include "daemon/engine/state/actions.h"

void gm_engine_emit(struct gm_engine *engine, const struct gm_event *event)
{
    const uint64_t times = event->times > 0 ? event->times : 1;
    struct gm_event told = *event;
    engine->counts[event->kind] += times;
    told.at = engine->now;
    told.gpu = engine->config.index;
    told.device = engine->config.gpu;
    if (event->app != GM_NONE) {
        struct gm_app *app = &engine->apps[event->app];
        app->counts[event->kind] += times;
        told.pid = app->pid;
        told.uid = app->uid;
        told.name = app->name;
    }
    if (engine->config.outlet.event)
        gm_engine_post_event(engine, &told);
}

void gm_engine_happened(struct gm_engine *engine, uint32_t id, enum gm_event_kind kind)
{
    gm_engine_emit(engine, &(struct gm_event){.kind = kind, .app = id});
}

/* Where the data of a chunk that moves is to be. */
static enum gm_tier goes_to(const struct gm_chunk *chunk)
{
    switch ((enum gm_chunk_state)chunk->state) {
    case GM_CHUNK_COMING:
        return GM_TIER_GPU;
    case GM_CHUNK_MOVING:
        return (enum gm_tier)chunk->to_tier;
    default: /* it leaves the GPU, or its pages are cleared */
        return GM_TIER_PINNED;
    }
}

void gm_engine_tell_copy(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_COPY,
                                              .app = chunk->app,
                                              .copy = {.chunk = index,
                                                       .bytes = gm_chunk_bytes(chunk),
                                                       .from = chunk->tier,
                                                       .to = (uint8_t)goes_to(chunk)}});
}

void gm_engine_tell_copied(struct gm_engine *engine, uint32_t index, bool has_failed)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_COPIED,
                                              .app = chunk->app,
                                              .copied = {.chunk = index,
                                                         .bytes = gm_chunk_bytes(chunk),
                                                         .from = chunk->tier,
                                                         .to = (uint8_t)goes_to(chunk),
                                                         .has_failed = has_failed}});
}

static void on_turn(void *engine, const struct gm_turn *turn)
{
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_TURN, .app = turn->app, .turn.turn = *turn});
}

void gm_engine_watch_table(struct gm_engine *engine)
{
    gm_table_watch(engine->table, on_turn, engine);
}

/*
 * MAP, UNMAP and DROP messages and their answers. Frames and chunks are sent in batches: full ones
 * at once, others when the engine has gone round (gm_engine_flush). Answers come in the order of
 * the questions. Owns the queues of batches of each app. The files that map and drop memory fill
 * batches; step.c and chunks.c take what is answered, or never will be.
 */
#include "daemon/engine/step/batches.h"

#include <stdlib.h>

#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"

/* Copies out wait for the answer to their batch, so it is short: a chunk is unmapped in 16 us,
 * and after 0.3 ms the first copies begin. In chunks. */
#define GM_UNMAPS_A_BATCH 16

/* It was asked. Answers come in this order. */
static void await_answer(struct gm_engine *engine, struct gm_app *app, struct gm_batch *batch)
{
    gm_engine_emit(engine,
                   &(struct gm_event){
                       .kind = GM_EVENT_ASKED,
                       .app = (uint32_t)(app - engine->apps),
                       .asked = {.batch = batch->id, .n = batch->n, .kind = (uint8_t)batch->kind}});
    batch->sent_at = engine->now;
    *app->batches.sent_tail = batch;
    app->batches.sent_tail = &batch->next;
}

/* Whether `frame` must be sent along with its fd: the app has not imported it yet. */
static bool take_import(struct gm_engine *engine, uint32_t id, struct gm_batch *batch, uint32_t i,
                        uint32_t frame)
{
    const bool is_new = gm_table_import(engine->table, frame, id);
    if (is_new)
        batch->had_fd[i / 8] |= (uint8_t)(1u << (i % 8));
    return is_new;
}

/* The app undid the batch, imports and all: the next MAP sends those fds again. */
static void undo_import(struct gm_engine *engine, uint32_t id, const struct gm_batch *batch,
                        uint32_t i, uint32_t frame)
{
    if (batch->had_fd[i / 8] & (1u << (i % 8)))
        gm_table_undo_import(engine->table, frame, id);
}

void gm_engine_open_batches(struct gm_app *app)
{
    app->batches.sent_tail = &app->batches.sent;
}

void gm_engine_close_batches(struct gm_app *app)
{
    for (int kind = 0; kind < GM_BATCH_KINDS; kind++)
        free(app->batches.building[kind]);
    while (app->batches.sent) {
        struct gm_batch *batch = app->batches.sent;
        app->batches.sent = batch->next;
        free(batch);
    }
}

static void send_batch(struct gm_engine *engine, struct gm_app *app, struct gm_batch *batch)
{
    const uint32_t id = (uint32_t)(app - engine->apps);
    union {
        struct gm_map_entry map[GM_ENTRIES_MAP];
        struct gm_span_entry unmap[GM_UNMAPS_A_BATCH];
        struct gm_frame_entry drop[GM_ENTRIES_DROP];
    } entries;
    struct gm_msg_map body = {.batch = batch->id}; /* the three bodies are alike */
    int fds[GM_WIRE_FDS], n_fds = 0;
    enum gm_msg_type type = GM_MSG_DROP;

    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t item = batch->items[i];
        const struct gm_chunk *chunk = &engine->table->chunks[item];
        if (batch->kind == GM_BATCH_MAP) {
            const struct gm_frame_handle *frame = &engine->frames.handles[chunk->frame];
            entries.map[i] = (struct gm_map_entry){.va = chunk->va,
                                                   .bytes = gm_chunk_bytes(chunk),
                                                   .frame = frame->id,
                                                   .gpu = (uint16_t)engine->config.index};
            if (take_import(engine, id, batch, i, chunk->frame)) {
                entries.map[i].flags = GM_MAP_HAS_FD;
                fds[n_fds++] = frame->fd;
            }
            type = GM_MSG_MAP;
        } else if (batch->kind == GM_BATCH_UNMAP) {
            entries.unmap[i] =
                (struct gm_span_entry){.va = chunk->va, .bytes = gm_chunk_bytes(chunk)};
            type = GM_MSG_UNMAP;
        } else {
            entries.drop[i] = (struct gm_frame_entry){engine->frames.handles[item].id};
        }
    }
    app->batches.unanswered_maps += batch->kind == GM_BATCH_MAP;
    await_answer(engine, app, batch);
    gm_engine_say_all(engine, id, type, &body, &entries, batch->n, fds, n_fds);
}

static void flush_batch(struct gm_engine *engine, struct gm_app *app, enum gm_batch_kind kind)
{
    struct gm_batch *batch = app->batches.building[kind];
    app->batches.building[kind] = NULL;
    if (batch)
        send_batch(engine, app, batch);
}

void gm_engine_flush(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (!app->session)
            continue;
        /* What is unmapped may be dropped right after. */
        flush_batch(engine, app, GM_BATCH_UNMAP);
        flush_batch(engine, app, GM_BATCH_DROP);
        flush_batch(engine, app, GM_BATCH_MAP);
    }
}

/* NULL: there is no memory for it, and the session of its app ends. */
static struct gm_batch *new_batch(struct gm_engine *engine, uint32_t id, enum gm_batch_kind kind)
{
    struct gm_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        gm_engine_cut_off(engine, id, GM_REFUSE_FULL,
                          "the daemon has no memory left for messages to it");
        return NULL;
    }
    batch->id = ++engine->next_batch;
    batch->kind = kind;
    return batch;
}

void gm_engine_batch(struct gm_engine *engine, uint32_t id, enum gm_batch_kind kind, uint32_t item)
{
    static const uint32_t limits[GM_BATCH_KINDS] = {GM_ENTRIES_MAP, GM_UNMAPS_A_BATCH,
                                                    GM_ENTRIES_DROP};
    struct gm_app *app = &engine->apps[id];

    if (!app->batches.building[kind])
        app->batches.building[kind] = new_batch(engine, id, kind);
    if (!app->batches.building[kind]) { /* over when its app has left */
        if (kind == GM_BATCH_DROP)
            gm_table_end_drop(engine->table, item, id, false);
        else
            engine->unsent[engine->n_unsent++] = item;
        return;
    }
    app->batches.building[kind]->items[app->batches.building[kind]->n++] = item;
    if (app->batches.building[kind]->n < limits[kind])
        return;
    if (kind == GM_BATCH_DROP)
        flush_batch(engine, app, GM_BATCH_UNMAP);
    flush_batch(engine, app, kind);
}

void gm_engine_map(struct gm_engine *engine, uint32_t chunk)
{
    gm_engine_batch(engine, engine->table->chunks[chunk].app, GM_BATCH_MAP, chunk);
}

void gm_engine_unmap(struct gm_engine *engine, uint32_t chunk)
{
    gm_engine_batch(engine, engine->table->chunks[chunk].app, GM_BATCH_UNMAP, chunk);
}

void gm_engine_ping(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->batches.ping)
        return;
    struct gm_batch *batch = new_batch(engine, id, GM_BATCH_UNMAP);
    app->batches.ping = batch ? batch->id : UINT64_MAX; /* nothing is moved for one that ends */
    if (batch)
        send_batch(engine, app, batch);
}

bool gm_engine_send_places(struct gm_engine *engine, enum gm_batch_kind kind, struct gm_open *open,
                           const uint32_t *places, uint32_t n)
{
    union {
        struct gm_map_entry map[GM_ENTRIES_MAP];
        struct gm_span_entry unmap[GM_ENTRIES_UNMAP];
    } entries;
    struct gm_app *app = &engine->apps[open->app];
    struct gm_batch *batch = new_batch(engine, open->app, kind);
    if (!batch)
        return false;
    struct gm_msg_map body = {.batch = batch->id};
    int fds[GM_WIRE_FDS], n_fds = 0;

    batch->open = open;
    for (uint32_t i = 0; i < n; i++) {
        const struct gm_share_place *place = &open->share->places[places[i]];
        batch->items[batch->n++] = places[i];
        if (kind == GM_BATCH_SHUT) {
            entries.unmap[i] =
                (struct gm_span_entry){.va = open->va + place->offset, .bytes = place->bytes};
            continue;
        }
        entries.map[i] = (struct gm_map_entry){.va = open->va + place->offset,
                                               .bytes = place->bytes,
                                               .frame = engine->frames.handles[place->frame].id,
                                               .gpu = (uint16_t)engine->config.index,
                                               .flags = GM_MAP_IS_SHARED};
        if (take_import(engine, open->app, batch, i, place->frame)) {
            entries.map[i].flags |= GM_MAP_HAS_FD;
            fds[n_fds++] = engine->frames.handles[place->frame].fd;
        }
    }
    await_answer(engine, app, batch);
    gm_engine_say_all(engine, open->app, kind == GM_BATCH_SHUT ? GM_MSG_UNMAP : GM_MSG_MAP, &body,
                      &entries, n, fds, n_fds);
    return true;
}

bool gm_engine_send_strays(struct gm_engine *engine, uint32_t id, enum gm_msg_type type,
                           const void *entries, uint32_t n)
{
    struct gm_batch *batch = new_batch(engine, id, GM_BATCH_STRAY);
    if (!batch)
        return false;
    const struct gm_msg_unmap body = {.batch = batch->id}; /* that of DROP is alike */
    await_answer(engine, &engine->apps[id], batch);
    gm_engine_say_all(engine, id, type, &body, entries, n, NULL, 0);
    return true;
}

struct gm_batch *gm_engine_take_answer(struct gm_engine *engine, uint32_t id, uint64_t number,
                                       int32_t result)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_batch *batch = app->batches.sent;

    if (!batch || batch->id != number) { /* answers come in the order of the questions */
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "an answer to a batch that was not sent");
        return NULL;
    }
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_ANSWERED,
                                              .app = id,
                                              .answered = {.batch = number,
                                                           .ns = engine->now - batch->sent_at,
                                                           .n = batch->n,
                                                           .kind = (uint8_t)batch->kind,
                                                           .result = result}});
    if (result != 0 && batch->kind != GM_BATCH_MAP && batch->kind != GM_BATCH_OPEN) {
        /* A shim cannot unmap or drop when its driver is shutting down: the process is on its way
         * out. Its frames stay where they are until its connection ends. */
        gm_engine_cut_off(engine, id, GM_REFUSE_STOPPING, "the program cannot unmap memory");
        return NULL;
    }
    app->batches.sent = batch->next;
    if (!app->batches.sent)
        app->batches.sent_tail = &app->batches.sent;
    app->batches.unanswered_maps -= batch->kind == GM_BATCH_MAP;
    for (uint32_t i = 0; result != 0 && i < batch->n; i++)
        undo_import(engine, id, batch, i,
                    batch->open ? batch->open->share->places[batch->items[i]].frame
                                : engine->table->chunks[batch->items[i]].frame);
    if (app->batches.ping == number) {
        app->batches.ping = 0;
        /* Nothing was planned for it before. For others the plan holds: a new one would begin with
         * raises again, and evictions wait for those. */
        if (app->state == GM_APP_LOADING)
            gm_engine_replan(engine);
    }
    return batch;
}

struct gm_batch *gm_engine_take_unanswered(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    for (int kind = 0; kind < GM_BATCH_KINDS; kind++) {
        struct gm_batch *batch = app->batches.building[kind];
        app->batches.building[kind] = NULL;
        if (batch)
            return batch;
    }
    struct gm_batch *batch = app->batches.sent;
    app->batches.sent = batch ? batch->next : NULL;
    if (!app->batches.sent)
        app->batches.sent_tail = &app->batches.sent;
    return batch;
}

uint32_t gm_engine_take_unsent(struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = engine->n_unsent; i-- > 0;) {
        const uint32_t item = engine->unsent[i];
        if (engine->table->chunks[item].app != id)
            continue;
        engine->unsent[i] = engine->unsent[--engine->n_unsent];
        return item;
    }
    return GM_NONE;
}

#include "daemon/engine_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

/* Destroying a frame takes some 90 us; this many in one go keep the loop's delay below 6 ms. */
#define REAP_AT_ONCE 64u
/* Making one takes some 75 us. */
#define CREATE_AT_ONCE 128u
/* An app that does not answer gets no more than so many batches of frames. Each is some 1 ms of
 * mapping. */
#define MAPS_AT_ONCE 16u
/* After the driver refused memory for a frame, ask again this much later. */
#define CREATE_RETRY_NS (200 * GM_MS)
/* After a lower tier failed (a full disk, an I/O error), use it again this much later. */
#define LOWER_RETRY_NS (1000 * GM_MS)
/* After a shim failed to map, load its app again this much later. */
#define MAP_RETRY_NS (1000 * GM_MS)

static uint64_t chunk_bytes(const struct gm_chunk *chunk)
{
    return gm_class_bytes(chunk->class);
}

/* Batches. */

static void send_batch(struct gm_engine *engine, struct gm_app *app, struct gm_batch *batch)
{
    union {
        struct gm_map_entry map[32];
        struct gm_span_entry unmap[128];
        struct gm_frame_entry drop[GM_BATCH_MAX];
    } entries;
    struct gm_msg_map body = {.batch = batch->id}; /* the three bodies are alike */
    int fds[GM_WIRE_FDS], n_fds = 0;
    enum gm_msg_type type = GM_MSG_DROP;

    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t item = batch->items[i];
        const struct gm_chunk *chunk = &engine->table->chunks[item];
        if (batch->kind == GM_BATCH_MAP) {
            const struct gm_frame_handle *frame = &engine->frames.handles[chunk->frame];
            uint8_t bit = (uint8_t)(1u << (chunk->frame % 8));
            entries.map[i] = (struct gm_map_entry){
                .va = chunk->va, .bytes = chunk_bytes(chunk), .frame = frame->id};
            if (!(app->imports[chunk->frame / 8] & bit)) {
                app->imports[chunk->frame / 8] |= bit;
                entries.map[i].flags = GM_MAP_HAS_FD;
                batch->had_fd[i / 8] |= (uint8_t)(1u << (i % 8));
                fds[n_fds++] = frame->fd;
            }
            type = GM_MSG_MAP;
        } else if (batch->kind == GM_BATCH_UNMAP) {
            entries.unmap[i] = (struct gm_span_entry){.va = chunk->va, .bytes = chunk_bytes(chunk)};
            type = GM_MSG_UNMAP;
        } else {
            entries.drop[i] = (struct gm_frame_entry){engine->frames.handles[item].id};
        }
    }
    batch->sent_at = gm_now();
    app->unanswered_maps += batch->kind == GM_BATCH_MAP;
    *app->sent_tail = batch;
    app->sent_tail = &batch->next;
    gm_session_send(app->session, type, &body, &entries, batch->n, fds, n_fds);
}

static void flush_batch(struct gm_engine *engine, struct gm_app *app, enum gm_batch_kind kind)
{
    struct gm_batch *batch = app->building[kind];
    app->building[kind] = NULL;
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

static struct gm_batch *new_batch(struct gm_engine *engine, enum gm_batch_kind kind)
{
    struct gm_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        gm_log(GM_LOG_ERROR, "out of memory: stopping");
        exit(1);
    }
    batch->id = ++engine->next_batch;
    batch->kind = kind;
    return batch;
}

static void add_to_batch(struct gm_engine *engine, uint32_t id, enum gm_batch_kind kind,
                         uint32_t item)
{
    static const uint32_t limits[GM_BATCH_KINDS] = {32, 128, GM_BATCH_MAX};
    struct gm_app *app = &engine->apps[id];

    if (!app->building[kind])
        app->building[kind] = new_batch(engine, kind);
    app->building[kind]->items[app->building[kind]->n++] = item;
    if (app->building[kind]->n < limits[kind])
        return;
    if (kind == GM_BATCH_DROP)
        flush_batch(engine, app, GM_BATCH_UNMAP);
    flush_batch(engine, app, kind);
}

/* Unmap a chunk; `frame`: the one that is given up by it, GM_NONE: the chunk still holds it. */
static void add_unmap(struct gm_engine *engine, uint32_t id, uint32_t chunk, uint32_t frame)
{
    struct gm_app *app = &engine->apps[id];
    if (!app->building[GM_BATCH_UNMAP])
        app->building[GM_BATCH_UNMAP] = new_batch(engine, GM_BATCH_UNMAP);
    app->building[GM_BATCH_UNMAP]->frames[app->building[GM_BATCH_UNMAP]->n] = frame;
    add_to_batch(engine, id, GM_BATCH_UNMAP, chunk);
}

void gm_engine_ping(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->ping)
        return;
    struct gm_batch *batch = new_batch(engine, GM_BATCH_UNMAP);
    app->ping = batch->id;
    send_batch(engine, app, batch);
}

/* Frames. */

/* `frame` is nobody's any more and ends as soon as no copy reads it, no shim holds an import and,
 * if `exit_of` is an app, that app's process is gone with whatever it still ran on the GPU. */
static void condemn(struct gm_engine *engine, uint32_t frame, uint32_t exit_of)
{
    struct gm_frame_state_more *more = &engine->frame_more[frame];
    uint8_t bit = (uint8_t)(1u << (frame % 8));

    gm_table_condemn_frame(engine->table, frame);
    more->drops = more->silent = 0;
    more->exit_of = exit_of;
    engine->condemned[engine->n_condemned++] = frame;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->session && (app->imports[frame / 8] & bit)) {
            app->imports[frame / 8] &= (uint8_t)~bit;
            more->drops++;
            more->silent += engine->table->apps[id].is_silent;
            add_to_batch(engine, id, GM_BATCH_DROP, frame);
        }
    }
    gm_engine_count_ending(engine, frame);
    /* If it waits for nobody, no event will come either. */
    engine->reap_more =
        engine->reap_more || (more->drops == 0 && !more->is_owed && exit_of == GM_NONE);
}

void gm_engine_count_ending(struct gm_engine *engine, uint32_t frame)
{
    struct gm_frame_state_more *more = &engine->frame_more[frame];
    const struct gm_frame *entry = &engine->table->frames[frame];
    bool is_ending = !entry->is_host && entry->state == GM_FRAME_CONDEMNED &&
                     more->exit_of == GM_NONE && more->silent == 0;
    if (is_ending && !more->is_counted)
        engine->table->ending += gm_class_bytes(entry->class);
    if (!is_ending && more->is_counted)
        engine->table->ending -= gm_class_bytes(entry->class);
    more->is_counted = is_ending;
}

static void note_drops(struct gm_engine *engine, const struct gm_batch *batch, bool is_silent)
{
    if (!batch || batch->kind != GM_BATCH_DROP)
        return;
    for (uint32_t i = 0; i < batch->n; i++) {
        struct gm_frame_state_more *more = &engine->frame_more[batch->items[i]];
        more->silent = is_silent ? more->silent + 1 : more->silent - 1;
        gm_engine_count_ending(engine, batch->items[i]);
    }
}

void gm_engine_note_silence(struct gm_engine *engine, uint32_t id, bool is_silent)
{
    const struct gm_app *app = &engine->apps[id];
    if (engine->table->apps[id].is_silent == is_silent)
        return;
    engine->table->apps[id].is_silent = is_silent;
    engine->plan_is_stale = true;
    note_drops(engine, app->building[GM_BATCH_DROP], is_silent);
    for (const struct gm_batch *batch = app->sent; batch; batch = batch->next)
        note_drops(engine, batch, is_silent);
}

/* One DROP of `frame` is answered, or void. */
static void drop_done(struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    struct gm_frame_state_more *more = &engine->frame_more[frame];
    more->drops--;
    more->silent -= engine->table->apps[id].is_silent;
    gm_engine_count_ending(engine, frame);
}

void gm_engine_drop_idle_pools(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        const struct gm_frame *frame = &engine->table->frames[i];
        if (frame->state == GM_FRAME_FREE && engine->table->pools[frame->pool].apps == 0)
            condemn(engine, i, GM_NONE);
    }
    do
        gm_engine_reap(engine);
    while (engine->reap_more);
}

void gm_engine_reap(struct gm_engine *engine)
{
    uint64_t done = gm_mover_done(engine->mover, GM_WAY_OUT);
    uint32_t reaped = 0;
    engine->reap_more = false;
    for (uint32_t i = 0; i < engine->n_condemned;) {
        uint32_t frame = engine->condemned[i];
        const struct gm_frame *entry = &engine->table->frames[frame];
        const struct gm_frame_state_more *more = &engine->frame_more[frame];
        if (entry->fence > done || more->drops > 0 || more->is_owed || more->exit_of != GM_NONE) {
            i++;
            continue;
        }
        if (reaped++ == REAP_AT_ONCE) {
            engine->reap_more = true;
            break;
        }
        if (entry->is_host)
            gm_hostpool_unlend(&engine->pool, gm_class_bytes(entry->class));
        if (more->is_counted)
            engine->table->ending -= gm_class_bytes(entry->class);
        engine->frame_more[frame].is_counted = false;
        gm_frames_destroy(&engine->frames, frame, gm_class_bytes(entry->class));
        gm_table_end_frame(engine->table, frame);
        engine->condemned[i] = engine->condemned[--engine->n_condemned];
        engine->plan_is_stale = true;
        engine->again = true;
    }
}

/* Chunks. */

/* The app that gave `frame` up has unmapped it, or its process is gone: whoever has it may go on.
 */
void gm_engine_frame_is_clear(struct gm_engine *engine, uint32_t frame)
{
    struct gm_frame_state_more *more = &engine->frame_more[frame];
    const struct gm_frame *entry = &engine->table->frames[frame];
    more->is_owed = false;
    more->owed_by = GM_NONE;
    if (entry->state == GM_FRAME_CONDEMNED)
        engine->reap_more = true;
    else if (entry->state == GM_FRAME_USED && entry->chunk != GM_NONE)
        gm_engine_settle(engine, entry->chunk);
    engine->again = true;
}

void gm_engine_map(struct gm_engine *engine, uint32_t index)
{
    engine->table->chunks[index].map_pending = true;
    add_to_batch(engine, engine->table->chunks[index].app, GM_BATCH_MAP, index);
}

/* The pages of a chunk are in its tier's store; on its way between GPU and pinned memory, in the
 * latter. */
static void free_page(struct gm_engine *engine, struct gm_chunk *chunk)
{
    enum gm_tier tier = chunk->tier > GM_TIER_PINNED ? (enum gm_tier)chunk->tier : GM_TIER_PINNED;
    if (chunk->page != GM_NONE)
        gm_stores_free(engine->stores, tier, chunk->page);
    chunk->page = GM_NONE;
}

static void free_frame(struct gm_engine *engine, struct gm_chunk *chunk)
{
    uint32_t frame = chunk->frame;
    chunk->frame = GM_NONE;
    if (engine->apps[chunk->app].state == GM_APP_GONE)
        condemn(engine, frame, engine->apps[chunk->app].exit_poll ? chunk->app : GM_NONE);
    else if (chunk->is_hosted)
        condemn(engine, frame, GM_NONE);
    else
        gm_table_free_frame(engine->table, frame);
    engine->again = true;
}

/* The last that is heard of a freed chunk; with an allocation's last chunk FREE is answered. */
static void end_chunk(struct gm_engine *engine, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    uint32_t at = chunk->allocation;
    struct gm_app *app = &engine->apps[chunk->app];

    free_page(engine, chunk);
    if (!gm_table_end_chunk(engine->table, index))
        return;
    struct gm_allocation *allocation = &engine->table->allocations[at];
    if (allocation->wants_freed && app->session) {
        struct gm_msg_freed freed = {.cookie = allocation->cookie};
        gm_session_send(app->session, GM_MSG_FREED, &freed, NULL, 0, NULL, 0);
    }
    if (allocation->failure && app->session) {
        struct gm_msg_allocated failed = {.cookie = allocation->cookie,
                                          .result = allocation->failure};
        gm_session_send(app->session, GM_MSG_ALLOCATED, &failed, NULL, 0, NULL, 0);
    }
    gm_table_end_allocation(engine->table, at);
    engine->again = true;
}

/* A part of the chunk's flight ended (a copy, a map, an unmap): take the steps this allows. */
void gm_engine_settle(struct gm_engine *engine, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    engine->again = true;
    engine->apps[chunk->app].progress_at = engine->now;
    switch ((enum gm_flight)chunk->flight) {
    case GM_FLIGHT_NONE:
        return;
    case GM_FLIGHT_OUT:
        if (chunk->copy_pending || chunk->map_pending)
            return;
        chunk->flight = GM_FLIGHT_NONE;
        chunk->tier = GM_TIER_PINNED;
        break;
    case GM_FLIGHT_IN:
        /* Nobody's gate opens on a frame that somebody else still maps. */
        if (chunk->copy_pending || chunk->map_pending ||
            (chunk->frame != GM_NONE && engine->frame_more[chunk->frame].is_owed))
            return;
        chunk->flight = GM_FLIGHT_NONE;
        if (chunk->page != GM_NONE)
            engine->ending[GM_TIER_PINNED] -= chunk_bytes(chunk);
        if (chunk->map_failed) {
            chunk->map_failed = false;
            free_frame(engine, chunk);
        } else if (chunk->is_hosted) {
            chunk->tier = chunk->frame == GM_NONE ? GM_TIER_NONE : GM_TIER_PINNED;
        } else {
            chunk->tier = GM_TIER_GPU;
            free_page(engine, chunk);
        }
        break;
    case GM_FLIGHT_OFF:
        if (chunk->map_pending)
            return;
        chunk->flight = GM_FLIGHT_NONE;
        chunk->tier = GM_TIER_NONE;
        free_frame(engine, chunk);
        break;
    case GM_FLIGHT_HOST:
        if (chunk->copy_pending)
            return;
        engine->ending[chunk->tier] -= chunk_bytes(chunk);
        free_page(engine, chunk);
        chunk->flight = GM_FLIGHT_NONE;
        chunk->tier = chunk->to_tier;
        chunk->page = chunk->to_page;
        chunk->to_page = GM_NONE;
        break;
    }
    if (chunk->is_freed)
        gm_engine_retire(engine, index);
    else
        gm_table_place(engine->table, index);
    engine->plan_is_stale = engine->plan_is_stale || chunk->flight != GM_FLIGHT_OUT;
}

void gm_engine_retire(struct gm_engine *engine, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    bool is_gone = engine->apps[chunk->app].state == GM_APP_GONE;

    assert(chunk->is_freed);
    switch ((enum gm_flight)chunk->flight) {
    case GM_FLIGHT_NONE:
        if (chunk->frame != GM_NONE && !is_gone) {
            chunk->flight = GM_FLIGHT_OFF;
            chunk->map_pending = true;
            if (!chunk->is_hosted)
                gm_table_leave_frame(engine->table, chunk->frame);
            add_unmap(engine, chunk->app, index, GM_NONE);
            return;
        }
        if (chunk->frame != GM_NONE)
            free_frame(engine, chunk);
        end_chunk(engine, index);
        return;
    case GM_FLIGHT_OUT:
    case GM_FLIGHT_IN:
    case GM_FLIGHT_OFF:
    case GM_FLIGHT_HOST:
        if (is_gone) {
            chunk->map_pending = false;
            gm_engine_settle(engine, index);
        }
        return;
    }
}

void gm_engine_host_copied(void *arg, uint32_t index, int error)
{
    struct gm_engine *engine = arg;
    struct gm_chunk *chunk = &engine->table->chunks[index];

    engine->now = gm_now();
    engine->host_copies--;
    chunk->copy_pending = false;
    if (error) {
        /* The chunk keeps its old copy: the flight ends where it began. */
        if (engine->lower_error != error)
            gm_log(GM_LOG_ERROR, "a copy between %s and %s failed (%s): trying again in a while",
                   gm_engine_tier_text((enum gm_tier)chunk->tier),
                   gm_engine_tier_text((enum gm_tier)chunk->to_tier), strerror(-error));
        gm_stores_free(engine->stores, (enum gm_tier)chunk->to_tier, chunk->to_page);
        chunk->to_tier = chunk->tier;
        chunk->to_page = chunk->page;
        chunk->page = GM_NONE;
        engine->lower_retry_at = engine->now + LOWER_RETRY_NS;
    }
    engine->lower_error = error;
    gm_engine_settle(engine, index);
    gm_engine_run(engine);
}

void gm_engine_take_copies(struct gm_engine *engine)
{
    for (int way = 0; way < GM_WAYS; way++) {
        uint64_t done = gm_mover_done(engine->mover, (enum gm_way)way);
        if (engine->taken[way] < done)
            engine->last_copy_at[way] = engine->now;
        while (engine->taken[way] < done) {
            uint32_t index = engine->ring[way][++engine->taken[way] % GM_WAY_DEPTH];
            engine->table->chunks[index].copy_pending = false;
            gm_engine_settle(engine, index);
        }
    }
    uint64_t done = engine->taken[GM_WAY_OUT];
    for (uint32_t i = 0; i < engine->n_fenced;) {
        uint32_t index = engine->fenced[i];
        if (engine->chunk_number[index] > done) {
            i++;
            continue;
        }
        engine->fenced[i] = engine->fenced[--engine->n_fenced];
        engine->table->chunks[index].copy_pending = false;
        gm_engine_settle(engine, index);
    }
}

/* Answers to batches. */

static void map_failed(struct gm_engine *engine, uint32_t id, struct gm_batch *batch,
                       int32_t result)
{
    struct gm_app *app = &engine->apps[id];
    gm_log(GM_LOG_WARN, "app %u (pid %d, %s) could not map %u chunks (CUDA error %d)", id,
           (int)app->pid, app->name, batch->n, result);
    app->retry_at = engine->now + MAP_RETRY_NS;
    for (uint32_t i = 0; i < batch->n; i++) {
        struct gm_chunk *chunk = &engine->table->chunks[batch->items[i]];
        uint32_t at = chunk->allocation;
        /* The shim undid the batch, imports and all: the next MAP sends those fds again. */
        if (batch->had_fd[i / 8] & (1u << (i % 8)))
            app->imports[chunk->frame / 8] &= (uint8_t) ~(1u << (chunk->frame % 8));
        chunk->map_failed = true;
        if (app->state == GM_APP_RUNNING && engine->table->allocations[at].is_pending)
            gm_engine_answer_alloc(engine, at, CUDA_ERROR_OUT_OF_MEMORY);
    }
}

void gm_engine_batch_done(struct gm_engine *engine, uint32_t id, uint64_t number, int32_t result)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_batch *batch = app->sent;

    if (!batch || batch->id != number) { /* answers come in the order of the questions */
        gm_session_end(app->session, GM_REFUSE_PROTOCOL, "an answer to a batch that was not sent");
        return;
    }
    if (result != 0 && batch->kind != GM_BATCH_MAP) {
        /* A shim cannot unmap or drop when its driver is shutting down: the process is on its way
         * out. Its frames stay where they are until its connection ends. */
        gm_log(GM_LOG_INFO, "app %u (pid %d) cannot unmap (CUDA error %d): taken for exiting", id,
               (int)app->pid, result);
        gm_session_end(app->session, GM_REFUSE_STOPPING, "the program cannot unmap memory");
        return;
    }
    app->sent = batch->next;
    if (!app->sent)
        app->sent_tail = &app->sent;
    app->answered_at = engine->now;
    app->is_late = false;
    if (app->ping == number) {
        app->ping = 0;
        engine->plan_is_stale = true;
    }
    app->unanswered_maps -= batch->kind == GM_BATCH_MAP;
    if (batch->kind == GM_BATCH_MAP && result != 0)
        map_failed(engine, id, batch, result);
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t item = batch->items[i];
        if (batch->kind == GM_BATCH_DROP) {
            drop_done(engine, id, item);
        } else {
            engine->table->chunks[item].map_pending = false;
            if (batch->kind == GM_BATCH_UNMAP && batch->frames[i] != GM_NONE)
                gm_engine_frame_is_clear(engine, batch->frames[i]);
            gm_engine_settle(engine, item);
        }
    }
    free(batch);
    if (engine->n_condemned > 0)
        gm_engine_reap(engine);
}

/* The app that should have unmapped `frame` is gone: its process' end does it. */
static void owe_to_exit(struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    if (engine->apps[id].exit_poll)
        engine->frame_more[frame].owed_by = id;
    else
        gm_engine_frame_is_clear(engine, frame);
}

static void void_batch(struct gm_engine *engine, uint32_t id, struct gm_batch *batch)
{
    for (uint32_t i = 0; batch && i < batch->n; i++) {
        uint32_t item = batch->items[i];
        if (batch->kind == GM_BATCH_DROP) {
            drop_done(engine, id, item);
        } else {
            struct gm_chunk *chunk = &engine->table->chunks[item];
            chunk->map_pending = false;
            if (batch->kind == GM_BATCH_UNMAP && batch->frames[i] != GM_NONE)
                owe_to_exit(engine, id, batch->frames[i]);
            if (chunk->is_freed)
                gm_engine_settle(engine, item);
        }
    }
    free(batch);
}

void gm_engine_void_batches(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    for (int kind = 0; kind < GM_BATCH_KINDS; kind++) {
        struct gm_batch *batch = app->building[kind];
        app->building[kind] = NULL;
        void_batch(engine, id, batch);
    }
    while (app->sent) {
        struct gm_batch *batch = app->sent;
        app->sent = batch->next;
        void_batch(engine, id, batch);
    }
    app->sent_tail = &app->sent;
}

/* Plans. */

static bool can_lose(const struct gm_engine *engine, uint32_t id)
{
    enum gm_app_state state = engine->apps[id].state;
    return !engine->in_set[id] && !engine->table->apps[id].is_silent &&
           (state == GM_APP_PAUSED || state == GM_APP_DRAINING);
}

/* The apps that may lose chunks, farthest next use first; `from`: those before it on the timeline
 * keep theirs. */
static uint32_t list_victims(struct gm_engine *engine, uint32_t from)
{
    const struct gm_sched_decision *decision = &engine->decision;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        engine->in_next[id] = false;
    for (uint32_t i = 0; i < decision->n_next; i++)
        engine->in_next[decision->next[i]] = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (can_lose(engine, id) && !engine->in_next[id])
            engine->victims[n++] = id;
    for (uint32_t i = decision->n_next; i-- > from;)
        if (can_lose(engine, decision->next[i]))
            engine->victims[n++] = decision->next[i];
    return n;
}

static void describe_tiers(struct gm_engine *engine, struct gm_plan_input *input)
{
    input->window = engine->window;
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        input->tiers[tier] = (struct gm_plan_tier){
            .cap = gm_stores_cap(engine->stores, (enum gm_tier)tier),
            .used = gm_stores_used(engine->stores, (enum gm_tier)tier),
            .ending = engine->ending[tier],
        };
}

/* Nobody waits for memory: stage that of the apps that come next. */
static void plan_ahead(struct gm_engine *engine, struct gm_plan_input *input)
{
    const struct gm_sched_decision *decision = &engine->decision;
    for (uint32_t i = 0; i < decision->n_next && input->n_targets == 0; i++) {
        uint32_t id = decision->next[i];
        if (engine->apps[id].state != GM_APP_PAUSED || engine->table->apps[id].missing == 0 ||
            engine->table->apps[id].is_silent)
            continue;
        engine->targets[input->n_targets++] = id;
        input->n_victims = list_victims(engine, i + 1);
    }
    if (input->n_targets == 0)
        return;
    engine->plan_is_prefetch = true;
    gm_plan_prefetch(engine->table, input, &engine->plan);
}

void gm_engine_plan(struct gm_engine *engine)
{
    const struct gm_sched_decision *decision = &engine->decision;
    struct gm_plan_input input = {.targets = engine->targets, .victims = engine->victims};
    uint64_t begin = gm_now();
    bool is_waiting = false;

    /* Growing programs that run come first: each of them has a thread that waits in an allocation.
     */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < decision->n_set; i++) {
            uint32_t id = decision->set[i];
            const struct gm_app *app = &engine->apps[id];
            enum gm_app_state wanted = pass == 0 ? GM_APP_RUNNING : GM_APP_LOADING;
            if (app->state != wanted || engine->table->apps[id].missing == 0)
                continue;
            is_waiting = true;
            if (app->retry_at <= engine->now && (pass == 0 || app->ping == 0))
                engine->targets[input.n_targets++] = id;
        }
    }
    engine->plan.n = engine->plan_from = 0;
    engine->plan_is_stale = engine->plan_is_prefetch = false;
    describe_tiers(engine, &input);
    if (input.n_targets > 0) {
        input.n_victims = list_victims(engine, 0);
        gm_plan_make(engine->table, &input, &engine->plan);
    } else if (!is_waiting && engine->config.is_prefetching) {
        plan_ahead(engine, &input);
    }
    engine->sums.plan_ns += gm_now() - begin;
}

static void submit(struct gm_engine *engine, enum gm_way way, uint32_t index, uint64_t fence)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    uint64_t number = gm_mover_submit(engine->mover, way, engine->frames.handles[chunk->frame].va,
                                      &engine->pool, chunk->page, chunk_bytes(chunk), fence);
    if (number == 0) {
        gm_log(GM_LOG_ERROR, "the driver refused a copy (%s): stopping",
               gm_cuda_text(&engine->cuda, gm_mover_error(engine->mover)));
        exit(1);
    }
    engine->sums.bytes[way] += chunk_bytes(chunk);
    if (engine->first_copy_at[way] == 0)
        engine->first_copy_at[way] = engine->now;
    engine->ring[way][number % GM_WAY_DEPTH] = index;
    engine->chunk_number[index] = number;
    chunk->copy_pending = true;
}

/* Bytes that are free in a tier now; of the GPU: room in the budget for new frames. */
static uint64_t free_in(const struct gm_engine *engine, enum gm_tier tier)
{
    if (tier == GM_TIER_GPU)
        return engine->table->budget - engine->table->allocated;
    uint64_t cap = gm_stores_cap(engine->stores, tier);
    uint64_t used = gm_stores_used(engine->stores, tier);
    return cap > used ? cap - used : 0;
}

/* Whether a move may take what it needs, beside what those before it still need: plan.h's rule. */
static bool may_take(struct gm_engine *engine, const struct gm_plan_hold *hold,
                     const struct gm_move *move)
{
    uint64_t bytes = chunk_bytes(&engine->table->chunks[move->chunk]);
    enum gm_tier tier = gm_plan_takes(move);
    if (tier == GM_TIER_NONE)
        return true;
    return gm_plan_may_take(hold, move, bytes, free_in(engine, tier), engine->reserve);
}

/* Each of these returns true when the move was made, or is void because things changed. */

static bool evict(struct gm_engine *engine, const struct gm_plan_hold *hold,
                  const struct gm_move *move)
{
    struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || chunk->flight != GM_FLIGHT_NONE || chunk->frame != move->frame ||
        !can_lose(engine, chunk->app))
        return true;
    if (engine->apps[chunk->app].state != GM_APP_PAUSED ||
        !gm_mover_has_room(engine->mover, GM_WAY_OUT))
        return false;
    if (may_take(engine, hold, move))
        chunk->page = gm_stores_take(engine->stores, GM_TIER_PINNED, chunk_bytes(chunk));
    if (chunk->page == GM_NONE) {
        engine->is_short_of_pages = true;
        return false;
    }
    chunk->flight = GM_FLIGHT_OUT;
    chunk->map_pending = true;
    atomic_store(&engine->apps[chunk->app].ctl->moved, engine->apps[chunk->app].epoch + 1);
    submit(engine, GM_WAY_OUT, move->chunk, 0);
    /* The frame is free from here on: who writes it waits for this copy (the fence), and whose gate
     * opens on it waits for the unmapping as well. So copies never wait for a shim. */
    uint32_t frame = chunk->frame;
    chunk->frame = GM_NONE;
    engine->table->frames[frame].fence = engine->chunk_number[move->chunk];
    engine->frame_more[frame].is_owed = true;
    engine->frame_more[frame].owed_by = GM_NONE;
    add_unmap(engine, chunk->app, move->chunk, frame);
    gm_table_free_frame(engine->table, frame);
    gm_table_place(engine->table, move->chunk);
    return true;
}

static uint32_t make_frame(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    uint32_t frame;
    if (engine->create_retry_at)
        return GM_NONE;
    if (engine->created == CREATE_AT_ONCE) {
        engine->create_more = true;
        return GM_NONE;
    }
    frame = gm_table_add_frame(engine->table, engine->table->apps[chunk->app].pool, chunk->class);
    if (frame == GM_NONE)
        return GM_NONE;
    CUresult result = gm_frames_create(&engine->frames, frame, chunk_bytes(chunk));
    engine->created++;
    if (result == CUDA_SUCCESS) {
        engine->create_error = CUDA_SUCCESS;
        return frame;
    }
    gm_table_end_frame(engine->table, frame);
    if (engine->create_error != result)
        gm_log(GM_LOG_WARN,
               "cannot make GPU memory within the budget (%s): programs beside gpumux "
               "use it, or fds are short",
               gm_cuda_text(&engine->cuda, result));
    engine->create_error = result;
    engine->create_retry_at = engine->now + CREATE_RETRY_NS;
    return GM_NONE;
}

static bool fill(struct gm_engine *engine, const struct gm_plan_hold *hold,
                 const struct gm_move *move)
{
    struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    enum gm_app_state state = engine->apps[chunk->app].state;
    uint32_t frame = move->frame;

    if (chunk->is_freed || chunk->tier == GM_TIER_GPU || chunk->flight == GM_FLIGHT_IN ||
        (state != GM_APP_LOADING && state != GM_APP_RUNNING && !engine->plan_is_prefetch))
        return true;
    if (chunk->flight != GM_FLIGHT_NONE || chunk->tier > GM_TIER_PINNED)
        return false; /* it is being raised, or will be */
    if (frame != GM_NONE && engine->table->frames[frame].state != GM_FRAME_FREE)
        return false;
    assert(frame == GM_NONE ||
           (engine->table->frames[frame].class == chunk->class &&
            engine->table->frames[frame].pool == engine->table->apps[chunk->app].pool));
    if (engine->apps[chunk->app].unanswered_maps >= MAPS_AT_ONCE)
        return false;
    if (chunk->tier == GM_TIER_PINNED && !gm_mover_has_room(engine->mover, GM_WAY_IN))
        return false;
    if (frame == GM_NONE && may_take(engine, hold, move))
        frame = make_frame(engine, chunk);
    if (frame == GM_NONE)
        return false;

    uint64_t fence = engine->table->frames[frame].fence;
    gm_table_take_frame(engine->table, frame, move->chunk);
    chunk->flight = GM_FLIGHT_IN;
    if (chunk->tier == GM_TIER_PINNED) {
        engine->ending[GM_TIER_PINNED] += chunk_bytes(chunk);
        submit(engine, GM_WAY_IN, move->chunk, fence);
    } else if (fence > engine->taken[GM_WAY_OUT]) {
        chunk->copy_pending = true; /* nothing to copy, but the frame is still being read */
        engine->chunk_number[move->chunk] = fence;
        engine->fenced[engine->n_fenced++] = move->chunk;
    }
    gm_engine_map(engine, move->chunk);
    gm_table_place(engine->table, move->chunk);
    return true;
}

/* Begin a move's copy between two tiers below the GPU. False: no room there now. */
static bool copy_below(struct gm_engine *engine, const struct gm_plan_hold *hold,
                       const struct gm_move *move)
{
    uint32_t index = move->chunk;
    struct gm_chunk *chunk = &engine->table->chunks[index];
    enum gm_tier to = gm_plan_takes(move);
    uint64_t bytes = chunk_bytes(chunk);

    if (engine->lower_retry_at > engine->now || !may_take(engine, hold, move))
        return false;
    chunk->to_page = gm_stores_take(engine->stores, to, bytes);
    if (chunk->to_page == GM_NONE)
        return false;
    chunk->to_tier = (uint8_t)to;
    chunk->flight = GM_FLIGHT_HOST;
    chunk->copy_pending = true;
    engine->ending[chunk->tier] += bytes;
    gm_table_place(engine->table, index);
    engine->host_copies++;
    gm_stores_copy(engine->stores, index, (enum gm_tier)chunk->tier, chunk->page, to,
                   chunk->to_page, bytes);
    return true;
}

static bool lower_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || engine->in_set[chunk->app] || chunk->flight == GM_FLIGHT_IN ||
        (chunk->flight == GM_FLIGHT_NONE && chunk->tier > GM_TIER_PINNED))
        return true;
    if (chunk->flight != GM_FLIGHT_NONE || chunk->tier != GM_TIER_PINNED)
        return false; /* its eviction has not ended, or not begun */
    return copy_below(engine, hold, move);
}

static bool raise_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || chunk->tier <= GM_TIER_PINNED)
        return true;
    return chunk->flight == GM_FLIGHT_NONE && copy_below(engine, hold, move);
}

static bool destroy(struct gm_engine *engine, const struct gm_move *move)
{
    const struct gm_frame *frame = &engine->table->frames[move->frame];
    if (frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING)
        return false; /* its eviction has not ended */
    if (frame->state == GM_FRAME_FREE)
        condemn(engine, move->frame, GM_NONE);
    return true;
}

static bool make_move(struct gm_engine *engine, const struct gm_plan_hold *hold,
                      const struct gm_move *move)
{
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        return evict(engine, hold, move);
    case GM_MOVE_DESTROY:
        return destroy(engine, move);
    case GM_MOVE_FILL:
        return fill(engine, hold, move);
    case GM_MOVE_LOWER:
        return lower_chunk(engine, hold, move);
    case GM_MOVE_RAISE:
        return raise_chunk(engine, hold, move);
    }
    return true;
}

/* Account for the time in which a switch waits for what lies below pinned memory. */
static void note_lower(struct gm_engine *engine)
{
    bool is_waiting =
        (engine->host_copies > 0 && !engine->plan_is_prefetch) || engine->is_short_of_pages;
    if (is_waiting && engine->lower_since == 0)
        engine->lower_since = engine->now;
    if (!is_waiting && engine->lower_since != 0) {
        engine->sums.lower_ns += engine->now - engine->lower_since;
        engine->lower_since = 0;
    }
}

void gm_engine_move(struct gm_engine *engine)
{
    struct gm_plan *plan = &engine->plan;
    struct gm_plan_hold hold = {.has_eviction = false};
    engine->is_short_of_pages = false;
    for (uint32_t i = engine->plan_from; i < plan->n; i++) {
        struct gm_move *move = &plan->moves[i];
        if (!move->is_done)
            move->is_done = make_move(engine, &hold, move);
        if (!move->is_done && move->kind != GM_MOVE_DESTROY)
            gm_plan_pass_over(&hold, move, chunk_bytes(&engine->table->chunks[move->chunk]));
        if (move->is_done && i == engine->plan_from)
            engine->plan_from++;
    }
    note_lower(engine);
}

/*
 * Programs of the daemon before that come back (core/model.h, LOST). Each says which frames it has
 * imported, and where it has them mapped. The ledger says where its memory is. Where the two
 * differ, the daemon died in the middle of something, and the ledger is right:
 *
 *   mapped, and the chunk there is in no such frame    it unmaps that: a *stray*
 *   in a frame on the GPU, and not mapped              it maps it (RETURNING)
 *   in a host frame, and not mapped                    it is away, as if it had been paused
 *   imported, and the ledger has no such frame         it drops that
 *   not imported, and the ledger says so               the bit goes
 *
 * Until all strays are answered the app stays LOST: nothing of it moves and its gate is closed, and
 * nobody else gets a frame that it may have mapped (gm_table_is_awaited).
 *
 * What a program says is an attack until checked: it may name only frames that the ledger says it
 * has, once, and only where they may be. One that does not is not taken over, and changes nothing.
 *
 * Owns gm_app.back. Called by step.c and answers.c.
 */
#include "daemon/engine/step/returns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/states.h"

#define NOT_HELD UINT64_MAX

/* A frame that is mapped. */
struct span {
    uint64_t va, bytes;
    uint32_t frame;
};

/* A name and what it names, or an address and the chunk there. */
struct pair {
    uint64_t key;
    uint32_t index;
};

struct gm_holdings {
    bool is_running;
    uint64_t *va; /* by frame: where it is mapped; 0: it is imported; NOT_HELD */
    struct span *spans;
    uint32_t n_spans;
    uint32_t *unknown; /* frames that the ledger does not have */
    uint32_t n_unknown;
    struct pair *chunks; /* of the app, by address */
    uint32_t n_chunks;
};

static int by_key(const void *a, const void *b)
{
    const uint64_t one = ((const struct pair *)a)->key, other = ((const struct pair *)b)->key;
    return (one > other) - (one < other);
}

static int by_va(const void *a, const void *b)
{
    const uint64_t one = ((const struct span *)a)->va, other = ((const struct span *)b)->va;
    return (one > other) - (one < other);
}

/* The pair with the greatest key that is not above `key`; NULL: there is none. */
static const struct pair *find(const struct pair *pairs, uint32_t n, uint64_t key)
{
    uint32_t from = 0, to = n;
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        if (pairs[middle].key <= key)
            from = middle + 1;
        else
            to = middle;
    }
    return from == 0 ? NULL : &pairs[from - 1];
}

static uint64_t frame_bytes(const struct gm_engine *engine, uint32_t frame)
{
    return gm_class_bytes(engine->table->frames[frame].class);
}

void gm_engine_free_holds(struct gm_holdings *has)
{
    if (!has)
        return;
    free(has->va);
    free(has->spans);
    free(has->unknown);
    free(has->chunks);
    free(has);
}

/* ---- what it says ---- */

/* The chunk of the app at exactly this place; GM_NONE: none reaches into it. False: one does, and
 * lies elsewhere. */
static bool chunk_at(const struct gm_engine *engine, const struct gm_holdings *has,
                     const struct span *span, uint32_t *chunk)
{
    const struct pair *at = find(has->chunks, has->n_chunks, span->va + span->bytes - 1);
    *chunk = GM_NONE;
    if (!at)
        return true;
    const uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[at->index]);
    if (at->key + bytes <= span->va)
        return true;
    *chunk = at->index;
    return at->key == span->va && bytes == span->bytes;
}

static bool is_mapped_there(const struct gm_engine *engine, uint32_t chunk, uint32_t frame)
{
    return gm_chunk_is_settled(&engine->table->chunks[chunk]) &&
           engine->table->chunks[chunk].frame == frame;
}

/* What it may have mapped, and is not in place: its own frames, and what is nobody's any more. */
static bool may_stray(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const struct gm_frame *entry = &engine->table->frames[frame];
    return entry->mapper == id || entry->state == GM_FRAME_CONDEMNED;
}

/* NULL: it can be. */
static const char *judge_span(const struct gm_engine *engine, uint32_t id,
                              const struct gm_holdings *has, uint32_t i)
{
    const struct span *span = &has->spans[i];
    uint32_t chunk;
    if (span->va % GM_CHUNK_MIN != 0 || span->va > UINT64_MAX - span->bytes)
        return "it has mapped memory at an address that cannot be";
    if (i > 0 && has->spans[i - 1].va + has->spans[i - 1].bytes > span->va)
        return "it has mapped memory over other memory";
    if (!chunk_at(engine, has, span, &chunk))
        return "it has mapped memory across its own";
    if (chunk != GM_NONE && is_mapped_there(engine, chunk, span->frame))
        return NULL;
    if (chunk == GM_NONE && gm_engine_may_have_open(engine, id, span->frame))
        return NULL;
    return may_stray(engine, id, span->frame) ? NULL : "it has mapped memory that is not its own";
}

/* A chunk that it must have mapped, and has not. That one is mapped on the host is a guess. */
static const char *judge_chunk(const struct gm_engine *engine, const struct gm_holdings *has,
                               uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const bool is_in_place = !gm_chunk_is_settled(chunk) || has->va[chunk->frame] == chunk->va;
    const bool may_lack = !has->is_running || chunk->state == GM_CHUNK_ON_HOST;
    return is_in_place || (may_lack && !chunk->is_fixed) ? NULL
                                                         : "it lacks memory that it works with";
}

static const char *judge(const struct gm_engine *engine, uint32_t id, const struct gm_holdings *has)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < has->n_spans && !wrong; i++)
        wrong = judge_span(engine, id, has, i);
    for (uint32_t i = 0; i < has->n_chunks && !wrong; i++)
        wrong = judge_chunk(engine, has, has->chunks[i].index);
    return wrong;
}

static void list_chunks(const struct gm_engine *engine, uint32_t id, struct gm_holdings *has)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            has->chunks[has->n_chunks++] = (struct pair){.key = table->chunks[c].va, .index = c};
    if (has->n_chunks > 0)
        qsort(has->chunks, has->n_chunks, sizeof *has->chunks, by_key);
}

/* The frames of the ledger by their names. Returns how many. */
static uint32_t list_names(const struct gm_engine *engine, struct pair *names)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        if (engine->table->frames[i].state != GM_FRAME_UNUSED)
            names[n++] = (struct pair){.key = engine->frames.handles[i].id, .index = i};
    if (n > 0)
        qsort(names, n, sizeof *names, by_key);
    return n;
}

static const char *take_entry(const struct gm_engine *engine, uint32_t id, struct gm_holdings *has,
                              const struct gm_holds_entry *entry, const struct pair *at)
{
    if (!at || at->key != entry->frame) {
        if (entry->va != 0)
            return "it has mapped memory that is not known";
        has->unknown[has->n_unknown++] = entry->frame;
        return NULL;
    }
    if (!gm_table_has_import(engine->table, id, at->index))
        return "it has memory that is not its own";
    if (has->va[at->index] != NOT_HELD)
        return "it has the same memory twice";
    has->va[at->index] = entry->va;
    if (entry->va != 0)
        has->spans[has->n_spans++] = (struct span){
            .va = entry->va, .bytes = frame_bytes(engine, at->index), .frame = at->index};
    return NULL;
}

/* NULL; or what is wrong. */
static const char *take_holds(const struct gm_engine *engine, uint32_t id,
                              const struct gm_holds_entry *holds, uint32_t n,
                              const struct pair *names, uint32_t n_names, struct gm_holdings *has)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        has->va[i] = NOT_HELD;
    for (uint32_t i = 0; i < n && !wrong; i++)
        if (holds[i].gpu == engine->config.index)
            wrong = take_entry(engine, id, has, &holds[i], find(names, n_names, holds[i].frame));
    if (has->n_spans > 0)
        qsort(has->spans, has->n_spans, sizeof *has->spans, by_va);
    list_chunks(engine, id, has);
    return wrong;
}

/* Empty ones, with room for all that it says. NULL: there is no memory. */
static struct gm_holdings *new_holdings(const struct gm_engine *engine, uint32_t n, bool is_running)
{
    struct gm_holdings *has = calloc(1, sizeof *has);
    if (!has)
        return NULL;
    *has = (struct gm_holdings){
        .is_running = is_running,
        .va = calloc((size_t)engine->table->max_frames + 1, sizeof *has->va),
        .spans = calloc((size_t)n + 1, sizeof *has->spans),
        .unknown = calloc((size_t)n + 1, sizeof *has->unknown),
        .chunks = calloc((size_t)engine->table->used_chunks + 1, sizeof *has->chunks)};
    if (has->va && has->spans && has->unknown && has->chunks)
        return has;
    gm_engine_free_holds(has);
    return NULL;
}

int gm_engine_read_holds(const struct gm_engine *engine, uint32_t id,
                         const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                         struct gm_holdings **out, char *why, size_t why_size)
{
    const struct gm_app *app = &engine->apps[id];
    *out = NULL;
    if (app->state != GM_APP_LOST || app->session) {
        snprintf(why, why_size, "it is not awaited");
        return -EPROTO;
    }
    struct pair *names = calloc((size_t)engine->table->max_frames + 1, sizeof *names);
    struct gm_holdings *has = names ? new_holdings(engine, n, is_running) : NULL;
    if (!has) {
        free(names);
        snprintf(why, why_size, "the daemon has no memory for what it says");
        return -ENOMEM;
    }
    const char *wrong = take_holds(engine, id, holds, n, names, list_names(engine, names), has);
    if (!wrong)
        wrong = judge(engine, id, has);
    free(names);
    if (wrong) {
        gm_engine_free_holds(has);
        snprintf(why, why_size, "%s", wrong);
        return -EPROTO;
    }
    *out = has;
    return 0;
}

/* ---- what follows ---- */

static void send_unmaps(struct gm_engine *engine, uint32_t id, const struct gm_span_entry *spans,
                        uint32_t n)
{
    if (n > 0 && gm_engine_send_strays(engine, id, GM_MSG_UNMAP, spans, n))
        engine->apps[id].back.unanswered++;
}

/* What is mapped and not in place. What others share stays, if all of it is there. */
static void unmap_strays(struct gm_engine *engine, uint32_t id, const struct gm_holdings *has)
{
    struct gm_span_entry spans[GM_ENTRIES_UNMAP];
    uint32_t n = 0, chunk;
    for (uint32_t i = 0; i < has->n_spans; i++) {
        const struct span *span = &has->spans[i];
        chunk_at(engine, has, span, &chunk);
        if (chunk != GM_NONE ? is_mapped_there(engine, chunk, span->frame)
                             : gm_engine_is_open(engine, id, span->frame))
            continue;
        spans[n++] = (struct gm_span_entry){.va = span->va, .bytes = span->bytes};
        if (n < GM_ENTRIES_UNMAP)
            continue;
        send_unmaps(engine, id, spans, n);
        n = 0;
    }
    send_unmaps(engine, id, spans, n);
}

static void drop_unknown(struct gm_engine *engine, uint32_t id, const struct gm_holdings *has)
{
    struct gm_frame_entry entries[GM_ENTRIES_DROP];
    uint32_t n = 0;
    for (uint32_t i = 0; i < has->n_unknown; i++) {
        entries[n++] = (struct gm_frame_entry){.frame = has->unknown[i]};
        if (n < GM_ENTRIES_DROP && i + 1 < has->n_unknown)
            continue;
        if (gm_engine_send_strays(engine, id, GM_MSG_DROP, entries, n))
            engine->apps[id].back.unanswered++;
        n = 0;
    }
}

/* Which frames it has imported is as it says. What is condemned it is to drop. */
static void take_imports(struct gm_engine *engine, uint32_t id, const struct gm_holdings *has)
{
    struct gm_table *table = engine->table;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        if (table->frames[i].state == GM_FRAME_UNUSED || !gm_table_has_import(table, id, i))
            continue;
        if (has->va[i] != NOT_HELD) {
            if (gm_table_has_drop(table, id, i))
                gm_engine_batch(engine, id, GM_BATCH_DROP, i);
        } else if (gm_table_has_drop(table, id, i)) {
            gm_table_end_drop(table, i, id, true);
        } else {
            gm_table_undo_import(table, i, id);
        }
    }
}

/* A chunk that it has in a frame, and not mapped. */
static void map_again(struct gm_engine *engine, uint32_t index)
{
    struct gm_table *table = engine->table;
    const bool is_on_gpu = table->chunks[index].state == GM_CHUNK_RESIDENT;
    if (is_on_gpu)
        gm_table_evict(table, index, GM_NONE);
    else
        gm_table_unmap(table, index);
    gm_table_end_map(table, index, false);
    if (!is_on_gpu)
        gm_table_settle(table, index);
    else if (gm_table_undo(table, index))
        gm_engine_map(engine, index);
}

static void take_places(struct gm_engine *engine, const struct gm_holdings *has)
{
    for (uint32_t i = 0; i < has->n_chunks; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[has->chunks[i].index];
        if (gm_chunk_is_settled(chunk) && has->va[chunk->frame] != chunk->va)
            map_again(engine, has->chunks[i].index);
    }
}

/* All is in place. */
static void go_on(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_running = app->back.is_running;
    gm_table_set_lost(engine->table, id, false);
    gm_engine_turn(engine, id, is_running ? GM_APP_EV_RAN_ON : GM_APP_EV_RETURN);
    if (is_running)
        gm_engine_run_on(engine, id);
    else
        gm_engine_rest(engine, id);
    if (!is_running && (app->gate.is_parked || atomic_load(&app->stat->waiting) > 0))
        gm_engine_wants(engine, id);
}

void gm_engine_app_returns(struct gm_engine *engine, uint32_t id, const struct gm_holdings *has)
{
    struct gm_app *app = &engine->apps[id];
    app->back.is_running = has->is_running;
    if (has->is_running)
        gm_client_runs(app->client);
    gm_engine_connect_app(engine, id);
    gm_engine_confirm_opens(engine, id, has->va);
    unmap_strays(engine, id, has);
    drop_unknown(engine, id, has);
    take_imports(engine, id, has);
    gm_engine_end_unconfirmed(engine, id);
    take_places(engine, has);
    gm_engine_rejoin_app(engine, id); /* from here on its memory may change */
    gm_engine_take_busy_spares(engine, id);
    if (has->is_running)
        gm_engine_expect_again(engine, id);
    if (app->back.unanswered == 0 && app->session)
        go_on(engine, id);
}

void gm_engine_stray_done(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (--app->back.unanswered == 0 && app->state == GM_APP_LOST)
        go_on(engine, id);
}

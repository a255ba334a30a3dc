/*
 * Programs that come, come back from a daemon before, and leave; what they are granted between.
 */
#include "daemon/engine/step/apps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/state/client.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/waiting.h"

static void connect_app(struct gm_engine *engine, uint32_t app);
static void rejoin_app(struct gm_engine *engine, uint32_t app);

/* ---- grants ---- */

/*
 * Groups over several GPUs: when they stand in line, when they take their turns, and when their
 * gates open (groups.h). Owns gm_group.grant.
 */

/* A program on several GPUs that has its turn on all of them and does not run, while no memory
 * comes for it, gives its turns back after this, so that no GPU has nothing to do for a second. */
#define GM_GRANT_NS (700 * GM_MS)

/* It has its turn, or keeps it. */
static bool has_turn(const struct gm_app *app)
{
    return app->state == GM_APP_LOADING || app->state == GM_APP_RUNNING || app->places.is_held;
}

/* It gave its turn back and tries again later. */
static bool is_put_off(const struct gm_engine *engine, const struct gm_app *app)
{
    return (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) &&
           app->idle.want_at > engine->now;
}

/* Nothing but the others of its group keeps its gate closed. */
static bool is_whole(const struct gm_engine *engine, const struct gm_app *app)
{
    const uint32_t id = app->client->id;
    return app->state == GM_APP_LOADING && engine->in_set[id] &&
           engine->table->apps[id].missing == 0 && !gm_engine_is_placing(engine, id);
}

/* What a member sees of its group. */
struct view {
    bool is_first;     /* nobody is on a GPU before its own */
    bool is_next;      /* all on GPUs before its own want their turns, or have them */
    bool is_spread;    /* somebody is on another GPU */
    bool is_ready;     /* all could have their turns now, or have them */
    bool has_closed;   /* one of them does not run */
    bool has_missing;  /* ... and lacks its turn or memory */
    uint64_t moved_at; /* when memory last came nearer for one of these */
    bool others_work;  /* another one runs and does not rest */
    bool has_waiting;  /* a thread of one waits at its gate */
    bool is_put_off;   /* one of them cannot be loaded now, ... */
    uint64_t until;    /* ... and none of them can before this */
};

static struct view look(const struct gm_engine *engine, uint32_t id)
{
    struct gm_walk walk = gm_group_walk(engine->apps[id].client->group);
    struct view view = {
        .is_next = true, .is_ready = true, .others_work = !gm_group_rests(engine, id)};
    struct gm_engine *at;
    const struct gm_app *app;
    view.has_waiting = gm_group_is_waiting(engine, id, &view.is_first);
    while ((app = gm_group_step(&walk, &at)) != NULL) {
        const bool is_before = at->config.index < engine->config.index;
        view.is_next =
            view.is_next && (!is_before || has_turn(app) || gm_engine_unit_wants(at, app));
        view.is_spread = view.is_spread || at != engine;
        view.is_ready = view.is_ready && gm_engine_is_ready(at, app->client->id);
        const bool is_closed = !(app->state == GM_APP_RUNNING || app->places.is_held);
        const bool is_missing = is_closed && !is_whole(at, app);
        view.has_closed = view.has_closed || is_closed;
        view.has_missing = view.has_missing || is_missing;
        if (is_missing && app->state == GM_APP_LOADING && app->progress_at > view.moved_at)
            view.moved_at = app->progress_at;
        view.is_put_off = view.is_put_off || is_put_off(engine, app);
        if (is_put_off(engine, app) && app->idle.want_at > view.until)
            view.until = app->idle.want_at;
    }
    return view;
}

static bool is_granted(const struct gm_group *group)
{
    return group->grant.is_on && group->grant.round == group->round;
}

bool gm_group_may_open(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    const struct gm_app *app;
    struct gm_engine *at;
    if (!group || engine->stopping.is_on) /* then they are saved one by one */
        return true;
    struct gm_walk walk = gm_group_walk(group);
    while ((app = gm_group_step(&walk, &at)) != NULL)
        if (app != &engine->apps[id] && app->state != GM_APP_RUNNING && !is_whole(at, app))
            return false;
    return true;
}

void gm_group_dropped(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (group && is_granted(group) && !engine->apps[id].idle.is_idle)
        gm_group_yield(engine, id);
}

const struct gm_engine *gm_group_awaits(const struct gm_engine *engine, uint32_t id)
{
    struct gm_walk walk = gm_group_walk(engine->apps[id].client->group);
    struct gm_engine *at;
    const struct gm_app *app;
    while ((app = gm_group_step(&walk, &at)) != NULL) {
        const uint32_t other = app->client->id;
        const bool is_here = at->table->apps[other].missing == 0 && has_turn(app);
        if (at != engine && !is_here && (has_turn(app) || !gm_engine_is_ready(at, other)))
            return at;
    }
    return NULL;
}

/* How long they may stand still with their turns, until all of them run. */
static uint64_t stall_ns(const struct gm_engine *engine, const struct gm_group *group)
{
    const bool is_urgent = group->grant.waits_at != 0 &&
                           engine->now >= group->grant.waits_at + engine->config.patience_ns;
    return is_urgent ? GM_DRAIN_NS + GM_LATE_NS + GM_STALL_NS : GM_GRANT_NS;
}

/* They take their turns on all GPUs as soon as all could have them. If one of them lacks memory,
 * and none comes, they give them back. Once all are whole they run, however long that took. */
static void grant(const struct gm_engine *engine, struct gm_group *group, const struct view *view)
{
    const uint64_t since =
        view->moved_at > group->grant.since ? view->moved_at : group->grant.since;
    const bool was_granted = is_granted(group);
    if (!view->has_closed)
        group->grant.waits_at = 0;
    else if (group->grant.waits_at == 0 && view->has_waiting)
        group->grant.waits_at = engine->now;
    if (!is_granted(group) && view->is_ready && !view->is_put_off &&
        engine->now >= group->grant.next) {
        group->grant.is_on = true;
        group->grant.round = group->round;
        group->grant.since = engine->now;
    } else if (is_granted(group) && view->has_missing &&
               (view->is_put_off || engine->now >= since + stall_ns(engine, group))) {
        group->grant.is_on = false;
        group->grant.next = engine->now + GM_WANT_AGAIN_NS;
    }
    if (is_granted(group) != was_granted)
        gm_group_call(group);
}

uint64_t gm_group_due(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (!group)
        return GM_TIME_NEVER;
    const struct view view = look(engine, id);
    if (!view.is_spread || !view.has_closed)
        return GM_TIME_NEVER;
    if (view.is_put_off)
        return view.until;
    if (!is_granted(group))
        return group->grant.next > engine->now ? group->grant.next : GM_TIME_NEVER;
    if (!view.has_missing)
        return GM_TIME_NEVER;
    const uint64_t since = view.moved_at > group->grant.since ? view.moved_at : group->grant.since;
    return since + stall_ns(engine, group);
}

/* On other GPUs it may be that they waited for this. */
static void join_line(struct gm_engine *engine, uint32_t id)
{
    gm_engine_stand_in_line(engine, id, true);
    gm_group_call(engine->apps[id].client->group);
}

static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_group *group = app->client->group;
    const struct view view = look(engine, id);
    if (view.is_spread)
        grant(engine, group, &view);
    gm_engine_tie(engine, id, view.is_spread && !is_granted(group));
    const bool is_called = gm_group_take_call(engine, id);
    if (app->places.is_held || app->is_part_stopped || engine->stopping.is_on)
        return;
    if (app->state == GM_APP_RUNNING && app->group.round != group->round) {
        gm_group_opens(engine, id);
        gm_engine_close_gate(engine, id);
    } else if (app->state == GM_APP_RUNNING && app->idle.is_idle && view.others_work) {
        gm_engine_stand_in_line(engine, id, true);
    } else if (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) {
        const bool may_want = view.is_next && !view.is_put_off;
        const bool is_wanted = !view.is_first || is_called || view.others_work || view.has_waiting;
        if (!app->idle.is_idle && !may_want)
            gm_engine_stand_in_line(engine, id, false);
        else if (app->idle.is_idle && may_want && is_wanted)
            join_line(engine, id);
    }
}

void gm_engine_gather_groups(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_engine_join_units(engine, id))
            gm_engine_apply_policy(engine, id);
}

void gm_engine_follow_groups(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_group_of(engine, id))
            follow(engine, id);
}

/* ---- programs that come back ---- */

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
 * Until all strays are answered the app stays LOST: nothing of it moves and its gate is closed,
 * and nobody else gets a frame that it may have mapped (gm_table_is_awaited).
 *
 * What a program says is an attack until checked: it may name only frames that the ledger says it
 * has, once, and only where they may be. One that does not is not taken over, and changes nothing.
 *
 * Owns gm_app.back.
 */

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
    connect_app(engine, id);
    gm_engine_confirm_opens(engine, id, has->va);
    unmap_strays(engine, id, has);
    drop_unknown(engine, id, has);
    take_imports(engine, id, has);
    gm_engine_end_unconfirmed(engine, id);
    take_places(engine, has);
    rejoin_app(engine, id); /* from here on its memory may change */
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

/* ---- programs that come and leave ---- */

/*
 * Apps from join to end, and what each asks for when it asks for memory.
 */

void gm_engine_free_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_close_batches(app);
    gm_engine_stop_watching(app);
    if (app->client) {
        app->client->engines[engine->config.index] = NULL;
        gm_client_let_go(engine, app->client);
    }
    memset(app, 0, sizeof *app);
}

/* The client is this app, which is in the table. */
static void fill_in(struct gm_engine *engine, struct gm_client *client)
{
    struct gm_app *app = &engine->apps[client->id];
    gm_engine_begin_places(app);
    app->client = client;
    app->pid = client->pid;
    app->uid = client->uid;
    memcpy(app->name, client->name, sizeof app->name);
    app->ctl = client->ctl;
    app->stat = client->stat;
    client->engines[engine->config.index] = engine;
    gm_client_hold(client);
}

/* Take the client's place in the tables. 0 or -errno, and then nothing has changed. */
static int take_place(struct gm_engine *engine, struct gm_client *client)
{
    const uint32_t id = client->id;
    struct gm_app *app = &engine->apps[id];
    if (app->state != GM_APP_UNUSED)
        return -EEXIST;
    memset(app, 0, sizeof *app);
    gm_engine_open_batches(app);
    if (!gm_table_add_app(engine->table, id, (uint32_t)client->uid)) {
        gm_engine_close_batches(app);
        return gm_engine_drop_idle_pools(engine) ? -EAGAIN : -ENOSPC;
    }
    fill_in(engine, client);
    gm_engine_tell_room(engine);
    return 0;
}

/* The client runs on other GPUs, or its gate is closing and its work has not ended yet: this engine
 * may move nothing of it. So it runs here, too, until it answers. It has no memory here, so it has
 * its turn at once. */
static void run_at_once(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_turn(engine, id, GM_APP_EV_CHOSEN);
    gm_engine_turn(engine, id, GM_APP_EV_LOADED);
    gm_engine_begin_work(engine, id, true);
    gm_engine_feed(engine, GM_SCHED_WANT, id, 0);
    gm_engine_feed(engine, GM_SCHED_OPENED, id, 0);
    if (app->client->shut != 0)
        gm_engine_close_gate(engine, id);
}

/* It is an app of this engine from now on. */
static void begin_app(struct gm_engine *engine, struct gm_client *client)
{
    const uint32_t id = client->id;
    struct gm_app *app = &engine->apps[id];
    const bool is_running = client->state != GM_CLIENT_QUIET;
    /* A process that comes again has executed another program, and the old one's contexts are gone;
     * or it lies, and may still reach what it had: what others would use waits for its end. */
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (engine->apps[other].pid == client->pid && engine->apps[other].state == GM_APP_GONE &&
            engine->apps[other].exit.is_awaited)
            gm_engine_exit_late(engine, other);
    gm_engine_watch_exit(engine, id);
    gm_engine_hold_frames(engine);
    app->session = client->session;
    gm_engine_begin_idle(engine, id); /* until a thread of it waits for the gate */
    engine->n_apps++;
    gm_group_joined(engine, id);
    gm_engine_turn(engine, id, GM_APP_EV_JOIN);
    gm_engine_feed(engine, GM_SCHED_JOIN, id, 0);
    gm_engine_happened(engine, id, GM_EVENT_JOIN);
    if (is_running)
        run_at_once(engine, id);
    else
        gm_client_keep_shut(client, engine->config.index);
    gm_engine_first_policy(engine, id, &client->wishes);
}

int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client)
{
    const int error = take_place(engine, client);
    if (error == 0)
        begin_app(engine, client);
    return error;
}

void gm_engine_app_left(struct gm_engine *engine, uint32_t id, bool has_hung_up)
{
    struct gm_app *app = &engine->apps[id];

    if (app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING)
        gm_engine_note_leaver(engine, id, true);
    gm_engine_note_last_refusal(engine, id);
    gm_group_changed(engine, id);
    app->session = NULL;
    gm_engine_await_exit(engine, id, has_hung_up, !gm_engine_may_have_work(engine, id));
    gm_engine_turn(engine, id, GM_APP_EV_LEAVE);
    if (engine->table->apps[id].is_lost)
        gm_engine_end_awaiting(engine, id);
    const uint32_t other = gm_group_other_here(engine, id);
    gm_engine_feed(engine, GM_SCHED_LEAVE, id, 0);
    if (other != GM_NONE && !engine->stopping.is_on)
        gm_engine_apply_policy(engine,
                               other); /* the settings of its group are those of who is left */
    gm_engine_forget_waiting(engine, id);
    gm_engine_void_batches(engine, id);
    gm_engine_free_allocations(engine, id);
    gm_engine_forget_opens(engine, id);
}

/* ---- programs of the daemon before ---- */

int gm_engine_await_app(struct gm_engine *engine, struct gm_client *client,
                        const struct gm_client_record *record)
{
    const uint32_t id = client->id;
    const struct gm_table_app *entry = &engine->table->apps[id];
    struct gm_app *app = &engine->apps[id];
    const bool is_its = engine->table->pools[entry->pool].uid == client->uid;
    /* Who cannot come back waits for the end of its process, whosever the ledgers say it is. */
    if (app->state != GM_APP_UNUSED || !entry->is_used || !entry->is_lost ||
        (!is_its && !client->is_cut))
        return -ENOENT;
    memset(app, 0, sizeof *app);
    gm_engine_open_batches(app);
    fill_in(engine, client);
    gm_engine_keep_policy(engine, id, record);
    app->back.level = record->turns[engine->config.index].level;
    app->back.charged_ns = record->turns[engine->config.index].charged_ns;
    app->back.run_ns = record->turns[engine->config.index].run_ns;
    app->back.wait_ns = record->turns[engine->config.index].wait_ns;
    engine->n_apps++;
    gm_engine_turn(engine, id, GM_APP_EV_AWAIT);
    gm_client_keep_shut(client, engine->config.index);
    gm_engine_note_silence(engine, id, true);
    return 0;
}

/* Its client has a session again. It stays LOST. */
static void connect_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_watch_exit(engine, id);
    app->session = app->client->session;
    gm_engine_connected(engine, id);
    app->ctl = app->client->ctl;
}

/* ... and the scheduler and its group know it. */
static void rejoin_app(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    gm_engine_begin_idle(engine, id);
    gm_group_joined(engine, id);
    gm_engine_feed_return(engine, id, app->back.level, app->back.charged_ns);
    gm_engine_happened(engine, id, GM_EVENT_JOIN);
    gm_engine_policy_again(engine, id);
    gm_engine_follow_cap(engine, id);
    gm_engine_need_places(engine, id);
    gm_engine_tell_room(engine);
    gm_engine_feed_size(engine, id);
}

void gm_engine_give_up_app(struct gm_engine *engine, uint32_t id, bool is_over)
{
    struct gm_app *app = &engine->apps[id];
    if (app->state != GM_APP_LOST || app->session)
        return;
    if (!is_over)
        gm_engine_watch_exit(engine, id);
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        gm_table_end_drop(engine->table, i, id, is_over);
    gm_engine_note_silence(engine, id, false);
    gm_engine_turn(engine, id, GM_APP_EV_LEAVE);
    gm_engine_end_awaiting(engine, id);
    gm_engine_free_allocations(engine, id);
    gm_engine_forget_opens(engine, id);
    if (!is_over)
        gm_engine_exit_late(engine, id);
}

int gm_engine_give_up_rest(struct gm_engine *engine)
{
    const struct gm_client_record record = {.pid = 0};
    struct gm_client *client;
    int error = 0;
    for (uint32_t id = 0; id < engine->config.max_apps && error == 0; id++) {
        const struct gm_table_app *entry = &engine->table->apps[id];
        if (!entry->is_lost || engine->apps[id].state != GM_APP_UNUSED)
            continue;
        error = gm_client_open_ended(&client, id, (uid_t)engine->table->pools[entry->pool].uid);
        if (error)
            break;
        error = gm_engine_await_app(engine, client, &record);
        gm_engine_give_up_app(engine, id, true);
        gm_client_let_go(engine, client);
    }
    return error;
}

void gm_engine_bury(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state != GM_APP_GONE || gm_engine_is_left(app) ||
            engine->table->apps[id].allocations.count > 0)
            continue;
        gm_engine_turn(engine, id, GM_APP_EV_END);
        gm_table_remove_app(engine->table, id);
        gm_engine_free_app(engine, id);
        engine->n_apps--;
    }
}

void gm_engine_asked(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    const bool is_again = gm_engine_asked_again(engine, id, alloc);
    if (alloc->gpu != engine->config.index || alloc->va == 0 || alloc->va % GM_CHUNK_MIN ||
        alloc->bytes == 0 || alloc->bytes % GM_CHUNK_MIN || alloc->bytes > UINT64_MAX - alloc->va ||
        (alloc->flags & ~GM_ALLOC_AHEAD) != 0 ||
        (gm_table_find_allocation(engine->table, id, alloc->va) != GM_NONE && !is_again) ||
        gm_engine_is_waiting_at(engine, id, alloc->va)) {
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "an allocation that cannot be");
        return;
    }
    if (is_again)
        return; /* it is answered as any that is pending */
    gm_engine_happened(engine, id, GM_EVENT_ALLOC);
    if ((alloc->flags & GM_ALLOC_AHEAD) == 0)
        gm_engine_admit(engine, id, alloc);
    else
        gm_engine_admit_ahead(engine, id, alloc);
}

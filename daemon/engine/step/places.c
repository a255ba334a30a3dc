/*
 * Places: what of a program is resident and what is mapped on the host, for programs that may not
 * have all of their memory on the GPU (core/place.h decides). Owns host frames and the fields of
 * struct gm_app under its name. Called by apps.c, run.c, chunks.c and saving.c; calls the table,
 * hostpool.c, frames.c and moves.c.
 *
 * A chunk that is mapped on the host lies in a unit of pinned memory, whose handle the program
 * imports: its data stays where an eviction had put it. On its way there it takes these steps, each
 * as soon as it can (gm_engine_map_on_host):
 *
 *   resident       the plan evicts it, into a unit if there is one
 *   never written  its unit is cleared before the program can see it
 *   elsewhere      in pages that are no unit, or in a lower tier: a worker copies it to one
 *   in a unit      it gets a host frame and is mapped
 *
 * From the host to the GPU it is unmapped (UNMAPPING), and the plan fills it like others.
 *
 * New places are chosen when a program's turn begins, and for a program that runs when memory that
 * it asks for does not fit beside what it has, or when its launches use chunks on the host so much
 * that an exchange pays. Then the gate closes; the scheduler is not told, so the program keeps its
 * turn (is_held). If it does not drain, the memory that waits is mapped on the host, and the next
 * try waits for longer. The same is done when the app has more than its room: its cap was lowered
 * (caps.c).
 */
#include "daemon/engine/step/places.h"

#include <assert.h>

#include "common/size.h"
#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"

/* ---- host frames ---- */

static uint32_t owner_of(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return (uint32_t)engine->apps[chunk->app].uid;
}

uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    uint32_t page = GM_NONE;
    if (chunk->is_on_host)
        page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    else if (chunk->class == GM_CHUNK_CLASSES - 1)
        page = gm_hostpool_take_idle(&engine->pool, owner_of(engine, chunk));
    return page != GM_NONE ? page : gm_engine_take_pinned(engine, gm_chunk_bytes(chunk));
}

/* Pinned memory cannot grow by such a chunk, nor will it soon. */
static bool is_at_cap(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return gm_hostpool_size(&engine->pool) + gm_chunk_bytes(chunk) >
               gm_hostpool_cap(&engine->pool) &&
           gm_hostpool_leaving(&engine->pool) == 0;
}

/* A unit for the chunk that leaves what evictions need; GM_NONE: not now. */
static uint32_t take_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint64_t cap = gm_hostpool_cap(&engine->pool), used = gm_engine_pinned_used(engine);
    const uint64_t kept = engine->plan_evicts > 0 ? engine->host->reserve : 0;
    const bool has_room = used + kept + gm_chunk_bytes(chunk) <= cap;
    uint32_t page = GM_NONE;
    do
        if (has_room)
            page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    while (has_room && page == GM_NONE && is_at_cap(engine, chunk) &&
           gm_engine_yield_shadow(engine));
    engine->is_short_of_units = engine->is_short_of_units || page == GM_NONE;
    engine->is_out_of_units =
        engine->is_out_of_units || (page == GM_NONE && (!has_room || is_at_cap(engine, chunk)));
    return page;
}

/* If the system gives no memory for it, an allocation that waits is refused; others try again. */
static void lack_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint32_t at = chunk->allocation;
    if (engine->pool.refusal == CUDA_SUCCESS)
        return;
    if (engine->stopping.is_on)
        gm_engine_back_off_app(engine, chunk->app);
    if (!engine->table->allocations[at].is_pending)
        return;
    gm_engine_refused(engine, chunk->app, engine->table->allocations[at].bytes, GM_WHY_HOST);
    gm_table_refuse(engine->table, at);
}

static void map_in_place(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = gm_engine_make_host_frame(engine, index);
    if (frame != GM_NONE && gm_table_map(engine->table, index, frame))
        gm_engine_map(engine, index);
}

/* The next step of a chunk that is to be mapped on the host. */
static void step(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const struct gm_app *app = &engine->apps[chunk->app];
    if (!gm_chunk_is_still(chunk))
        return;
    if (chunk->tier == GM_TIER_PINNED &&
        gm_hostpool_is_unit(&engine->pool, chunk->page, chunk->class)) {
        if (app->batches.unanswered_maps >= GM_MAPS_AT_ONCE)
            return;
        map_in_place(engine, index);
        return;
    }
    if (chunk->tier == GM_TIER_NONE && !gm_engine_has_room(engine, GM_WAY_IN))
        return;
    if (chunk->tier != GM_TIER_NONE &&
        gm_engine_copied_below(engine, chunk->tier, GM_TIER_PINNED) >= GM_BELOW_AT_ONCE)
        return;
    const uint32_t page = take_unit(engine, chunk);
    if (page == GM_NONE) {
        lack_unit(engine, chunk);
    } else if (chunk->tier != GM_TIER_NONE) {
        gm_engine_copy_below(engine, index, GM_TIER_PINNED, page);
    } else {
        gm_table_clear(engine->table, index, page);
        gm_engine_clear_pages(engine, index);
    }
}

/* It runs, and waits until it is quiet so that its new memory can be on the GPU. */
static bool waits_for_quiet(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    return app->places.is_wanted && app->places.is_urgent &&
           chunk->allocation == app->places.newest &&
           engine->table->allocations[chunk->allocation].is_pending;
}

/* A program waits for host memory, and there is no more. Who runs and has more of it than its part,
 * as its chunks went there for a while, takes them back at once. */
static void call_back(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state != GM_APP_RUNNING ||
            engine->table->apps[id].on_host <= engine->table->apps[id].beyond)
            continue;
        app->places.hold_at = 0;
        gm_engine_want_places(engine, id);
    }
}

void gm_engine_map_on_host(struct gm_engine *engine)
{
    engine->is_short_of_units = engine->is_out_of_units = false;
    gm_hostpool_forget_wants(&engine->pool);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        const bool is_saved = engine->stopping.is_on && engine->stopping.host == id;
        if ((app->state != GM_APP_LOADING && app->state != GM_APP_RUNNING && !is_saved) ||
            gm_engine_is_app_off(engine, id) || app->batches.ping != 0)
            continue;
        const struct gm_list *list = &engine->table->apps[id].to_map;
        for (uint32_t at = list->head, next; at != GM_NONE; at = next) {
            const struct gm_chunk *chunk = &engine->table->chunks[at];
            next = chunk->next;
            if (!waits_for_quiet(engine, chunk) &&
                !engine->table->allocations[chunk->allocation].is_refused)
                step(engine, at);
        }
    }
}

void gm_engine_make_units(struct gm_engine *engine)
{
    if (engine->is_short_of_units != engine->short_told)
        gm_engine_want_memory(engine);
    if (engine->is_out_of_units && !engine->out_told)
        call_back(engine);
    engine->short_told = engine->is_short_of_units;
    engine->out_told = engine->is_out_of_units;
    gm_hostpool_make_units(&engine->pool);
}

/* ---- new places ---- */

static bool has_places(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *app = &engine->table->apps[id];
    return app->is_used && (app->beyond > 0 || app->on_host > 0);
}

static struct gm_place_input input_for(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t room = gm_engine_places_room(engine, id);
    const uint64_t used = gm_engine_bytes_for_gpu(engine, id);
    const uint64_t free = room > used ? room - used : 0;
    /* What takes nobody's place does not have to leave again either. */
    return (struct gm_place_input){.app = id,
                                   .room = room,
                                   .most = free > GM_PLACE_AT_ONCE ? free : GM_PLACE_AT_ONCE,
                                   .newest = engine->apps[id].places.newest,
                                   .is_quiet = true};
}

static void begin_swap(struct gm_engine *engine, uint32_t index)
{
    if (gm_table_unmap(engine->table, index))
        gm_engine_unmap(engine, index);
}

/* Unmap what is mapped on the host: what is not to stay there, or all. */
static void swap_chunks(struct gm_engine *engine, uint32_t id, bool is_all)
{
    struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        /* Chunks of a freed one end one by one, and their places in the table are others' then. */
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling) {
            const struct gm_chunk *chunk = &table->chunks[c];
            if (chunk->is_fixed || chunk->state != GM_CHUNK_ON_HOST ||
                (chunk->is_on_host && !is_all))
                continue;
            gm_table_put(table, c, false);
            begin_swap(engine, c);
        }
}

static void choose_places(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_place_input input = input_for(engine, id);
    input.is_quiet = !engine->stopping.is_on; /* else what is in its place stays there */
    app->places.is_wanted = app->places.is_urgent = false;
    app->places.newest = GM_NONE;
    const struct gm_placed placed = gm_place_app(engine->table, &input, true);
    swap_chunks(engine, id, false);
    app->places.exchanged += placed.come;
    app->places.until = engine->now + GM_PLACE_PATIENCE_NS;
    if (placed.come + placed.leave > 0)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_PLACED,
                                          .app = id,
                                          .placed = {.come = placed.come, .leave = placed.leave}});
}

void gm_engine_begin_places(struct gm_app *app)
{
    app->places.newest = GM_NONE;
}

void gm_engine_forget_newest(struct gm_engine *engine, uint32_t allocation)
{
    struct gm_app *app = &engine->apps[engine->table->allocations[allocation].app];
    if (app->places.newest == allocation)
        app->places.newest = GM_NONE;
}

void gm_engine_hold_at_once(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].places.hold_at = 0;
}

void gm_engine_want_places(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->places.is_wanted)
        return;
    app->places.is_wanted = true;
    app->places.wanted_at = engine->now;
    gm_engine_again(engine);
}

void gm_engine_fit_places(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_table_app *entry = &engine->table->apps[id];
    bool fits = gm_engine_bytes_for_gpu(engine, id) <= gm_engine_places_room(engine, id);
    if (app->state == GM_APP_LOADING) /* one that runs is called back when somebody needs it */
        fits = fits && entry->on_host <= gm_room_rounded(entry->beyond);
    if (fits || (app->state != GM_APP_RUNNING && app->state != GM_APP_LOADING))
        return;
    app->places.hold_at = 0;
    gm_engine_want_places(engine, id);
}

void gm_engine_place_new(struct gm_engine *engine, uint32_t allocation)
{
    const uint32_t id = engine->table->allocations[allocation].app;
    struct gm_app *app = &engine->apps[id];
    if (gm_engine_bytes_for_gpu(engine, id) <= gm_engine_places_room(engine, id))
        return;
    app->places.newest = allocation;
    struct gm_place_input input = input_for(engine, id);
    const bool makes_way = gm_place_app(engine->table, &input, false).leave > 0;
    /* All that does not fit now goes to the host, unless others can make way for it. */
    input.is_quiet = false;
    gm_place_app(engine->table, &input, true);
    app->places.is_urgent =
        makes_way && engine->now >= app->places.hold_failed_until && !app->gate.is_late;
    if (app->places.is_urgent || app->state != GM_APP_RUNNING)
        gm_engine_want_places(engine, id);
    if (app->places.is_urgent)
        app->places.wanted_at = engine->now;
    else
        app->places.newest = GM_NONE;
}

/* USES: hostile until proven otherwise; a place that is nobody's costs nothing. */
void gm_engine_uses(struct gm_engine *engine, uint32_t id, const struct gm_use_entry *entries,
                    uint32_t n)
{
    struct gm_use uses[512];
    struct gm_app *app = &engine->apps[id];

    _Static_assert(sizeof uses / sizeof *uses >= 512, "as many as wire.def allows");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && entries[i].va <= entries[i - 1].va) {
            gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "uses that do not ascend");
            return;
        }
        uses[i] = (struct gm_use){.va = entries[i].va, .count = entries[i].count};
    }
    if (!has_places(engine, id))
        return;
    gm_place_warm(engine->table, id, uses, n);
    const struct gm_place_input input = input_for(engine, id);
    if (app->state == GM_APP_RUNNING && !engine->stopping.is_on &&
        engine->now >= app->places.hold_at && engine->now >= app->places.hold_failed_until &&
        !app->places.is_wanted && gm_place_app(engine->table, &input, false).come > 0)
        gm_engine_want_places(engine, id);
}

/* Pinned memory for what leaves the GPU is made, or was waited for long enough. */
static bool has_pinned(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t used = gm_engine_bytes_for_gpu(engine, id);
    const uint64_t room = gm_engine_places_room(engine, id);
    const uint64_t leaves = used > room ? used - room : 0;
    return gm_hostpool_size(&engine->pool) - gm_engine_pinned_used(engine) >= leaves ||
           engine->now >= engine->apps[id].places.wanted_at + GM_HOLD_FOR_PINNED_NS;
}

bool gm_engine_is_to_hold(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->places.is_wanted && app->state == GM_APP_RUNNING && !engine->stopping.is_on &&
           !app->gate.is_late && engine->now >= app->places.hold_failed_until &&
           (app->places.is_urgent || engine->now >= app->places.hold_at) && has_pinned(engine, id);
}

/* Whether it is to report what its launches use. */
static void tell_counting(const struct gm_engine *engine, uint32_t id)
{
    _Atomic uint32_t *is_counting = &engine->apps[id].ctl->is_counting;
    const uint32_t bit = 1u << engine->config.index;
    if (has_places(engine, id) && !(atomic_load(is_counting) & bit))
        atomic_fetch_or(is_counting, bit);
    else if (!has_places(engine, id) && (atomic_load(is_counting) & bit))
        atomic_fetch_and(is_counting, ~bit);
}

void gm_engine_place(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->ctl && app->session)
            tell_counting(engine, id);
        if (app->places.is_wanted && app->state == GM_APP_LOADING &&
            (!engine->stopping.is_on || engine->stopping.host == id))
            choose_places(engine, id);
    }
}

/* Whether the app's part on the host is another one than was told: by an eighth of all it has, or
 * it is the first or the last of it. */
static bool is_news(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const uint64_t told = engine->apps[id].places.told, now = entry->on_host;
    const uint64_t change = told > now ? told - now : now - told;
    return change > 0 && (told == 0 || now == 0 || change > entry->committed / 8);
}

void gm_engine_note_places(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        const struct gm_table_app *entry = &engine->table->apps[id];
        if (app->state != GM_APP_RUNNING || engine->stopping.is_on || entry->missing > 0 ||
            engine->now < app->places.tell_at || !is_news(engine, id))
            continue;
        app->places.told = entry->on_host;
        app->places.tell_at = engine->now + GM_PLACES_TOLD_NS;
        gm_engine_emit(engine, &(struct gm_event){
                                   .kind = GM_EVENT_ON_HOST,
                                   .app = id,
                                   .on_host = {.bytes = entry->on_host, .all = entry->committed}});
    }
}

/* When the gate opens though chunks have yet to leave. That of an app above its cap stays closed as
 * long as they do. */
static uint64_t placing_end(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint64_t moved = app->progress_at + GM_PLACE_PATIENCE_NS;
    const bool is_above = gm_engine_above_cap(engine, id) > 0;
    return is_above && moved > app->places.until ? moved : app->places.until;
}

bool gm_engine_is_placing(const struct gm_engine *engine, uint32_t id)
{
    return (engine->table->apps[id].leaving > 0 || engine->apps[id].places.is_wanted) &&
           !engine->stopping.is_on && engine->now < placing_end(engine, id);
}

uint64_t gm_engine_placing_due(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (app->state == GM_APP_LOADING && engine->table->apps[id].leaving > 0)
        return placing_end(engine, id);
    if (app->state != GM_APP_RUNNING || !app->places.is_wanted)
        return GM_TIME_NEVER;
    uint64_t at = app->places.wanted_at + GM_HOLD_FOR_PINNED_NS;
    if (!app->places.is_urgent && at < app->places.hold_at)
        at = app->places.hold_at;
    return at > app->places.hold_failed_until ? at : app->places.hold_failed_until;
}

void gm_engine_end_placing(struct gm_engine *engine, uint32_t id, bool is_over)
{
    struct gm_table *table = engine->table;
    struct gm_app *app = &engine->apps[id];
    for (unsigned c = 0; c < GM_CHUNK_CLASSES && table->apps[id].leaving > 0; c++)
        for (uint32_t at = table->apps[id].by_class[c].head, next; at != GM_NONE; at = next) {
            next = table->chunks[at].next;
            if (table->chunks[at].is_leaving)
                gm_table_put(table, at, false);
        }
    if (!is_over) {
        app->places.hold_at = engine->now + GM_HOLD_PAUSE_LEAST_NS;
        app->places.hold_wait = 0;
        return;
    }
    if (engine->stopping.is_on)
        return;
    app->places.is_wanted = app->places.is_urgent = false;
    app->places.newest = GM_NONE;
    for (uint32_t at = table->apps[id].to_map.head, next; at != GM_NONE; at = next) {
        next = table->chunks[at].next;
        gm_table_put(table, at, false);
    }
    /* What is not mapped can leave pinned memory for the tiers below. */
    if (engine->host->has_lower)
        swap_chunks(engine, id, true);
}

void gm_engine_hold_failed(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const uint64_t wait = app->places.hold_wait < GM_HOLD_PAUSE_LEAST_NS
                              ? GM_HOLD_PAUSE_LEAST_NS
                              : 2 * app->places.hold_wait;
    app->places.hold_wait = wait < GM_HOLD_PAUSE_MOST_NS ? wait : GM_HOLD_PAUSE_MOST_NS;
    app->places.hold_failed_until = engine->now + app->places.hold_wait;
    app->places.is_urgent = false;
    app->places.newest = GM_NONE;
    gm_engine_again(engine);
}

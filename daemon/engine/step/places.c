/*
 * Places: what of a program is resident and what is mapped on the host, for programs that may not
 * have all of their memory on the GPU (core/layout.h decides). Owns the fields of struct gm_app
 * under its name.
 *
 * New places are chosen when a program's turn begins, and for a program that runs when memory that
 * it asks for does not fit beside what it has, or when its launches use chunks on the host so much
 * that an exchange pays. Then the gate closes; the scheduler is not told, so the program keeps its
 * turn (is_held). If it does not drain, the memory that waits is mapped on the host, and the next
 * try waits for longer. The same is done when the app has more than its room: its cap was lowered
 * (caps.c).
 */
#include "daemon/engine/step/places.h"

#include "common/sums.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"

/* The gate opens after this though not all exchanges are made; a gigabyte takes 20 ms. */
#define GM_PLACE_PATIENCE_NS (2 * GM_S)
/* At most one line of the log about an app's part on the host in that time: programs allocate
 * in many steps. */
#define GM_PLACES_TOLD_NS (1 * GM_S)

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
    const uint64_t beyond = engine->table->apps[id].beyond;
    /* What takes nobody's place does not have to leave again either. */
    return (struct gm_place_input){.app = id,
                                   .room = room,
                                   .most = free > GM_PLACE_AT_ONCE ? free : GM_PLACE_AT_ONCE,
                                   .newest = engine->apps[id].places.newest,
                                   .keeps = engine->is_short_of_room ? gm_room_rounded(beyond) : 0,
                                   .is_quiet = true};
}

static void begin_swap(struct gm_engine *engine, uint32_t index)
{
    if (gm_table_unmap(engine->table, index))
        gm_engine_unmap(engine, index);
}

/* Unmap what is mapped on the host and is not to stay there. */
static void swap_chunks(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        /* Chunks of a freed one end one by one, and their places in the table are others' then. */
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling) {
            const struct gm_chunk *chunk = &table->chunks[c];
            if (!chunk->is_fixed && chunk->state == GM_CHUNK_ON_HOST && !chunk->is_on_host)
                begin_swap(engine, c);
        }
}

static void choose_places(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_place_input input = input_for(engine, id);
    input.is_quiet = !engine->stopping.is_on; /* else what is in its place stays there */
    app->places.is_wanted = app->places.is_urgent = app->places.is_stale = false;
    app->places.newest = GM_NONE;
    const struct gm_placed placed = gm_layout_place(engine->table, &input, true);
    swap_chunks(engine, id);
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

void gm_engine_need_places(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->places.is_stale)
        return;
    app->places.is_stale = true;
    gm_engine_again(engine);
}

bool gm_engine_has_places(const struct gm_engine *engine, uint32_t id)
{
    return engine->table->apps[id].beyond == 0 || !engine->apps[id].places.is_stale;
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

/* A program waits for host memory, and there is no more. Who runs and has more of it than its part,
 * as its chunks went there for a while, takes them back at once. */
void gm_engine_call_back(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (engine->apps[id].state != GM_APP_RUNNING ||
            engine->table->apps[id].on_host <= engine->table->apps[id].beyond)
            continue;
        gm_engine_hold_at_once(engine, id);
        gm_engine_want_places(engine, id);
    }
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
    app->places.is_stale = true;
    struct gm_place_input input = input_for(engine, id);
    const bool makes_way = gm_layout_place(engine->table, &input, false).leave > 0;
    /* All that does not fit now goes to the host, unless others can make way for it. */
    input.is_quiet = false;
    gm_layout_place(engine->table, &input, true);
    app->places.is_urgent = makes_way && engine->now >= app->places.hold_failed_until;
    if (app->places.is_urgent || app->state != GM_APP_RUNNING)
        gm_engine_want_places(engine, id);
    if (app->places.is_urgent)
        app->places.wanted_at = engine->now;
    else
        app->places.newest = GM_NONE;
}

bool gm_engine_want_exchange(struct gm_engine *engine, uint32_t id)
{
    const struct gm_place_input input = input_for(engine, id);
    if (gm_layout_place(engine->table, &input, false).come == 0)
        return false;
    gm_engine_hold_at_once(engine, id);
    gm_engine_want_places(engine, id);
    return true;
}

void gm_engine_uses(struct gm_engine *engine, uint32_t id, const struct gm_use *uses, uint32_t n,
                    bool is_whole)
{
    struct gm_app *app = &engine->apps[id];
    gm_working_end_window(engine->table, id, &app->working, uses, n, !is_whole);
    if (!has_places(engine, id))
        return;
    const struct gm_place_input input = input_for(engine, id);
    if (app->state == GM_APP_RUNNING && !engine->stopping.is_on &&
        engine->now >= app->places.hold_at && engine->now >= app->places.hold_failed_until &&
        !app->places.is_wanted && gm_layout_place(engine->table, &input, false).come > 0)
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

/* Nothing of it has to move any more. What came meanwhile and has no place yet gets one. */
static void forget_wish(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_place_input input = input_for(engine, id);
    input.is_quiet = false;
    gm_layout_place(engine->table, &input, true);
    app->places.is_wanted = app->places.is_urgent = false;
    app->places.newest = GM_NONE;
}

bool gm_engine_is_to_hold(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (!app->places.is_wanted || app->state != GM_APP_RUNNING || engine->stopping.is_on ||
        engine->now < app->places.hold_failed_until ||
        (!app->places.is_urgent && engine->now < app->places.hold_at) || !has_pinned(engine, id))
        return false;
    const struct gm_place_input input = input_for(engine, id);
    const struct gm_placed placed = gm_layout_place(engine->table, &input, false);
    if (placed.come + placed.leave > 0)
        return true;
    forget_wish(engine, id);
    return false;
}

/* Whether it is to report what its launches use. */
static void tell_counting(struct gm_engine *engine, uint32_t id)
{
    _Atomic uint32_t *is_counting = &engine->apps[id].ctl->is_counting;
    const uint32_t bit = 1u << engine->config.index;
    const bool is_on = has_places(engine, id) || engine->is_short_of_room;
    if (is_on && !(atomic_load(is_counting) & bit)) {
        atomic_fetch_or(is_counting, bit);
    } else if (!is_on && (atomic_load(is_counting) & bit)) {
        atomic_fetch_and(is_counting, ~bit);
        gm_engine_uses(engine, id, NULL, 0, false); /* from now on nobody knows what is cold */
    }
}

void gm_engine_place(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->ctl && app->session)
            tell_counting(engine, id);
        if (engine->stopping.is_on && engine->stopping.host != id)
            continue;
        /* Ahead of its turn, so that what comes then can come before. */
        const bool is_ahead = app->state == GM_APP_PAUSED && app->places.is_stale &&
                              has_places(engine, id) && !engine->stopping.is_on;
        if ((app->places.is_wanted && app->state == GM_APP_LOADING) || is_ahead)
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

/* The pause before the next try after one in vain. */
static uint64_t longer(uint64_t wait)
{
    return wait < GM_HOLD_PAUSE_LEAST_NS ? GM_HOLD_PAUSE_LEAST_NS
                                         : gm_least(2 * wait, GM_HOLD_PAUSE_MOST_NS);
}

/* Chunks were to leave, and nothing has moved since places were chosen. */
static bool is_in_vain(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return engine->table->apps[id].leaving > 0 &&
           app->progress_at + GM_PLACE_PATIENCE_NS <= app->places.until;
}

void gm_engine_end_placing(struct gm_engine *engine, uint32_t id, bool is_over)
{
    struct gm_app *app = &engine->apps[id];
    const bool was_vain = is_in_vain(engine, id);
    gm_layout_stay(engine->table, id);
    if (!is_over) {
        app->places.hold_wait = was_vain ? longer(app->places.hold_wait) : 0;
        app->places.hold_at =
            engine->now + (was_vain ? app->places.hold_wait : GM_HOLD_PAUSE_LEAST_NS);
        return;
    }
    if (engine->stopping.is_on)
        return;
    app->places.is_wanted = app->places.is_urgent = false;
    app->places.is_stale = true; /* what did not get to the host may not all come */
    app->places.newest = GM_NONE;
    /* What is not mapped can leave pinned memory for the tiers below. */
    gm_layout_end_places(engine->table, id, engine->host->has_lower);
    swap_chunks(engine, id);
}

void gm_engine_hold_failed(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    app->places.hold_wait = longer(app->places.hold_wait);
    app->places.hold_failed_until = engine->now + app->places.hold_wait;
    app->places.is_urgent = false;
    app->places.newest = GM_NONE;
    gm_engine_again(engine);
}

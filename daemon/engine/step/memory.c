/*
 * Pinned and device memory beside the moves of a turn: what it is to grow to, chunks that change
 * places, what is mapped on the host, and who was refused.
 *
 * How much memory the daemon makes: a little more than programs need (core/need.h). Unused memory
 * goes back to the system, less what was needed lately. frames.c destroys frames, hostpool.c
 * slabs, stores.c paged memory. Owns the budget, which grows here when programs need more;
 * layout.c has it follow the device.
 */
#include "daemon/engine/step/memory.h"

#include <assert.h>
#include <stdio.h>

#include "common/size.h"
#include "common/sums.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/memory/files.h"

static uint64_t lower_used(const struct gm_engine *engine)
{
    return gm_stores_used(engine->stores, GM_TIER_PAGED) +
           gm_stores_used(engine->stores, GM_TIER_DISK);
}

/* What paused programs that are to leave the GPU need there once they go on. */
static uint64_t vacated(const struct gm_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        bytes += gm_engine_is_vacating(engine, id) ? gm_room_promised(engine->table, id) : 0;
    return bytes;
}

static void describe_need(const struct gm_engine *engine, struct gm_need *need)
{
    const struct gm_table *table = engine->table;
    const struct gm_need_input input = {
        .committed = gm_room_committed(table),
        .beyond =
            gm_least(gm_room_on_host(gm_room_beyond(table), table->beyond_apps) + vacated(engine),
                     table->committed + table->orphaned_on_host),
        .budget = table->budget,
        .pinned_cap = gm_stores_cap(engine->stores, GM_TIER_PINNED),
        .pinned_left = table->condemned_on_host,
        .pinned_used = gm_engine_pinned_used(engine),
        .lower_used = lower_used(engine),
        .window = engine->host->window,
        .is_stuck = engine->is_stuck_for_pages || engine->is_short_of_units,
        .shadows = gm_engine_wanted_shadows(engine),
    };
    gm_need_of(&input, need);
}

static void want_pinned(struct gm_engine *engine, uint64_t bytes)
{
    gm_lately_note(&engine->pinned_lately, engine->now, bytes);
    if (gm_lately_most(&engine->pinned_lately) == 0) /* nothing was evicted, nor will be */
        gm_engine_drop_all_shadows(engine);
    const uint64_t kept = gm_host_may_keep(engine);
    if (gm_less(gm_hostpool_pinned(&engine->pool), gm_hostpool_leaving(&engine->pool)) > kept)
        gm_engine_drop_all_shadows(engine);
    engine->shadows_told = gm_engine_wanted_shadows(engine);
    gm_engine_make_pinned(engine, gm_least(gm_lately_most(&engine->pinned_lately), kept));
}

void gm_engine_forget_frames(struct gm_engine *engine)
{
    gm_lately_forget(&engine->frames_lately);
}

void gm_engine_forget_pinned(struct gm_engine *engine)
{
    gm_lately_forget(&engine->pinned_lately);
}

void gm_engine_want_memory(struct gm_engine *engine)
{
    struct gm_need need;
    describe_need(engine, &need);
    engine->is_lower_used = lower_used(engine) > 0;
    gm_lately_note(&engine->frames_lately, engine->now, need.frames);
    want_pinned(engine, need.pinned);
    gm_engine_make_paged(engine, need.paged);
}

/* What shadows want changes with each switch. While the system refuses more, it is not asked for
 * each. */
static bool have_shadows_changed(const struct gm_engine *engine)
{
    return !gm_engine_is_off(engine, GM_RETRY_PINNED) &&
           engine->shadows_told != gm_engine_wanted_shadows(engine);
}

void gm_engine_pinned_grew(struct gm_engine *engine, const char *error)
{
    if (engine->pool.refusal != CUDA_SUCCESS || engine->pool.stuck != CUDA_SUCCESS)
        gm_engine_back_off(engine, GM_RETRY_PINNED);
    else
        gm_engine_went_well(engine, GM_RETRY_PINNED);
    if (engine->pool.refusal != CUDA_SUCCESS && engine->pool.refusal != engine->pool_refusal)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_NO_PINNED,
                                          .app = GM_NONE,
                                          .no_pinned = {.bytes = gm_hostpool_size(&engine->pool),
                                                        .error = error}});
    engine->pool_refusal = engine->pool.refusal;
}

void gm_engine_follow_host(struct gm_engine *engine)
{
    const uint64_t limit = gm_host_limit(engine);
    if (limit == engine->pinned_limit)
        return;
    engine->pinned_limit = limit;
    gm_engine_replan(engine);
    gm_engine_want_memory(engine);
}

/* Less is needed, whatever brought that about: it goes back in a while. What is needed more is said
 * by who needs it. */
static bool falls(const struct gm_engine *engine, const struct gm_need *need)
{
    return need->pinned < engine->pinned_lately.value || need->frames < engine->frames_lately.value;
}

void gm_engine_give_back(struct gm_engine *engine)
{
    const bool is_asked = gm_host_is_asked(engine);
    struct gm_need need;
    describe_need(engine, &need);
    if (is_asked || engine->now >= gm_engine_give_back_at(engine) || falls(engine, &need) ||
        engine->is_lower_used != (lower_used(engine) > 0))
        gm_engine_want_memory(engine);
    else if (have_shadows_changed(engine))
        want_pinned(engine, need.pinned);
    if (is_asked)
        gm_host_heard(engine);
    gm_engine_give_back_frames(engine, gm_lately_most(&engine->frames_lately));
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_is_vacating(engine, id)) /* what left is nobody's next allocation */
            gm_engine_give_back_frames_of(engine, engine->apps[id].uid,
                                          engine->frames_lately.value);
}

uint64_t gm_engine_give_back_at(const struct gm_engine *engine)
{
    const uint64_t frames = gm_lately_falls_at(&engine->frames_lately);
    const uint64_t pinned = gm_lately_falls_at(&engine->pinned_lately);
    return frames < pinned ? frames : pinned;
}

bool gm_engine_is_vacating(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->is_vacating && app->session && !engine->stopping.is_on;
}

/* The budget. */

/* The scheduler and the planner go by it. */
void gm_engine_set_budget(struct gm_engine *engine, uint64_t bytes, enum gm_why why)
{
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_BUDGET,
                                              .app = GM_NONE,
                                              .budget = {.bytes = bytes,
                                                         .was = engine->table->budget,
                                                         .most = engine->config.budget,
                                                         .why = why}});
    gm_table_set_budget(engine->table, bytes);
    gm_engine_want_memory(engine);
    gm_engine_update_room(engine);
    gm_engine_tell_room(engine);
}

/* What the app needs to run: a group is one. */
uint64_t gm_engine_needed_with(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_sums(engine, id).promised + engine->table->fixed;
}

void gm_engine_need_budget(struct gm_engine *engine, uint32_t id)
{
    const uint64_t bytes = gm_engine_needed_with(engine, id);
    if (bytes > engine->table->budget)
        gm_engine_set_budget(engine, bytes, GM_WHY_NEEDED);
}

/* ---- where chunks lie ---- */

/*
 * Places: what of a program is resident and what is mapped on the host, for programs that may not
 * have all of their memory on the GPU (core/place.h decides). Owns the fields of struct gm_app
 * under its name.
 *
 * New places are chosen when a program's turn begins, and for a program that runs when memory that
 * it asks for does not fit beside what it has, or when its launches use chunks on the host so much
 * that an exchange pays. Then the gate closes; the scheduler is not told, so the program keeps its
 * turn (is_held). If it does not drain, the memory that waits is mapped on the host, and the next
 * try waits for longer. The same is done when the app has more than its room: its cap was lowered
 * (caps.c).
 */

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
    app->places.is_wanted = app->places.is_urgent = app->places.is_stale = false;
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
static void call_back(struct gm_engine *engine)
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
    const bool makes_way = gm_place_app(engine->table, &input, false).leave > 0;
    /* All that does not fit now goes to the host, unless others can make way for it. */
    input.is_quiet = false;
    gm_place_app(engine->table, &input, true);
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
    if (gm_place_app(engine->table, &input, false).come == 0)
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

/* Nothing of it has to move any more. What came meanwhile and has no place yet gets one. */
static void forget_wish(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_place_input input = input_for(engine, id);
    input.is_quiet = false;
    gm_place_app(engine->table, &input, true);
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
    const struct gm_placed placed = gm_place_app(engine->table, &input, false);
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
    struct gm_table *table = engine->table;
    struct gm_app *app = &engine->apps[id];
    const bool was_vain = is_in_vain(engine, id);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES && table->apps[id].leaving > 0; c++)
        for (uint32_t at = table->apps[id].by_class[c].head, next; at != GM_NONE; at = next) {
            next = table->chunks[at].next;
            if (table->chunks[at].is_leaving)
                gm_table_put(table, at, false);
        }
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
    app->places.hold_wait = longer(app->places.hold_wait);
    app->places.hold_failed_until = engine->now + app->places.hold_wait;
    app->places.is_urgent = false;
    app->places.newest = GM_NONE;
    gm_engine_again(engine);
}

/* ---- refusals ---- */

/*
 * Refusals of memory for the log and the status. Owns gm_app.refusal.
 *
 * The daemon keeps the reason for which it refused an allocation. Only the shim knows whether the
 * program was told: it may have freed something and asked again. So the shim counts refusals
 * (gm_stat.refused). This count is shown, never trusted. A program that retries thousands of times
 * a second gets one line a second, with the number of the others.
 */

/* After a refusal the shim gives back what it keeps and asks again, which takes some
 * milliseconds; a memory pool tries for longer, and asks anew meanwhile. */
#define GM_REFUSAL_LOOK_NS (100 * GM_MS)
/* At most one line of a program in that time. */
#define GM_REFUSAL_TOLD_NS (1 * GM_S)

void gm_engine_refused(struct gm_engine *engine, uint32_t id, uint64_t bytes, enum gm_why reason)
{
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    struct gm_app *app = &engine->apps[id];
    struct gm_reason *newest = &app->refusal.newest;
    *newest = gm_room_reason(&input, reason);
    newest->bytes = bytes;
    newest->held = engine->table->apps[id].committed;
    newest->is_unswappable = gm_host_limit_alone(engine) <= engine->host->window;
    newest->is_host_mappable = input.is_host_mappable;
    newest->files = gm_files_for_frames();
    app->refusal.n++;
    if (app->refusal.due == 0)
        app->refusal.due = engine->now + GM_REFUSAL_LOOK_NS;
}

/* Whether the engine of another of the program's GPUs refused, and will tell. */
static bool is_told_elsewhere(const struct gm_engine *engine, const struct gm_app *app)
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        const struct gm_engine *other = app->client->engines[i];
        if (other && other != engine && other->apps[app->client->id].refusal.n > 0)
            return true;
    }
    return false;
}

static void tell(struct gm_engine *engine, uint32_t id, const struct gm_reason *refusal, uint64_t n)
{
    gm_engine_note_refusal(engine, id, refusal, n);
    engine->apps[id].refusal.told_at = engine->now;
}

/* What the driver refused, the shim says: the daemon was not asked. Of the rest the newest decision
 * is the reason. If there was none, the program has a limit of its own (a pool's). */
static void note(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_client *client = app->client; /* the program counts for all its GPUs */
    if (!app->stat)
        return;
    const uint64_t by_driver =
        gm_less(atomic_load(&app->stat->driver_refused), client->driver_refused_told);
    const uint64_t all = gm_less(atomic_load(&app->stat->refused), client->refused_told);
    const uint64_t others = gm_less(all, by_driver);
    if (by_driver > 0) {
        const struct gm_reason driver = {.why = GM_WHY_DRIVER,
                                         .bytes = atomic_load(&app->stat->driver_refused_bytes)};
        tell(engine, id, &driver, by_driver);
        client->driver_refused_told += by_driver;
        client->refused_told += gm_least(all, by_driver);
    }
    if (others == 0 || (app->refusal.n == 0 && is_told_elsewhere(engine, app)))
        return;
    const struct gm_reason own = {.why = GM_WHY_OWN};
    tell(engine, id, app->refusal.n > 0 ? &app->refusal.newest : &own, others);
    app->refusal.n = gm_less(app->refusal.n, others);
    client->refused_told += others;
}

void gm_engine_note_refusals(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (!app->session || !app->stat)
            continue;
        const uint64_t free_at =
            app->refusal.told_at ? app->refusal.told_at + GM_REFUSAL_TOLD_NS : 0;
        if (engine->now >= free_at)
            note(engine, id);
        else if (app->refusal.due)
            app->refusal.due = free_at;
        if (app->refusal.due && engine->now >= app->refusal.due)
            app->refusal.due = app->refusal.n = 0; /* the program got it after all */
    }
}

void gm_engine_note_last_refusal(struct gm_engine *engine, uint32_t id)
{
    note(engine, id);
}

void gm_engine_skip_refusals(struct gm_client *client)
{
    client->refused_told = atomic_load(&client->stat->refused);
    client->driver_refused_told = atomic_load(&client->stat->driver_refused);
}

uint64_t gm_engine_refusals_due(const struct gm_engine *engine)
{
    uint64_t at = GM_TIME_NEVER;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->session && app->refusal.due && app->refusal.due < at)
            at = app->refusal.due;
    }
    return at;
}

/* ---- mapped on the host ---- */

/*
 * Brings chunks to their places on the host. A chunk that is mapped there lies in a unit of pinned
 * memory, whose handle the program imports: its data stays where an eviction had put it. On its
 * way it takes these steps, each as soon as it can (gm_engine_map_on_host):
 *
 *   resident       the plan evicts it, into a unit if there is one
 *   never written  its unit is cleared before the program can see it
 *   elsewhere      in pages that are no unit, or in a lower tier: a worker copies it to one
 *   in a unit      it gets a host frame and is mapped
 *
 * From the host to the GPU it is unmapped (UNMAPPING), and the plan fills it like others.
 */

/* Whether a slab can be emptied is asked again after that. The look at 100,000 chunks is
 * bounded so to a part of the daemon's time, however often it is called. */
#define GM_EMPTY_AGAIN_NS (10 * GM_MS)

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
    engine->is_cut_up = engine->is_cut_up || (page == GM_NONE && has_room);
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
    const uint32_t frame = gm_engine_ask_host_frame(engine, index);
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

/*
 * Pinned memory cannot grow, and what is free of it lies in slabs of which others use a part, so no
 * unit can be made. The data in the slab with least of it moves to what is free in the others.
 * While there is a free slab, it becomes units first: data would move to it, and then back.
 */
static void empty_slab(struct gm_engine *engine)
{
    struct gm_pages *pages = &engine->pool.pages;
    const uint32_t copies = engine->host_copies;
    const uint32_t slab = gm_hostpool_emptiest(&engine->pool);
    for (uint32_t i = 0; slab != GM_NONE && i < engine->table->max_chunks; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[i];
        if (chunk->state != GM_CHUNK_AWAY || chunk->is_freed || chunk->tier != GM_TIER_PINNED ||
            !gm_pages_touch(pages, chunk->page, slab))
            continue;
        const uint32_t page = gm_pages_take_beside(pages, gm_chunk_bytes(chunk), slab);
        if (page == GM_NONE)
            break;
        gm_engine_copy_below(engine, i, GM_TIER_PINNED, page);
    }
    /* It looks at all chunks: in vain not with each event. */
    engine->empty_at = engine->host_copies > copies ? 0 : engine->now + GM_EMPTY_AGAIN_NS;
}

void gm_engine_map_on_host(struct gm_engine *engine)
{
    engine->is_short_of_units = engine->is_out_of_units = engine->is_cut_up = false;
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
    if (engine->is_out_of_units && !engine->out_told) {
        call_back(engine);
        gm_engine_replan(engine);
        gm_engine_again(engine);
    }
    if (engine->is_out_of_units && engine->is_cut_up && engine->host_copies == 0 &&
        engine->pool.pages.free_slabs == 0 && engine->now >= engine->empty_at)
        empty_slab(engine);
    engine->short_told = engine->is_short_of_units;
    engine->out_told = engine->is_out_of_units;
    gm_engine_make_pinned_units(engine);
}

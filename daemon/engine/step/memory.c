/*
 * How much memory the daemon makes, and who was refused: a little more than programs need
 * (core/need.h). Unused memory goes back to the system, less what was needed lately. frames.c
 * destroys frames, hostpool.c slabs, stores.c paged memory. Owns the budget, which grows here when
 * programs need more; budget.c has it follow the device.
 */
#include "daemon/engine/step/memory.h"

#include <assert.h>
#include <stdio.h>

#include "common/size.h"
#include "common/sums.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/frames.h"
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

void gm_engine_hold_frames(struct gm_engine *engine)
{
    gm_lately_hold(&engine->frames_lately, engine->now);
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

/*
 * Refusals of memory for the log and the status. Owns gm_app.refusal. Called
 * by the files that refuse memory and by deadlines.c; calls log.c.
 *
 * The daemon keeps the reason for which it refused an allocation. Only the shim knows whether the
 * program was told: it may have freed something and asked again. So the shim counts refusals
 * (gm_stat.refused). This count is shown, never trusted. A program that retries thousands of times
 * a second gets one line a second, with the number of the others.
 */
#include "daemon/engine/step/refusals.h"

#include "common/sums.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/room.h"
#include "daemon/memory/files.h"

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

/*
 * Refusals of memory for the log and the status. Owns gm_app.refusal. Called
 * by the files that refuse memory, by deadlines.c and by views/log.c; calls log.c.
 *
 * The daemon keeps the reason for which it refused an allocation. Only the shim knows whether the
 * program was told: it may have freed something and asked again. So the shim counts refusals
 * (gm_stat.refused). This count is shown, never trusted. A program that retries thousands of times
 * a second gets one line a second, with the number of the others.
 */
#include <stdio.h>

#include "common/log.h"
#include "common/size.h"
#include "common/sums.h"
#include "daemon/engine/inside.h"
#include "daemon/memory/files.h"

void gm_engine_refused(struct gm_engine *engine, uint32_t id, uint64_t bytes, enum gm_why reason)
{
    const uint64_t capacity = gm_engine_capacity(engine);
    struct gm_app *app = &engine->apps[id];
    app->refusal.newest = (struct gm_reason){
        .why = reason,
        .bytes = bytes,
        .held = engine->table->apps[id].committed,
        .limit = capacity,
        .taken = capacity - gm_engine_left(engine),
        .is_unswappable = gm_stores_cap(engine->stores, GM_TIER_PINNED) <= engine->window,
        .is_host_mappable = !engine->pool.is_registered,
        .files = gm_files_for_frames(),
    };
    if (reason == GM_WHY_BUDGET) {
        app->refusal.newest.limit = gm_engine_offered(engine);
        app->refusal.newest.taken = engine->table->fixed - engine->table->apps[id].fixed;
    } else if (reason == GM_WHY_USER) {
        app->refusal.newest.limit = app->cap.user_pinned;
        app->refusal.newest.taken = app->cap.user_pinned - gm_engine_user_room(engine, id);
    } else if (reason == GM_WHY_LIMIT) {
        app->refusal.newest.limit = gm_client_told(app->client, UINT64_MAX);
    } else if (reason == GM_WHY_PINNED) {
        app->refusal.newest.limit = gm_engine_host_room(engine);
        app->refusal.newest.taken = engine->table->beyond;
    }
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

/* ---- words ---- */

const char *gm_engine_refusal_raise(const struct gm_reason *refusal)
{
    switch (refusal->why) {
    case GM_WHY_BUDGET:
        return refusal->is_host_mappable
                   ? "--gpu-budget, or take --oversize host or GPUMUX_OVERSIZE=host"
                   : "--gpu-budget";
    case GM_WHY_PINNED:
        return "--pinned";
    case GM_WHY_USER:
        return "user-pinned= in the rule for its user";
    case GM_WHY_LIMIT:
        return "CUDA_DEVICE_MEMORY_LIMIT or GPU_MEMORY_LIMIT in its environment";
    case GM_WHY_FILES:
        return "LimitNOFILE or ulimit -n of gpumuxd";
    case GM_WHY_FULL:
    case GM_WHY_DEADLOCK:
        return refusal->is_unswappable ? "--pinned" : "--pinned, --paged or --disk";
    default:
        return "";
    }
}

const char *gm_engine_refusal_text(const struct gm_reason *refusal, char *text, size_t size)
{
    char limit[32], taken[32], held[32];
    gm_format_size(refusal->limit, limit, sizeof limit);
    gm_format_size(refusal->taken, taken, sizeof taken);
    gm_format_size(refusal->held, held, sizeof held);
    switch (refusal->why) {
    case GM_WHY_BUDGET:
        snprintf(text, size, "no program gets more than the budget of %s, and it has %s%s%s%s",
                 limit, held, refusal->taken ? "; " : "", refusal->taken ? taken : "",
                 refusal->taken ? " are shared by others" : "");
        break;
    case GM_WHY_PINNED:
        snprintf(text, size,
                 "what is beyond the budget or a cap is in pinned memory, which has room for %s of "
                 "it, and %s are taken",
                 limit, taken);
        break;
    case GM_WHY_USER:
        snprintf(
            text, size,
            "the programs of its user may have %s of memory that can be moved out, and have %s",
            limit, taken);
        break;
    case GM_WHY_LIMIT:
        snprintf(text, size, "by its environment it may have %s, and it has %s", limit, held);
        break;
    case GM_WHY_FILES:
        snprintf(
            text, size,
            "each piece of 2 to 32 MiB needs an open file of gpumuxd, and there are %u for all "
            "of its %s and what others share or have in host memory",
            refusal->files, held);
        break;
    case GM_WHY_FULL:
        snprintf(text, size, "all tiers together hold %s, and %s are taken%s", limit, taken,
                 refusal->is_unswappable ? "; pinned memory is too small to swap anything" : "");
        break;
    case GM_WHY_DEADLOCK:
        snprintf(text, size,
                 "it has %s and waited for others that have memory and waited for it; all tiers "
                 "together hold %s",
                 held, limit);
        break;
    case GM_WHY_WAITING:
        snprintf(text, size, "%d allocations of its user wait for room already",
                 GM_WAITING_OF_USER);
        break;
    case GM_WHY_HOST:
        snprintf(text, size, "the system gives no more host memory, see the daemon's log");
        break;
    case GM_WHY_MAP:
        snprintf(text, size, "the program could not map it, see the daemon's log");
        break;
    case GM_WHY_OWN:
        snprintf(text, size, "a limit of its own, as of a memory pool: the daemon was not asked");
        break;
    default:
        snprintf(text, size,
                 "the driver refused memory that gpumux does not manage: the daemon was not asked");
        break;
    }
    return text;
}

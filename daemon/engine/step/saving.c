/*
 * The end of the daemon. Called by step.c, run.c and deadlines.c; calls
 * core/saving.
 *
 * Mapped frames, on the device or the host, live as long as a process holds them. So this file
 * makes as many programs as possible whole, with the engine's usual means. It decides instead of
 * the scheduler whose gates open.
 *
 *   1  Programs that fit on the GPU together (core/saving) are loaded first, and their gates open.
 *      The budget is all that the device has left. Their gates never close again.
 *   2  The others follow one by one. What does not fit on the GPU is mapped on the host (places.c).
 *   3  If none of those that are left can be made whole, the one that lacks most is given up. Its
 *      pinned memory is room for the others.
 *
 * A program that is given up and the log are told why. Its gate stays closed, and its calls fail
 * (shim/link/link.h). Allocations are not answered: without a daemon the driver serves them.
 *
 * If nothing moves for GM_STALL_NS, a program that does not answer is given up. Then, or at the
 * time limit, so are all that do not run yet.
 */
#include "daemon/engine/step/saving.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/sums.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/act/tiers.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/shadows.h"

/* A daemon that stops brings memory back to programs for this long at most. */
#define GM_SAVING_NS (60 * GM_S)

static bool is_candidate(const struct gm_app *app)
{
    return app->state != GM_APP_UNUSED && app->state != GM_APP_GONE && app->state != GM_APP_LOST &&
           !app->is_given_up;
}

static bool is_open(const struct gm_app *app)
{
    return app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING;
}

static void give_up(struct gm_engine *engine, uint32_t id, enum gm_why why)
{
    struct gm_app *app = &engine->apps[id];
    const uint64_t bytes = gm_room_promised(engine->table, id);
    char text[160];

    app->is_given_up = true;
    snprintf(text, sizeof text,
             "the daemon stops, and %" PRIu64 " of %" PRIu64 " MiB are lost with it: %s",
             gm_less(bytes, engine->table->apps[id].resident) >> 20,
             engine->table->apps[id].committed >> 20, gm_why_text(why));
    gm_engine_cut_off(engine, id, GM_REFUSE_STOPPING, text);
    gm_engine_happened(engine, id, GM_EVENT_CUT_OFF);
    if (engine->stopping.host == id)
        engine->stopping.host = GM_NONE;
    gm_engine_again(engine);
}

/* When memory of any program last came nearer. */
static uint64_t last_progress(const struct gm_engine *engine)
{
    uint64_t at = engine->stopping.until - GM_SAVING_NS;
    if (engine->awake_at > at)
        at = engine->awake_at;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state != GM_APP_UNUSED && engine->apps[id].progress_at > at)
            at = engine->apps[id].progress_at;
    return at;
}

/* Programs for which there is no more hope, whatever room there is. */
static void give_up_hopeless(struct gm_engine *engine)
{
    const bool is_late = engine->now >= engine->stopping.until;
    const bool is_stuck = engine->now >= last_progress(engine) + GM_STALL_NS;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        const bool is_whole = engine->table->apps[id].missing == 0;
        if (!is_candidate(app) || app->state == GM_APP_RUNNING ||
            (is_whole && (!is_late || is_open(app)))) /* late: its group holds it up */
            continue;
        if (is_late)
            give_up(engine, id, GM_WHY_NO_TIME);
        else if (engine->table->apps[id].is_silent && is_stuck) /* it may just have gone on */
            give_up(engine, id, GM_WHY_UNANSWERED);
        else if (app->state == GM_APP_LOADING && is_stuck)
            give_up(engine, id, GM_WHY_STUCK);
        else if (engine->stopping.host == id && gm_engine_is_app_off(engine, id))
            give_up(engine, id, GM_WHY_HOST_FAILS);
    }
}

/* Bytes of the GPU that programs can be given. */
static uint64_t room(const struct gm_engine *engine)
{
    uint64_t bytes = engine->room;
    const struct gm_frame *frame;
    for (uint32_t i = engine->table->first_condemned; i != GM_NONE; i = frame->next) {
        frame = &engine->table->frames[i];
        const uint64_t size = gm_class_bytes(frame->class);
        if (!frame->is_host && frame->exit_of != GM_NONE)
            bytes -= size < bytes ? size : bytes;
    }
    return bytes;
}

/* What of the app does not fit into `left` bytes of the GPU is beyond it, and is mapped on the host
 * (places.c). False: it cannot be. */
static bool host(struct gm_engine *engine, const struct gm_saving *saving, uint64_t left)
{
    const struct gm_table_app *app = &engine->table->apps[saving->app];
    const uint64_t beyond = gm_saving_beyond(engine->table, saving->app, left);
    const uint64_t bytes = gm_less(beyond, app->on_host);
    const uint64_t pinned = app->to_map_bytes + bytes + GM_ROOM_ROUNDING;
    if (engine->pool.is_registered || pinned > gm_hostpool_cap(&engine->pool))
        return false;
    gm_table_set_beyond(engine->table, saving->app, beyond);
    gm_engine_make_pinned(engine, gm_hostpool_cap(&engine->pool));
    gm_engine_emit(engine, &(struct gm_event){
                               .kind = GM_EVENT_SAVING, .app = saving->app, .saving.bytes = bytes});
    engine->stopping.host = saving->app;
    gm_engine_want_places(engine, saving->app);
    gm_engine_progressed(engine, saving->app);
    return true;
}

static bool is_anything_on_its_way(const struct gm_engine *engine)
{
    for (int way = 0; way < GM_WAYS; way++)
        if (gm_engine_is_copying(engine, (enum gm_way)way))
            return true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (is_candidate(&engine->apps[id]) && engine->apps[id].batches.sent &&
            !engine->table->apps[id].is_silent)
            return true;
    return engine->host_copies > 0 || engine->hashing.copies > 0;
}

static void end(struct gm_engine *engine)
{
    unsigned whole = 0, lost = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        whole += is_open(&engine->apps[id]);
        lost += engine->apps[id].is_given_up;
    }
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_SAVED,
                                              .app = GM_NONE,
                                              .saved = {.whole = whole, .lost = lost}});
    engine->stopping.is_over = true;
}

void gm_engine_choose_saved(struct gm_engine *engine)
{
    struct gm_stopping *stopping = &engine->stopping;
    uint64_t left = room(engine);
    uint32_t n = 0;
    bool is_ready = true;

    give_up_hopeless(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (is_candidate(app))
            stopping->apps[n++] =
                gm_saving_of(engine->table, id, is_open(app), stopping->host == id);
    }
    const uint32_t chosen = gm_saving_choose(stopping->apps, n, left);
    for (uint32_t i = 0; i < chosen; i++) {
        const uint32_t id = stopping->set[i] = stopping->apps[i].app;
        left -= stopping->apps[i].bytes < left ? stopping->apps[i].bytes : left;
        /* Nothing was taken from one that still drains: it goes on without its gate, too. */
        const struct gm_app *app = &engine->apps[id];
        is_ready = is_ready && (app->state == GM_APP_RUNNING ||
                                (app->state == GM_APP_DRAINING &&
                                 (app->is_stopped || engine->now >= stopping->until)));
    }
    gm_engine_decide(engine, stopping->set, chosen);
    if (stopping->host != GM_NONE && (!is_candidate(&engine->apps[stopping->host]) ||
                                      engine->apps[stopping->host].state == GM_APP_RUNNING))
        stopping->host = GM_NONE; /* it is whole, or has left */
    if (!is_ready || stopping->host != GM_NONE || stopping->is_over)
        return;
    if (chosen == n) {
        end(engine);
        return;
    }
    if (is_anything_on_its_way(engine))
        return; /* evictions: they end in pinned memory, and that is known then */
    for (uint32_t i = chosen; i < n; i++)
        if (host(engine, &stopping->apps[i], left))
            return;
    give_up(engine, stopping->apps[n - 1].app, GM_WHY_FITS_NOWHERE);
}

void gm_engine_put_off_end(struct gm_engine *engine, uint64_t ns)
{
    if (engine->stopping.is_on)
        engine->stopping.until += ns;
}

uint64_t gm_engine_saving_due(const struct gm_engine *engine)
{
    const uint64_t at = last_progress(engine) + GM_STALL_NS;
    return at < engine->stopping.until ? at : engine->stopping.until;
}

void gm_engine_begin_saving(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg)
{
    engine->stopping.is_on = true;
    engine->stopping.on_saved = on_saved;
    engine->stopping.arg = arg;
    engine->stopping.until = engine->now + GM_SAVING_NS;
    engine->stopping.host = GM_NONE;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        gm_engine_retry_at_once(engine, id);
        gm_engine_end_placing(engine, id, true);
    }
    gm_engine_drop_all_shadows(engine);
    gm_engine_take_device(engine);
    gm_engine_replan(engine);
}

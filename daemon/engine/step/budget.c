/*
 * What of the device is for frames, and what programs keep of it when the daemon ends.
 */
#include "daemon/engine/step/budget.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/sums.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/memory/files.h"

/* ---- the budget ---- */

/*
 * The budget follows what other programs leave of the device (core/room.h), and paused programs
 * leave the GPU when somebody wants that: their user, root or programs beside gpumux, and at once
 * where they are evicted (set.c). Owns gm_app.is_vacating.
 */

/* How often to ask what the device has left. The driver sends no events; a query takes 20 us. */
#define GM_BUDGET_CHECK_NS (1 * GM_S)

/* Paused programs. Their memory leaves the GPU when their user, root or programs beside gpumux want
 * that; programs of ours take it by their plans. It comes back when they go on. */

static const struct gm_scope everybody = {.is_all = true};

static void vacate_one(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (app->is_vacating)
        return;
    app->is_vacating = true;
    gm_engine_take_spares(engine, id, UINT64_MAX);
    gm_engine_replan(engine);
}

/* Those in the scope that are paused. */
static void vacate(struct gm_engine *engine, const struct gm_scope *scope)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_engine_is_in(engine, id, scope) &&
            gm_engine_is_paused(engine, id))
            vacate_one(engine, id);
}

/* Who is evicted leaves the GPU, and who goes on needs it again. */
static void follow_paused(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        const bool was_vacating = app->is_vacating;
        if (was_vacating && !gm_engine_is_paused(engine, id))
            app->is_vacating = false;
        else if (app->session && gm_engine_is_evicted(engine, id))
            vacate_one(engine, id);
        if (app->is_vacating != was_vacating)
            gm_engine_want_memory(engine);
    }
}

/* What of the paused programs in the scope is to leave the GPU, as far as there is room below. */
static uint64_t to_leave(const struct gm_engine *engine, const struct gm_scope *scope)
{
    uint64_t bytes = 0, room = 0, used = engine->host->window;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_is_vacating(engine, id) && gm_engine_is_in(engine, id, scope))
            bytes += gm_less(engine->table->apps[id].device, engine->table->apps[id].fixed);
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++) {
        room += gm_stores_cap(engine->stores, (enum gm_tier)tier);
        used += tier == GM_TIER_PINNED ? gm_engine_pinned_used(engine)
                                       : gm_stores_used(engine->stores, (enum gm_tier)tier);
    }
    return gm_least(bytes, gm_less(room, used));
}

/* The budget. */

static uint64_t largest_app(const struct gm_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_engine_needed_with(engine, id) > bytes)
            bytes = gm_engine_needed_with(engine, id);
    return bytes;
}

/* What all programs have of a budget that was given, and no tier below has room for, as far as the
 * GPU has so much: it comes before the reserve. With less there they could not take turns. */
static uint64_t owed(const struct gm_engine *engine, uint64_t free_bytes)
{
    if (engine->is_budget_auto)
        return 0;
    return gm_chunk_floor(gm_least(gm_engine_owed(engine), engine->table->allocated + free_bytes));
}

/* Whether the budget may be another one without a frame that is refused. */
static bool is_followed(const struct gm_engine *engine)
{
    return !engine->stopping.is_on &&
           (engine->is_budget_auto || engine->table->budget < engine->config.budget);
}

/* `why` it goes down, if it does. */
static void follow(struct gm_engine *engine, uint64_t free_bytes, uint64_t least, enum gm_why why)
{
    const struct gm_table *table = engine->table;
    const struct gm_room_device device = {.budget = table->budget,
                                          .most = engine->config.budget,
                                          .least = least,
                                          .available = table->allocated + free_bytes,
                                          .reserve = engine->device_reserve};
    uint64_t next = gm_room_next_budget(&device);

    if (next > table->budget && gm_files_left_for_frames() >= GM_FILES_SPARE)
        gm_engine_set_budget(engine, next, GM_WHY_GPU_FREE);
    if (next >= table->budget)
        return;
    /* Others need it now, so nothing is kept. What exists counts until it is destroyed: the next
     * look takes that into account. */
    gm_engine_take_all_spares(engine);
    gm_engine_forget_frames(engine);
    gm_engine_give_back_frames(engine, next);
    next = next > table->allocated ? next : table->allocated;
    if (next < table->budget)
        gm_engine_set_budget(engine, next, why);
}

void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused)
{
    const uint64_t largest = largest_app(engine), allocated = engine->table->allocated;
    const uint64_t free_bytes = engine->seen.free_bytes;

    if (refused != GM_WHY_NONE) /* whatever the driver says is free */
        follow(engine, 0, largest > allocated ? largest : allocated, refused);
    else if (is_followed(engine) && engine->seen.is_known) {
        if (free_bytes < engine->device_reserve / 4)
            vacate(engine, &everybody);
        const uint64_t least = owed(engine, free_bytes);
        follow(engine, free_bytes, largest > least ? largest : least, GM_WHY_USED_BESIDE);
    }
    engine->budget_check_at = is_followed(engine) ? engine->now + GM_BUDGET_CHECK_NS : 0;
}

void gm_engine_follow_refusal(struct gm_engine *engine)
{
    const enum gm_why why = gm_engine_take_refusal(engine);
    if (why != GM_WHY_NONE)
        gm_engine_follow_budget(engine, why);
}

void gm_engine_check_budget(struct gm_engine *engine)
{
    follow_paused(engine);
    if (engine->budget_check_at == 0 || engine->now < engine->budget_check_at)
        return;
    engine->budget_check_at = 0;
    /* Without programs who comes next, or asks for the status, looks. */
    if (engine->n_apps > 0 && !gm_engine_post(engine, GM_ACTION_ASK_DEVICE))
        engine->budget_check_at = engine->now + GM_BUDGET_CHECK_NS;
}

/* From now on the budget is all that the device has left, whatever the option says. */
static void take_device(struct gm_engine *engine)
{
    struct gm_table *table = engine->table;
    const uint64_t allowed = table->budget - table->allocated;
    const uint64_t free_bytes = engine->seen.free_bytes;
    if (!engine->seen.is_known)
        return;
    /* What is beyond the budget is not taken to the last byte: the driver needs some itself. */
    uint64_t bytes = free_bytes > allowed + GM_CHUNK_MAX ? free_bytes - GM_CHUNK_MAX : allowed;
    if (free_bytes < allowed)
        bytes = free_bytes;
    gm_table_set_budget(table, table->allocated + (bytes & ~(GM_CHUNK_MIN - 1)));
}

/* On request. */

/* Administrators ask for all memory, and so does who is alone here. Others ask for
 * theirs: what the programs of others keep for their next switch or allocation stays. */
static struct gm_scope scope_of(const struct gm_engine *engine, uid_t asker, bool is_admin)
{
    bool is_alone = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        is_alone =
            is_alone && (engine->apps[id].state == GM_APP_UNUSED || engine->apps[id].uid == asker);
    return (struct gm_scope){.is_all = is_alone || is_admin, .uid = asker};
}

static void let_go(struct gm_engine *engine, const struct gm_scope *scope)
{
    if (scope->is_all) {
        gm_engine_forget_frames(engine);
        gm_engine_forget_pinned(engine);
    }
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!gm_engine_is_in(engine, id, scope))
            continue;
        gm_engine_take_spares(engine, id, UINT64_MAX);
        gm_engine_drop_shadows_of(engine, id);
    }
    gm_engine_forget_lost(engine, scope);
    vacate(engine, scope);
}

void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, bool is_admin,
                           struct gm_trimmed *trimmed)
{
    const struct gm_table *table = engine->table;
    const struct gm_scope scope = scope_of(engine, asker, is_admin);

    let_go(engine, &scope);
    const uint64_t leaving = gm_hostpool_leaving(&engine->pool), condemned = table->condemned;
    gm_engine_want_memory(engine);
    gm_engine_give_back(engine);
    if (!scope.is_all)
        gm_engine_give_back_frames_of(engine, asker, engine->frames_lately.value);
    trimmed->gpu = table->condemned - condemned + to_leave(engine, &scope);
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_TRIM);
    action->trim.trimmed = trimmed;
    action->trim.asker = asker;
    action->trim.is_all = scope.is_all;
    action->trim.leaving = leaving;
}

void gm_engine_trimmed(struct gm_engine *engine, struct gm_trimmed *trimmed, uint64_t leaving,
                       uid_t asker, bool is_all)
{
    trimmed->pinned = gm_less(gm_hostpool_leaving(&engine->pool), leaving);
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_TRIMMED,
                                              .app = GM_NONE,
                                              .trimmed = {.gpu = trimmed->gpu,
                                                          .pinned = trimmed->pinned,
                                                          .paged = trimmed->paged,
                                                          .is_all = is_all,
                                                          .user = asker}});
}

bool gm_engine_is_trimming(const struct gm_engine *engine)
{
    return engine->table->condemned > 0 || gm_hostpool_leaving(&engine->pool) > 0 ||
           gm_stores_is_trimming(engine->stores) || to_leave(engine, &everybody) > 0;
}

/* ---- saving ---- */

/*
 * The end of the daemon.
 *
 * Mapped frames, on the device or the host, live as long as a process holds them. So as many
 * programs as possible are made whole, with the engine's usual means. This decides instead of the
 * scheduler whose gates open.
 *
 *   1  Programs that fit on the GPU together (core/saving) are loaded first, and their gates open.
 *      The budget is all that the device has left. Their gates never close again.
 *   2  The others follow one by one. What does not fit on the GPU is mapped on the host (moves.c).
 *   3  If none of those that are left can be made whole, the one that lacks most is given up. Its
 *      pinned memory is room for the others.
 *
 * A program that is given up and the log are told why. Its gate stays closed, and its calls fail
 * (shim/link/link.h). Allocations are not answered: without a daemon the driver serves them.
 *
 * If nothing moves for GM_STALL_NS, a program that does not answer is given up. Then, or at the
 * time limit, so are all that do not run yet.
 */

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
 * (moves.c). False: it cannot be. */
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
    gm_engine_again(engine); /* it is chosen now */
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
    /* It is whole, or has left; or the GPU has less room than when it was chosen. */
    if (stopping->host != GM_NONE && (engine->apps[stopping->host].state == GM_APP_RUNNING ||
                                      !gm_engine_is_chosen(engine, stopping->host)))
        stopping->host = GM_NONE;
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
    take_device(engine);
    gm_engine_replan(engine);
}

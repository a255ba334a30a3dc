/* What the layout follows from: the timeline, the budget, and what is saved at the end. */
#include "daemon/engine/step/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/sums.h"
#include "daemon/core/plan_moves.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
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
    if (engine->n_apps > 0) /* else who comes next, or asks for the status, looks */
        gm_engine_post(engine, GM_ACTION_ASK_DEVICE); /* ... and follow */
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
 *   2  The others follow one by one. What does not fit on the GPU is mapped on the host (memory.c).
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
 * (memory.c). False: it cannot be. */
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
    take_device(engine);
    gm_engine_replan(engine);
}

/* The daemon tries to prefetch for so many, one after the other, until it finds something to
 * move. In programs. */
#define GM_PLANS_AHEAD 4

/* ---- the layout ---- */

/*
 * Says where each app stands on the timeline, has the layout made that follows from it
 * (core/layout.h), and the plan that brings it about (core/plan.h). Owns both.
 *
 * Pinned memory holds what is mapped on the host and what is swapped. So who needs some of it may
 * wait for data of paused programs, though the GPU has room for that. Then as much of it comes to
 * what is free on the GPU, be its program idle (bring_up).
 */

static bool lacks_any(const struct gm_engine *engine, uint32_t id)
{
    return engine->table->apps[id].missing > 0 || engine->table->apps[id].leaving > 0;
}

/* Of an app that runs, or whose gate opens next. */
static enum gm_stand stand_of_chosen(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (!lacks_any(engine, id) || gm_engine_is_app_off(engine, id))
        return GM_STAND_STAYS;
    if (app->state == GM_APP_RUNNING)
        return GM_STAND_GROWS;
    return app->state == GM_APP_LOADING && app->batches.ping == 0 ? GM_STAND_COMES : GM_STAND_STAYS;
}

/* `is_up`: for want of pinned memory. */
static bool can_come_ahead(const struct gm_engine *engine, uint32_t id, bool is_up)
{
    const struct gm_table_app *app = &engine->table->apps[id];
    return engine->apps[id].state == GM_APP_PAUSED && app->missing > 0 &&
           gm_engine_has_places(engine, id) && !engine->stopping.is_on &&
           !gm_engine_is_vacating(engine, id) && !gm_engine_is_app_off(engine, id) &&
           (is_up ? app->bytes[GM_TIER_PINNED] > 0
                  : gm_engine_is_asked_ahead(engine, id) ||
                        gm_engine_expected(engine, id) != GM_TIME_NEVER);
}

/* Bytes that it may have on the GPU while it is paused. */
static uint64_t may_have(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t has = engine->table->apps[id].resident;
    if (engine->apps[id].state != GM_APP_PAUSED || engine->stopping.is_on)
        return UINT64_MAX;
    return gm_engine_is_vacating(engine, id) ? 0 : has - gm_engine_above_cap(engine, id);
}

/* Of an app that is not to run. */
static struct gm_layout_app stand_of_other(const struct gm_engine *engine, uint32_t id, bool is_up)
{
    const struct gm_app *app = &engine->apps[id];
    const bool waits = app->state == GM_APP_PAUSED && !app->idle.is_idle && !is_up;
    return (struct gm_layout_app){.app = id,
                                  .stand = waits ? GM_STAND_WAITS : GM_STAND_IDLE,
                                  .comes_ahead = can_come_ahead(engine, id, is_up),
                                  .may_have = may_have(engine, id)};
}

/* By the next use; those that come at once by their numbers. */
static int by_next_use(const void *a, const void *b, void *engine)
{
    const uint32_t left = ((const struct gm_layout_app *)a)->app;
    const uint32_t right = ((const struct gm_layout_app *)b)->app;
    if (gm_engine_is_later(engine, left, right))
        return 1;
    return gm_engine_is_later(engine, right, left) || left < right ? -1 : 1;
}

/* All apps whose memory can move, in the order of their next use. Returns how many. */
static uint32_t list_apps(struct gm_engine *engine, bool is_up)
{
    struct gm_layout_app *apps = engine->stands;
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->decision.n_set; i++) {
        const uint32_t id = engine->decision.set[i];
        if (!engine->in_set[id])
            continue; /* it is from the next round on */
        apps[n++] = (struct gm_layout_app){
            .app = id, .stand = (uint8_t)stand_of_chosen(engine, id), .may_have = UINT64_MAX};
    }
    const uint32_t chosen = n;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_can_lose(engine, id))
            apps[n++] = stand_of_other(engine, id, is_up);
    qsort_r(apps + chosen, n - chosen, sizeof *apps, by_next_use, engine);
    for (uint32_t i = chosen; i < n; i++) /* members of a group come at once */
        apps[i].turn =
            i == 0 ? 0
                   : apps[i - 1].turn +
                         (i == chosen || gm_engine_is_later(engine, apps[i].app, apps[i - 1].app));
    return n;
}

/* Others have filled the disk: less is there than its option says, and no room for a chunk. */
static bool is_disk_filled(const struct gm_engine *engine)
{
    const uint64_t cap = gm_stores_cap(engine->stores, GM_TIER_DISK);
    return cap < gm_chunk_floor(engine->config.disk) &&
           cap < gm_engine_used_of(engine, GM_TIER_DISK) + GM_CHUNK_MAX;
}

/* It could not be written, and nothing went well there since; or others have filled it. Half of a
 * switch would keep everybody from working, so none counts on it. */
static bool is_doubtful(const struct gm_engine *engine)
{
    return engine->lower_error != 0 || is_disk_filled(engine);
}

/* Bytes that are used in a tier below the GPU. Those of shadows can be had. */
static void describe_tiers(struct gm_engine *engine, struct gm_plan_input *input)
{
    input->window = engine->host->window;
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        input->tiers[tier] = (struct gm_plan_tier){
            .cap = gm_stores_cap(engine->stores, (enum gm_tier)tier),
            .used = gm_engine_used_of(engine, (enum gm_tier)tier),
            .ending = engine->table->gives_back[tier],
            .is_closed = tier == GM_TIER_DISK && is_doubtful(engine),
        };
}

/* Somebody is to open its gate next, and waits for more than its memory: nothing comes between. */
static bool is_loading(const struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->decision.n_set; i++) {
        const uint32_t id = engine->decision.set[i];
        const enum gm_app_state state = engine->apps[id].state;
        if (state == GM_APP_LOADING || (state == GM_APP_RUNNING && lacks_any(engine, id)))
            return true;
    }
    return false;
}

static void tell_plan(struct gm_engine *engine)
{
    const struct gm_layout *layout = &engine->layout;
    const uint32_t app = layout->n_targets > 0   ? layout->targets[0]
                         : layout->n_victims > 0 ? layout->victims[0].app
                                                 : GM_NONE;
    if (engine->plan.n > 0)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_PLAN,
                                                  .app = app,
                                                  .plan = {.moves = engine->plan.n,
                                                           .is_ahead = layout->is_ahead}});
}

/* ---- for want of pinned memory ---- */

/* Pinned bytes that the targets wait for. */
static uint64_t lacks_pinned(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->layout.n_targets; i++) {
        const struct gm_table_app *app = &table->apps[engine->layout.targets[i]];
        bytes += engine->plan.lacks_room ? app->leaving : 0;
        uint32_t at = engine->is_out_of_units ? app->to_map.head : GM_NONE;
        for (; at != GM_NONE; at = table->chunks[at].next)
            bytes += gm_chunk_bytes(&table->chunks[at]);
    }
    return bytes;
}

/* They wait, and nothing of their own can move. */
static bool is_pinned_full(struct gm_engine *engine)
{
    const bool is_full =
        engine->plan.n == 0 && !engine->layout.is_ahead && lacks_pinned(engine) > 0;
    if (is_full && !engine->is_pinned_full)
        gm_engine_again(engine); /* others' places are chosen first */
    return is_full;
}

/* So much data of others leaves pinned memory for the GPU: nobody makes way for it. */
static void bring_up(struct gm_engine *engine, const struct gm_plan_input *input, uint64_t bytes)
{
    struct gm_layout *layout = &engine->layout;
    const uint32_t n = list_apps(engine, true);
    for (uint32_t step = GM_LAYOUT_AHEAD;
         engine->plan.n == 0 && gm_layout_make(engine->table, engine->stands, n, step, layout);
         step++) {
        layout->is_sparing = false;
        gm_layout_share(engine->table, layout);
        layout->fits = gm_least(layout->fits, bytes);
        gm_plan_make(engine->table, input, &engine->plan);
    }
    if (engine->plan.n == 0)
        gm_layout_make(engine->table, engine->stands, n, GM_LAYOUT_NOW, layout);
    else
        engine->short_from = engine->short_to = 0;
}

/* The disk is in doubt and may be tried again: what is in pinned memory and would leave for there
 * goes before all else. If it arrives, the next plan counts on the disk. */
static void try_disk(struct gm_engine *engine, struct gm_plan_input *input)
{
    struct gm_plan *plan = &engine->plan;
    uint32_t n = 0;
    gm_plan_make(engine->table, input, plan);
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[plan->moves[i].chunk];
        if (plan->moves[i].kind == GM_MOVE_DEMOTE && chunk->list == GM_LIST_AWAY &&
            chunk->listed_tier == GM_TIER_PINNED)
            plan->moves[n++] = plan->moves[i];
    }
    plan->n = n;
}

/* Who is to run comes, as far as that needs no disk in doubt. If nobody comes so, and nothing else
 * tries the disk, the switch does. */
static void plan_switch(struct gm_engine *engine, struct gm_plan_input *input)
{
    struct gm_plan_tier *disk = &input->tiers[GM_TIER_DISK];
    const bool may_try =
        disk->is_closed && !is_disk_filled(engine) && !gm_engine_is_off(engine, GM_RETRY_BELOW);
    if (may_try) {
        disk->is_closed = false;
        try_disk(engine, input);
        if (engine->plan.n > 0)
            return;
        disk->is_closed = true;
    }
    engine->short_to = engine->layout.n_targets;
    engine->short_from = gm_plan_switch(engine->table, input, &engine->plan);
    if (may_try && engine->plan.n == 0 && engine->short_from < engine->short_to) {
        disk->is_closed = false;
        engine->short_from = gm_plan_switch(engine->table, input, &engine->plan);
    }
}

void gm_engine_plan(struct gm_engine *engine)
{
    struct gm_layout *layout = &engine->layout;
    struct gm_plan_input input = {.layout = layout};
    const uint32_t n = list_apps(engine, false);
    const bool is_busy = is_loading(engine);

    gm_engine_planned(engine);
    gm_table_note_plan(engine->table);
    describe_tiers(engine, &input);
    engine->short_from = engine->short_to = engine->plan.n = 0;
    for (uint32_t step = GM_LAYOUT_NOW;
         engine->plan.n == 0 && gm_layout_make(engine->table, engine->stands, n, step, layout);
         step++) {
        if (!layout->is_ahead) {
            plan_switch(engine, &input);
            break;
        }
        if (is_busy)
            break;
        gm_plan_make(engine->table, &input, &engine->plan);
        if (step == GM_PLANS_AHEAD)
            break;
    }
    engine->reserve = gm_plan_reserve(&input);
    engine->is_pinned_full = is_pinned_full(engine);
    if (engine->is_pinned_full)
        bring_up(engine, &input, lacks_pinned(engine) + GM_CHUNK_MAX);
    tell_plan(engine);
    gm_engine_begin_moves(engine);
}

bool gm_engine_is_plan_stale(const struct gm_engine *engine)
{
    const bool is_over = engine->plan_from == engine->plan.n;
    return engine->plan_is_stale || gm_table_is_plan_stale(engine->table, is_over);
}

bool gm_engine_is_short_of_disk(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = engine->short_from; i < engine->short_to; i++)
        if (engine->layout.targets[i] == id)
            return true;
    return false;
}

bool gm_engine_awaits_disk(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return is_doubtful(engine) && app->state == GM_APP_PAUSED && app->idle.is_idle &&
           engine->table->apps[id].missing > 0 && !app->is_stopped && gm_engine_awaits_turn(app);
}

/*
 * The budget follows what other programs leave of the device (core/room.h), and paused programs
 * leave the GPU when somebody wants that: their user, root or programs beside gpumux, and at once
 * where they are evicted (pauses.c). Owns gm_app.is_vacating. Called by run.c, and by step.c before
 * programs are told the budget and for a trim.
 */
#include "daemon/engine/step/budget.h"

#include "common/sums.h"
#include "daemon/engine/act/device.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/tiers.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/pauses.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/memory/files.h"

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
    uint64_t free_bytes, total;

    if (refused != GM_WHY_NONE) /* whatever the driver says is free */
        follow(engine, 0, largest > allocated ? largest : allocated, refused);
    else if (is_followed(engine) && gm_engine_ask_device(engine, &free_bytes, &total)) {
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
        gm_engine_follow_budget(engine, GM_WHY_NONE);
}

void gm_engine_take_device(struct gm_engine *engine)
{
    struct gm_table *table = engine->table;
    const uint64_t allowed = table->budget - table->allocated;
    uint64_t free_bytes, total;
    if (!gm_engine_ask_device(engine, &free_bytes, &total))
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
    trimmed->pinned = gm_hostpool_leaving(&engine->pool) - leaving;
    trimmed->gpu = table->condemned - condemned + to_leave(engine, &scope);
    trimmed->paged = scope.is_all ? gm_engine_trim_paged(engine) : 0;
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_TRIMMED,
                                              .app = GM_NONE,
                                              .trimmed = {.gpu = trimmed->gpu,
                                                          .pinned = trimmed->pinned,
                                                          .paged = trimmed->paged,
                                                          .is_all = scope.is_all,
                                                          .user = asker}});
}

bool gm_engine_is_trimming(const struct gm_engine *engine)
{
    return engine->table->condemned > 0 || gm_hostpool_leaving(&engine->pool) > 0 ||
           gm_stores_is_trimming(engine->stores) || to_leave(engine, &everybody) > 0;
}

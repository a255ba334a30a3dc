/*
 * How much memory the daemon makes: a little more than programs need (core/need.h), on the GPU
 * within a budget that follows what other programs leave there (core/room.h). Unused memory goes
 * back to the system, less what was needed lately. frames.c destroys frames, hostpool.c slabs,
 * stores.c paged memory. Owns the budget. Called by run.c, by files that need the budget to
 * change, and by step.c for a trim.
 */
#include "daemon/engine/memory.h"

#include <stdio.h>

#include "common/sums.h"
#include "daemon/engine/backoff.h"
#include "daemon/engine/events.h"
#include "daemon/engine/frames.h"
#include "daemon/engine/host.h"
#include "daemon/engine/policy.h"
#include "daemon/engine/room.h"
#include "daemon/engine/round.h"
#include "daemon/engine/shadows.h"
#include "daemon/engine/spares.h"
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
        .committed = table->committed + table->orphaned,
        .beyond = table->beyond + vacated(engine),
        .budget = table->budget,
        .pinned_cap = gm_stores_cap(engine->stores, GM_TIER_PINNED),
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
    const uint64_t kept = gm_host_kept(engine);
    if (gm_less(gm_hostpool_pinned(&engine->pool), gm_hostpool_leaving(&engine->pool)) > kept)
        gm_engine_drop_all_shadows(engine);
    engine->shadows_told = gm_engine_wanted_shadows(engine);
    gm_hostpool_want(&engine->pool, gm_least(gm_lately_most(&engine->pinned_lately), kept));
}

void gm_engine_want_memory(struct gm_engine *engine)
{
    struct gm_need need;
    describe_need(engine, &need);
    engine->is_lower_used = lower_used(engine) > 0;
    gm_lately_note(&engine->frames_lately, engine->now, need.frames);
    want_pinned(engine, need.pinned);
    gm_stores_want(engine->stores, need.paged);
}

/* What shadows want changes with each switch. While the system refuses more, it is not asked for
 * each. */
static bool have_shadows_changed(const struct gm_engine *engine)
{
    return !gm_engine_is_off(engine, GM_RETRY_PINNED) &&
           engine->shadows_told != gm_engine_wanted_shadows(engine);
}

void gm_engine_pinned_grew(struct gm_engine *engine)
{
    if (engine->pool.refusal != CUDA_SUCCESS || engine->pool.stuck != CUDA_SUCCESS)
        gm_engine_back_off(engine, GM_RETRY_PINNED);
    else
        gm_engine_went_well(engine, GM_RETRY_PINNED);
    if (engine->pool.refusal != CUDA_SUCCESS && engine->pool.refusal != engine->pool_refusal)
        gm_engine_emit(
            engine, &(struct gm_event){
                        .kind = GM_EVENT_NO_PINNED,
                        .app = GM_NONE,
                        .no_pinned = {.bytes = gm_hostpool_size(&engine->pool),
                                      .error = gm_cuda_text(&engine->cuda, engine->pool.refusal)}});
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

void gm_engine_give_back(struct gm_engine *engine)
{
    const bool is_asked = gm_host_is_asked(engine);
    struct gm_need need;
    if (is_asked || engine->now >= gm_engine_give_back_at(engine) ||
        engine->is_lower_used != (lower_used(engine) > 0)) {
        gm_engine_want_memory(engine);
    } else if (have_shadows_changed(engine)) {
        describe_need(engine, &need);
        want_pinned(engine, need.pinned);
    }
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

/* Paused programs. Their memory leaves the GPU when their user, root or programs beside gpumux want
 * that; programs of ours take it by their plans. It comes back when they go on. */

static const struct gm_scope everybody = {.is_all = true};

bool gm_engine_is_vacating(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->is_vacating && app->session && !engine->stopping.is_on;
}

/* Those in the scope that are paused. */
static void vacate(struct gm_engine *engine, const struct gm_scope *scope)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->is_vacating || !app->session || !gm_engine_is_in(engine, id, scope) ||
            !gm_engine_is_paused(engine, id))
            continue;
        app->is_vacating = true;
        gm_engine_take_spares(engine, id, UINT64_MAX);
        gm_engine_replan(engine);
    }
}

/* Who goes on needs the GPU again. */
static void follow_paused(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (!app->is_vacating || gm_engine_is_paused(engine, id))
            continue;
        app->is_vacating = false;
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

/* The scheduler and the planner go by it. */
static void set_budget(struct gm_engine *engine, uint64_t bytes, enum gm_why why)
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
static uint64_t needed(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_sums(engine, id).needed + engine->table->fixed;
}

void gm_engine_need_budget(struct gm_engine *engine, uint32_t id)
{
    const uint64_t bytes = needed(engine, id);
    if (bytes > engine->table->budget)
        set_budget(engine, bytes, GM_WHY_NEEDED);
}

static uint64_t largest_app(const struct gm_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && needed(engine, id) > bytes)
            bytes = needed(engine, id);
    return bytes;
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
        set_budget(engine, next, GM_WHY_GPU_FREE);
    if (next >= table->budget)
        return;
    /* Others need it now, so nothing is kept. What exists counts until it is destroyed: the next
     * look takes that into account. */
    gm_engine_take_all_spares(engine);
    gm_lately_forget(&engine->frames_lately);
    gm_engine_give_back_frames(engine, next);
    next = next > table->allocated ? next : table->allocated;
    if (next < table->budget)
        set_budget(engine, next, why);
}

void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused)
{
    const uint64_t largest = largest_app(engine), allocated = engine->table->allocated;
    size_t free_bytes = 0, total = 0;

    if (refused != GM_WHY_NONE) /* whatever the driver says is free */
        follow(engine, 0, largest > allocated ? largest : allocated, refused);
    else if (is_followed(engine) &&
             engine->cuda.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS) {
        if (free_bytes < engine->device_reserve / 4)
            vacate(engine, &everybody);
        follow(engine, free_bytes, largest, GM_WHY_USED_BESIDE);
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
    size_t free_bytes = 0, total = 0;
    if (engine->cuda.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return;
    /* What is beyond the budget is not taken to the last byte: the driver needs some itself. */
    uint64_t bytes = free_bytes > allowed + GM_CHUNK_MAX ? free_bytes - GM_CHUNK_MAX : allowed;
    if (free_bytes < allowed)
        bytes = free_bytes;
    gm_table_set_budget(table, table->allocated + (bytes & ~(GM_CHUNK_MIN - 1)));
}

/* On request. */

/* Root and the daemon's own user ask for all memory, and so does who is alone here. Others ask for
 * theirs: what the programs of others keep for their next switch or allocation stays. */
static struct gm_scope scope_of(const struct gm_engine *engine, uid_t asker)
{
    bool is_alone = true;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        is_alone =
            is_alone && (engine->apps[id].state == GM_APP_UNUSED || engine->apps[id].uid == asker);
    return (struct gm_scope){.is_all = is_alone || gm_engine_is_admin(asker), .uid = asker};
}

static void let_go(struct gm_engine *engine, const struct gm_scope *scope)
{
    if (scope->is_all) {
        gm_lately_forget(&engine->frames_lately);
        gm_lately_forget(&engine->pinned_lately);
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

void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, struct gm_trimmed *trimmed)
{
    const struct gm_table *table = engine->table;
    const struct gm_scope scope = scope_of(engine, asker);

    let_go(engine, &scope);
    const uint64_t leaving = gm_hostpool_leaving(&engine->pool), condemned = table->condemned;
    gm_engine_want_memory(engine);
    gm_engine_give_back(engine);
    if (!scope.is_all)
        gm_engine_give_back_frames_of(engine, asker, engine->frames_lately.value);
    trimmed->pinned = gm_hostpool_leaving(&engine->pool) - leaving;
    trimmed->gpu = table->condemned - condemned + to_leave(engine, &scope);
    trimmed->paged = scope.is_all ? gm_stores_trim(engine->stores) : 0;
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

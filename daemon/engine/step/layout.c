/*
 * Says where each app stands on the timeline, has the layout made that follows from it
 * (core/layout.h), and the plan that brings it about (core/plan.h). Owns both.
 *
 * Pinned memory holds what is mapped on the host and what is swapped. So who needs some of it may
 * wait for data of paused programs, though the GPU has room for that. Then as much of it comes to
 * what is free on the GPU, be its program idle (bring_up).
 */
#include "daemon/engine/step/layout.h"

#include <stdlib.h>

#include "daemon/core/plan.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/moves.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"

/* The daemon tries to prefetch for so many, one after the other, until it finds something to
 * move. In programs. */
#define GM_PLANS_AHEAD 4

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

/* Bytes that it may have on the GPU while it is paused. What it may not keep in its turn, as that
 * is cold, it keeps until somebody needs the room. */
static uint64_t may_have(const struct gm_engine *engine, uint32_t id)
{
    if (engine->apps[id].state != GM_APP_PAUSED || engine->stopping.is_on)
        return UINT64_MAX;
    if (gm_engine_is_vacating(engine, id))
        return 0;
    return gm_engine_is_capped(engine, id) ? gm_engine_places_room(engine, id) : UINT64_MAX;
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
static void describe_tiers(struct gm_engine *engine)
{
    engine->layout.window = engine->host->window;
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        engine->layout.tiers[tier] = (struct gm_layout_tier){
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
    const uint32_t app = layout->n_targets > 0   ? layout->targets[0].app
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
        const struct gm_table_app *app = &table->apps[engine->layout.targets[i].app];
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
static void bring_up(struct gm_engine *engine, uint64_t bytes)
{
    struct gm_layout *layout = &engine->layout;
    const uint32_t n = list_apps(engine, true);
    for (uint32_t step = GM_LAYOUT_AHEAD;
         engine->plan.n == 0 &&
         gm_layout_make(engine->table, engine->stands, n, step, bytes, layout);
         step++)
        gm_plan_make(engine->table, layout, &engine->plan);
    if (engine->plan.n == 0)
        gm_layout_make(engine->table, engine->stands, n, GM_LAYOUT_NOW, 0, layout);
    else
        engine->short_from = engine->short_to = 0;
}

/* The disk is in doubt and may be tried again: what is in pinned memory and would leave for there
 * goes before all else. If it arrives, the next plan counts on the disk. */
static void try_disk(struct gm_engine *engine)
{
    struct gm_plan *plan = &engine->plan;
    uint32_t n = 0;
    gm_plan_make(engine->table, &engine->layout, plan);
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[plan->moves[i].chunk];
        if (plan->moves[i].kind == GM_MOVE_DEMOTE && chunk->list == GM_LIST_AWAY &&
            chunk->listed_tier == GM_TIER_PINNED)
            plan->moves[n++] = plan->moves[i];
    }
    plan->n = n;
}

static void close_disk(struct gm_engine *engine, bool is_closed)
{
    engine->layout.tiers[GM_TIER_DISK].is_closed = is_closed;
    gm_layout_share(engine->table, &engine->layout);
}

/* Who is to run comes, as far as that needs no disk in doubt. If nobody comes so, and nothing else
 * tries the disk, the switch does. */
static void plan_switch(struct gm_engine *engine)
{
    struct gm_layout *layout = &engine->layout;
    const bool may_try = layout->tiers[GM_TIER_DISK].is_closed && !is_disk_filled(engine) &&
                         !gm_engine_is_off(engine, GM_RETRY_BELOW);
    if (may_try) {
        close_disk(engine, false);
        try_disk(engine);
        if (engine->plan.n > 0)
            return;
        close_disk(engine, true);
    }
    engine->short_to = layout->n_targets;
    engine->short_from = gm_plan_switch(engine->table, layout, &engine->plan);
    if (may_try && engine->plan.n == 0 && engine->short_from < engine->short_to) {
        close_disk(engine, false);
        engine->short_from = gm_plan_switch(engine->table, layout, &engine->plan);
    }
}

void gm_engine_plan(struct gm_engine *engine)
{
    struct gm_layout *layout = &engine->layout;
    const uint32_t n = list_apps(engine, false);
    const bool is_busy = is_loading(engine) || engine->link.is_kept;

    gm_engine_planned(engine);
    gm_table_note_plan(engine->table);
    describe_tiers(engine);
    engine->short_from = engine->short_to = engine->plan.n = 0;
    for (uint32_t step = GM_LAYOUT_NOW;
         engine->plan.n == 0 &&
         gm_layout_make(engine->table, engine->stands, n, step, UINT64_MAX, layout);
         step++) {
        if (!layout->is_ahead) {
            plan_switch(engine);
            break;
        }
        if (is_busy)
            break;
        gm_plan_make(engine->table, layout, &engine->plan);
        if (step == GM_PLANS_AHEAD)
            break;
    }
    engine->reserve = gm_plan_reserve(layout);
    engine->is_pinned_full = is_pinned_full(engine);
    if (engine->is_pinned_full)
        bring_up(engine, lacks_pinned(engine) + GM_CHUNK_MAX);
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
        if (engine->layout.targets[i].app == id)
            return true;
    return false;
}

bool gm_engine_awaits_disk(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return is_doubtful(engine) && app->state == GM_APP_PAUSED && app->idle.is_idle &&
           engine->table->apps[id].missing > 0 && !app->is_stopped && gm_engine_awaits_turn(app);
}

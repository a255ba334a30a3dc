/*
 * Plans moves (core/plan.h) and carries plans out: has programs unmap what leaves, and begins what
 * comes. Owns the plan. Called by run.c; calls the files that copy, map and make frames.
 */
#include "daemon/engine/moves.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/engine/backoff.h"
#include "daemon/engine/batches.h"
#include "daemon/engine/caps.h"
#include "daemon/engine/copies.h"
#include "daemon/engine/events.h"
#include "daemon/engine/feed.h"
#include "daemon/engine/frames.h"
#include "daemon/engine/host.h"
#include "daemon/engine/memory.h"
#include "daemon/engine/places.h"
#include "daemon/engine/round.h"
#include "daemon/engine/shadows.h"

/* Plans. */

static bool can_lose(const struct gm_engine *engine, uint32_t id)
{
    enum gm_app_state state = engine->apps[id].state;
    return !engine->in_set[id] && !engine->table->apps[id].is_silent &&
           (state == GM_APP_PAUSED || state == GM_APP_DRAINING);
}

/* Into `list` of `n`, latest first. */
static void insert_later(const struct gm_engine *engine, uint32_t *list, uint32_t n, uint32_t id)
{
    for (; n > 0 && gm_engine_is_later(engine, id, list[n - 1]); n--)
        list[n] = list[n - 1];
    list[n] = id;
}

/* The apps that may lose chunks, farthest next use first. */
static uint32_t list_victims(struct gm_engine *engine)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (can_lose(engine, id))
            insert_later(engine, engine->victims, n++, id);
    return n;
}

/* Bytes that are used in a tier below the GPU. Those of shadows can be had. */
static uint64_t used_of(const struct gm_engine *engine, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_engine_pinned_used(engine)
                                  : gm_stores_used(engine->stores, tier);
}

static void describe_tiers(struct gm_engine *engine, struct gm_plan_input *input)
{
    input->window = engine->host->window;
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        input->tiers[tier] = (struct gm_plan_tier){
            .cap = gm_stores_cap(engine->stores, (enum gm_tier)tier),
            .used = used_of(engine, (enum gm_tier)tier),
            .ending = engine->table->gives_back[tier],
            .is_closed = tier == GM_TIER_DISK && gm_engine_is_off(engine, GM_RETRY_BELOW),
        };
}

static bool can_stage(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].state == GM_APP_PAUSED && engine->table->apps[id].missing > 0 &&
           engine->table->apps[id].beyond ==
               0 && /* else what comes is known when its turn begins */
           !engine->table->apps[id].is_silent &&
           !gm_engine_is_vacating(engine, id) && !gm_engine_is_app_off(engine, id);
}

/* Who gives its place on the GPU up for `target` ahead of its turn: those that wait like it, and
 * for longer. An app that is idle keeps what it has: nobody knows as well when it comes. */
static void list_donors(struct gm_engine *engine, struct gm_plan_input *input, uint32_t target)
{
    input->donors = engine->donors;
    if (engine->apps[target].idle.is_idle)
        return;
    for (uint32_t i = 0; i < input->n_victims; i++) {
        const struct gm_app *app = &engine->apps[engine->victims[i]];
        if (app->state == GM_APP_PAUSED && !app->idle.is_idle)
            engine->donors[input->n_donors++] = engine->victims[i];
    }
}

/* For the first of its targets. */
static void tell_plan(struct gm_engine *engine, bool is_ahead)
{
    if (engine->plan.n > 0)
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_PLAN,
                                          .app = engine->targets[0],
                                          .plan = {.moves = engine->plan.n, .is_ahead = is_ahead}});
}

/* Into the plan: what can be staged for `target`, of which the first `n_victims` victims are later.
 */
static void plan_ahead_for(struct gm_engine *engine, struct gm_plan_input *input, uint32_t target,
                           uint32_t n_victims)
{
    engine->targets[0] = target;
    input->n_targets = 1;
    input->n_victims = n_victims;
    input->n_donors = 0;
    list_donors(engine, input, target);
    gm_plan_prefetch(engine->table, input, &engine->plan);
    tell_plan(engine, true);
}

/* Nobody waits for memory: stage that of the app that is expected next, of those that lack any. If
 * nothing can be done for it now, as when it is idle and others have the GPU, the next one's turn
 * comes. */
static void plan_ahead(struct gm_engine *engine, struct gm_plan_input *input)
{
    engine->plan_is_prefetch = true;
    uint32_t tries = 0;
    for (uint32_t n = list_victims(engine);
         n > 0 && engine->plan.n == 0 && tries < GM_PLANS_AHEAD &&
         gm_engine_expected(engine, engine->victims[n - 1]) != GM_TIME_NEVER;
         n--) {
        if (!can_stage(engine, engine->victims[n - 1]))
            continue;
        plan_ahead_for(engine, input, engine->victims[n - 1], n - 1);
        tries++;
    }
}

/* Nobody waits for memory: who is paused and above its cap goes below it, or leaves. */
static void plan_shrinking(struct gm_engine *engine, struct gm_plan_input *input)
{
    input->n_victims = list_victims(engine);
    for (uint32_t i = 0; i < input->n_victims && engine->plan.n == 0; i++) {
        const uint32_t id = engine->victims[i];
        const uint64_t above = gm_engine_above_cap(engine, id);
        const uint64_t bytes =
            gm_engine_is_vacating(engine, id) ? engine->table->apps[id].resident : above;
        if (bytes == 0 || engine->apps[id].state != GM_APP_PAUSED)
            continue;
        engine->targets[0] = id;
        engine->plan_is_prefetch = true;
        gm_plan_shrink(engine->table, input, id, bytes, &engine->plan);
    }
}

void gm_engine_plan(struct gm_engine *engine)
{
    const struct gm_sched_decision *decision = &engine->decision;
    struct gm_plan_input input = {.targets = engine->targets, .victims = engine->victims};
    uint64_t begin = gm_thread_time();
    bool is_waiting = false;

    /* Growing programs that run come first: each of them has a thread that waits in an allocation.
     */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < decision->n_set; i++) {
            uint32_t id = decision->set[i];
            const struct gm_app *app = &engine->apps[id];
            enum gm_app_state wanted = pass == 0 ? GM_APP_RUNNING : GM_APP_LOADING;
            /* whose gate opens next, too: nothing comes between */
            is_waiting = is_waiting || app->state == GM_APP_LOADING;
            if (app->state != wanted ||
                (engine->table->apps[id].missing == 0 && engine->table->apps[id].leaving == 0))
                continue;
            is_waiting = true;
            if (gm_engine_is_app_off(engine, id) || (pass == 1 && app->batches.ping != 0))
                continue;
            engine->targets[input.n_targets++] = id;
            input.is_growing = input.is_growing || pass == 0;
        }
    }
    engine->plan.n = engine->plan_from = 0;
    gm_engine_planned(engine);
    engine->plan_is_prefetch = false;
    gm_table_note_plan(engine->table);
    engine->short_from = engine->short_to = 0;
    describe_tiers(engine, &input);
    if (input.n_targets > 0) {
        input.n_victims = list_victims(engine);
        engine->short_from = gm_plan_switch(engine->table, &input, &engine->plan);
        engine->short_to = input.n_targets;
        tell_plan(engine, false);
    } else if (!is_waiting && !engine->stopping.is_on) {
        plan_shrinking(engine, &input);
        tell_plan(engine, false);
        if (engine->plan.n == 0 && engine->config.is_prefetching)
            plan_ahead(engine, &input);
    }
    engine->plan_evicts = gm_plan_count(&engine->plan, GM_MOVE_EVICT);
    engine->parts.planned_ns += gm_thread_time() - begin;
}

static bool has_room(const struct gm_engine *engine, enum gm_way way)
{
    return gm_engine_has_room(engine, way) &&
           (!engine->plan_is_prefetch || gm_engine_under_way(engine, way) < GM_STAGED_AT_ONCE);
}

/* Bytes that are free in a tier now; of the GPU: room in the budget for new frames. */
static uint64_t free_in(const struct gm_engine *engine, enum gm_tier tier)
{
    if (tier == GM_TIER_GPU)
        return engine->table->budget - engine->table->allocated;
    uint64_t cap = gm_stores_cap(engine->stores, tier);
    uint64_t used = used_of(engine, tier);
    return cap > used ? cap - used : 0;
}

/* Whether a move may take what it needs, beside what those before it still need: plan.h's rule. */
static bool may_take(struct gm_engine *engine, const struct gm_plan_hold *hold,
                     const struct gm_move *move)
{
    uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[move->chunk]);
    enum gm_tier tier = gm_plan_takes(move);
    if (tier == GM_TIER_NONE)
        return true;
    return gm_plan_may_take(hold, move, bytes, free_in(engine, tier), engine->host->reserve);
}

/* plan.h's other rule; with nothing under way nobody would ask again, and the plan's order holds.
 */
static bool leaves_room(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const bool is_moving = engine->host_copies > 0 || gm_engine_under_way(engine, GM_WAY_OUT) > 0;
    return engine->plan_evicts == 0 || !is_moving ||
           gm_plan_leaves_room(gm_chunk_bytes(chunk), free_in(engine, (enum gm_tier)chunk->tier),
                               free_in(engine, GM_TIER_PINNED), engine->host->window,
                               engine->host->reserve);
}

/* Each of these returns true when the move was made, or is void because things changed. */

/* A stopped program would keep the frames that it gives up mapped: it must have answered lately. */
static bool is_there(struct gm_engine *engine, uint32_t id, uint64_t lately_ns)
{
    struct gm_app *app = &engine->apps[id];
    if (app->batches.ping == 0 && engine->now >= app->gate.answered_at + lately_ns)
        gm_engine_ping(engine, id);
    return app->batches.ping == 0;
}

/* And it would keep those that it is given: ahead of its turn, nobody else could have them then. A
 * program that was chosen has been asked (gm_engine_begin_switch). */
static bool may_have(struct gm_engine *engine, uint32_t id)
{
    return !engine->plan_is_prefetch || is_there(engine, id, GM_ANSWERED_JUST_NOW_NS);
}

/* It is on its way to where its program can use it. */
static bool is_coming(const struct gm_chunk *chunk)
{
    return chunk->state >= GM_CHUNK_RETURNING && chunk->state <= GM_CHUNK_MAPPING;
}

/* Begin an eviction: the owner unmaps the chunk, and keeps the frame until it has said so
 * (gm_engine_settle). The copy's pages and its place in the mover are set aside now, so that the
 * answer alone starts it. */
static bool evict(struct gm_engine *engine, const struct gm_plan_hold *hold,
                  const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    const enum gm_app_state state = engine->apps[chunk->app].state;
    const bool is_leaving = chunk->is_leaving && state == GM_APP_LOADING;
    if (chunk->is_freed || chunk->is_fixed || chunk->state != GM_CHUNK_RESIDENT ||
        chunk->frame != move->frame || (!is_leaving && !can_lose(engine, chunk->app)))
        return true;
    if ((!is_leaving && state != GM_APP_PAUSED) || !has_room(engine, GM_WAY_OUT) ||
        gm_engine_is_off(engine, GM_RETRY_COPY) ||
        engine->table->apps[chunk->app].unmaps >= GM_UNMAPS_AT_ONCE ||
        !is_there(engine, chunk->app, GM_ANSWERED_LATELY_NS) ||
        !may_have(engine, engine->targets[0]))
        return false;
    uint32_t page = GM_NONE;
    if (may_take(engine, hold, move))
        page = chunk->shadow == GM_SHADOW_KEPT ? chunk->page : gm_engine_take_pages(engine, chunk);
    if (page == GM_NONE) {
        engine->is_short_of_pages = !engine->plan_is_prefetch;
        return false;
    }
    gm_table_evict(engine->table, move->chunk, page);
    gm_engine_unmap(engine, move->chunk);
    return true;
}

static bool fill(struct gm_engine *engine, const struct gm_plan_hold *hold,
                 const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    enum gm_app_state state = engine->apps[chunk->app].state;
    uint32_t frame = move->frame;

    if (chunk->is_freed || chunk->is_on_host || chunk->tier == GM_TIER_GPU || is_coming(chunk) ||
        (state != GM_APP_LOADING && state != GM_APP_RUNNING && !engine->plan_is_prefetch))
        return true;
    if (chunk->state != GM_CHUNK_AWAY || chunk->tier > GM_TIER_PINNED)
        return false; /* it is being raised, or will be */
    if (frame != GM_NONE && engine->table->frames[frame].state != GM_FRAME_FREE)
        return false;
    if (engine->apps[chunk->app].batches.unanswered_maps >= GM_MAPS_AT_ONCE)
        return false;
    if ((chunk->tier == GM_TIER_PINNED ||
         (frame != GM_NONE && engine->table->frames[frame].is_dirty)) &&
        !has_room(engine, GM_WAY_IN))
        return false;
    if (!may_have(engine, chunk->app) ||
        !gm_engine_may_occupy(engine, chunk->app, gm_chunk_bytes(chunk)))
        return false;
    if (frame == GM_NONE && may_take(engine, hold, move))
        frame = gm_engine_make_frame(engine, chunk);
    if (frame == GM_NONE)
        return false;

    const struct gm_frame was = engine->table->frames[frame];
    gm_table_fill(engine->table, move->chunk, frame);
    gm_engine_bring(engine, move->chunk, &was);
    gm_engine_map(engine, move->chunk);
    return true;
}

/* Begin a move's copy between two tiers below the GPU. False: no room there now. */
static bool copy_below(struct gm_engine *engine, const struct gm_plan_hold *hold,
                       const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    const enum gm_tier to = gm_plan_takes(move);

    if (!may_take(engine, hold, move))
        return false;
    if (gm_engine_copied_below(engine, chunk->tier, to) >=
        (engine->plan_is_prefetch ? GM_STAGED_AT_ONCE : GM_BELOW_AT_ONCE))
        return false;
    const uint64_t bytes = gm_chunk_bytes(chunk);
    const uint32_t page = to == GM_TIER_PINNED ? gm_engine_take_pinned(engine, bytes)
                                               : gm_stores_take(engine->stores, to, bytes);
    if (page == GM_NONE)
        return false;
    gm_engine_copy_below(engine, move->chunk, to, page);
    return true;
}

static bool lower_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || is_coming(chunk) ||
        (gm_chunk_is_still(chunk) && (chunk->tier > GM_TIER_PINNED || chunk->tier == GM_TIER_NONE)))
        return true; /* or it was all zero, and has no copy */
    if (chunk->state != GM_CHUNK_AWAY || chunk->tier != GM_TIER_PINNED)
        return false; /* its eviction has not ended, or not begun */
    return copy_below(engine, hold, move);
}

static bool raise_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || chunk->tier <= GM_TIER_PINNED)
        return true;
    return gm_chunk_is_still(chunk) && leaves_room(engine, chunk) && copy_below(engine, hold, move);
}

static bool destroy(struct gm_engine *engine, const struct gm_move *move)
{
    const struct gm_frame *frame = &engine->table->frames[move->frame];
    if (frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING)
        return false; /* its eviction has not ended */
    if (frame->state == GM_FRAME_FREE)
        gm_engine_condemn(engine, move->frame, GM_NONE);
    return true;
}

static bool make_move(struct gm_engine *engine, const struct gm_plan_hold *hold,
                      const struct gm_move *move)
{
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        return evict(engine, hold, move);
    case GM_MOVE_DESTROY:
        return destroy(engine, move);
    case GM_MOVE_FILL:
        return fill(engine, hold, move);
    case GM_MOVE_DEMOTE:
        return lower_chunk(engine, hold, move);
    case GM_MOVE_PROMOTE:
        return raise_chunk(engine, hold, move);
    }
    return true;
}

/* A switch lacks pinned memory and nothing under way gives any back: more is made than was
 * foreseen. */
static void note_stuck(struct gm_engine *engine)
{
    const bool is_stuck = engine->is_short_of_pages && engine->host_copies == 0 &&
                          gm_engine_under_way(engine, GM_WAY_OUT) == 0 &&
                          gm_engine_under_way(engine, GM_WAY_IN) == 0;
    const bool was_stuck = engine->is_stuck_for_pages;
    engine->is_stuck_for_pages = is_stuck;
    if (is_stuck && !was_stuck)
        gm_engine_want_memory(engine);
}

bool gm_engine_is_plan_stale(const struct gm_engine *engine)
{
    const bool is_over = engine->plan_from == engine->plan.n;
    return engine->plan_is_stale || gm_table_is_plan_stale(engine->table, is_over);
}

void gm_engine_move(struct gm_engine *engine)
{
    struct gm_plan *plan = &engine->plan;
    struct gm_plan_hold hold = {.has_eviction = false};
    engine->is_short_of_pages = false;
    for (uint32_t i = engine->plan_from; i < plan->n; i++) {
        struct gm_move *move = &plan->moves[i];
        if (!move->is_done) {
            move->is_done = make_move(engine, &hold, move);
            if (move->is_done && move->kind == GM_MOVE_EVICT)
                engine->plan_evicts--;
        }
        if (!move->is_done && move->kind != GM_MOVE_DESTROY)
            gm_plan_pass_over(&hold, move, gm_chunk_bytes(&engine->table->chunks[move->chunk]));
        if (move->is_done && i == engine->plan_from)
            engine->plan_from++;
    }
    engine->is_waiting_below = engine->host_copies > 0 && !engine->plan_is_prefetch;
    note_stuck(engine);
}

/*
 * The executor: compares where chunks are with where they are to lie (core/layout.h), and begins
 * what can begin. Between the GPU and pinned memory, and below, in the order of the plan
 * (core/plan.h); onto the host as each chunk can. Owns how far the plan is.
 */
#include "daemon/engine/step/moves.h"

#include "daemon/core/plan.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/shadows.h"

/* ---- the plan ---- */

/* A program that must run at once does not wait long behind what is prefetched: 5 ms of the
 * link each way, and as much between the tiers below, keep them busy. */
#define GM_STAGED_AT_ONCE (256 * GM_MIB)
/* Evictions of a program run ahead of their copies by four batches, so it unmaps the next batch
 * while the answer to the last one is on its way. The link takes 40 us for the smallest chunk. In
 * chunks. */
#define GM_UNMAPS_AT_ONCE 64
/* A program that answered within this time is not stopped: memory may be staged for it. */
#define GM_ANSWERED_LATELY_NS (100 * GM_MS)
/* ... and within this, moved for it. */
#define GM_ANSWERED_JUST_NOW_NS (10 * GM_MS)

bool gm_engine_can_lose(const struct gm_engine *engine, uint32_t id)
{
    enum gm_app_state state = engine->apps[id].state;
    return !engine->in_set[id] && !engine->table->apps[id].is_silent &&
           (state == GM_APP_PAUSED || state == GM_APP_DRAINING);
}

uint64_t gm_engine_used_of(const struct gm_engine *engine, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_engine_pinned_used(engine)
                                  : gm_stores_used(engine->stores, tier);
}

void gm_engine_begin_moves(struct gm_engine *engine)
{
    engine->plan_from = 0;
    engine->plan_evicts = gm_plan_count(&engine->plan, GM_MOVE_EVICT);
}

static bool has_room(const struct gm_engine *engine, enum gm_way way)
{
    return gm_engine_has_room(engine, way) &&
           (!engine->layout.is_ahead || gm_engine_under_way(engine, way) < GM_STAGED_AT_ONCE);
}

/* Bytes that are free in a tier now; of the GPU: room in the budget for new frames. */
static uint64_t free_in(const struct gm_engine *engine, enum gm_tier tier)
{
    if (tier == GM_TIER_GPU)
        return engine->table->budget - engine->table->allocated;
    uint64_t cap = gm_stores_cap(engine->stores, tier);
    uint64_t used = gm_engine_used_of(engine, tier);
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
    return gm_plan_may_take(hold, move, bytes, free_in(engine, tier), engine->reserve);
}

/* plan.h's other rule; with nothing under way nobody would ask again, and the plan's order holds.
 */
static bool leaves_room(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const bool is_moving = engine->host_copies > 0 || gm_engine_under_way(engine, GM_WAY_OUT) > 0;
    return engine->plan_evicts == 0 || !is_moving ||
           gm_plan_leaves_room(gm_chunk_bytes(chunk), free_in(engine, (enum gm_tier)chunk->tier),
                               free_in(engine, GM_TIER_PINNED), engine->host->window,
                               engine->reserve);
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
    return !engine->layout.is_ahead || is_there(engine, id, GM_ANSWERED_JUST_NOW_NS);
}

/* It is on its way to where its program can use it. */
static bool is_coming(const struct gm_chunk *chunk)
{
    return chunk->state >= GM_CHUNK_RETURNING && chunk->state <= GM_CHUNK_MAPPING;
}

static uint32_t owner_of(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return (uint32_t)engine->apps[chunk->app].uid;
}

/* Pinned pages for a chunk that leaves the GPU; GM_NONE: none now. */
static uint32_t take_pages(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    uint32_t page = GM_NONE;
    if (chunk->is_on_host)
        page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    else if (chunk->class == GM_CHUNK_CLASSES - 1)
        page = gm_hostpool_take_idle(&engine->pool, owner_of(engine, chunk));
    return page != GM_NONE ? page : gm_engine_take_pinned(engine, gm_chunk_bytes(chunk));
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
        chunk->frame != move->frame || (!is_leaving && !gm_engine_can_lose(engine, chunk->app)))
        return true;
    if ((!is_leaving && state != GM_APP_PAUSED) || !has_room(engine, GM_WAY_OUT) ||
        gm_engine_is_off(engine, GM_RETRY_COPY) ||
        engine->table->apps[chunk->app].unmaps >= GM_UNMAPS_AT_ONCE ||
        !is_there(engine, chunk->app, GM_ANSWERED_LATELY_NS) ||
        (engine->layout.n_targets > 0 && !may_have(engine, engine->layout.targets[0].app)))
        return false;
    uint32_t page = GM_NONE;
    if (may_take(engine, hold, move))
        page = chunk->shadow == GM_SHADOW_KEPT ? chunk->page : take_pages(engine, chunk);
    if (page == GM_NONE) {
        engine->is_short_of_pages = !engine->layout.is_ahead;
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
        (state != GM_APP_LOADING && state != GM_APP_RUNNING && !engine->layout.is_ahead))
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
    if (frame == GM_NONE)
        frame = gm_engine_take_made(engine, move->chunk);
    if (frame == GM_NONE && may_take(engine, hold, move))
        gm_engine_ask_frame(engine, move->chunk);
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
        (engine->layout.is_ahead ? GM_STAGED_AT_ONCE : GM_BELOW_AT_ONCE))
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
    if (chunk->is_freed || (chunk->tier <= GM_TIER_PINNED && chunk->state != GM_CHUNK_MOVING))
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
    if (is_stuck != was_stuck)
        gm_engine_want_memory(engine);
}

void gm_engine_move(struct gm_engine *engine)
{
    struct gm_plan *plan = &engine->plan;
    struct gm_plan_hold hold = {.has_eviction = false};
    engine->is_short_of_pages = false;
    for (uint32_t i = engine->plan_from; i < plan->n; i++) {
        struct gm_move *move = &plan->moves[i];
        const uint32_t created = engine->created; /* a frame that is asked for has its room */
        if (!move->is_done) {
            move->is_done = make_move(engine, &hold, move);
            if (move->is_done && move->kind == GM_MOVE_EVICT)
                engine->plan_evicts--;
        }
        if (!move->is_done && move->kind != GM_MOVE_DESTROY && engine->created == created)
            gm_plan_pass_over(&hold, move, gm_chunk_bytes(&engine->table->chunks[move->chunk]));
        if (move->is_done && i == engine->plan_from)
            engine->plan_from++;
    }
    engine->is_waiting_below = engine->host_copies > 0 && !engine->layout.is_ahead;
    note_stuck(engine);
}

/* ---- mapped on the host ---- */

/*
 * Brings chunks to their places on the host. A chunk that is mapped there lies in a unit of pinned
 * memory, whose handle the program imports: its data stays where an eviction had put it. On its
 * way it takes these steps, each as soon as it can (gm_engine_map_on_host):
 *
 *   resident       the plan evicts it, into a unit if there is one
 *   never written  its unit is cleared before the program can see it
 *   elsewhere      in pages that are no unit, or in a lower tier: a worker copies it to one
 *   in a unit      it gets a host frame and is mapped
 *
 * From the host to the GPU it is unmapped (UNMAPPING), and the plan fills it like others.
 */

/* Whether a slab can be emptied is asked again after that. The look at 100,000 chunks is
 * bounded so to a part of the daemon's time, however often it is called. */
#define GM_EMPTY_AGAIN_NS (10 * GM_MS)

/* Pinned memory cannot grow by such a chunk, nor will it soon. */
static bool is_at_cap(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return gm_hostpool_size(&engine->pool) + gm_chunk_bytes(chunk) >
               gm_hostpool_cap(&engine->pool) &&
           gm_hostpool_leaving(&engine->pool) == 0;
}

/* A unit for the chunk that leaves what evictions need; GM_NONE: not now. */
static uint32_t take_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint64_t cap = gm_hostpool_cap(&engine->pool), used = gm_engine_pinned_used(engine);
    const uint64_t kept = engine->plan_evicts > 0 ? engine->host->reserve : 0;
    const bool has_room = used + kept + gm_chunk_bytes(chunk) <= cap;
    uint32_t page = GM_NONE;
    do
        if (has_room)
            page = gm_hostpool_take_unit(&engine->pool, chunk->class, owner_of(engine, chunk));
    while (has_room && page == GM_NONE && is_at_cap(engine, chunk) &&
           gm_engine_yield_shadow(engine));
    engine->is_short_of_units = engine->is_short_of_units || page == GM_NONE;
    engine->is_cut_up = engine->is_cut_up || (page == GM_NONE && has_room);
    engine->is_out_of_units =
        engine->is_out_of_units || (page == GM_NONE && (!has_room || is_at_cap(engine, chunk)));
    return page;
}

/* If the system gives no memory for it, an allocation that waits is refused; others try again. */
static void lack_unit(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const uint32_t at = chunk->allocation;
    if (engine->pool.refusal == CUDA_SUCCESS)
        return;
    if (engine->stopping.is_on)
        gm_engine_back_off_app(engine, chunk->app);
    if (!engine->table->allocations[at].is_pending)
        return;
    gm_engine_refused(engine, chunk->app, engine->table->allocations[at].bytes, GM_WHY_HOST);
    gm_table_refuse(engine->table, at);
}

static void map_in_place(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = gm_engine_ask_host_frame(engine, index);
    if (frame != GM_NONE && gm_table_map(engine->table, index, frame))
        gm_engine_map(engine, index);
}

/* The next step of a chunk that is to be mapped on the host. */
static void step(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const struct gm_app *app = &engine->apps[chunk->app];
    if (!gm_chunk_is_still(chunk))
        return;
    if (chunk->tier == GM_TIER_PINNED &&
        gm_hostpool_is_unit(&engine->pool, chunk->page, chunk->class)) {
        if (app->batches.unanswered_maps >= GM_MAPS_AT_ONCE)
            return;
        map_in_place(engine, index);
        return;
    }
    if (chunk->tier == GM_TIER_NONE && !gm_engine_has_room(engine, GM_WAY_IN))
        return;
    if (chunk->tier != GM_TIER_NONE &&
        gm_engine_copied_below(engine, chunk->tier, GM_TIER_PINNED) >= GM_BELOW_AT_ONCE)
        return;
    const uint32_t page = take_unit(engine, chunk);
    if (page == GM_NONE) {
        lack_unit(engine, chunk);
    } else if (chunk->tier != GM_TIER_NONE) {
        gm_engine_copy_below(engine, index, GM_TIER_PINNED, page);
    } else {
        gm_table_clear(engine->table, index, page);
        gm_engine_clear_pages(engine, index);
    }
}

/* It runs, and waits until it is quiet so that its new memory can be on the GPU. */
static bool waits_for_quiet(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    return app->places.is_wanted && app->places.is_urgent &&
           chunk->allocation == app->places.newest &&
           engine->table->allocations[chunk->allocation].is_pending;
}

/*
 * Pinned memory cannot grow, and what is free of it lies in slabs of which others use a part, so no
 * unit can be made. The data in the slab with least of it moves to what is free in the others.
 * While there is a free slab, it becomes units first: data would move to it, and then back.
 */
static void empty_slab(struct gm_engine *engine)
{
    struct gm_pages *pages = &engine->pool.pages;
    const uint32_t copies = engine->host_copies;
    const uint32_t slab = gm_hostpool_emptiest(&engine->pool);
    for (uint32_t i = 0; slab != GM_NONE && i < engine->table->max_chunks; i++) {
        const struct gm_chunk *chunk = &engine->table->chunks[i];
        if (chunk->state != GM_CHUNK_AWAY || chunk->is_freed || chunk->tier != GM_TIER_PINNED ||
            !gm_pages_touch(pages, chunk->page, slab))
            continue;
        const uint32_t page = gm_pages_take_beside(pages, gm_chunk_bytes(chunk), slab);
        if (page == GM_NONE)
            break;
        gm_engine_copy_below(engine, i, GM_TIER_PINNED, page);
    }
    /* It looks at all chunks: in vain not with each event. */
    engine->empty_at = engine->host_copies > copies ? 0 : engine->now + GM_EMPTY_AGAIN_NS;
}

void gm_engine_map_on_host(struct gm_engine *engine)
{
    engine->is_short_of_units = engine->is_out_of_units = engine->is_cut_up = false;
    gm_hostpool_forget_wants(&engine->pool);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        const bool is_saved = engine->stopping.is_on && engine->stopping.host == id;
        if ((app->state != GM_APP_LOADING && app->state != GM_APP_RUNNING && !is_saved) ||
            gm_engine_is_app_off(engine, id) || app->batches.ping != 0)
            continue;
        const struct gm_list *list = &engine->table->apps[id].to_map;
        for (uint32_t at = list->head, next; at != GM_NONE; at = next) {
            const struct gm_chunk *chunk = &engine->table->chunks[at];
            next = chunk->next;
            if (!waits_for_quiet(engine, chunk) &&
                !engine->table->allocations[chunk->allocation].is_refused)
                step(engine, at);
        }
    }
}

void gm_engine_make_units(struct gm_engine *engine)
{
    if (engine->is_short_of_units != engine->short_told)
        gm_engine_want_memory(engine);
    if (engine->is_out_of_units && !engine->out_told) {
        gm_engine_call_back(engine);
        gm_engine_replan(engine);
        gm_engine_again(engine);
    }
    if (engine->is_out_of_units && engine->is_cut_up && engine->host_copies == 0 &&
        engine->pool.pages.free_slabs == 0 && engine->now >= engine->empty_at)
        empty_slab(engine);
    engine->short_told = engine->is_short_of_units;
    engine->out_told = engine->is_out_of_units;
    gm_engine_make_pinned_units(engine);
}

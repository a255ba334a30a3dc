/*
 * A small model of the world that plans move memory in, shared by the tests of core/layout,
 * core/plan and core/table: a table, tiers with exact accounts, and where the copies of every chunk
 * are. A move begins (it takes what it needs) and ends (it gives back what it leaves), as in the
 * daemon, so that moves can overlap in any order. Worlds are random, with their seed, full or
 * nearly; some chunks are fixed, and some are to be mapped on the host.
 *
 * world_check is called after every step: the table's invariants (hence that frames never exceed
 * the budget and serve one user each), that no tier exceeds its cap, that the accounts are those of
 * the chunks, and that every chunk has exactly one copy, or while it moves the whole old one.
 */
#ifndef GM_TESTS_PLAN_WORLD_H
#define GM_TESTS_PLAN_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/plan.h"
#include "tests/unit/turns.h"

#define MAX_APPS 8u
#define MAX_CHUNKS 512u
#define MAX_FRAMES 544u
#define MAX_MOVES (4 * MAX_CHUNKS)
#define MIB (1ull << 20)

struct world {
    void *memory;
    struct gm_table *table;
    struct gm_move moves[MAX_MOVES];
    struct gm_layout_target targets[MAX_APPS]; /* the layout's memory */
    struct gm_layout_victim victims[MAX_APPS];
    struct gm_layout layout;
    uint64_t random;
    uint64_t next_va;
    uint64_t seed;
    /* tiers below the GPU; no pinned cap: not modelled */
    uint64_t cap[GM_TIERS], used[GM_TIERS], ending[GM_TIERS];
    bool is_closed[GM_TIERS];
    uint64_t window;
    bool tells_ending;          /* give the planner `ending` */
    uint8_t copies[MAX_CHUNKS]; /* bit t: there is a whole copy in tier t */
    /* what is under way: chunks, and frames that are being destroyed */
    uint32_t flying[MAX_CHUNKS], n_flying;
    uint32_t ends[MAX_FRAMES], n_ends;
    uint32_t orphans[MAX_FRAMES], n_orphans; /* fixed frames that only others map */
    /* bytes moved, by kind of move; FILL: of what was written */
    uint64_t bytes[GM_MOVE_PROMOTE + 1];
    uint64_t bytes_to[GM_TIERS]; /* demoted to it */
};

static inline uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    return (world->random >> 33) % below;
}

static inline void make_world(struct world *world, uint64_t budget, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->memory = calloc(1, gm_table_size(MAX_APPS, MAX_CHUNKS, MAX_FRAMES));
    assert_non_null(world->memory);
    world->table = gm_table_init(world->memory, MAX_APPS, MAX_CHUNKS, MAX_FRAMES, budget);
    world->random = seed * 2 + 1;
    world->seed = seed;
    world->next_va = 1ull << 40;
    world->tells_ending = true;
}

static inline struct gm_chunk *chunk_of(struct world *world, uint32_t index)
{
    return gm_chunk_at(world->table, index);
}

static inline uint64_t bytes_of(const struct world *world, uint32_t index)
{
    return gm_class_bytes(world->table->chunks[index].class);
}

static inline bool has_tiers(const struct world *world)
{
    return world->cap[GM_TIER_PINNED] > 0;
}

static inline void world_check(struct world *world)
{
    uint64_t used[GM_TIERS] = {0};
    const char *fault = gm_table_check(world->table);
    if (fault)
        fail_msg("seed %llu: %s", (unsigned long long)world->seed, fault);
    if (!has_tiers(world))
        return;
    for (uint32_t a = 0; a < world->table->max_apps; a++) {
        uint32_t i =
            world->table->apps[a].is_used ? world->table->apps[a].allocations.head : GM_NONE;
        for (; i != GM_NONE; i = world->table->allocations[i].next)
            for (uint32_t c = world->table->allocations[i].first; c != GM_NONE;
                 c = world->table->chunks[c].sibling) {
                const struct gm_chunk *chunk = &world->table->chunks[c];
                unsigned whole = chunk->tier == GM_TIER_NONE ? 0 : 1u << chunk->tier;
                assert_int_equal(world->copies[c], whole);
                if (chunk->tier > GM_TIER_GPU)
                    used[chunk->tier] += gm_class_bytes(chunk->class);
                if (chunk->state == GM_CHUNK_LEAVING)
                    used[GM_TIER_PINNED] += gm_class_bytes(chunk->class);
                if (chunk->state == GM_CHUNK_MOVING)
                    used[chunk->to_tier] += gm_class_bytes(chunk->class);
            }
    }
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++) {
        assert_int_equal(used[t], world->used[t]);
        assert_true(used[t] <= world->cap[t]);
    }
}

static inline uint32_t allocate(struct world *world, uint32_t app, uint64_t bytes)
{
    uint32_t index = gm_table_add_allocation(world->table, app, world->next_va, bytes);
    assert_int_not_equal(index, GM_NONE);
    world->next_va += bytes;
    for (uint32_t c = world->table->allocations[index].first; c != GM_NONE;
         c = world->table->chunks[c].sibling)
        world->copies[c] = 0;
    return index;
}

/* A fixed frame that nobody maps any more. */
static inline void let_go(struct world *world, uint32_t frame)
{
    gm_table_condemn_frame(world->table, frame, GM_NONE);
    gm_table_end_frame(world->table, frame);
}

/* Give an allocation back, of which nothing is under way. `is_open`: others map what is fixed. */
static inline void give_back(struct world *world, uint32_t index, bool is_open)
{
    free_silently(world->table, index);
    for (uint32_t c = world->table->allocations[index].first, next; c != GM_NONE; c = next) {
        const struct gm_chunk *chunk = &world->table->chunks[c];
        const uint32_t frame = chunk->frame;
        next = chunk->sibling;
        if (frame != GM_NONE && chunk->is_fixed && is_open) {
            gm_table_orphan_frame(world->table, frame);
            world->orphans[world->n_orphans++] = frame;
        } else if (frame != GM_NONE && chunk->is_fixed) {
            let_go(world, frame);
        } else if (frame != GM_NONE) {
            gm_table_free_frame(world->table, frame);
        }
        if (chunk->tier > GM_TIER_GPU)
            world->used[chunk->tier] -= gm_class_bytes(chunk->class);
        if (gm_table_end_chunk(world->table, c))
            gm_table_end_allocation(world->table, index);
    }
}

/* An app's newest. */
static inline void free_one(struct world *world, uint32_t app)
{
    const uint32_t index = world->table->apps[app].allocations.head;
    if (index != GM_NONE)
        give_back(world, index, false);
}

static inline void end_world(struct world *world)
{
    while (world->n_orphans > 0)
        let_go(world, world->orphans[--world->n_orphans]);
    for (uint32_t app = 0; app < MAX_APPS; app++) {
        while (world->table->apps[app].is_used && world->table->apps[app].allocations.count > 0)
            free_one(world, app);
        if (world->table->apps[app].is_used)
            gm_table_remove_app(world->table, app);
    }
    assert_int_equal(world->table->committed + world->table->fixed, 0);
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        assert_true(!has_tiers(world) || world->used[t] == 0);
    free(world->memory);
}

static inline uint64_t free_in(const struct world *world, enum gm_tier tier)
{
    if (tier == GM_TIER_GPU)
        return world->table->budget - world->table->allocated;
    return has_tiers(world) ? world->cap[tier] - world->used[tier] : UINT64_MAX / 2;
}

static inline uint64_t move_bytes(const struct world *world, const struct gm_move *move)
{
    return move->kind == GM_MOVE_DESTROY ? 0 : bytes_of(world, move->chunk);
}

/* Whether `move` can begin now, but for what it may take (gm_plan_may_take). */
static inline bool is_ready(const struct world *world, const struct gm_move *move)
{
    bool has_frame =
        move->frame != GM_NONE && world->table->frames[move->frame].state == GM_FRAME_FREE;
    if (move->kind == GM_MOVE_DESTROY)
        return has_frame;
    const struct gm_chunk *chunk = &world->table->chunks[move->chunk];
    if (!gm_chunk_is_still(chunk))
        return false;
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        return chunk->tier == GM_TIER_GPU && chunk->frame == move->frame;
    case GM_MOVE_FILL:
        return (chunk->tier == GM_TIER_PINNED || chunk->tier == GM_TIER_NONE) &&
               (move->frame == GM_NONE || has_frame);
    case GM_MOVE_DEMOTE:
        return chunk->tier == GM_TIER_PINNED;
    case GM_MOVE_PROMOTE:
        return chunk->tier == GM_TIER_PAGED || chunk->tier == GM_TIER_DISK;
    case GM_MOVE_DESTROY:
        break;
    }
    return false;
}

static inline void world_input(const struct world *world, struct gm_layout *layout)
{
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        layout->tiers[t] =
            (struct gm_layout_tier){.cap = world->cap[t],
                                    .used = world->used[t],
                                    .ending = world->tells_ending ? world->ending[t] : 0,
                                    .is_closed = world->is_closed[t]};
    layout->window = world->window;
}

static inline bool may_take(const struct world *world, const struct gm_plan_hold *hold,
                            const struct gm_move *move)
{
    struct gm_layout layout = {.n_targets = 0};
    enum gm_tier tier = gm_plan_takes(move);
    world_input(world, &layout);
    return tier == GM_TIER_NONE || gm_plan_may_take(hold, move, move_bytes(world, move),
                                                    free_in(world, tier), gm_plan_reserve(&layout));
}

static inline void begin_move(struct world *world, const struct gm_move *move)
{
    uint64_t bytes = move_bytes(world, move);
    uint32_t frame = move->frame;

    if (move->kind == GM_MOVE_DESTROY) {
        gm_table_condemn_frame(world->table, frame, GM_NONE);
        world->ends[world->n_ends++] = frame;
        return;
    }
    struct gm_chunk *chunk = chunk_of(world, move->chunk);
    world->flying[world->n_flying++] = move->chunk;
    if (move->kind != GM_MOVE_FILL || chunk->tier != GM_TIER_NONE)
        world->bytes[move->kind] += bytes;
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        assert_true(gm_table_evict(world->table, move->chunk, 0));
        world->used[GM_TIER_PINNED] += bytes;
        break;
    case GM_MOVE_FILL:
        if (frame == GM_NONE)
            frame =
                gm_table_add_frame(world->table, world->table->apps[chunk->app].pool, chunk->class);
        assert_int_not_equal(frame, GM_NONE);
        assert_true(gm_table_fill(world->table, move->chunk, frame));
        if (chunk->tier == GM_TIER_PINNED)
            world->ending[GM_TIER_PINNED] += bytes;
        break;
    case GM_MOVE_DEMOTE:
    case GM_MOVE_PROMOTE:
        assert_true(gm_table_move(world->table, move->chunk, gm_plan_takes(move), 0));
        world->used[chunk->to_tier] += bytes;
        world->ending[chunk->tier] += bytes;
        world->bytes_to[chunk->to_tier] += bytes;
        break;
    case GM_MOVE_DESTROY:
        break;
    }
}

/* The copy that is under way for `index` ends: the new one is whole, then the old one is let go. */
static inline void end_flight(struct world *world, uint32_t index)
{
    struct gm_chunk *chunk = chunk_of(world, index);
    unsigned from = chunk->tier, to = GM_TIER_GPU;
    uint64_t bytes = bytes_of(world, index);

    for (uint32_t i = 0; i < world->n_flying; i++)
        if (world->flying[i] == index)
            world->flying[i--] = world->flying[--world->n_flying];
    if (chunk->state == GM_CHUNK_LEAVING) {
        to = GM_TIER_PINNED;
        gm_table_leave_frame(world->table, index, 0);
    } else if (chunk->state == GM_CHUNK_MOVING) {
        to = chunk->to_tier;
    }
    if (from > GM_TIER_GPU) {
        world->used[from] -= bytes;
        world->ending[from] -= bytes;
    }
    world->copies[index] = (uint8_t)(1u << to);
    settle_chunk(world->table, index);
    if (to == GM_TIER_GPU)
        gm_table_leave_pages(world->table, index);
    assert_int_equal(chunk->tier, to);
}

static inline void end_destroy(struct world *world, uint32_t at)
{
    uint32_t frame = world->ends[at];
    world->ends[at] = world->ends[--world->n_ends];
    gm_table_end_frame(world->table, frame);
}

/* All that is under way ends. */
static inline void end_all(struct world *world)
{
    while (world->n_flying > 0)
        end_flight(world, world->flying[0]);
    while (world->n_ends > 0)
        end_destroy(world, 0);
    world_check(world);
}

/* Some of the plan's moves begin, each with a chance of one in `one_in`. */
static inline void begin_some(struct world *world, const struct gm_plan *plan, uint64_t one_in)
{
    struct gm_plan_hold hold = {.has_eviction = false};
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        if (is_ready(world, move) && may_take(world, &hold, move) && draw(world, one_in) == 0)
            begin_move(world, move);
        else
            gm_plan_pass_over(&hold, move, move_bytes(world, move));
    }
    world_check(world);
}

/* It would touch what is fixed. */
static inline bool is_bound(const struct world *world, const struct gm_move *move)
{
    return (move->kind != GM_MOVE_DESTROY && world->table->chunks[move->chunk].is_fixed) ||
           (move->frame != GM_NONE && world->table->frames[move->frame].share != 0);
}

/* Carry out the plan in its order, each move alone. Returns the bytes evicted. */
static inline uint64_t carry_out(struct world *world, const struct gm_plan *plan)
{
    const struct gm_plan_hold nothing = {.has_eviction = false};
    uint64_t before = world->bytes[GM_MOVE_EVICT];
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        if (!is_ready(world, move) || !may_take(world, &nothing, move) || is_bound(world, move))
            fail_msg("seed %llu: move %u of %u (kind %d) is not possible in its turn",
                     (unsigned long long)world->seed, i, plan->n, move->kind);
        begin_move(world, move);
        world_check(world);
        if (move->kind == GM_MOVE_DESTROY)
            end_destroy(world, world->n_ends - 1);
        else
            end_flight(world, move->chunk);
        world_check(world);
    }
    return world->bytes[GM_MOVE_EVICT] - before;
}

/* Of the victims the first `n_donors` may lose memory. */
static inline void set_layout(struct world *world, const uint32_t *targets, uint32_t n_targets,
                              const uint32_t *victims, uint32_t n_victims, uint32_t n_donors)
{
    world->layout = (struct gm_layout){.targets = world->targets,
                                       .victims = world->victims,
                                       .n_targets = n_targets,
                                       .n_victims = n_victims};
    for (uint32_t i = 0; i < n_targets; i++)
        world->targets[i].app = targets[i];
    for (uint32_t i = 0; i < n_victims; i++)
        world->victims[i] = (struct gm_layout_victim){
            .app = victims[i],
            .may_lose = i < n_donors ? world->table->apps[victims[i]].resident : 0};
    world_input(world, &world->layout);
}

static inline struct gm_plan make_plan(struct world *world)
{
    struct gm_plan plan = {.moves = world->moves, .capacity = MAX_MOVES};
    gm_layout_share(world->table, &world->layout);
    gm_plan_make(world->table, &world->layout, &plan);
    return plan;
}

static inline struct gm_plan plan_for(struct world *world, const uint32_t *targets,
                                      uint32_t n_targets, const uint32_t *victims,
                                      uint32_t n_victims)
{
    set_layout(world, targets, n_targets, victims, n_victims, n_victims);
    return make_plan(world);
}

/* Ahead of the turn of `target`. The first `n_donors` of the victims make way for it. */
static inline struct gm_plan plan_ahead(struct world *world, uint32_t target,
                                        const uint32_t *victims, uint32_t n_victims,
                                        uint32_t n_donors)
{
    set_layout(world, &target, 1, victims, n_victims, n_donors);
    world->layout.is_ahead = true;
    return make_plan(world);
}

/* ---- random worlds with all tiers, and turns in them ---- */

/* How the sizes of allocations are drawn. */
enum sizes { SIZES_EQUAL, SIZES_SMALL, SIZES_MIXED, SIZES };

static inline uint64_t draw_size(struct world *world, enum sizes sizes)
{
    switch (sizes) {
    case SIZES_EQUAL:
        return (1 + draw(world, 4)) * GM_CHUNK_MAX;
    case SIZES_SMALL:
        return (1 + draw(world, 31)) * GM_CHUNK_MIN;
    case SIZES_MIXED:
    case SIZES:
        break;
    }
    return (1 + draw(world, draw(world, 2) ? 100 : 10)) * GM_CHUNK_MIN;
}

/* What of an app can be evicted, or comes. */
static inline uint64_t movable(const struct world *world, uint32_t app)
{
    return world->table->apps[app].committed - world->table->apps[app].fixed;
}

/* Bytes for which there is room, beside what only others map. */
static inline uint64_t capacity_of(const struct world *world)
{
    uint64_t bytes = world->table->budget - world->table->orphaned - world->window;
    if (!has_tiers(world))
        return 3 * bytes;
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        bytes += world->cap[t];
    return bytes;
}

static inline void make_tiered_world(struct world *world, uint64_t seed)
{
    make_world(world, 0, seed);
    world->table->budget = (64 + draw(world, 256)) * GM_CHUNK_MIN;
    world->window =
        GM_PLAN_WINDOW_MIN + (draw(world, 3) == 0 ? draw(world, 100) * GM_CHUNK_MIN : 0);
    world->cap[GM_TIER_PINNED] = world->window;
    if (draw(world, 4) > 0)
        world->cap[GM_TIER_PINNED] += draw(world, 200) * GM_CHUNK_MIN;
    for (unsigned t = GM_TIER_PAGED; t < GM_TIERS; t++)
        world->cap[t] = draw(world, 3) == 0 ? 0 : draw(world, 300) * GM_CHUNK_MIN;
    if (draw(world, 6) == 0) /* none is modelled */
        world->window = world->cap[GM_TIER_PINNED] = 0;
    world->tells_ending = draw(world, 2) == 0;
    unsigned users = 1 + (unsigned)draw(world, 2);
    for (uint32_t app = 0; app < MAX_APPS; app++)
        assert_true(gm_table_add_app(world->table, app, 1000 + (uint32_t)draw(world, users)));
}

/* Allocate until the tiers are full, or nearly. Every app fits beside what is fixed. */
static inline void fill_up(struct world *world, enum sizes sizes)
{
    for (int attempt = 0; attempt < 60; attempt++) {
        const uint32_t app = (uint32_t)draw(world, MAX_APPS);
        uint64_t bytes = draw_size(world, sizes);
        if (world->table->committed + bytes > capacity_of(world))
            bytes = sizes == SIZES_EQUAL || world->table->committed > capacity_of(world)
                        ? 0
                        : capacity_of(world) - world->table->committed;
        if (bytes > 0 &&
            movable(world, app) + bytes + world->table->fixed <= world->table->budget &&
            world->table->used_chunks + gm_chunk_count(bytes) <= MAX_CHUNKS)
            allocate(world, app, bytes);
    }
}

/* Other programs have an app's newest allocation mapped from now on, if it is there and every app
 * can still run beside what is fixed then. */
static inline void fix_one(struct world *world, uint32_t app)
{
    const uint32_t newest = world->table->apps[app].allocations.head;
    if (newest == GM_NONE || !gm_table_can_fix(world->table, newest) ||
        world->table->chunks[world->table->allocations[newest].first].is_fixed)
        return;
    for (uint32_t i = 0; i < MAX_APPS; i++)
        if (i != app &&
            movable(world, i) + world->table->fixed + world->table->allocations[newest].bytes >
                world->table->budget)
            return;
    gm_table_fix(world->table, newest, 1, (const uint64_t[2]){1, 2});
}

/* Memory comes, goes and is fixed. Nothing is under way. */
static inline void change_world(struct world *world, enum sizes sizes)
{
    for (uint64_t n = draw(world, 4); n > 0; n--) {
        const uint32_t app = (uint32_t)draw(world, MAX_APPS);
        const uint32_t newest = world->table->apps[app].allocations.head;
        const uint64_t what = draw(world, 4);
        if (what == 0)
            fix_one(world, app);
        else if (newest != GM_NONE)
            give_back(world, newest, what == 1);
    }
    while (world->n_orphans > 0 && draw(world, 2))
        let_go(world, world->orphans[--world->n_orphans]);
    fill_up(world, sizes);
    world_check(world);
}

/* Some chunks of an app get another place, or all of them one on the GPU. */
static inline void change_places(struct world *world, uint32_t app, bool is_any)
{
    for (uint32_t a = world->table->apps[app].allocations.head; a != GM_NONE;
         a = world->table->allocations[a].next)
        for (uint32_t c = world->table->allocations[a].first; c != GM_NONE;
             c = world->table->chunks[c].sibling)
            if (gm_chunk_is_still(&world->table->chunks[c]) && !world->table->chunks[c].is_fixed)
                gm_table_put(world->table, c, is_any && draw(world, 4) == 0);
    world_check(world);
}

/* Both, with sizes that are drawn, which it returns. */
static inline enum sizes make_full_world(struct world *world, uint64_t seed)
{
    make_tiered_world(world, seed);
    enum sizes sizes = (enum sizes)draw(world, SIZES);
    if (sizes == SIZES_EQUAL) { /* nothing is left over anywhere */
        world->table->budget -= world->table->budget % GM_CHUNK_MAX;
        world->window -= world->window % GM_CHUNK_MAX;
        for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
            world->cap[t] -= world->cap[t] % GM_CHUNK_MAX;
    }
    fill_up(world, sizes);
    return sizes;
}

/* Apps in the order of their next use: targets that fit together, then the others, farthest first.
 */
struct turn {
    uint32_t targets[MAX_APPS], victims[MAX_APPS];
    uint32_t n_targets, n_victims;
};

static inline void draw_turn(struct world *world, struct turn *turn)
{
    uint32_t order[MAX_APPS];
    uint64_t fits = world->table->fixed;
    for (uint32_t i = 0; i < MAX_APPS; i++)
        order[i] = i;
    for (uint32_t i = MAX_APPS; i > 1; i--) {
        uint32_t j = (uint32_t)draw(world, i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    *turn = (struct turn){.n_targets = 0};
    uint32_t most = 1 + (uint32_t)draw(world, 4), n_rest = 0, rest[MAX_APPS];
    for (uint32_t i = 0; i < MAX_APPS; i++) {
        const uint64_t bytes = movable(world, order[i]);
        if (turn->n_targets < most && fits + bytes <= world->table->budget) {
            fits += bytes;
            turn->targets[turn->n_targets++] = order[i];
        } else {
            rest[n_rest++] = order[i];
        }
    }
    while (n_rest > 0)
        turn->victims[turn->n_victims++] = rest[--n_rest];
}

static inline void check_closed(const struct world *world, const struct gm_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->moves[i].kind == GM_MOVE_DEMOTE)
            assert_false(world->is_closed[plan->moves[i].to_tier]);
}

static inline struct gm_plan plan_turn(struct world *world, const struct turn *turn)
{
    struct gm_plan plan =
        plan_for(world, turn->targets, turn->n_targets, turn->victims, turn->n_victims);
    check_closed(world, &plan);
    return plan;
}

static inline uint32_t missing_of(const struct world *world, const struct turn *turn)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < turn->n_targets; i++)
        missing += world->table->apps[turn->targets[i]].missing;
    return missing;
}

#endif

/*
 * A small model of the world that plans move memory in, shared by the tests
 * test_plan*.c: a table, tiers with exact accounts, and where the copies of every chunk are. A
 * move begins (it takes what it needs) and ends (it gives back what it leaves), as in the daemon,
 * so that moves can overlap in any order.
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
#define MAX_FRAMES 512u
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

/* Give back an app's newest allocation. Nothing is under way. */
static inline void free_one(struct world *world, uint32_t app)
{
    uint32_t index = world->table->apps[app].allocations.head;
    if (index == GM_NONE)
        return;
    free_silently(world->table, index);
    for (uint32_t c = world->table->allocations[index].first, next; c != GM_NONE; c = next) {
        struct gm_chunk *chunk = chunk_of(world, c);
        next = chunk->sibling;
        if (chunk->frame != GM_NONE)
            gm_table_free_frame(world->table, chunk->frame);
        if (chunk->tier > GM_TIER_GPU)
            world->used[chunk->tier] -= gm_class_bytes(chunk->class);
        if (gm_table_end_chunk(world->table, c))
            gm_table_end_allocation(world->table, index);
    }
}

static inline void end_world(struct world *world)
{
    for (uint32_t app = 0; app < MAX_APPS; app++) {
        while (world->table->apps[app].is_used && world->table->apps[app].allocations.count > 0)
            free_one(world, app);
        if (world->table->apps[app].is_used)
            gm_table_remove_app(world->table, app);
    }
    assert_int_equal(world->table->committed, 0);
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

/* Carry out the plan in its order, each move alone. Returns the bytes evicted. */
static inline uint64_t carry_out(struct world *world, const struct gm_plan *plan)
{
    const struct gm_plan_hold nothing = {.has_eviction = false};
    uint64_t before = world->bytes[GM_MOVE_EVICT];
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        if (!is_ready(world, move) || !may_take(world, &nothing, move))
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

#endif

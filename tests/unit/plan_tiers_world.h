/*
 * Random worlds with all tiers (plan_world.h), full or nearly, and turns in them; shared by
 * test_plan_tiers.c and test_plan_best.c.
 */
#ifndef GM_TESTS_PLAN_TIERS_WORLD_H
#define GM_TESTS_PLAN_TIERS_WORLD_H

#include "tests/unit/plan_world.h"

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

static inline uint64_t capacity_of(const struct world *world)
{
    uint64_t bytes = world->table->budget - world->window;
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
    world->tells_ending = draw(world, 2) == 0;
    unsigned users = 1 + (unsigned)draw(world, 2);
    for (uint32_t app = 0; app < MAX_APPS; app++)
        assert_true(gm_table_add_app(world->table, app, 1000 + (uint32_t)draw(world, users)));
}

/* Allocate until the tiers are full, or nearly. */
static inline void fill_up(struct world *world, enum sizes sizes)
{
    for (int attempt = 0; attempt < 60; attempt++) {
        uint32_t app = (uint32_t)draw(world, MAX_APPS);
        uint64_t bytes = draw_size(world, sizes);
        if (world->table->committed + bytes > capacity_of(world))
            bytes = sizes == SIZES_EQUAL ? 0 : capacity_of(world) - world->table->committed;
        if (bytes == 0 || world->table->apps[app].committed + bytes > world->table->budget ||
            world->table->used_chunks + gm_chunk_count(bytes) > MAX_CHUNKS)
            continue;
        allocate(world, app, bytes);
    }
}

/* Both, with sizes that are drawn, which it returns. */
static inline enum sizes make_full_world(struct world *world, uint64_t seed)
{
    make_tiered_world(world, seed);
    enum sizes sizes = (enum sizes)draw(world, SIZES);
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
    uint64_t fits = 0;
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
        uint64_t bytes = world->table->apps[order[i]].committed;
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

/* The window is free, or nothing that is pinned has room below. */
#endif

/*
 * core: fixed chunks, which other programs have mapped. No plan and no exchange ever takes one, in
 * random worlds where allocations are fixed, freed while others map them, and let go; and every
 * plan is complete for which there is room beside them.
 */
#include "tests/unit/plan_world.h"

#define ORPHANS_MAX 64u

struct fixed_world {
    struct world world;
    uint32_t orphans[ORPHANS_MAX], n_orphans; /* frames that only others map */
};

/* A fixed frame that nobody maps any more. */
static void let_go(struct world *world, uint32_t frame)
{
    gm_table_condemn_frame(world->table, frame, GM_NONE);
    gm_table_end_frame(world->table, frame);
}

/* Give an allocation back. `is_open`: others map what of it is fixed. */
static void give_back(struct fixed_world *fixed, uint32_t index, bool is_open)
{
    struct world *world = &fixed->world;
    struct gm_table *table = world->table;
    free_silently(table, index);
    for (uint32_t c = table->allocations[index].first, next; c != GM_NONE; c = next) {
        struct gm_chunk *chunk = chunk_of(world, c);
        uint32_t frame = chunk->frame;
        next = chunk->sibling;
        if (frame != GM_NONE && chunk->is_fixed && is_open) {
            gm_table_orphan_frame(table, frame);
            fixed->orphans[fixed->n_orphans++] = frame;
        } else if (frame != GM_NONE && chunk->is_fixed) {
            let_go(world, frame);
        } else if (frame != GM_NONE) {
            gm_table_free_frame(table, frame);
        }
        if (chunk->tier > GM_TIER_GPU)
            world->used[chunk->tier] -= gm_class_bytes(chunk->class);
        if (gm_table_end_chunk(table, c))
            gm_table_end_allocation(table, index);
    }
    world_check(world);
}

static uint64_t movable(const struct world *world, uint32_t app)
{
    return world->table->apps[app].committed - world->table->apps[app].fixed;
}

/* As the daemon has it: every app must be able to run beside what is fixed. */
static bool may_fix(const struct world *world, uint32_t owner, uint64_t bytes)
{
    for (uint32_t app = 0; app < MAX_APPS; app++)
        if (app != owner &&
            movable(world, app) + world->table->fixed + bytes > world->table->budget)
            return false;
    return true;
}

/* Carry the plan out; nothing of it may touch what is fixed. */
static void carry_out_beside(struct world *world, const struct gm_plan *plan)
{
    uint32_t frame_of[MAX_CHUNKS];
    for (uint32_t c = 0; c < MAX_CHUNKS; c++)
        frame_of[c] = world->table->chunks[c].frame;
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        if (move->kind != GM_MOVE_DESTROY && world->table->chunks[move->chunk].is_fixed)
            fail_msg("seed %llu: a fixed chunk moves", (unsigned long long)world->seed);
        if (move->frame != GM_NONE && world->table->frames[move->frame].share != 0)
            fail_msg("seed %llu: a fixed frame is taken", (unsigned long long)world->seed);
    }
    carry_out(world, plan);
    for (uint32_t c = 0; c < MAX_CHUNKS; c++)
        if (world->table->chunks[c].is_fixed && world->table->chunks[c].app != GM_NONE)
            assert_int_equal(world->table->chunks[c].frame, frame_of[c]);
}

static void change_something(struct fixed_world *fixed, uint32_t app)
{
    struct world *world = &fixed->world;
    struct gm_table *table = world->table;
    uint64_t bytes = (1 + draw(world, 30)) * 2 * MIB;
    uint32_t newest = table->apps[app].allocations.head;
    unsigned what = (unsigned)draw(world, 6);

    if (what == 0 && newest != GM_NONE && fixed->n_orphans + 32 < ORPHANS_MAX) {
        give_back(fixed, newest, draw(world, 2) == 0);
    } else if (what == 1 && fixed->n_orphans > 0) {
        let_go(world, fixed->orphans[--fixed->n_orphans]);
    } else if (what == 2 && newest != GM_NONE && gm_table_can_fix(table, newest) &&
               !chunk_of(world, table->allocations[newest].first)->is_fixed &&
               may_fix(world, app, table->allocations[newest].bytes)) {
        gm_table_fix(table, newest, 1, (const uint64_t[2]){1, 2});
    } else if (movable(world, app) + bytes + table->fixed <= table->budget &&
               table->committed + bytes <= 3 * table->budget) {
        allocate(world, app, bytes);
    }
    world_check(world);
}

static uint64_t one_world(uint64_t seed)
{
    static struct fixed_world fixed;
    struct world *world = &fixed.world;
    uint64_t most = 0;

    fixed.n_orphans = 0;
    make_world(world, 0, seed);
    world->table->budget = (16 + draw(world, 200)) * 2 * MIB;
    for (uint32_t app = 0; app < MAX_APPS; app++)
        assert_true(gm_table_add_app(world->table, app, 1000 + (uint32_t)draw(world, 2)));
    for (int step = 0; step < 80; step++) {
        uint32_t app = (uint32_t)draw(world, MAX_APPS), targets[MAX_APPS], victims[MAX_APPS];
        uint32_t n_targets = 0, n_victims = 0;
        uint64_t fits;
        change_something(&fixed, app);
        fits = world->table->fixed;
        most = fits > most ? fits : most;
        for (uint32_t i = 0; i < MAX_APPS; i++) {
            uint32_t at = (i + app) % MAX_APPS;
            if (fits + movable(world, at) <= world->table->budget) {
                fits += movable(world, at);
                targets[n_targets++] = at;
            } else {
                victims[n_victims++] = at;
            }
        }
        assert_true(n_targets > 0);
        struct gm_plan plan = plan_for(world, targets, n_targets, victims, n_victims);
        assert_true(plan.is_complete);
        carry_out_beside(world, &plan);
        for (uint32_t i = 0; i < n_targets; i++)
            assert_int_equal(world->table->apps[targets[i]].missing, 0);
        for (uint32_t i = 0; i < n_victims; i++) {
            plan = plan_ahead(world, victims[i], NULL, 0, 0);
            carry_out_beside(world, &plan);
        }
    }
    while (fixed.n_orphans > 0)
        let_go(world, fixed.orphans[--fixed.n_orphans]);
    for (uint32_t app = 0; app < MAX_APPS; app++)
        while (world->table->apps[app].allocations.count > 0)
            give_back(&fixed, world->table->apps[app].allocations.head, false);
    assert_int_equal(world->table->fixed, 0);
    end_world(world);
    return most;
}

static void test_random(void **state)
{
    uint32_t with_fixed = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        with_fixed += one_world(seed) > 0;
    assert_true(with_fixed > 200); /* else nothing was tried */
}

/* One app fills the budget and has half of it fixed: the other gets the other half and no more. */
static void test_half(void **state)
{
    struct fixed_world fixed = {.n_orphans = 0};
    struct world *world = &fixed.world;
    const uint32_t a = 0, b = 1;
    (void)state;
    make_world(world, 256 * MIB, 1);
    gm_table_add_app(world->table, a, 1000);
    gm_table_add_app(world->table, b, 1000);
    uint32_t shared = allocate(world, a, 128 * MIB);
    allocate(world, a, 128 * MIB);
    allocate(world, b, 160 * MIB);
    assert_false(gm_table_can_fix(world->table, shared)); /* it is not there yet */
    struct gm_plan plan = plan_for(world, &a, 1, NULL, 0);
    carry_out(world, &plan);
    gm_table_fix(world->table, shared, 1, (const uint64_t[2]){1, 2});
    world_check(world);
    assert_int_equal(world->table->fixed, 128 * MIB);
    assert_int_equal(world->table->apps[a].resident, 128 * MIB);
    assert_int_equal(world->table->apps[a].missing, 0);

    plan = plan_for(world, &b, 1, &a, 1);
    assert_false(plan.is_complete);
    carry_out_beside(world, &plan);
    assert_int_equal(world->table->apps[b].resident, 128 * MIB);
    assert_int_equal(world->table->apps[a].resident, 0);
    assert_int_equal(world->table->apps[a].missing, 4); /* of 32 MiB: not the fixed ones */

    give_back(&fixed, shared, true); /* and others keep it */
    assert_int_equal(world->table->fixed, 128 * MIB);
    plan = plan_for(world, &b, 1, &a, 1);
    assert_false(plan.is_complete);
    assert_int_equal(plan.n, 0);
    while (fixed.n_orphans > 0)
        let_go(world, fixed.orphans[--fixed.n_orphans]);
    plan = plan_for(world, &b, 1, &a, 1);
    assert_true(plan.is_complete);
    carry_out_beside(world, &plan);
    assert_int_equal(world->table->apps[b].missing, 0);
    end_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * core/plan with places (core/place.h): what of a target is to be mapped on the host leaves the GPU
 * first, its frames serve what comes, and pinned memory is made free for what is to be mapped there
 * and has no pages yet.
 */
#include "tests/unit/plan_world.h"

static const uint32_t first[] = {0}, second[] = {1};

static void open_world(struct world *world, uint64_t budget, uint64_t pinned, uint64_t paged,
                       uint64_t seed)
{
    make_world(world, budget, seed);
    world->cap[GM_TIER_PINNED] = pinned;
    world->cap[GM_TIER_PAGED] = paged;
    world->window = paged ? GM_PLAN_WINDOW_MIN : 2 * GM_CHUNK_MAX;
    for (uint32_t app = 0; app < 3; app++)
        gm_table_add_app(world->table, app, app == 2 ? 1001 : 1000);
}

static uint32_t chunk_at(struct world *world, uint32_t allocation, uint32_t n)
{
    uint32_t c = world->table->allocations[allocation].first;
    while (n-- > 0)
        c = world->table->chunks[c].sibling;
    return c;
}

static void load(struct world *world, const uint32_t *targets, const uint32_t *victims,
                 uint32_t n_victims)
{
    struct gm_plan plan = plan_for(world, targets, 1, victims, n_victims);
    assert_true(plan.is_complete);
    carry_out(world, &plan);
    assert_int_equal(world->table->apps[targets[0]].leaving, 0);
}

static uint32_t count_moves(const struct world *world, uint32_t n, enum gm_move_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += world->moves[i].kind == kind;
    return count;
}

/* One comes in the place of one that leaves: its frame is used as it is. Nobody else loses any. */
static void test_exchange(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 128 * MIB, 512 * MIB, 0, 1);
    uint32_t other = allocate(&world, 1, 32 * MIB);
    load(&world, second, NULL, 0);
    uint32_t cold = allocate(&world, 0, 96 * MIB);
    load(&world, first, NULL, 0);
    uint32_t hot = allocate(&world, 0, 32 * MIB);
    gm_table_put(world.table, chunk_at(&world, cold, 1), true);
    struct gm_plan plan = plan_for(&world, first, 1, second, 1);
    assert_true(plan.is_complete);
    assert_int_equal(plan.n, 2);
    assert_int_equal(plan.moves[0].kind, GM_MOVE_EVICT);
    assert_int_equal(plan.moves[0].chunk, chunk_at(&world, cold, 1));
    assert_int_equal(plan.moves[1].kind, GM_MOVE_FILL);
    assert_int_equal(plan.moves[1].frame, plan.moves[0].frame);
    carry_out(&world, &plan);
    assert_int_equal(chunk_of(&world, chunk_at(&world, hot, 0))->tier, GM_TIER_GPU);
    assert_int_equal(chunk_of(&world, chunk_at(&world, other, 0))->tier, GM_TIER_GPU);
    assert_int_equal(world.table->apps[0].to_map.count, 1);
    assert_int_equal(world.table->apps[0].missing, 1); /* until it is mapped on the host */
    end_world(&world);
}

/* One large chunk leaves for many small ones, and the other way round. */
static void test_sizes(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 64 * MIB, 512 * MIB, 0, 1);
    uint32_t large = allocate(&world, 0, 64 * MIB);
    load(&world, first, NULL, 0);
    for (int i = 0; i < 16; i++)
        allocate(&world, 0, 2 * MIB);
    gm_table_put(world.table, chunk_at(&world, large, 0), true);
    struct gm_plan plan = plan_for(&world, first, 1, NULL, 0);
    assert_true(plan.is_complete);
    assert_int_equal(count_moves(&world, plan.n, GM_MOVE_EVICT), 1);
    assert_int_equal(count_moves(&world, plan.n, GM_MOVE_DESTROY), 1);
    assert_int_equal(count_moves(&world, plan.n, GM_MOVE_FILL), 16);
    carry_out(&world, &plan);
    gm_table_put(world.table, chunk_at(&world, large, 0), false);
    for (uint32_t a = world.table->apps[0].allocations.head; a != large;
         a = world.table->allocations[a].next)
        gm_table_put(world.table, chunk_at(&world, a, 0), true);
    load(&world, first, NULL, 0);
    assert_int_equal(chunk_of(&world, chunk_at(&world, large, 0))->tier, GM_TIER_GPU);
    assert_int_equal(world.table->apps[0].to_map.count, 16);
    end_world(&world);
}

/* Pinned memory is full: what is to be mapped there without pages gets them from what others have
 * there. */
static void test_room_to_map(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 256 * MIB, 512 * MIB, 1024 * MIB, 1);
    allocate(&world, 1, 256 * MIB);
    load(&world, second, NULL, 0);
    uint32_t large = allocate(&world, 0, 448 * MIB);
    for (uint32_t n = 8; n < 14; n++)
        gm_table_put(world.table, chunk_at(&world, large, n), true);
    assert_int_equal(world.table->apps[0].to_map_bytes, 192 * MIB);
    load(&world, first, second, 1);
    assert_true(free_in(&world, GM_TIER_PINNED) >= world.window + 192 * MIB);
    assert_true(world.used[GM_TIER_PAGED] >= 256 * MIB - (512 * MIB - world.window - 192 * MIB));
    end_world(&world);
}

/* Pinned memory has no page for what is to leave, and is full of what is to come: that comes first,
 * into frames that are free. */
static void test_full(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 192 * MIB, 64 * MIB, 0, 1);
    uint32_t large = allocate(&world, 0, 192 * MIB);
    load(&world, first, NULL, 0);
    allocate(&world, 1, 64 * MIB);
    load(&world, second, first, 1);
    assert_int_equal(free_in(&world, GM_TIER_PINNED), 0);
    free_one(&world, 1);
    for (uint32_t n = 0; n < 6; n++)
        if (chunk_of(&world, chunk_at(&world, large, n))->tier == GM_TIER_GPU)
            gm_table_put(world.table, chunk_at(&world, large, n), true);
    assert_int_equal(world.table->apps[0].leaving, 128 * MIB);
    struct gm_plan plan = plan_for(&world, first, 1, NULL, 0);
    assert_false(plan.is_complete);
    assert_int_equal(count_moves(&world, plan.n, GM_MOVE_FILL), 2);
    carry_out(&world, &plan);
    plan = plan_for(&world, first, 1, NULL, 0);
    assert_int_equal(count_moves(&world, plan.n, GM_MOVE_EVICT), 2);
    carry_out(&world, &plan);
    assert_int_equal(world.table->apps[0].leaving, 64 * MIB);
    end_world(&world);
}

/* Any places: every plan can be carried out in its order, and what is to be on the GPU gets there.
 */
static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct world world;
        const uint64_t budget = 512 * MIB;
        open_world(&world, budget, 1024 * MIB, seed % 2 ? 2048 * MIB : 0, seed);
        for (uint32_t app = 0; app < 3; app++) {
            uint64_t left = seed % 2 ? 480 * MIB : 400 * MIB;
            while (left > 0) {
                uint64_t bytes = (1 + draw(&world, 48)) * 2 * MIB;
                bytes = bytes < left ? bytes : left;
                allocate(&world, app, bytes);
                left -= bytes;
            }
        }
        for (int round = 0; round < 8; round++) {
            const uint32_t target = (uint32_t)draw(&world, 3);
            uint32_t victims[2], n = 0;
            for (uint32_t app = 0; app < 3; app++)
                if (app != target)
                    victims[n++] = app;
            for (uint32_t c = 0; c < MAX_CHUNKS; c++) {
                const struct gm_chunk *chunk = chunk_of(&world, c);
                if (chunk->list != GM_LIST_NONE && !chunk->is_freed && chunk->app == target)
                    gm_table_put(world.table, c, draw(&world, 3) == 0);
            }
            world_check(&world);
            const uint64_t to_map = world.table->apps[target].to_map_bytes;
            load(&world, &target, victims, n);
            const struct gm_table_app *app = &world.table->apps[target];
            assert_int_equal(app->missing, app->to_map.count);
            assert_int_equal(app->resident, app->committed - app->on_host);
            if (seed % 2)
                assert_true(free_in(&world, GM_TIER_PINNED) >= world.window + to_map);
            /* Its turn is over. */
            for (uint32_t c = 0; c < MAX_CHUNKS; c++)
                if (chunk_of(&world, c)->list == GM_LIST_TO_MAP)
                    gm_table_put(world.table, c, false);
            world_check(&world);
        }
        end_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_room_to_map),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

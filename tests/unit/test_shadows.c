/*
 * Shadows in core/table: every pair of state and event, what can have one, the order of the lists,
 * and at random; core/plan evicts what has one before what has none; core/need makes room for them.
 */
#include "tests/unit/plan_world.h"

#include "daemon/core/need.h"

static struct world world;

static void begin(uint64_t budget)
{
    make_world(&world, budget, 3);
    for (uint32_t app = 0; app < 3; app++)
        assert_true(gm_table_add_app(world.table, app, 1000));
}

static int end(void **state)
{
    (void)state;
    free(world.memory);
    return 0;
}

/* A chunk of 32 MiB on the GPU, with pages beside its frame. */
static uint32_t on_gpu(uint32_t app)
{
    const uint32_t index = world.table->allocations[allocate(&world, app, 32 * MIB)].first;
    struct gm_chunk *chunk = chunk_of(&world, index);
    chunk->page = index;
    to_new_frame(world.table, index);
    return index;
}

static void turn(uint32_t index, enum gm_shadow_event event)
{
    assert_true(gm_table_turn_shadow(world.table, index, event));
}

static void expect_wrong(uint32_t index, enum gm_shadow_event event)
{
    const uint8_t before = chunk_of(&world, index)->shadow;
    const uint64_t bytes = world.table->shadows;
    assert_false(gm_table_turn_shadow(world.table, index, event));
    assert_int_equal(chunk_of(&world, index)->shadow, before);
    assert_int_equal(world.table->shadows, bytes);
    assert_null(gm_table_check(world.table));
}

static void leave(uint32_t index)
{
    turn_chunk(world.table, index, GM_CHUNK_EV_EVICT);
}

static void test_turns(void **state)
{
    (void)state;
    begin(128 * MIB);
    const uint32_t one = on_gpu(0);
    expect_wrong(one, GM_SHADOW_EV_CLAIM);
    expect_wrong(one, GM_SHADOW_EV_DROP);
    expect_wrong(one, GM_SHADOW_EV_END);
    turn(one, GM_SHADOW_EV_KEEP);
    assert_int_equal(world.table->shadows, 32 * MIB);
    assert_int_equal(world.table->apps[0].shadow_bytes, 32 * MIB);
    expect_wrong(one, GM_SHADOW_EV_KEEP);
    expect_wrong(one, GM_SHADOW_EV_END);
    turn(one, GM_SHADOW_EV_DROP);
    assert_int_equal(world.table->shadows, 0);
    expect_wrong(one, GM_SHADOW_EV_LOSE);
    turn(one, GM_SHADOW_EV_KEEP);
    turn(one, GM_SHADOW_EV_LOSE);
    assert_int_equal(world.table->shadows, 0);
    assert_int_equal(world.table->lost, 32 * MIB);
    expect_wrong(one, GM_SHADOW_EV_KEEP);
    expect_wrong(one, GM_SHADOW_EV_CLAIM);
    expect_wrong(one, GM_SHADOW_EV_LOSE);
    expect_wrong(one, GM_SHADOW_EV_END);
    turn(one, GM_SHADOW_EV_DROP);
    assert_int_equal(world.table->lost, 0);
    turn(one, GM_SHADOW_EV_KEEP);
    turn(one, GM_SHADOW_EV_CLAIM);
    assert_int_equal(world.table->shadows, 0);
    assert_non_null(gm_table_check(world.table)); /* by no eviction */
    leave(one);
    assert_null(gm_table_check(world.table));
    expect_wrong(one, GM_SHADOW_EV_KEEP);
    expect_wrong(one, GM_SHADOW_EV_CLAIM);
    expect_wrong(one, GM_SHADOW_EV_DROP);
    expect_wrong(one, GM_SHADOW_EV_LOSE);
    turn(one, GM_SHADOW_EV_END);
    assert_null(gm_table_check(world.table));
}

static void test_who_can_have_one(void **state)
{
    (void)state;
    begin(128 * MIB);
    const uint32_t one = on_gpu(0);
    struct gm_chunk *chunk = chunk_of(&world, one);
    chunk->page = GM_NONE;
    expect_wrong(one, GM_SHADOW_EV_KEEP);
    chunk->page = 7;
    gm_table_fix(world.table, chunk->allocation, 1, (const uint64_t[2]){1, 2});
    expect_wrong(one, GM_SHADOW_EV_KEEP);
    const uint32_t other = on_gpu(1);
    leave(other);
    expect_wrong(other, GM_SHADOW_EV_KEEP);
    const uint32_t away = world.table->allocations[allocate(&world, 2, 32 * MIB)].first;
    expect_wrong(away, GM_SHADOW_EV_KEEP);
    chunk->shadow = GM_SHADOW_KEPT; /* past the setter: the check finds it */
    assert_non_null(gm_table_check(world.table));
}

/* The last that came is the first that goes, and its shadow the last that is dropped. */
static void test_order(void **state)
{
    uint32_t chunks[4];
    (void)state;
    begin(128 * MIB);
    for (int i = 0; i < 4; i++) {
        chunks[i] = on_gpu(0);
        if (i % 2 == 0)
            continue;
        turn(chunks[i], GM_SHADOW_EV_KEEP);
    }
    assert_int_equal(world.table->apps[0].shadows.head, chunks[3]);
    assert_int_equal(world.table->apps[0].shadows.tail, chunks[1]);
    const uint32_t order[] = {chunks[3], chunks[1], chunks[0], chunks[2]};
    uint32_t at = world.table->apps[0].by_class[GM_CHUNK_CLASSES - 1].head;
    for (int i = 0; i < 4; i++, at = chunk_of(&world, at)->next)
        assert_int_equal(at, order[i]);

    /* and a plan that must evict two takes those */
    const uint32_t targets[] = {1}, victims[] = {0};
    struct gm_plan plan;
    world.cap[GM_TIER_PINNED] = 1024 * MIB;
    world.window = 64 * MIB;
    allocate(&world, 1, 64 * MIB);
    plan = plan_for(&world, targets, 1, victims, 1);
    world.cap[GM_TIER_PINNED] = 0;
    uint32_t evicted = 0;
    for (uint32_t i = 0; i < plan.n; i++)
        if (plan.moves[i].kind == GM_MOVE_EVICT)
            assert_int_equal(plan.moves[i].chunk, order[evicted++]);
    assert_int_equal(evicted, 2);
}

/* Anything legal, in any order; the sums and lists hold, and what is illegal changes nothing. */
static void test_random(void **state)
{
    uint32_t chunks[24];
    (void)state;
    begin(24 * 32 * MIB);
    for (uint32_t i = 0; i < 24; i++)
        chunks[i] = on_gpu(i % 3);
    for (int step = 0; step < 20000; step++) {
        const uint32_t index = chunks[draw(&world, 24)];
        struct gm_chunk *chunk = chunk_of(&world, index);
        const enum gm_shadow_event event = (enum gm_shadow_event)draw(&world, GM_SHADOW_EVENTS_N);
        const uint8_t before = chunk->shadow;
        if (!gm_table_turn_shadow(world.table, index, event)) {
            assert_int_equal(chunk->shadow, before);
        } else if (event == GM_SHADOW_EV_CLAIM) {
            leave(index);
        } else if (event == GM_SHADOW_EV_END) { /* the eviction is undone */
            turn_chunk(world.table, index, GM_CHUNK_EV_UNDO);
            turn_chunk(world.table, index, GM_CHUNK_EV_DONE);
        }
        const char *fault = gm_table_check(world.table);
        if (fault)
            fail_msg("step %d: %s", step, fault);
    }
}

static void test_need(void **state)
{
    struct gm_need_input input = {.committed = 10000 * MIB,
                                  .budget = 8000 * MIB,
                                  .pinned_cap = 20000 * MIB,
                                  .window = 64 * MIB};
    struct gm_need need, with;
    (void)state;
    begin(128 * MIB);
    gm_need_of(&input, &need);
    input.shadows = 500 * MIB;
    gm_need_of(&input, &with);
    assert_int_equal(with.pinned, need.pinned + 500 * MIB);
    input.shadows = 50000 * MIB; /* never more than the GPU holds */
    gm_need_of(&input, &with);
    assert_int_equal(with.pinned, need.pinned + 8000 * MIB);
    assert_int_equal(with.frames, need.frames);
    assert_int_equal(with.paged, need.paged);
    input.committed = 8000 * MIB; /* nothing is evicted: they are of no use */
    gm_need_of(&input, &with);
    assert_int_equal(with.pinned, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_turns, end),
        cmocka_unit_test_teardown(test_who_can_have_one, end),
        cmocka_unit_test_teardown(test_order, end),
        cmocka_unit_test_teardown(test_random, end),
        cmocka_unit_test_teardown(test_need, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

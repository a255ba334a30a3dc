/* What the setters of core/table keep right beside the state that they turn. */
#include "tests/unit/plan_world.h"

static struct world world;

static int begin(void **state)
{
    (void)state;
    make_world(&world, 256 * MIB, 1);
    for (uint32_t app = 0; app < 2; app++)
        assert_true(gm_table_add_app(world.table, app, 1000));
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_null(gm_table_check(world.table));
    free(world.memory);
    return 0;
}

static uint32_t new_chunk(uint32_t app, uint64_t bytes)
{
    return world.table->allocations[allocate(&world, app, bytes)].first;
}

/* A chunk's frame, which nobody needs any more. */
static uint32_t condemn(uint32_t app, uint32_t exit_of)
{
    const uint32_t index = new_chunk(app, 32 * MIB);
    to_new_frame(world.table, index);
    const uint32_t frame = chunk_of(&world, index)->frame;
    turn_chunk(world.table, index, GM_CHUNK_EV_EVICT);
    assert_true(gm_table_condemn_frame(world.table, frame, exit_of));
    assert_int_equal(chunk_of(&world, index)->frame, GM_NONE);
    turn_chunk(world.table, index, GM_CHUNK_EV_DONE);
    return frame;
}

static void expect_ending(uint64_t bytes)
{
    assert_int_equal(world.table->ending, bytes);
    assert_null(gm_table_check(world.table));
}

/* A condemned frame counts as room to come once its end depends on the daemon only. */
static void condemned_frames_are_room_to_come(void **state)
{
    (void)state;
    const uint32_t first = condemn(0, GM_NONE), second = condemn(0, 1), third = condemn(1, 0);
    expect_ending(32 * MIB);
    gm_table_count_drops(world.table, first, 2, 0);
    gm_table_count_drops(world.table, second, 1, 1);
    expect_ending(32 * MIB);
    gm_table_count_drops(world.table, first, 0, 1); /* its app falls silent */
    expect_ending(0);
    gm_table_release_frames(world.table, 1);
    expect_ending(0); /* the second waits for one that is silent */
    gm_table_count_drops(world.table, second, -1, -1);
    expect_ending(32 * MIB);
    gm_table_release_frames(world.table, 0);
    expect_ending(64 * MIB);
    gm_table_count_drops(world.table, first, -1, -1);
    expect_ending(96 * MIB);
    gm_table_end_frame(world.table, second);
    expect_ending(64 * MIB);
    assert_int_equal(world.table->first_condemned, third);
    assert_int_equal(world.table->frames[third].next, first);
    gm_table_end_frame(world.table, third);
    gm_table_count_drops(world.table, first, -1, 0);
    gm_table_end_frame(world.table, first);
    expect_ending(0);
    assert_int_equal(world.table->first_condemned, GM_NONE);
    assert_int_equal(world.table->allocated, 0);
}

/* Pages that are a host frame leave the chunk with it, and not before. */
static void host_frames_keep_their_pages(void **state)
{
    (void)state;
    const uint32_t index = new_chunk(0, 32 * MIB);
    const struct gm_chunk *chunk = chunk_of(&world, index);
    to_tier(world.table, index, GM_TIER_PINNED, 16);
    gm_table_put(world.table, index, true);
    turn_chunk(world.table, index, GM_CHUNK_EV_MAP);
    const uint32_t frame = gm_table_add_host_frame(world.table, index);
    assert_true(gm_table_take_frame(world.table, frame, index));
    turn_chunk(world.table, index, GM_CHUNK_EV_DONE);
    assert_int_equal(chunk->frame, frame);
    assert_int_equal(chunk->host_frame, frame);
    assert_null(gm_table_check(world.table));
    turn_chunk(world.table, index, GM_CHUNK_EV_UNMAP);
    turn_chunk(world.table, index, GM_CHUNK_EV_DONE);
    assert_int_equal(chunk->frame, GM_NONE);
    assert_int_equal(chunk->page, 16); /* unmapped, they have its data */
    assert_int_equal(chunk->host_frame, frame);
    gm_table_put(world.table, index, false);
    to_new_frame(world.table, index);
    assert_true(gm_table_condemn_frame(world.table, frame, GM_NONE));
    assert_int_equal(world.table->frames[frame].page, 16);
    assert_int_equal(chunk->page, GM_NONE);
    assert_int_equal(chunk->host_frame, GM_NONE);
    assert_int_not_equal(chunk->frame, GM_NONE);
    assert_int_equal(world.table->allocated, 32 * MIB);
    expect_ending(0); /* it is not of the GPU */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(condemned_frames_are_room_to_come, begin, end),
        cmocka_unit_test_setup_teardown(host_frames_keep_their_pages, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

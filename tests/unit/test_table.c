/* What the setters of core/table keep right beside the state that they turn. */
#include "daemon/core/table.h"

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
    assert_true(gm_table_evict(world.table, index, 0));
    assert_true(gm_table_condemn_frame(world.table, frame, exit_of));
    assert_int_equal(chunk_of(&world, index)->frame, GM_NONE);
    settle_chunk(world.table, index);
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
    for (uint32_t app = 0; app < 2; app++) {
        assert_false(gm_table_drop(world.table, first, app)); /* it has no import */
        assert_true(gm_table_import(world.table, first, app));
        assert_false(gm_table_import(world.table, first, app));
        assert_true(gm_table_drop(world.table, first, app));
    }
    expect_ending(32 * MIB);
    gm_table_set_silent(world.table, 1, true);
    expect_ending(0);
    gm_table_import(world.table, second, 1);
    assert_true(gm_table_drop(world.table, second, 1));
    gm_table_release_frames(world.table, 1, false, false);
    expect_ending(0); /* the second waits for one that is silent */
    gm_table_end_drop(world.table, second, 1, false);
    assert_true(gm_table_has_import(world.table, 1, second)); /* nobody knows better */
    expect_ending(32 * MIB);
    gm_table_release_frames(world.table, 0, true, false);
    expect_ending(64 * MIB);
    gm_table_end_drop(world.table, first, 1, true);
    assert_false(gm_table_has_import(world.table, 1, first));
    expect_ending(96 * MIB);
    gm_table_set_silent(world.table, 1, false);
    gm_table_end_frame(world.table, second);
    expect_ending(64 * MIB);
    assert_int_equal(world.table->first_condemned, third);
    assert_int_equal(world.table->frames[third].next, first);
    gm_table_end_frame(world.table, third);
    assert_int_equal(world.table->frames[first].drops, 1);
    gm_table_end_drop(world.table, first, 0, true);
    gm_table_end_frame(world.table, first);
    assert_false(gm_table_has_import(world.table, 1, second)); /* it is another frame now */
    expect_ending(0);
    assert_int_equal(world.table->first_condemned, GM_NONE);
    assert_int_equal(world.table->allocated, 0);
}

/* A frame of a process that has ended, which only an app that does not answer still has, is used
 * again as it is. When that app answers, it has it no more, or anew. */
static void held_frames_are_kept(void **state)
{
    (void)state;
    const uint32_t first = condemn(0, 0), second = condemn(0, 0);
    assert_true(gm_table_add_app(world.table, 2, 1000));
    gm_table_set_silent(world.table, 1, true);
    gm_table_import(world.table, first, 1);
    gm_table_import(world.table, second, 1);
    assert_true(gm_table_is_held(world.table, first));
    assert_true(gm_table_drop(world.table, first, 1));
    assert_true(gm_table_drop(world.table, second, 1));
    gm_table_import(world.table, second, 2);
    assert_true(gm_table_drop(world.table, second, 2)); /* this one answers */
    gm_table_release_frames(world.table, 0, true, false);
    assert_int_equal(world.table->frames[first].state, GM_FRAME_FREE);
    assert_int_equal(world.table->frames[second].state, GM_FRAME_CONDEMNED);
    assert_true(world.table->frames[first].is_dirty);
    expect_ending(0);
    assert_true(gm_table_condemn_frame(world.table, first, GM_NONE));
    assert_false(gm_table_drop(world.table, first, 1)); /* it was asked, and has not answered */
    assert_int_equal(world.table->frames[first].silent, 1);
    gm_table_set_silent(world.table, 1, false);
    assert_false(gm_table_is_held(world.table, first));
    gm_table_end_drop(world.table, first, 1, true);
    assert_false(gm_table_has_import(world.table, 1, first));
    expect_ending(64 * MIB);
    gm_table_end_drop(world.table, second, 1, true);
    gm_table_end_drop(world.table, second, 2, true);
    gm_table_end_frame(world.table, first);
    gm_table_end_frame(world.table, second);
    expect_ending(0);
}

/* If nothing of that process is on the GPU, surely, its frames are used again whoever has them, but
 * not while one that is lost may have them mapped. */
static void frames_of_the_ended_are_kept(void **state)
{
    (void)state;
    const uint32_t none = condemn(0, 0), asked = condemn(0, 0), other = condemn(0, 1);
    const uint32_t mapped = condemn(0, 0), handed = condemn(0, 1);
    gm_table_hand_frame(world.table, handed, 0, false); /* that one may still have it mapped */
    gm_table_import(world.table, asked, 1);
    assert_true(gm_table_drop(world.table, asked, 1)); /* and it will answer */
    gm_table_import(world.table, mapped, 1);
    ((struct gm_frame *)(uintptr_t)&world.table->frames[mapped])->mapper = 1;
    gm_table_set_lost(world.table, 1, true);
    gm_table_release_frames(world.table, 0, true, true);
    assert_int_equal(world.table->frames[none].state, GM_FRAME_FREE);
    assert_int_equal(world.table->frames[asked].state, GM_FRAME_FREE);
    assert_true(world.table->frames[asked].is_dirty);
    assert_int_equal(world.table->frames[other].state, GM_FRAME_CONDEMNED);
    assert_int_equal(world.table->frames[mapped].state, GM_FRAME_CONDEMNED);
    assert_int_equal(world.table->frames[handed].state, GM_FRAME_CONDEMNED);
    gm_table_end_drop(world.table, asked, 1, true);
    assert_false(gm_table_has_import(world.table, 1, asked));
    expect_ending(64 * MIB);
    gm_table_end_frame(world.table, handed);
    gm_table_end_frame(world.table, mapped);
    gm_table_end_frame(world.table, other);
}

/* ... also if it gets it anew before it has answered. */
static void held_frames_are_imported_anew(void **state)
{
    (void)state;
    const uint32_t frame = condemn(0, 0);
    gm_table_set_silent(world.table, 1, true);
    gm_table_import(world.table, frame, 1);
    assert_true(gm_table_drop(world.table, frame, 1));
    gm_table_release_frames(world.table, 0, true, false);
    gm_table_set_silent(world.table, 1, false);
    assert_true(gm_table_import(world.table, frame, 1));
    gm_table_end_drop(world.table, frame, 1, true);
    assert_true(gm_table_has_import(world.table, 1, frame));
    assert_true(gm_table_condemn_frame(world.table, frame, GM_NONE));
    assert_true(gm_table_drop(world.table, frame, 1));
    gm_table_end_drop(world.table, frame, 1, true);
    gm_table_end_frame(world.table, frame);
    expect_ending(0);
}

/* Pages that are a host frame leave the chunk with it, and not before. */
static void host_frames_keep_their_pages(void **state)
{
    (void)state;
    const uint32_t index = new_chunk(0, 32 * MIB);
    const struct gm_chunk *chunk = chunk_of(&world, index);
    to_tier(world.table, index, GM_TIER_PINNED, 16);
    gm_table_put(world.table, index, true);
    const uint32_t frame = gm_table_add_host_frame(world.table, index);
    assert_true(gm_table_map(world.table, index, frame));
    settle_chunk(world.table, index);
    assert_int_equal(chunk->frame, frame);
    assert_int_equal(chunk->host_frame, frame);
    assert_null(gm_table_check(world.table));
    assert_true(gm_table_unmap(world.table, index));
    settle_chunk(world.table, index);
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

/* What a program may have written to is not what was hashed. */
static void who_maps_a_chunk_changes_it(void **state)
{
    (void)state;
    const uint64_t hash[2] = {1, 2};
    const uint32_t index = new_chunk(0, 32 * MIB);
    const struct gm_chunk *chunk = chunk_of(&world, index);
    to_new_frame(world.table, index);
    assert_true(gm_table_evict(world.table, index, 16));
    gm_table_set_hash(world.table, index, hash);
    gm_table_leave_frame(world.table, index, 0);
    settle_chunk(world.table, index);
    to_tier(world.table, index, GM_TIER_PAGED, 3);
    to_tier(world.table, index, GM_TIER_PINNED, 32);
    assert_true(chunk->has_hash);
    assert_memory_equal(chunk->hash, hash, sizeof hash);
    gm_table_put(world.table, index, true);
    assert_true(gm_table_map(world.table, index, gm_table_add_host_frame(world.table, index)));
    assert_false(chunk->has_hash);
    settle_chunk(world.table, index);
}

/* An eviction into the shadow: it is the copy when the frame is left, and it is dropped if the
 * eviction is undone. */
static void an_eviction_goes_where_the_shadow_is(void **state)
{
    (void)state;
    const uint32_t index = new_chunk(0, 32 * MIB);
    const struct gm_chunk *chunk = chunk_of(&world, index);
    to_tier(world.table, index, GM_TIER_PINNED, 16);
    for (int is_undone = 0; is_undone < 2; is_undone++) {
        if (chunk->state != GM_CHUNK_RESIDENT)
            to_new_frame(world.table, index);
        const uint32_t frame = chunk->frame;
        assert_true(gm_table_keep_shadow(world.table, index, 5));
        assert_int_equal(chunk->opens, 5);
        assert_true(gm_table_evict(world.table, index, 16));
        assert_true(chunk->map_pending);
        assert_int_equal(chunk->shadow, GM_SHADOW_CLAIMED);
        assert_null(gm_table_check(world.table));
        gm_table_end_map(world.table, index, false);
        if (is_undone) {
            assert_true(gm_table_undo(world.table, index));
            assert_true(chunk->map_pending);
            assert_int_equal(gm_table_leave_pages(world.table, index), 16);
            assert_int_equal(chunk->frame, frame);
        } else {
            gm_table_leave_frame(world.table, index, 7);
            assert_int_equal(chunk->frame, GM_NONE);
            assert_int_equal(world.table->frames[frame].fence, 7);
            assert_int_equal(world.table->frames[frame].state, GM_FRAME_FREE);
        }
        assert_int_equal(chunk->shadow, GM_SHADOW_NONE);
        settle_chunk(world.table, index);
        assert_int_equal(chunk->page, is_undone ? GM_NONE : 16);
        assert_int_equal(chunk->tier, is_undone ? GM_TIER_GPU : GM_TIER_PINNED);
        assert_null(gm_table_check(world.table));
        if (!is_undone) {
            gm_table_condemn_frame(world.table, frame, GM_NONE);
            gm_table_end_frame(world.table, frame);
        }
    }
}

/* What moves gives its old bytes back when it has; what is given up stays, whatever it was. */
static void what_is_given_up_stays(void **state)
{
    (void)state;
    const uint32_t index = new_chunk(0, 32 * MIB);
    const struct gm_chunk *chunk = chunk_of(&world, index);
    to_tier(world.table, index, GM_TIER_PINNED, 16);
    assert_true(gm_table_move(world.table, index, GM_TIER_DISK, 3));
    assert_false(gm_table_move(world.table, index, GM_TIER_PAGED, 4));
    assert_int_equal(chunk->to_tier, GM_TIER_DISK);
    assert_int_equal(world.table->gives_back[GM_TIER_PINNED], 32 * MIB);
    assert_null(gm_table_check(world.table));
    gm_table_end_copy(world.table, index, true);
    assert_true(gm_table_settle(world.table, index));
    assert_int_equal(chunk->tier, GM_TIER_PINNED);
    assert_int_equal(chunk->page, 16);
    assert_int_equal(world.table->gives_back[GM_TIER_PINNED], 0);
    assert_null(gm_table_check(world.table));

    const uint32_t frame = gm_table_add_frame(world.table, world.table->apps[0].pool, chunk->class);
    assert_true(gm_table_fill(world.table, index, frame));
    assert_int_equal(world.table->gives_back[GM_TIER_PINNED], 32 * MIB);
    gm_table_end_map(world.table, index, true);
    assert_true(gm_table_settle(world.table, index));
    assert_int_equal(chunk->state, GM_CHUNK_AWAY);
    assert_int_equal(chunk->tier, GM_TIER_PINNED);
    assert_int_equal(world.table->gives_back[GM_TIER_PINNED], 0);
    assert_false(chunk->is_given_up);
}

/* What is copied out as soon as its app has unmapped it; who does not answer is not waited for. */
static void unmaps_are_counted(void **state)
{
    (void)state;
    const uint32_t one = new_chunk(0, 32 * MIB), two = new_chunk(1, 2 * MIB);
    to_new_frame(world.table, one);
    to_new_frame(world.table, two);
    assert_true(gm_table_evict(world.table, one, 16));
    gm_table_set_silent(world.table, 1, true);
    assert_true(gm_table_evict(world.table, two, 32));
    assert_int_equal(world.table->unmaps, 1);
    assert_int_equal(world.table->unmap_bytes, 32 * MIB);
    assert_int_equal(world.table->apps[1].unmaps, 1);
    assert_null(gm_table_check(world.table));
    gm_table_set_silent(world.table, 1, false);
    assert_int_equal(world.table->unmap_bytes, 34 * MIB);
    assert_null(gm_table_check(world.table));
    gm_table_end_map(world.table, one, false);
    gm_table_set_silent(world.table, 1, true);
    gm_table_end_map(world.table, two, false);
    assert_int_equal(world.table->unmaps, 0);
    assert_int_equal(world.table->apps[1].unmaps, 0);
    gm_table_set_silent(world.table, 1, false);
    assert_int_equal(world.table->unmaps, 0);
    assert_int_equal(world.table->unmap_bytes, 0);
    assert_true(gm_table_undo(world.table, one)); /* it is mapped again, which is not counted */
    assert_int_equal(world.table->unmaps, 0);
}

#define expect_found(what, wrong)                                                                  \
    do {                                                                                           \
        const __typeof__(what) right = (what);                                                     \
        (what) = (__typeof__(what))(wrong);                                                        \
        if (!gm_table_check(world.table))                                                          \
            fail_msg("not found: %s is %s", #what, #wrong);                                        \
        (what) = right;                                                                            \
        assert_null(gm_table_check(world.table));                                                  \
    } while (0)

/* The check finds a row that is wrong, and a sum. */
static void the_check_finds_what_is_wrong(void **state)
{
    (void)state;
    struct gm_table *table = world.table;
    const uint32_t there = new_chunk(0, 32 * MIB), away = new_chunk(0, 32 * MIB);
    const uint32_t free_frame = condemn(1, GM_NONE);
    to_tier(table, away, GM_TIER_PAGED, 16);
    to_new_frame(table, there);
    struct gm_chunk *chunk = chunk_of(&world, there);
    struct gm_table_app *app = gm_app_at(table, 0);
    assert_null(gm_table_check(table));
    expect_found(chunk->list, GM_LIST_SETTLED);
    expect_found(chunk->map_pending, true);
    expect_found(chunk->frame, free_frame);
    expect_found(chunk->host_frame, free_frame);
    expect_found(chunk_of(&world, away)->page, GM_NONE);
    expect_found(chunk_of(&world, away)->listed_tier, GM_TIER_DISK);
    expect_found(gm_frame_at(table, free_frame)->drops, 1);
    expect_found(gm_frame_at(table, free_frame)->chunk, away);
    expect_found(gm_bits_at(table, table->drops, 1)[0], 0xff);
    expect_found(gm_allocation_at(table, chunk->allocation)->missing, 1);
    expect_found(app->bytes[GM_TIER_PAGED], 0);
    expect_found(app->away_count[chunk->class], 2);
    expect_found(app->chunks, 1);
    expect_found(app->to_map_bytes, MIB);
    expect_found(app->away[GM_TIER_PAGED].tail, there);
    expect_found(app->by_class[chunk->class].count, 0);
    expect_found(app->unmaps, 1);
    expect_found(table->gives_back[GM_TIER_PAGED], MIB);
    expect_found(table->ending, 0);
    expect_found(table->on_host, MIB);
    expect_found(table->unmap_bytes, MIB);
}

static void expect_stale(bool is_stale, bool is_over)
{
    assert_int_equal(gm_table_is_plan_stale(world.table, is_over), is_stale);
    gm_table_note_plan(world.table);
    assert_false(gm_table_is_plan_stale(world.table, true));
}

/* What plans do makes none stale until it is over; anything else does. */
static void facts_make_a_plan_stale(void **state)
{
    (void)state;
    const uint32_t index = new_chunk(0, 32 * MIB), other = new_chunk(0, 32 * MIB);
    const uint32_t allocation = chunk_of(&world, index)->allocation;
    expect_stale(true, false); /* there is more memory */
    to_new_frame(world.table, index);
    to_new_frame(world.table, other);
    expect_stale(false, false);
    to_new_frame(world.table, new_chunk(0, 32 * MIB));
    gm_table_note_plan(world.table);
    assert_true(gm_table_evict(world.table, index, 16));
    expect_stale(false, true); /* until it has left */
    gm_table_end_map(world.table, index, false);
    gm_table_leave_frame(world.table, index, 0);
    settle_chunk(world.table, index);
    expect_stale(true, true);
    assert_true(
        gm_table_fill(world.table, index, world.table->pools[0].head[GM_CHUNK_CLASSES - 1]));
    gm_table_leave_pages(world.table, index);
    gm_table_end_map(world.table, index, true);
    assert_true(gm_table_settle(world.table, index));
    expect_stale(true, false); /* it could not be mapped */
    gm_table_free_frame(world.table, chunk_of(&world, index)->frame);
    expect_stale(false, true);
    gm_table_condemn_frame(world.table, world.table->pools[0].head[GM_CHUNK_CLASSES - 1], GM_NONE);
    expect_stale(true, false);
    gm_table_end_frame(world.table, world.table->first_condemned);
    expect_stale(true, false);
    gm_table_set_silent(world.table, 1, true);
    expect_stale(true, false);
    gm_table_set_beyond(world.table, 0, 2 * MIB);
    expect_stale(true, false);
    gm_table_set_budget(world.table, 512 * MIB);
    expect_stale(true, false);
    gm_table_put(world.table, other, false); /* as it is */
    expect_stale(false, true);
    gm_table_put(world.table, other, true);
    expect_stale(true, false);
    free_silently(world.table, allocation);
    expect_stale(true, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(condemned_frames_are_room_to_come, begin, end),
        cmocka_unit_test_setup_teardown(held_frames_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(frames_of_the_ended_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(held_frames_are_imported_anew, begin, end),
        cmocka_unit_test_setup_teardown(host_frames_keep_their_pages, begin, end),
        cmocka_unit_test_setup_teardown(who_maps_a_chunk_changes_it, begin, end),
        cmocka_unit_test_setup_teardown(an_eviction_goes_where_the_shadow_is, begin, end),
        cmocka_unit_test_setup_teardown(what_is_given_up_stays, begin, end),
        cmocka_unit_test_setup_teardown(unmaps_are_counted, begin, end),
        cmocka_unit_test_setup_teardown(the_check_finds_what_is_wrong, begin, end),
        cmocka_unit_test_setup_teardown(facts_make_a_plan_stale, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

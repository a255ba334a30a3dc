/*
 * The state machines (core/model.h) and their setters in core/table.c: chunks walk at random
 * through their states, and events that are not legal come in between. Each of those is told once,
 * with both names, and changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/plan_world.h"

#define CHUNKS 12u

static struct world world;
static unsigned n_told, n_wrong;
static struct gm_turn told;

static void on_turn(void *arg, const struct gm_turn *turn)
{
    assert_ptr_equal(arg, &world);
    n_told++;
    n_wrong += turn->to == GM_TURN_ILLEGAL;
    told = *turn;
}

/* Every state but the first can be reached from it, and left again. */
static void test_rows(void **state)
{
    const unsigned states[] = {GM_CHUNK_STATES_N, GM_FRAME_STATES_N, GM_SHADOW_STATES_N,
                               GM_CLIENT_STATES_N, GM_APP_STATES_N};
    const unsigned events[] = {GM_CHUNK_EVENTS_N, GM_FRAME_EVENTS_N, GM_SHADOW_EVENTS_N,
                               GM_CLIENT_EVENTS_N, GM_APP_EVENTS_N};
    (void)state;
    for (unsigned m = 0; m < GM_MODELS_N; m++) {
        uint32_t reached = 1, before = 0;
        while (reached != before) {
            before = reached;
            for (unsigned s = 0; s < states[m]; s++)
                for (unsigned e = 0; e < events[m]; e++) {
                    const uint8_t to = gm_model_next((enum gm_model)m, s, e);
                    assert_true(to < states[m] || to == GM_TURN_ILLEGAL);
                    if ((reached & 1u << s) && to != GM_TURN_ILLEGAL)
                        reached |= 1u << to;
                }
        }
        assert_int_equal(reached, (1u << states[m]) - 1);
        for (unsigned s = 0; s < states[m]; s++) {
            unsigned ways = 0;
            for (unsigned e = 0; e < events[m]; e++)
                ways += gm_model_next((enum gm_model)m, s, e) != GM_TURN_ILLEGAL;
            assert_true(ways > 0);
        }
        assert_string_equal(gm_model_state_text((enum gm_model)m, states[m]), "?");
    }
    assert_string_equal(gm_model_state_text(GM_MODEL_CHUNK, GM_CHUNK_MOVING), "MOVING");
    assert_string_equal(gm_model_event_text(GM_MODEL_CHUNK, GM_CHUNK_EV_FREED), "FREED");
    assert_string_equal(gm_model_event_text(GM_MODEL_APP, GM_APP_EV_LOADED), "LOADED");
}

/* What the engine does beside a legal event; some rows are of freed chunks alone. */
static bool prepare(struct gm_chunk *chunk, uint32_t index, enum gm_chunk_event event)
{
    const uint32_t frame = chunk->frame;
    switch (event) {
    case GM_CHUNK_EV_MAP:
        return chunk->tier == GM_TIER_PINNED;
    case GM_CHUNK_EV_CLEAR:
        chunk->page = index;
        return chunk->tier == GM_TIER_NONE;
    case GM_CHUNK_EV_MOVE:
        chunk->to_tier = (uint8_t)(GM_TIER_PINNED + draw(&world, 3));
        chunk->to_page = index;
        return true;
    case GM_CHUNK_EV_FREED:
    case GM_CHUNK_EV_END:
        return false;
    case GM_CHUNK_EV_FAIL:
        return chunk->state != GM_CHUNK_RETURNING;
    case GM_CHUNK_EV_DONE:
        if (chunk->state != GM_CHUNK_LEAVING)
            return true;
        chunk->page = index;
        chunk->frame = GM_NONE;
        return gm_table_free_frame(world.table, frame);
    default:
        return true;
    }
}

static void follow(struct gm_chunk *chunk, uint32_t index, enum gm_chunk_event event,
                   uint32_t *unit)
{
    struct gm_table *table = world.table;
    uint32_t frame = GM_NONE;
    if (event == GM_CHUNK_EV_FILL)
        frame = gm_table_add_frame(table, table->apps[chunk->app].pool, chunk->class);
    if (event == GM_CHUNK_EV_MAP)
        frame = *unit = gm_table_add_host_frame(table, index);
    if (frame != GM_NONE)
        assert_true(gm_table_take_frame(table, frame, index));
    if (chunk->state == GM_CHUNK_RESIDENT)
        chunk->page = GM_NONE;
    if (event == GM_CHUNK_EV_FAIL && chunk->frame != GM_NONE) {
        gm_table_free_frame(table, chunk->frame);
        chunk->frame = GM_NONE;
    }
    if (chunk->state == GM_CHUNK_AWAY && *unit != GM_NONE) { /* its host frame goes */
        const uint32_t page = chunk->page;
        gm_table_condemn_frame(table, *unit, GM_NONE);
        chunk->page = page;
        *unit = GM_NONE;
    }
    for (uint32_t i = 0; i < table->max_frames; i++) {
        if (table->frames[i].state == GM_FRAME_FREE)
            gm_table_condemn_frame(table, i, GM_NONE);
        if (table->frames[i].state == GM_FRAME_CONDEMNED)
            gm_table_end_frame(table, i);
    }
}

static void test_chunks(void **state)
{
    uint32_t seen = 0, wrong = 0, unit[CHUNKS];
    uint32_t chunks[CHUNKS];
    (void)state;
    make_world(&world, CHUNKS * 32 * MIB, 1);
    world.table->on_turn = on_turn;
    world.table->on_turn_arg = &world;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (i < 3)
            assert_true(gm_table_add_app(world.table, i, 1000));
        n_told = n_wrong = 0;
        chunks[i] = world.table->allocations[allocate(&world, i % 3, 32 * MIB)].first;
        unit[i] = GM_NONE;
        assert_int_equal(n_told, 1);
        assert_int_equal(n_wrong, 0);
    }
    for (int step = 0; step < 20000; step++) {
        const uint32_t i = (uint32_t)draw(&world, CHUNKS), index = chunks[i];
        struct gm_chunk *chunk = chunk_of(&world, index);
        const enum gm_chunk_event event = (enum gm_chunk_event)draw(&world, GM_CHUNK_EVENTS_N);
        const uint8_t to = gm_model_next(GM_MODEL_CHUNK, chunk->state, event);
        const struct gm_chunk before = *chunk;
        if (to != GM_TURN_ILLEGAL && !prepare(chunk, index, event))
            continue;
        n_told = n_wrong = 0;
        assert_int_equal(gm_table_turn_chunk(world.table, index, event), to != GM_TURN_ILLEGAL);
        assert_int_equal(n_wrong, to == GM_TURN_ILLEGAL);
        if (to == GM_TURN_ILLEGAL) {
            assert_int_equal(n_told, 1);
            assert_int_equal(told.model, GM_MODEL_CHUNK);
            assert_int_equal(told.id, index);
            assert_int_equal(told.app, i % 3);
            assert_int_equal(told.from, before.state);
            assert_int_equal(told.event, event);
            assert_memory_equal(chunk, &before, sizeof before);
            wrong++;
        } else {
            assert_int_equal(chunk->state, to);
            seen |= 1u << to;
            follow(chunk, index, event, &unit[i]);
        }
        const char *fault = gm_table_check(world.table);
        if (fault)
            fail_msg("step %d, chunk %u, %s: %s", step, index,
                     gm_model_event_text(GM_MODEL_CHUNK, event), fault);
    }
    assert_int_equal(seen | 1u << GM_CHUNK_ENDING | 1u, (1u << GM_CHUNK_STATES_N) - 1);
    assert_true(wrong > 5000);
    free(world.memory);
}

/* The same of frames. */
static void test_frames(void **state)
{
    (void)state;
    make_world(&world, 64 * MIB, 1);
    assert_true(gm_table_add_app(world.table, 0, 1000));
    world.table->on_turn = on_turn;
    world.table->on_turn_arg = &world;
    const uint32_t index = world.table->allocations[allocate(&world, 0, 32 * MIB)].first;
    to_new_frame(world.table, index);
    const uint32_t frame = chunk_of(&world, index)->frame;
    turn_chunk(world.table, index, GM_CHUNK_EV_EVICT);
    assert_int_equal(world.table->frames[frame].state, GM_FRAME_LEAVING);
    chunk_of(&world, index)->frame = GM_NONE;
    assert_true(gm_table_free_frame(world.table, frame));
    turn_chunk(world.table, index, GM_CHUNK_EV_DONE);
    n_told = n_wrong = 0;
    assert_false(gm_table_free_frame(world.table, frame)); /* twice */
    assert_int_equal(n_wrong, 1);
    assert_int_equal(told.model, GM_MODEL_FRAME);
    assert_int_equal(told.event, GM_FRAME_EV_GIVE);
    assert_int_equal(told.from, GM_FRAME_FREE);
    assert_int_equal(told.app, GM_NONE);
    gm_table_end_frame(world.table, frame); /* not before it is condemned */
    assert_int_equal(n_wrong, 2);
    assert_true(world.table->frames[frame].is_dirty);
    gm_table_clean_frame(world.table, frame, 0);
    assert_int_equal(n_wrong, 2);
    assert_int_equal(world.table->dirty, 0);
    assert_true(gm_table_condemn_frame(world.table, frame, GM_NONE));
    assert_false(gm_table_take_frame(world.table, frame, index));
    assert_int_equal(chunk_of(&world, index)->frame, GM_NONE);
    assert_int_equal(n_wrong, 3);
    gm_table_soil_frame(world.table, frame); /* it is not free */
    gm_table_orphan_frame(world.table, frame);
    assert_int_equal(n_wrong, 5);
    assert_int_equal(world.table->dirty, 0);
    gm_table_end_frame(world.table, frame);
    assert_null(gm_table_check(world.table));
    assert_int_equal(world.table->allocated, 0);
    free(world.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

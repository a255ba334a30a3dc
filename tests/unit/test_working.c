/*
 * core/working: which chunks are cold. Against a model that knows of each chunk when it was last
 * touched, in random worlds; and what must hold whatever is reported.
 */
#include "daemon/core/working.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/turns.h"

#define MIB (1ull << 20)
#define BASE (1ull << 40)
#define MAX_CHUNKS 512u
#define MAX_USES 512u

struct world {
    void *memory;
    struct gm_table *table;
    struct gm_working working;
    uint64_t random, next_va;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    return (world->random >> 33) % below;
}

static void make_world(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->memory = calloc(1, gm_table_size(2, MAX_CHUNKS, MAX_CHUNKS));
    assert_non_null(world->memory);
    world->table = gm_table_init(world->memory, 2, MAX_CHUNKS, MAX_CHUNKS, 1ull << 40);
    world->random = seed * 2 + 1;
    world->next_va = BASE;
    assert_true(gm_table_add_app(world->table, 0, 1000));
}

static uint32_t add(struct world *world, uint64_t bytes)
{
    const uint32_t index = gm_table_add_allocation(world->table, 0, world->next_va, bytes);
    assert_int_not_equal(index, GM_NONE);
    world->next_va += bytes + 64 * MIB;
    return index;
}

static const struct gm_chunk *nth(const struct world *world, uint32_t allocation, uint32_t n)
{
    uint32_t c = world->table->allocations[allocation].first;
    while (n-- > 0)
        c = world->table->chunks[c].sibling;
    return &world->table->chunks[c];
}

static void end_window(struct world *world, const struct gm_use *uses, uint32_t n)
{
    gm_working_end_window(world->table, 0, &world->working, uses, n, false);
    assert_null(gm_table_check(world->table));
}

/* What the last windows did not touch is cold; what is new is not. */
static void test_cold(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1);
    const uint32_t used = add(&world, 64 * MIB), unused = add(&world, 96 * MIB);
    const struct gm_use use = {.va = BASE, .count = 1, .order = 7};
    for (uint32_t i = 0; i < GM_WORKING_LEAST; i++) {
        assert_int_equal(world.table->apps[0].cold, 0);
        end_window(&world, &use, 1);
    }
    assert_int_equal(world.table->apps[0].cold, 0); /* it came in the first of these */
    const uint32_t late = add(&world, 32 * MIB);
    end_window(&world, &use, 1);
    assert_int_equal(world.table->apps[0].cold, 96 * MIB);
    assert_true(nth(&world, unused, 0)->is_cold && nth(&world, unused, 2)->is_cold);
    assert_false(nth(&world, used, 0)->is_cold || nth(&world, used, 1)->is_cold);
    assert_false(nth(&world, late, 0)->is_cold);
    assert_int_equal(nth(&world, used, 1)->order, 7);
    free(world.memory);
}

/* One buffer: what lies before the first address of this time is cold. What lies behind is not,
 * whatever began there before: a larger tensor may lie there now. */
static void test_reach(void **state)
{
    struct world world;
    const struct gm_use all[] = {{.va = BASE, .count = 1, .order = 2},
                                 {.va = BASE + 64 * MIB, .count = 1, .order = 1},
                                 {.va = BASE + 128 * MIB, .count = 1, .order = 0}};
    (void)state;
    make_world(&world, 1);
    const uint32_t one = add(&world, 192 * MIB);
    end_window(&world, all, 3);
    assert_int_equal(nth(&world, one, 1)->order, 2);
    assert_int_equal(nth(&world, one, 3)->order, 1);
    for (uint32_t i = 0; i < 500; i++) /* however long ago */
        end_window(&world, &all[1], 1);
    assert_int_equal(world.table->apps[0].cold, 64 * MIB);
    assert_true(nth(&world, one, 0)->is_cold && nth(&world, one, 1)->is_cold);
    for (uint32_t i = 2; i < 6; i++)
        assert_false(nth(&world, one, i)->is_cold);
    assert_int_equal(nth(&world, one, 4)->order, 1);
    free(world.memory);
}

/* Known bytes in the middle of a tensor, such as those of a copy, do not end it. */
static void test_reach_over_exact(void **state)
{
    struct world world;
    const struct gm_use uses[] = {
        {.va = BASE + 32 * MIB, .count = 1, .order = 1},
        {.va = BASE + 66 * MIB, .count = 1, .order = 0, .is_exact = true}};
    (void)state;
    make_world(&world, 1);
    const uint32_t one = add(&world, 192 * MIB);
    for (uint32_t i = 0; i < 100; i++)
        end_window(&world, uses, 2);
    assert_int_equal(world.table->apps[0].cold, 32 * MIB);
    assert_int_equal(nth(&world, one, 2)->order, 0);
    assert_int_equal(nth(&world, one, 3)->order, 1);
    for (uint32_t i = 0; i < 100; i++)
        end_window(&world, &uses[1], 1); /* by itself it stands for itself */
    assert_int_equal(world.table->apps[0].cold, 160 * MIB);
    free(world.memory);
}

/* What work that may not have ended touched before is not cold, and no hotter for it. */
static void test_lasting(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1);
    const uint32_t used = add(&world, 64 * MIB), unused = add(&world, 96 * MIB);
    const struct gm_use uses[] = {{.va = BASE, .count = 1}, {.va = BASE + 64 * MIB, .count = 1}};
    const struct gm_use lasts = {.va = BASE};
    end_window(&world, uses, 2);
    const uint32_t heat = nth(&world, used, 1)->heat;
    assert_true(heat > 0);
    for (uint32_t i = 0; i < 100; i++)
        end_window(&world, &lasts, 1);
    assert_int_equal(world.table->apps[0].cold, 96 * MIB);
    assert_false(nth(&world, used, 0)->is_cold || nth(&world, used, 1)->is_cold);
    assert_true(nth(&world, unused, 0)->is_cold && nth(&world, unused, 2)->is_cold);
    assert_int_equal(nth(&world, used, 1)->heat, heat);
    free(world.memory);
}

/* A window that touched more than is known says nothing of what is cold. */
static void test_unseen(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1);
    add(&world, 64 * MIB);
    for (uint32_t i = 0; i < 10; i++)
        end_window(&world, NULL, 0);
    assert_int_equal(world.table->apps[0].cold, 64 * MIB);
    gm_working_end_window(world.table, 0, &world.working, NULL, 0, true);
    assert_int_equal(world.table->apps[0].cold, 0);
    for (uint32_t i = 0; i < GM_WORKING_LEAST; i++)
        end_window(&world, NULL, 0);
    assert_int_equal(world.table->apps[0].cold, 64 * MIB); /* and it taught nothing */
    free(world.memory);
}

/* A program that comes back to much of its memory once in `period` windows is known to, after one
 * period; one that comes back to little of it is not. */
static void test_memory(void **state)
{
    (void)state;
    for (uint32_t period = 3; period < 2 * GM_WORKING_MOST; period += 1 + period / 4)
        for (int is_much = 0; is_much < 2; is_much++) {
            struct world world;
            make_world(&world, period);
            add(&world, 1024 * MIB);
            add(&world, is_much ? 128 * MIB : 32 * MIB);
            const struct gm_use both[] = {{.va = BASE, .count = 1},
                                          {.va = BASE + 1088 * MIB, .count = 1}};
            uint64_t cold = 0;
            for (uint32_t i = 0; i < 6 * period; i++) {
                end_window(&world, both, i % period == 0 ? 2 : 1);
                cold += i >= 2 * period ? world.table->apps[0].cold : 0;
            }
            if (is_much && period < GM_WORKING_MOST)
                assert_int_equal(cold, 0);
            else
                assert_true(cold > 0);
            assert_true(world.working.memory <= GM_WORKING_MOST);
            free(world.memory);
        }
}

/* Random programs: cold is what the windows that are remembered did not touch. Hostile ones: no
 * number makes more than a slow program. */
static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world world;
        uint32_t allocations[24], n = 0;
        uint32_t last[24] = {0};
        make_world(&world, seed);
        for (uint32_t window = 0; window < 60; window++) {
            if (n < 24 && draw(&world, 4) == 0) {
                allocations[n] = add(&world, (1 + draw(&world, 40)) * 2 * MIB);
                last[n++] = window;
            }
            struct gm_use uses[24];
            uint32_t n_uses = 0;
            for (uint32_t i = 0; i < n; i++)
                if (draw(&world, 1 + i) == 0) {
                    uses[n_uses++] = (struct gm_use){
                        .va = world.table->allocations[allocations[i]].va,
                        .count = 1 + (uint32_t)draw(&world, seed % 2 ? 4 : UINT32_MAX),
                        .order = (uint32_t)draw(&world, UINT32_MAX)};
                    last[i] = window;
                }
            end_window(&world, uses, n_uses);
            for (uint32_t i = 0; i < n; i++) {
                const bool is_cold = window - last[i] >= world.working.memory;
                assert_int_equal(nth(&world, allocations[i], 0)->is_cold, is_cold);
            }
        }
        free(world.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cold),
                                       cmocka_unit_test(test_reach),
                                       cmocka_unit_test(test_reach_over_exact),
                                       cmocka_unit_test(test_lasting),
                                       cmocka_unit_test(test_unseen),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

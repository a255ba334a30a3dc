/*
 * core/hosting: heat from uses, and which chunks should change places. Heat is checked by hand;
 * choices by what must hold whatever the heat: the sum of heat on the GPU never shrinks, every pair
 * pays, no chunk is in two, and it ends: the same heat never sends a chunk back.
 */
#include "daemon/core/hosting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MIB (1ull << 20)
#define BASE (1ull << 40)
#define MAX_CHUNKS 1024u

struct world {
    void *memory;
    struct gm_table *table;
    uint64_t random, next_va;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    return (world->random >> 33) % below;
}

static void make_world(struct world *world, uint64_t budget, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->memory = calloc(1, gm_table_size(2, MAX_CHUNKS, MAX_CHUNKS));
    assert_non_null(world->memory);
    world->table = gm_table_init(world->memory, 2, MAX_CHUNKS, MAX_CHUNKS, budget);
    world->random = seed * 2 + 1;
    world->next_va = BASE;
    assert_true(gm_table_add_app(world->table, 0, 1000));
    assert_true(gm_table_add_app(world->table, 1, 1000));
}

/* An allocation all of whose chunks are settled: what exceeds `room` is hosted. */
static uint32_t allocate(struct world *world, uint32_t app, uint64_t bytes, uint64_t room)
{
    struct gm_table *table = world->table;
    uint32_t index = gm_table_add_allocation(table, app, world->next_va, bytes);
    assert_int_not_equal(index, GM_NONE);
    world->next_va += bytes;
    gm_table_host_chunks(table, index, room);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling) {
        struct gm_chunk *chunk = &table->chunks[c];
        uint32_t pool = table->apps[app].pool;
        uint32_t frame = chunk->is_hosted ? gm_table_add_host_frame(table, pool, chunk->class)
                                          : gm_table_add_frame(table, pool, chunk->class);
        assert_int_not_equal(frame, GM_NONE);
        gm_table_take_frame(table, frame, c);
        chunk->tier = chunk->is_hosted ? GM_TIER_PINNED : GM_TIER_GPU;
        gm_table_place(table, c);
    }
    assert_null(gm_table_check(table));
    return index;
}

static struct gm_chunk *nth(struct world *world, uint32_t allocation, uint32_t n)
{
    uint32_t c = world->table->allocations[allocation].first;
    while (n-- > 0)
        c = world->table->chunks[c].sibling;
    return &world->table->chunks[c];
}

/* What the engine does for a pair, all at once. */
static void exchange(struct world *world, const struct gm_hosting_pair *pair)
{
    struct gm_table *table = world->table;
    struct gm_chunk *hot = &table->chunks[pair->hot], *cold = &table->chunks[pair->cold];
    uint32_t gpu = cold->frame, host = hot->frame;
    gm_table_trade(table, pair->hot, pair->cold);
    assert_null(gm_table_check(table));
    gm_table_take_frame(table, gpu, pair->hot);
    gm_table_take_frame(table, host, pair->cold);
    hot->flight = cold->flight = GM_FLIGHT_NONE;
    hot->tier = GM_TIER_GPU;
    cold->tier = GM_TIER_PINNED;
    gm_table_place(table, pair->hot);
    gm_table_place(table, pair->cold);
    assert_null(gm_table_check(table));
}

static uint64_t heat_on_gpu(const struct world *world, uint32_t app)
{
    const struct gm_table *table = world->table;
    uint64_t heat = 0;
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            if (!table->chunks[c].is_hosted)
                heat += (uint64_t)table->chunks[c].heat << table->chunks[c].class;
    return heat;
}

/* ---- heat ---- */

/* A place stands for what follows it, up to the next place and not beyond the allocation. */
static void test_reach(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t one = allocate(&world, 0, 86 * MIB, 1024 * MIB); /* 32, 32, 16, 4, 2 */
    uint32_t two = allocate(&world, 0, 32 * MIB, 1024 * MIB);
    uint32_t foreign = allocate(&world, 1, 32 * MIB, 1024 * MIB);
    struct gm_use uses[] = {
        {BASE - 64 * MIB, 1000},       /* nobody's */
        {BASE, 3},                     /* for 40 MiB */
        {BASE + 40 * MIB, 5},          /* for the rest of the allocation */
        {BASE + (86 + 16) * MIB, 7},   /* the second half of the next */
        {BASE + (86 + 32) * MIB, 900}, /* another app's */
        {BASE + 4096 * MIB, 1000},
    };
    gm_hosting_warm(world.table, 0, uses, sizeof uses / sizeof *uses);
    assert_int_equal(nth(&world, one, 0)->heat, 3 * GM_HOSTING_USE);
    assert_int_equal(nth(&world, one, 1)->heat, (3 * 1 + 5 * 3) * GM_HOSTING_USE / 4);
    assert_int_equal(nth(&world, one, 2)->heat, 5 * GM_HOSTING_USE);
    assert_int_equal(nth(&world, one, 4)->heat, 5 * GM_HOSTING_USE);
    assert_int_equal(nth(&world, two, 0)->heat, 7 * GM_HOSTING_USE / 2);
    assert_int_equal(nth(&world, foreign, 0)->heat, 0);
    gm_hosting_cool(world.table, 0);
    assert_int_equal(nth(&world, one, 0)->heat, 3 * GM_HOSTING_USE / 2);
    free(world.memory);
}

/* A place that was seen before ends the reach of the one before it, for a while. */
static void test_memory(void **state)
{
    struct world world;
    struct gm_use both[] = {{BASE, 1}, {BASE + 32 * MIB, 1}}, first = {BASE, 1};
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t a = allocate(&world, 0, 96 * MIB, 1024 * MIB);
    gm_hosting_warm(world.table, 0, both, 2);
    assert_int_equal(nth(&world, a, 2)->heat, GM_HOSTING_USE);
    gm_hosting_warm(world.table, 0, &first, 1);
    assert_int_equal(nth(&world, a, 0)->heat, 2 * GM_HOSTING_USE);
    assert_int_equal(nth(&world, a, 1)->heat, GM_HOSTING_USE);
    assert_int_equal(nth(&world, a, 2)->heat, GM_HOSTING_USE);
    for (uint32_t i = 0; i < GM_HOSTING_MEMORY; i++)
        gm_hosting_cool(world.table, 0);
    gm_hosting_warm(world.table, 0, &first, 1);
    assert_int_equal(nth(&world, a, 1)->heat, GM_HOSTING_USE);
    free(world.memory);
}

/* Whatever is reported, heat stays in its bounds. */
static void test_saturation(void **state)
{
    struct world world;
    struct gm_use uses[] = {{BASE, UINT32_MAX}, {BASE + 1, UINT32_MAX}, {UINT64_MAX, UINT32_MAX}};
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t a = allocate(&world, 0, 34 * MIB, 1024 * MIB);
    for (int i = 0; i < 3; i++)
        gm_hosting_warm(world.table, 0, uses, 3);
    assert_int_equal(nth(&world, a, 0)->heat, UINT32_MAX);
    assert_int_equal(nth(&world, a, 1)->heat, UINT32_MAX);
    gm_hosting_warm(world.table, 0, NULL, 0);
    assert_int_equal(nth(&world, a, 0)->heat, UINT32_MAX);
    free(world.memory);
}

/* ---- choices ---- */

static void test_floor_and_ratio(void **state)
{
    struct world world;
    struct gm_hosting_pair pairs[GM_HOSTING_PAIRS];
    (void)state;
    make_world(&world, 32 * MIB, 1);
    uint32_t gpu = allocate(&world, 0, 32 * MIB, 32 * MIB), host = allocate(&world, 0, 32 * MIB, 0);
    struct gm_chunk *cold = nth(&world, gpu, 0), *hot = nth(&world, host, 0);
    const struct {
        uint32_t hot, cold;
        bool pays;
    } cases[] = {
        {0, 0, false},
        {GM_HOSTING_FLOOR - 1, 0, false},
        {GM_HOSTING_FLOOR, 0, true},
        {1000, 1000, false},
        {2000 + GM_HOSTING_FLOOR - 1, 1000, false},
        {2000 + GM_HOSTING_FLOOR, 1000, true},
        {UINT32_MAX, UINT32_MAX, false},
        {UINT32_MAX, 1u << 31, false},
        {0, UINT32_MAX, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hot->heat = cases[i].hot;
        cold->heat = cases[i].cold;
        assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 8), cases[i].pays);
    }
    hot->heat = GM_HOSTING_FLOOR;
    cold->heat = 0;
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 0), 0);
    assert_int_equal(gm_hosting_choose(world.table, 1, pairs, 8), 0);
    /* Not while either is on its way, or freed. */
    cold->flight = GM_FLIGHT_OUT;
    gm_table_place(world.table, pairs[0].cold);
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 8), 0);
    cold->flight = GM_FLIGHT_NONE;
    gm_table_place(world.table, pairs[0].cold);
    hot->flight = GM_FLIGHT_IN;
    gm_table_place(world.table, pairs[0].hot);
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 8), 0);
    hot->flight = GM_FLIGHT_NONE;
    gm_table_place(world.table, pairs[0].hot);
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 8), 1);
    gm_table_free_chunk(world.table, pairs[0].hot);
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 8), 0);
    free(world.memory);
}

/* No more than a go's bytes, of whatever sizes; and those that gain most. */
static void test_one_go(void **state)
{
    struct world world;
    struct gm_hosting_pair pairs[GM_HOSTING_PAIRS];
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    allocate(&world, 0, 1024 * MIB, 1024 * MIB);
    uint32_t host = allocate(&world, 0, 1024 * MIB, 0);
    for (uint32_t i = 0; i < 32; i++)
        nth(&world, host, i)->heat = 10000 + i;
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, GM_HOSTING_PAIRS), 16);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(world.table->chunks[pairs[i].hot].heat, 10031 - i);
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, 3), 3);
    assert_int_equal(world.table->chunks[pairs[2].hot].heat, 10029);
    free(world.memory);

    make_world(&world, 1200 * MIB, 1);
    for (int i = 0; i < 300; i++)
        allocate(&world, 0, 2 * MIB, 2 * MIB);
    for (int i = 0; i < 300; i++)
        nth(&world, allocate(&world, 0, 2 * MIB, 0), 0)->heat = 1000;
    assert_int_equal(gm_hosting_choose(world.table, 0, pairs, GM_HOSTING_PAIRS), 256);
    free(world.memory);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void check_choice(const struct world *world, const struct gm_hosting_pair *pairs, uint32_t n)
{
    uint32_t seen[2 * GM_HOSTING_PAIRS];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(gm_hosting_is_pair(world->table, 0, &pairs[i]));
        assert_true(gm_hosting_pays(world->table, &pairs[i]));
        seen[2 * i] = pairs[i].hot;
        seen[2 * i + 1] = pairs[i].cold;
        bytes += gm_class_bytes(world->table->chunks[pairs[i].hot].class);
    }
    assert_true(bytes <= GM_HOSTING_AT_ONCE);
    qsort(seen, 2 * n, sizeof *seen, compare);
    for (uint32_t i = 1; i < 2 * n; i++)
        assert_int_not_equal(seen[i], seen[i - 1]);
}

static void test_properties(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world world;
        struct gm_hosting_pair pairs[GM_HOSTING_PAIRS], again[GM_HOSTING_PAIRS];
        make_world(&world, 2048 * MIB, seed);
        for (int i = 0; i < 24; i++) {
            uint32_t app = draw(&world, 8) == 0;
            uint64_t bytes = (1 + draw(&world, 60)) * 2 * MIB;
            uint32_t a = allocate(&world, app, bytes, draw(&world, 2) ? 0 : bytes);
            for (uint32_t c = world.table->allocations[a].first; c != GM_NONE;
                 c = world.table->chunks[c].sibling)
                world.table->chunks[c].heat = (uint32_t)draw(&world, 1 + draw(&world, 5000));
        }
        uint64_t gpu = world.table->apps[0].committed - world.table->apps[0].hosted;
        uint32_t room = 1 + (uint32_t)draw(&world, GM_HOSTING_PAIRS), rounds = 0;
        for (uint32_t n = 1; n > 0; rounds++) {
            uint64_t before = heat_on_gpu(&world, 0);
            n = gm_hosting_choose(world.table, 0, pairs, room);
            assert_int_equal(gm_hosting_choose(world.table, 0, again, room), n);
            assert_memory_equal(pairs, again, n * sizeof *pairs);
            check_choice(&world, pairs, n);
            for (uint32_t i = 0; i < n; i++)
                exchange(&world, &pairs[i]);
            assert_true(heat_on_gpu(&world, 0) >= before + n);
            for (uint32_t i = 0; i < n; i++) {
                struct gm_hosting_pair back = {.hot = pairs[i].cold, .cold = pairs[i].hot};
                assert_false(gm_hosting_pays(world.table, &back));
            }
            /* It ends, and soon: each go but the last is a full one, or the sizes' last. */
            assert_true(rounds < MAX_CHUNKS);
        }
        assert_int_equal(world.table->apps[0].committed - world.table->apps[0].hosted, gpu);
        free(world.memory);
    }
}

/* What is asked for is a client's word, and may be any number. */
static void test_can_host(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 64 * MIB, 1);
    allocate(&world, 0, 96 * MIB, 64 * MIB);
    assert_int_equal(world.table->apps[0].hosted, 32 * MIB);
    assert_true(gm_table_can_host(world.table, 0, 96 * MIB, 128 * MIB));
    assert_false(gm_table_can_host(world.table, 0, 98 * MIB, 128 * MIB));
    assert_false(gm_table_can_host(world.table, 0, UINT64_MAX - 4 * MIB + 1, 128 * MIB));
    assert_false(gm_table_can_host(world.table, 0, 0, 30 * MIB));
    free(world.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_saturation), cmocka_unit_test(test_floor_and_ratio),
        cmocka_unit_test(test_one_go),     cmocka_unit_test(test_properties),
        cmocka_unit_test(test_can_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

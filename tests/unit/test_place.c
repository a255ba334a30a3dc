/*
 * core/place: heat from uses, and which chunks are resident or mapped on the host. Heat is checked
 * by hand; choices by what must hold whatever the heat: what is resident fits, no more comes than
 * is allowed, heat on the GPU never shrinks by an exchange, and it ends: the same heat never sends
 * a chunk back.
 */
#include "daemon/core/layout.h"
#include "daemon/core/working.h"
#include "daemon/core/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/turns.h"

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

/* Bring a chunk to its place, all at once. */
static void settle(struct world *world, uint32_t c)
{
    struct gm_table *table = world->table;
    const struct gm_chunk *chunk = &table->chunks[c];
    if (chunk->frame != GM_NONE && table->frames[chunk->frame].is_host == chunk->is_on_host)
        return;
    if (chunk->frame != GM_NONE) { /* it leaves its old place */
        const uint32_t old = chunk->frame;
        if (chunk->is_on_host) {
            assert_true(gm_table_evict(table, c, c * 16));
            gm_table_condemn_frame(table, old, GM_NONE);
            gm_table_end_frame(table, old);
        } else {
            assert_true(gm_table_unmap(table, c));
        }
        settle_chunk(table, c);
    }
    if (!chunk->is_on_host) {
        const uint32_t old = chunk->host_frame;
        to_new_frame(table, c);
        if (old != GM_NONE) { /* and its pages with it */
            gm_table_condemn_frame(table, old, GM_NONE);
            gm_table_end_frame(table, old);
        }
        return;
    }
    if (chunk->tier == GM_TIER_NONE)
        to_tier(table, c, GM_TIER_PINNED, c * 16);
    assert_true(gm_table_map(table, c, gm_table_add_host_frame(table, c)));
    settle_chunk(table, c);
}

static void settle_all(struct world *world, uint32_t app)
{
    struct gm_table *table = world->table;
    for (int is_host = 1; is_host >= 0; is_host--) /* who leaves makes room first */
        for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
             a = table->allocations[a].next)
            for (uint32_t c = table->allocations[a].first; c != GM_NONE;
                 c = table->chunks[c].sibling)
                if (table->chunks[c].is_on_host == is_host)
                    settle(world, c);
    assert_null(gm_table_check(table));
}

static uint32_t add(struct world *world, uint32_t app, uint64_t bytes)
{
    uint32_t index = gm_table_add_allocation(world->table, app, world->next_va, bytes);
    assert_int_not_equal(index, GM_NONE);
    world->next_va += bytes;
    return index;
}

/* An allocation all of whose chunks are settled: on the GPU, or on the host. */
static uint32_t allocate(struct world *world, uint32_t app, uint64_t bytes, bool is_on_host)
{
    struct gm_table *table = world->table;
    uint32_t index = add(world, app, bytes);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling) {
        gm_table_put(table, c, is_on_host);
        settle(world, c);
    }
    assert_null(gm_table_check(table));
    return index;
}

static struct gm_chunk *nth(struct world *world, uint32_t allocation, uint32_t n)
{
    uint32_t c = world->table->allocations[allocation].first;
    while (n-- > 0)
        c = world->table->chunks[c].sibling;
    return gm_chunk_at(world->table, c);
}

/* ---- heat ---- */

/* A place stands for what follows it, up to the next place and not beyond the allocation. */
static void test_reach(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t one = allocate(&world, 0, 86 * MIB, false); /* 32, 32, 16, 4, 2 */
    uint32_t two = allocate(&world, 0, 32 * MIB, false);
    uint32_t foreign = allocate(&world, 1, 32 * MIB, false);
    struct gm_use uses[] = {
        {.va = BASE - 64 * MIB, .count = 1000},       /* nobody's */
        {.va = BASE, .count = 3},                     /* for 40 MiB */
        {.va = BASE + 40 * MIB, .count = 5},          /* for the rest of the allocation */
        {.va = BASE + (86 + 16) * MIB, .count = 7},   /* the second half of the next */
        {.va = BASE + (86 + 32) * MIB, .count = 900}, /* another app's */
        {.va = BASE + 4096 * MIB, .count = 1000},
    };
    gm_working_warm(world.table, 0, uses, sizeof uses / sizeof *uses);
    assert_int_equal(nth(&world, one, 0)->heat, 3 * GM_PLACE_USE);
    assert_int_equal(nth(&world, one, 1)->heat, (3 * 1 + 5 * 3) * GM_PLACE_USE / 4);
    assert_int_equal(nth(&world, one, 2)->heat, 5 * GM_PLACE_USE);
    assert_int_equal(nth(&world, one, 4)->heat, 5 * GM_PLACE_USE);
    assert_int_equal(nth(&world, two, 0)->heat, 7 * GM_PLACE_USE / 2);
    assert_int_equal(nth(&world, foreign, 0)->heat, 0);
    free(world.memory);
}

/* One that is exact stands for itself, whatever reaches to it from before. */
static void test_exact(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t one = allocate(&world, 0, 86 * MIB, false); /* 32, 32, 16, 4, 2 */
    const struct gm_use uses[] = {
        {.va = BASE, .count = 8}, /* for 4 MiB */
        {.va = BASE + 4 * MIB, .count = 16, .is_exact = true},
        {.va = BASE + 62 * MIB, .count = 32, .is_exact = true}, /* the chunk's last */
        {.va = BASE + 80 * MIB, .count = 2},                    /* for the rest */
    };
    gm_working_warm(world.table, 0, uses, sizeof uses / sizeof *uses);
    assert_int_equal(nth(&world, one, 0)->heat, (8 * 2 + 16) * GM_PLACE_USE / 16);
    assert_int_equal(nth(&world, one, 1)->heat, 32 * GM_PLACE_USE / 16);
    assert_int_equal(nth(&world, one, 2)->heat, 0);
    assert_int_equal(nth(&world, one, 3)->heat, 2 * GM_PLACE_USE);
    assert_int_equal(nth(&world, one, 4)->heat, 2 * GM_PLACE_USE);
    free(world.memory);
}

/* A place that was seen before ends the reach of the one before it, however long ago that was. */
static void test_memory(void **state)
{
    struct world world;
    struct gm_use both[] = {{.va = BASE, .count = 1}, {.va = BASE + 32 * MIB, .count = 1}},
                  first = {.va = BASE, .count = 1};
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t a = allocate(&world, 0, 96 * MIB, false);
    gm_working_warm(world.table, 0, both, 2);
    assert_int_equal(nth(&world, a, 2)->heat, GM_PLACE_USE);
    gm_working_warm(world.table, 0, &first, 1);
    assert_int_equal(nth(&world, a, 0)->heat, 2 * GM_PLACE_USE);
    assert_int_equal(nth(&world, a, 1)->heat, GM_PLACE_USE);
    assert_int_equal(nth(&world, a, 2)->heat, GM_PLACE_USE);
    for (uint32_t i = 1; i < 60; i++)
        gm_working_warm(world.table, 0, NULL, 0);
    gm_working_warm(world.table, 0, &first, 1);
    assert_int_equal(nth(&world, a, 0)->heat, 3 * GM_PLACE_USE);
    assert_int_equal(nth(&world, a, 1)->heat, GM_PLACE_USE);
    free(world.memory);
}

/* Heat is halved when what is used was used often, be that in one report or in many; what is used
 * all the time, or never, does not change when. */
static void test_halving(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 1024; count *= 4) {
        struct world world;
        make_world(&world, 1024 * MIB, 1);
        const struct gm_use uses[] = {{.va = BASE, .count = 100 * count},
                                      {.va = BASE + 32 * MIB, .count = count}};
        uint32_t often = allocate(&world, 0, 32 * MIB, false);
        uint32_t used = allocate(&world, 0, 256 * MIB, false);
        allocate(&world, 0, 512 * MIB, false);
        uint32_t heat = 0, halved = 0;
        for (int i = 0; i < 1000; i++) {
            gm_working_warm(world.table, 0, uses, 2);
            halved += nth(&world, used, 0)->heat < heat + count * GM_PLACE_USE;
            heat = nth(&world, used, 0)->heat;
            assert_true(heat <= 2 * GM_PLACE_KNOWN || heat <= count * GM_PLACE_USE);
            assert_int_equal(nth(&world, used, 7)->heat, heat);
        }
        assert_true(nth(&world, often, 0)->heat > 50 * heat);
        assert_true(count > 1 || (halved >= 20 && halved <= 40)); /* each 32 to 64 uses */
        assert_true(count < 64 || halved == 1000);
        free(world.memory);
    }
}

/* Whatever is reported, heat stays in its bounds. */
static void test_saturation(void **state)
{
    struct world world;
    struct gm_use uses[] = {{.va = BASE, .count = UINT32_MAX},
                            {.va = BASE + 1, .count = UINT32_MAX},
                            {.va = UINT64_MAX, .count = UINT32_MAX}};
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t a = allocate(&world, 0, 34 * MIB, false);
    for (int i = 0; i < 3; i++) {
        gm_working_warm(world.table, 0, uses, 3);
        assert_int_equal(nth(&world, a, 0)->heat, UINT32_MAX / 2); /* halved */
        assert_int_equal(nth(&world, a, 1)->heat, UINT32_MAX / 2);
    }
    for (int i = 0; i < 40; i++)
        gm_working_warm(world.table, 0, NULL, 0);
    assert_true(nth(&world, a, 0)->heat < GM_PLACE_KNOWN);
    free(world.memory);
}

/* ---- choices ---- */

static struct gm_placed choose(struct world *world, const struct gm_place_input *input)
{
    const struct gm_placed said = gm_layout_place(world->table, input, false);
    const struct gm_placed made = gm_layout_place(world->table, input, true);
    assert_memory_equal(&said, &made, sizeof said);
    assert_null(gm_table_check(world->table));
    return made;
}

static struct gm_placed exchange(struct world *world, uint64_t room, uint64_t most)
{
    const struct gm_place_input input = {
        .app = 0, .room = room, .most = most, .newest = GM_NONE, .is_quiet = true};
    return choose(world, &input);
}

/* What is to be on the GPU. */
static uint64_t resident(const struct world *world)
{
    return world->table->apps[0].committed - world->table->apps[0].on_host;
}

/* One chunk takes another's place if it is hotter by a quarter, and by what the exchange costs. */
static void test_pays(void **state)
{
    const struct {
        uint32_t hot, cold;
        bool pays;
    } cases[] = {
        {0, 0, false},
        {GM_PLACE_FLOOR - 1, 0, false},
        {2 * GM_PLACE_FLOOR, 0, true},
        {1000, 1000, false},
        {1250, 1000, false},
        {1250 + GM_PLACE_FLOOR, 1000, false},
        {1400 + GM_PLACE_FLOOR, 1000, true},
        {1000, 4000, false},
        {UINT32_MAX, UINT32_MAX, false},
        {UINT32_MAX, 15u << 28, false},
        {UINT32_MAX, 1u << 31, true},
        {UINT32_MAX, 1u << 29, true},
        {0, UINT32_MAX, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world world;
        make_world(&world, 64 * MIB, 1);
        uint32_t gpu = allocate(&world, 0, 32 * MIB, false);
        uint32_t host = allocate(&world, 0, 32 * MIB, true);
        struct gm_chunk *cold = nth(&world, gpu, 0), *hot = nth(&world, host, 0);
        hot->heat = cases[i].hot;
        cold->heat = cases[i].cold;
        const uint64_t moved = cases[i].pays ? 32 * MIB : 0;
        assert_int_equal(exchange(&world, 32 * MIB, 16 * MIB).come, 0); /* it may not */
        const struct gm_placed placed = exchange(&world, 32 * MIB, 512 * MIB);
        assert_int_equal(placed.come, moved);
        assert_int_equal(placed.leave, moved);
        assert_int_equal(hot->is_on_host, !cases[i].pays);
        assert_int_equal(cold->is_on_host, cases[i].pays);
        settle_all(&world, 0);
        assert_int_equal(exchange(&world, 32 * MIB, 512 * MIB).come, 0);
        free(world.memory);
    }
}

/* Not while a chunk is on its way, freed, or fixed. */
static void test_bound_chunks(void **state)
{
    (void)state;
    for (int what = 0; what < 6; what++) {
        struct world world;
        make_world(&world, 64 * MIB, 1);
        uint32_t gpu = allocate(&world, 0, 32 * MIB, false);
        uint32_t host = allocate(&world, 0, 32 * MIB, true);
        struct gm_chunk *cold = nth(&world, gpu, 0), *hot = nth(&world, host, 0);
        hot->heat = 100 * GM_PLACE_FLOOR;
        uint64_t room = 32 * MIB;
        if (what == 1) {
            gm_table_fix(world.table, gpu, 1, (const uint64_t[2]){1, 2});
            room = 0; /* beside what is fixed */
        }
        if (what == 2)
            gm_table_fix(world.table, host, 1, (const uint64_t[2]){1, 2});
        if (what == 3)
            hot->state = GM_CHUNK_MAPPING;
        if (what == 4)
            cold->state = GM_CHUNK_COMING;
        if (what == 5)
            gm_table_free_chunk(world.table, world.table->allocations[host].first);
        assert_int_equal(world.table->fixed, what == 1 ? 32 * MIB : 0); /* of the budget */
        const struct gm_place_input input = {
            .room = room, .most = 512 * MIB, .newest = GM_NONE, .is_quiet = true};
        assert_int_equal(gm_layout_place(world.table, &input, false).leave, what == 0 ? 32 * MIB : 0);
        free(world.memory);
    }
}

/* So much of what is cold and on the host stays there, though there is room. */
static void test_keeps(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 512 * MIB, 1);
    const uint32_t host = allocate(&world, 0, 4 * 32 * MIB, true);
    allocate(&world, 0, 32 * MIB, false);
    for (uint32_t i = 0; i < 3; i++)
        gm_table_set_cold(world.table, (uint32_t)(nth(&world, host, i) - world.table->chunks),
                          true);
    for (uint64_t keeps = 0; keeps <= 5; keeps++) {
        const struct gm_place_input input = {.room = 512 * MIB,
                                             .most = 512 * MIB,
                                             .newest = GM_NONE,
                                             .is_quiet = true,
                                             .keeps = keeps * 32 * MIB + 2 * MIB};
        const struct gm_placed placed = gm_layout_place(world.table, &input, false);
        assert_int_equal(placed.come, (keeps < 3 ? 4 - keeps : 1) * 32 * MIB);
        assert_int_equal(placed.leave, 0);
    }
    free(world.memory);
}

/* What came last takes the place of what is large and not hot; if nothing may move, it is on the
 * host until it can. */
static void test_the_late(void **state)
{
    const uint64_t sizes[] = {2 * MIB, 20 * MIB, 32 * MIB, 96 * MIB};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct world world;
        make_world(&world, 256 * MIB, 1);
        allocate(&world, 0, 128 * MIB, false);
        allocate(&world, 0, 64 * MIB, true);
        uint32_t late = add(&world, 0, sizes[i]);
        struct gm_place_input input = {.room = 128 * MIB, .most = 512 * MIB, .newest = late};
        assert_int_equal(choose(&world, &input).leave, 0);
        assert_true(nth(&world, late, 0)->is_on_host);
        assert_int_equal(world.table->apps[0].to_map.count, world.table->allocations[late].chunks);
        input.is_quiet = true;
        const struct gm_placed placed = choose(&world, &input);
        assert_int_equal(placed.come, 0);
        assert_true(placed.leave >= sizes[i] && placed.leave < sizes[i] + 32 * MIB);
        for (uint32_t n = 0; n < world.table->allocations[late].chunks; n++)
            assert_false(nth(&world, late, n)->is_on_host);
        assert_true(resident(&world) <= 128 * MIB);
        settle_all(&world, 0);
        assert_int_equal(exchange(&world, 128 * MIB, 512 * MIB).come, 0);
        free(world.memory);
    }
}

/* Small memory that comes last takes the place of some that came first, of which no use is known
 * either, or few. */
static void test_the_late_and_small(void **state)
{
    (void)state;
    for (uint32_t uses = 0; uses < 8; uses++) {
        struct world world;
        make_world(&world, 256 * MIB, 1);
        uint32_t early[8];
        for (int i = 0; i < 8; i++) {
            early[i] = allocate(&world, 0, 8 * MIB, false);
            nth(&world, early[i], 0)->heat = uses * GM_PLACE_USE;
        }
        uint32_t late = add(&world, 0, 8 * MIB);
        struct gm_place_input input = {.room = 64 * MIB, .newest = late, .is_quiet = true};
        assert_int_equal(choose(&world, &input).leave, 8 * MIB);
        assert_false(nth(&world, late, 0)->is_on_host);
        assert_true(nth(&world, early[0], 0)->is_on_host);
        settle_all(&world, 0);
        assert_int_equal(exchange(&world, 64 * MIB, 512 * MIB).come, 0);
        free(world.memory);
    }
}

/* Small chunks are on the GPU though they are hardly used, and large ones are used a lot. */
static void test_the_small(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    uint32_t large = allocate(&world, 0, 256 * MIB, false);
    uint32_t small[8];
    for (int i = 0; i < 8; i++)
        small[i] = allocate(&world, 0, 6 * MIB, true);
    for (uint32_t n = 0; n < 8; n++)
        nth(&world, large, n)->heat = 100000;
    nth(&world, small[0], 0)->heat = 1;
    const struct gm_placed placed = exchange(&world, 256 * MIB, 512 * MIB);
    assert_int_equal(placed.come, 48 * MIB);
    assert_int_equal(placed.leave, 64 * MIB);
    for (int i = 0; i < 8; i++)
        assert_false(nth(&world, small[i], 0)->is_on_host);
    free(world.memory);
}

/* A new limit, and none any more. */
static void test_limit(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 1024 * MIB, 1);
    allocate(&world, 0, 512 * MIB, false);
    uint32_t hot = allocate(&world, 0, 64 * MIB, false);
    allocate(&world, 0, 30 * MIB, false);
    nth(&world, hot, 1)->heat = 4000;
    assert_int_equal(exchange(&world, 100 * MIB, 0).leave, 512 * MIB);
    assert_false(nth(&world, hot, 1)->is_on_host);
    settle_all(&world, 0);
    assert_int_equal(exchange(&world, 0, 0).leave, 94 * MIB);
    settle_all(&world, 0);
    assert_int_equal(resident(&world), 0);
    assert_int_equal(exchange(&world, 606 * MIB, 606 * MIB).come, 606 * MIB);
    settle_all(&world, 0);
    assert_int_equal(world.table->apps[0].on_host, 0);
    free(world.memory);
}

/* ---- programs: uses as they are reported, once a second, while chunks change places ---- */

/* Blocks of 128 MiB as in bench/app. A step is a list of them. Reports come after so many uses,
 * in the middle of a step. What is exchanged in `reports` reports. */
static uint64_t run_steps(struct world *world, const uint32_t *step, uint32_t n, uint32_t *at,
                          uint32_t uses_a_report, uint32_t reports, uint64_t room)
{
    uint64_t come = 0;
    for (uint32_t i = 0; i < reports; i++) {
        uint32_t counts[256] = {0}, n_uses = 0;
        struct gm_use uses[256];
        for (uint32_t k = 0; k < uses_a_report; k++)
            counts[step[(*at)++ % n]]++;
        for (uint32_t b = 0; b < 256; b++)
            if (counts[b] > 0)
                uses[n_uses++] = (struct gm_use){.va = BASE + b * 128 * MIB, .count = counts[b]};
        gm_working_warm(world->table, 0, uses, n_uses);
        come += exchange(world, room, GM_PLACE_AT_ONCE).come;
        settle_all(world, 0);
    }
    return come;
}

/* Blocks are allocated one by one, and the last come in the place of the first. */
static void allocate_blocks(struct world *world, uint32_t n, uint64_t room)
{
    for (uint32_t i = 0; i < n; i++) {
        struct gm_place_input input = {.room = room, .newest = add(world, 0, 128 * MIB)};
        choose(world, &input);
        input.is_quiet = true;
        choose(world, &input);
        settle_all(world, 0);
        const struct gm_use filled = {.va = BASE + i * 128 * MIB, .count = 1};
        gm_working_warm(world->table, 0, &filled, 1);
    }
}

static uint64_t block_on_host(struct world *world, uint32_t block)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < 4; n++)
        bytes += nth(world, block, n)->is_on_host ? 32 * MIB : 0;
    return bytes;
}

/* Training of 16 GiB on 12: weights that are used three times a step, and gradients twice. The
 * weights on the host, as they came first, take the places of gradients, within 20 steps, and then
 * nothing moves. However many steps a second there are. */
static void test_training(void **state)
{
    enum { LAYERS = 64, USES = 5 * LAYERS };
    static const uint32_t uses_a_report[] = {USES / 20, USES / 3, USES, 3 * USES - 7, 40 * USES};
    uint32_t step[USES], n = 0;
    (void)state;
    for (uint32_t i = 0; i < LAYERS; i++)
        step[n++] = i;
    for (uint32_t i = LAYERS; i-- > 0;) {
        step[n++] = i;
        step[n++] = LAYERS + i;
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        step[n++] = LAYERS + i;
        step[n++] = i;
    }
    for (size_t i = 0; i < sizeof uses_a_report / sizeof *uses_a_report; i++) {
        struct world world;
        const uint64_t room = 12096 * MIB;
        const uint32_t each = uses_a_report[i];
        uint32_t at = 0;
        make_world(&world, 20480 * MIB, 1);
        allocate_blocks(&world, 2 * LAYERS, room);
        assert_true(block_on_host(&world, 0) > 0 && block_on_host(&world, 2 * LAYERS - 1) == 0);
        const uint64_t host = world.table->apps[0].on_host;
        const uint64_t come = run_steps(&world, step, n, &at, each, 20 * USES / each + 3, room);
        assert_int_equal(come, host); /* all of the weights, nothing twice */
        for (uint32_t b = 0; b < LAYERS; b++)
            assert_int_equal(block_on_host(&world, b), 0);
        assert_int_equal(run_steps(&world, step, n, &at, each, 500 * USES / each + 20, room), 0);
        free(world.memory);
    }
}

/* Decoding: all weights are used equally often. Nothing ever moves. */
static void test_decoding(void **state)
{
    enum { LAYERS = 128 };
    static const uint32_t uses_a_report[] = {3, LAYERS / 2 + 1, LAYERS, 9 * LAYERS + 50};
    uint32_t step[4 * LAYERS];
    (void)state;
    for (uint32_t times = 1; times <= 4; times++) /* in a row */
        for (size_t i = 0; i < sizeof uses_a_report / sizeof *uses_a_report; i++) {
            struct world world;
            uint32_t at = 0, n = 0;
            make_world(&world, 20480 * MIB, 1);
            allocate_blocks(&world, LAYERS, 12096 * MIB);
            for (uint32_t b = 0; b < LAYERS; b++)
                for (uint32_t k = 0; k < times; k++)
                    step[n++] = b;
            assert_int_equal(run_steps(&world, step, n, &at, uses_a_report[i], 2000, 12096 * MIB),
                             0);
            free(world.memory);
        }
}

/* Experts, drawn at random: by chance some are used more often than others for a while. What is
 * exchanged for nothing stays below a twentieth of what is read over the link. */
static void test_experts(void **state)
{
    enum { EXPERTS = 128, DRAWN = 1u << 16, REPORTS = 500 };
    static uint32_t drawn[DRAWN];
    (void)state;
    for (uint32_t each = 16; each <= DRAWN; each *= 4) {
        struct world world;
        uint32_t at = 0;
        make_world(&world, 20480 * MIB, each);
        allocate_blocks(&world, EXPERTS, 12096 * MIB);
        for (uint32_t i = 0; i < DRAWN; i++)
            drawn[i] = (uint32_t)draw(&world, EXPERTS);
        const uint64_t read =
            world.table->apps[0].on_host / EXPERTS * each * REPORTS; /* its share of the uses */
        const uint64_t come = run_steps(&world, drawn, DRAWN, &at, each, REPORTS, 12096 * MIB);
        assert_true(2 * come < read / 20); /* each of the two chunks crosses the link once */
        free(world.memory);
    }
}

static uint64_t heat_on_gpu(const struct world *world)
{
    const struct gm_table *table = world->table;
    uint64_t heat = 0;
    for (uint32_t a = table->apps[0].allocations.head; a != GM_NONE; a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            if (!table->chunks[c].is_on_host)
                heat += (uint64_t)table->chunks[c].heat << table->chunks[c].class;
    return heat;
}

static void test_properties(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300 / GM_SLOW; seed++) {
        struct world world;
        make_world(&world, 4096 * MIB, seed);
        const bool is_of_large = seed % 2 == 0; /* all alike: then heat alone decides */
        uint64_t gpu = 0;
        for (int i = 0; i < 24; i++) {
            uint32_t app = draw(&world, 8) == 0;
            uint64_t bytes = (1 + draw(&world, 60)) * 2 * MIB;
            if (is_of_large)
                bytes = (1 + draw(&world, 4)) * 32 * MIB;
            const bool is_on_host = draw(&world, 2);
            uint32_t a = allocate(&world, app, bytes, is_on_host);
            gpu += app == 0 && !is_on_host ? bytes : 0;
            for (uint32_t c = world.table->allocations[a].first; c != GM_NONE;
                 c = world.table->chunks[c].sibling)
                gm_chunk_at(world.table, c)->heat = (uint32_t)draw(&world, 1 + draw(&world, 5000));
        }
        const uint64_t other = world.table->apps[1].on_host;
        const uint64_t most = (1 + draw(&world, 16)) * 32 * MIB;
        uint32_t rounds = 0;
        for (struct gm_placed placed = {.come = 1}; placed.come > 0; rounds++) {
            const uint64_t before = heat_on_gpu(&world);
            placed = exchange(&world, gpu, most);
            assert_true(placed.come <= most);
            assert_true(resident(&world) <= gpu);
            if (is_of_large && placed.come > 0)
                assert_true(heat_on_gpu(&world) > before && placed.leave == placed.come);
            settle_all(&world, 0);
            assert_true(rounds < MAX_CHUNKS); /* it ends */
        }
        assert_int_equal(world.table->apps[1].on_host, other);
        /* A new limit, met at once whatever it is. */
        const uint64_t limit = draw(&world, 1024) * MIB;
        exchange(&world, limit, 0);
        assert_true(resident(&world) <= limit);
        free(world.memory);
    }
}

/* Chunks of all sizes and heats, settled or nowhere yet, some of which had a place. */
static void draw_chunks(struct world *world)
{
    struct gm_table *table = world->table;
    const bool is_settled = draw(world, 2);
    for (uint64_t n = 1 + draw(world, 30); n > 0; n--) {
        const uint64_t bytes = (1 + draw(world, draw(world, 2) ? 4 : 60)) * GM_CHUNK_MIN;
        const bool is_on_host = draw(world, 2);
        const uint32_t a = is_settled || draw(world, 3) ? allocate(world, 0, bytes, is_on_host)
                                                        : add(world, 0, bytes);
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling) {
            gm_table_note_use(table, c, (uint32_t)draw(world, 1 + draw(world, 5000)), 0);
            if (table->chunks[c].frame == GM_NONE && draw(world, 2))
                gm_table_put(table, c, true);
        }
    }
}

/* What is on the host is less than a chunk more than must be there. A program that is not quiet may
 * have had more there before. */
static void test_rounding(void **state)
{
    uint64_t largest = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 20000 / GM_SLOW; seed++) {
        struct world world;
        make_world(&world, 1ull << 40, seed);
        draw_chunks(&world);
        const struct gm_table_app *app = &world.table->apps[0];
        const uint64_t all = app->committed, before = app->on_host;
        const uint64_t room = gm_chunk_floor(draw(&world, all + all / 4));
        const uint64_t free_room = room > resident(&world) ? room - resident(&world) : 0;
        const uint64_t at_once = draw(&world, 8) * GM_CHUNK_MAX;
        const bool is_quiet = draw(&world, 4);
        const struct gm_place_input input = {.app = 0,
                                             .room = room,
                                             .most = free_room > at_once ? free_room : at_once,
                                             .newest = GM_NONE,
                                             .is_quiet = is_quiet};
        gm_layout_place(world.table, &input, true);
        const uint64_t beyond = all > room ? all - room : 0;
        const uint64_t more = app->on_host > beyond ? app->on_host - beyond : 0;
        assert_true(app->on_host <= gm_room_rounded(beyond) ||
                    (!is_quiet && app->on_host <= before));
        if (is_quiet) {
            assert_true(resident(&world) <= room);
            largest = more > largest ? more : largest;
        }
        free(world.memory);
    }
    assert_int_equal(largest, GM_ROOM_ROUNDING); /* no less is enough */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_pays),
        cmocka_unit_test(test_bound_chunks),
        cmocka_unit_test(test_keeps),
        cmocka_unit_test(test_the_late),
        cmocka_unit_test(test_the_late_and_small),
        cmocka_unit_test(test_the_small),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * core/layout, rule by rule, and its properties in random worlds. How much of which victim is best
 * test_plan_best.c searches.
 */
#include "daemon/core/layout.h"

#include "tests/unit/plan_tiers_world.h"

#define CHUNK GM_CHUNK_MAX

static struct world world;
static struct gm_layout_app apps[MAX_APPS];

/* Room for `budget` chunks; app i has on the GPU resident[i] chunks, and lacks missing[i]. */
static void set_up(uint64_t budget, const uint64_t *resident, const uint64_t *missing, uint32_t n)
{
    make_world(&world, budget * CHUNK, 1);
    world.layout = (struct gm_layout){.targets = world.targets, .victims = world.victims};
    for (uint32_t i = 0; i < n; i++) {
        gm_table_add_app(world.table, i, 1000);
        apps[i] = (struct gm_layout_app){.app = i,
                                         .stand = GM_STAND_WAITS,
                                         .comes_ahead = true,
                                         .turn = i,
                                         .may_have = UINT64_MAX};
        if (resident[i] > 0) {
            allocate(&world, i, resident[i] * CHUNK);
            struct gm_plan plan = plan_for(&world, &i, 1, NULL, 0);
            carry_out(&world, &plan);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (missing[i] > 0)
            allocate(&world, i, missing[i] * CHUNK);
}

static bool make(uint32_t step, uint32_t n)
{
    world.layout.targets = world.targets;
    world.layout.victims = world.victims;
    return gm_layout_make(world.table, apps, n, step, UINT64_MAX, &world.layout);
}

/* Chunks that the app is to lose. */
static uint64_t loses(uint32_t app)
{
    for (uint32_t i = 0; i < world.layout.n_victims; i++)
        if (world.layout.victims[i].app == app)
            return world.layout.victims[i].loses / CHUNK;
    return 0;
}

/* Bytes that come. */
static uint64_t comes(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < world.layout.n_targets; i++)
        bytes += world.layout.targets[i].comes;
    return bytes;
}

/* Who runs gets what it lacks, the farthest loses first, and nobody more than is needed. */
static void test_now(void **state)
{
    (void)state;
    set_up(10, (uint64_t[]){2, 3, 4}, (uint64_t[]){6, 0, 0}, 3);
    apps[0].stand = GM_STAND_COMES;
    assert_true(make(GM_LAYOUT_NOW, 3));
    assert_false(world.layout.is_ahead);
    assert_int_equal(world.layout.n_targets, 1);
    assert_int_equal(comes(), 6 * CHUNK);
    assert_int_equal(loses(2), 4);
    assert_int_equal(loses(1), 1);
    /* idle or not: only the order counts */
    apps[1].stand = apps[2].stand = GM_STAND_IDLE;
    make(GM_LAYOUT_NOW, 3);
    assert_int_equal(loses(2), 4);
    /* nothing of one that stays can be had */
    apps[2].stand = GM_STAND_STAYS;
    make(GM_LAYOUT_NOW, 3);
    assert_int_equal(loses(2), 0);
    assert_int_equal(loses(1), 3);
    assert_int_equal(comes(), 4 * CHUNK);
    end_world(&world);
}

/* Who grows comes before who is about to run. */
static void test_growing_first(void **state)
{
    (void)state;
    set_up(10, (uint64_t[]){0, 2}, (uint64_t[]){2, 2}, 2);
    apps[0].stand = GM_STAND_COMES;
    make(GM_LAYOUT_NOW, 2);
    assert_false(world.layout.is_growing);
    apps[1].stand = GM_STAND_GROWS;
    make(GM_LAYOUT_NOW, 2);
    assert_true(world.layout.is_growing);
    assert_int_equal(world.layout.targets[0].app, 1);
    assert_int_equal(world.layout.targets[1].app, 0);
    end_world(&world);
}

/* With nobody who waits for memory, what is above its room leaves; with somebody, not for that. */
static void test_above(void **state)
{
    (void)state;
    set_up(10, (uint64_t[]){2, 3, 4}, (uint64_t[]){0, 0, 0}, 3);
    apps[0].stand = GM_STAND_STAYS;
    apps[1].may_have = CHUNK;
    apps[2].may_have = 0;
    assert_true(make(GM_LAYOUT_NOW, 3));
    assert_true(world.layout.is_ahead);
    assert_int_equal(world.layout.n_targets, 0);
    assert_int_equal(loses(1), 2);
    assert_int_equal(loses(2), 4);
    apps[2].may_have =
        UINT64_MAX; /* it loses nothing, but its data below the GPU goes down first */
    make(GM_LAYOUT_NOW, 3);
    assert_int_equal(world.layout.victims[0].app, 2);
    assert_int_equal(loses(2), 0);
    assert_int_equal(loses(1), 2);
    allocate(&world, 0, 2 * CHUNK);
    apps[0].stand = GM_STAND_GROWS;
    make(GM_LAYOUT_NOW, 3);
    assert_int_equal(loses(1), 0);
    assert_int_equal(loses(2), 1);
    end_world(&world);
}

/* Ahead of its turn the nearest gets room: what is free, and what later ones have that wait too. */
static void test_ahead(void **state)
{
    (void)state;
    set_up(10, (uint64_t[]){4, 1, 2, 2}, (uint64_t[]){0, 4, 1, 0}, 4);
    apps[0].stand = GM_STAND_STAYS;
    apps[0].comes_ahead = apps[3].comes_ahead = false;
    make(GM_LAYOUT_NOW, 4);
    assert_int_equal(world.layout.n_targets + world.layout.n_victims, 0);
    assert_true(make(GM_LAYOUT_AHEAD, 4));
    assert_int_equal(world.layout.targets[0].app, 1);
    assert_int_equal(loses(3), 2);
    assert_int_equal(loses(2), 1); /* one is free */
    assert_true(make(GM_LAYOUT_AHEAD + 1, 4));
    assert_int_equal(world.layout.targets[0].app, 2);
    assert_int_equal(loses(3), 0);
    assert_int_equal(loses(1), 0); /* it comes before */
    assert_false(make(GM_LAYOUT_AHEAD + 2, 4));
    /* an idle one keeps what it has, and nobody makes way for one */
    apps[3].stand = GM_STAND_IDLE;
    make(GM_LAYOUT_AHEAD, 4);
    assert_int_equal(loses(3), 0);
    assert_int_equal(loses(2), 2);
    apps[1].stand = GM_STAND_IDLE;
    make(GM_LAYOUT_AHEAD, 4);
    assert_int_equal(loses(2), 0);
    assert_int_equal(comes(), CHUNK);
    end_world(&world);
}

/* Members of a group come at once: none makes way for another. */
static void test_group(void **state)
{
    (void)state;
    set_up(4, (uint64_t[]){2, 2}, (uint64_t[]){2, 0}, 2);
    apps[1].turn = apps[0].turn;
    assert_true(make(GM_LAYOUT_AHEAD, 2));
    assert_int_equal(world.layout.n_victims, 0);
    apps[1].turn++;
    make(GM_LAYOUT_AHEAD, 2);
    assert_int_equal(loses(1), 2);
    end_world(&world);
}

/* A frame on its way out counts as free, unless its program does not answer. */
static void test_leaving(void **state)
{
    (void)state;
    set_up(4, (uint64_t[]){0, 4}, (uint64_t[]){3, 0}, 2);
    apps[0].stand = GM_STAND_COMES;
    const uint32_t c = world.table->apps[1].by_class[GM_CHUNK_CLASSES - 1].head;
    assert_true(gm_table_evict(world.table, c, 0));
    make(GM_LAYOUT_NOW, 2);
    assert_int_equal(loses(1), 2);
    assert_int_equal(comes(), 3 * CHUNK);
    gm_table_set_silent(world.table, 1, true);
    apps[1].stand = GM_STAND_STAYS;
    make(GM_LAYOUT_NOW, 2);
    assert_int_equal(comes(), 0);
    free(world.memory);
}

/*
 * Whatever stands where: nobody loses more than it has, nor anything that stays; without targets
 * each loses what is above its room and less than a chunk more; with targets no farther victim
 * keeps anything while a nearer one loses, but for less than a chunk.
 */
static void check_layout(const struct gm_layout *layout, const struct gm_layout_app *list,
                         uint32_t n, uint64_t most_chunk)
{
    uint64_t missing = 0, sum = 0;
    bool has_nearer = false;
    for (uint32_t i = 0; i < layout->n_targets; i++)
        for (unsigned tier = 0; tier < GM_TIERS; tier++)
            missing += world.table->apps[layout->targets[i].app].bytes[tier];
    for (uint32_t i = layout->n_victims; i-- > 0;) {
        const struct gm_layout_victim *victim = &layout->victims[i];
        uint32_t at = 0;
        while (list[at].app != victim->app)
            at++;
        assert_true(at < n);
        assert_true(list[at].stand == GM_STAND_WAITS || list[at].stand == GM_STAND_IDLE);
        assert_true(victim->loses <= world.table->apps[victim->app].resident);
        assert_true(victim->loses < victim->may_lose + most_chunk);
        if (layout->n_targets == 0)
            assert_true(victim->loses >= victim->may_lose);
        else if (has_nearer)
            assert_true(victim->loses + most_chunk > victim->may_lose);
        has_nearer = has_nearer || victim->loses > 0;
        sum += victim->loses;
    }
    if (layout->n_targets > 0 && sum > 0)
        assert_true(sum < missing + most_chunk);
}

static void test_random(void **state)
{
    uint64_t made = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        make_full_world(&world, seed);
        for (int step = 0; step < 20; step++) {
            struct turn turn;
            draw_turn(&world, &turn);
            struct gm_plan plan = plan_turn(&world, &turn);
            carry_out(&world, &plan);
            for (uint32_t i = 0; i < MAX_APPS; i++)
                apps[i] = (struct gm_layout_app){
                    .app = (i + (uint32_t)seed) % MAX_APPS,
                    .stand = (uint8_t)(GM_STAND_WAITS + draw(&world, 3)),
                    .comes_ahead = draw(&world, 2),
                    .turn = i,
                    .may_have = draw(&world, 2) ? UINT64_MAX : draw(&world, 64) * GM_CHUNK_MIN};
            if (draw(&world, 2))
                apps[0].stand = (uint8_t)draw(&world, 2);
            for (uint32_t at = 0; make(at, MAX_APPS); at++, made++) {
                check_layout(&world.layout, apps, MAX_APPS, GM_CHUNK_MAX);
                assert_int_equal(world.layout.is_ahead, apps[0].stand > GM_STAND_COMES || at > 0);
            }
        }
        end_world(&world);
    }
    assert_true(made > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_now),    cmocka_unit_test(test_growing_first),
        cmocka_unit_test(test_above),  cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_group),  cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

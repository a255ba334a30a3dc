/*
 * core/plan, rule by rule: first without tiers below the GPU (which victims, which frames), then
 * what lies below it. Random worlds, overlapping moves and the search for better plans are in
 * test_plan_tiers.c.
 */
#include "tests/unit/plan_world.h"

/* Two apps of one user and one size class, 60 % of the budget each: exactly what lacks is evicted.
 */
static void test_evicts_only_what_lacks(void **state)
{
    struct world world;
    const uint32_t a = 0, b = 1;
    (void)state;
    make_world(&world, 320 * MIB, 1);
    gm_table_add_app(world.table, a, 1000);
    gm_table_add_app(world.table, b, 1000);
    allocate(&world, a, 192 * MIB);
    allocate(&world, b, 192 * MIB);
    struct gm_plan plan = plan_for(&world, &a, 1, &b, 1);
    assert_true(plan.is_complete);
    assert_int_equal(carry_out(&world, &plan), 0);
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_true(plan.is_complete);
    assert_int_equal(carry_out(&world, &plan), 64 * MIB);
    assert_int_equal(world.table->apps[a].resident, 128 * MIB);
    assert_int_equal(world.table->apps[b].missing, 0);
    plan = plan_for(&world, &a, 1, &b, 1);
    assert_int_equal(carry_out(&world, &plan), 64 * MIB);
    free(world.memory);
}

/* The app named first loses first, and the second only when the first has nothing left. */
static void test_victims_in_order(void **state)
{
    struct world world;
    const uint32_t order[] = {2, 1}, a = 0, everyone[] = {1, 2};
    (void)state;
    make_world(&world, 128 * MIB, 1);
    for (uint32_t i = 0; i < 3; i++)
        gm_table_add_app(world.table, i, 1000);
    allocate(&world, 1, 64 * MIB);
    allocate(&world, 2, 64 * MIB);
    struct gm_plan plan = plan_for(&world, everyone, 2, NULL, 0);
    carry_out(&world, &plan);
    allocate(&world, a, 96 * MIB);
    plan = plan_for(&world, &a, 1, order, 2);
    assert_true(plan.is_complete);
    carry_out(&world, &plan);
    assert_int_equal(world.table->apps[2].resident, 0);
    assert_int_equal(world.table->apps[1].resident, 32 * MIB);
    free(world.memory);
}

/* A frame never passes between users: it is destroyed and made anew. */
static void test_users_share_no_frame(void **state)
{
    struct world world;
    const uint32_t a = 0, b = 1;
    (void)state;
    make_world(&world, 64 * MIB, 1);
    gm_table_add_app(world.table, a, 1000);
    gm_table_add_app(world.table, b, 1001);
    allocate(&world, a, 64 * MIB);
    allocate(&world, b, 32 * MIB);
    struct gm_plan plan = plan_for(&world, &a, 1, NULL, 0);
    carry_out(&world, &plan);
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_int_equal(plan.n, 3);
    assert_int_equal(plan.moves[0].kind, GM_MOVE_EVICT);
    assert_int_equal(plan.moves[1].kind, GM_MOVE_DESTROY);
    assert_int_equal(plan.moves[2].kind, GM_MOVE_FILL);
    assert_int_equal(plan.moves[2].frame, GM_NONE);
    carry_out(&world, &plan);
    free(world.memory);
}

/* A frame on its way out is counted on: planning again in the middle of a switch evicts nothing
 * more. */
static void test_counts_on_leaving_frames(void **state)
{
    struct world world;
    const uint32_t a = 0, b = 1;
    (void)state;
    make_world(&world, 64 * MIB, 1);
    gm_table_add_app(world.table, a, 1000);
    gm_table_add_app(world.table, b, 1000);
    allocate(&world, a, 64 * MIB);
    allocate(&world, b, 32 * MIB);
    struct gm_plan plan = plan_for(&world, &a, 1, NULL, 0);
    carry_out(&world, &plan);
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_int_equal(plan.n, 2);
    const struct gm_chunk *victim = &world.table->chunks[plan.moves[0].chunk];
    uint32_t frame = victim->frame;
    assert_true(gm_table_evict(world.table, plan.moves[0].chunk, 0));
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.moves[0].kind, GM_MOVE_FILL);
    assert_int_equal(plan.moves[0].frame, frame);
    gm_table_set_silent(world.table, a, true); /* then it may never come */
    plan = plan_for(&world, &b, 1, NULL, 0);
    assert_false(plan.is_complete);
    free(world.memory);
}

/* A frame that leaves and that nobody in this plan can use is room, like one that is free. */
static void test_leaving_frames_are_room(void **state)
{
    struct world world;
    const uint32_t a = 0, b = 1;
    (void)state;
    make_world(&world, 64 * MIB, 1);
    gm_table_add_app(world.table, a, 1000);
    gm_table_add_app(world.table, b, 1001);
    allocate(&world, a, 64 * MIB);
    allocate(&world, b, 32 * MIB);
    struct gm_plan plan = plan_for(&world, &a, 1, NULL, 0);
    carry_out(&world, &plan);
    plan = plan_for(&world, &b, 1, &a, 1);
    struct gm_move evicted = plan.moves[0];
    begin_move(&world, &evicted);
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_true(plan.is_complete);
    assert_int_equal(plan.n, 2);
    assert_int_equal(plan.moves[0].kind, GM_MOVE_DESTROY);
    assert_int_equal(plan.moves[0].frame, evicted.frame);
    assert_int_equal(plan.moves[1].kind, GM_MOVE_FILL);
    end_flight(&world, evicted.chunk);
    carry_out(&world, &plan);
    end_world(&world);
}

static void one_random_world(uint64_t seed)
{
    struct world world;
    uint64_t budget, capacity;

    make_world(&world, 0, seed);
    budget = (16 + draw(&world, 200)) * 2 * MIB;
    capacity = budget * 3;
    world.table->budget = budget;
    for (uint32_t app = 0; app < MAX_APPS; app++)
        assert_true(gm_table_add_app(world.table, app, 1000 + (uint32_t)draw(&world, 2)));
    for (int step = 0; step < 60; step++) {
        uint32_t app = (uint32_t)draw(&world, MAX_APPS), targets[MAX_APPS], victims[MAX_APPS];
        uint32_t n_targets = 0, n_victims = 0;
        uint64_t bytes = (1 + draw(&world, 40)) * 2 * MIB, fits = 0, missing = 0;
        if (draw(&world, 4) == 0)
            free_one(&world, app);
        else if (world.table->apps[app].committed + bytes <= budget &&
                 world.table->committed + bytes <= capacity)
            allocate(&world, app, bytes);
        world_check(&world);
        for (uint32_t i = 0; i < MAX_APPS; i++) {
            uint32_t at = (i + app) % MAX_APPS;
            if (fits + world.table->apps[at].committed <= budget) {
                fits += world.table->apps[at].committed;
                missing += world.table->apps[at].committed - world.table->apps[at].resident;
                targets[n_targets++] = at;
            } else {
                victims[n_victims++] = at;
            }
        }
        struct gm_plan plan = plan_for(&world, targets, n_targets, victims, n_victims);
        assert_true(plan.is_complete);
        uint64_t evicted = carry_out(&world, &plan);
        /* never more than is missing, rounded up to one chunk */
        assert_true(evicted <= missing + GM_CHUNK_MAX);
        for (uint32_t i = 0; i < n_targets; i++)
            assert_int_equal(world.table->apps[targets[i]].missing, 0);
    }
    for (uint32_t app = 0; app < MAX_APPS; app++) {
        while (world.table->apps[app].allocations.count > 0)
            free_one(&world, app);
        gm_table_remove_app(world.table, app);
    }
    assert_int_equal(world.table->committed, 0);
    free(world.memory);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++)
        one_random_world(seed);
}

/* ---- below the GPU ---- */

enum { A, B, C, D };
#define CHUNK GM_CHUNK_MAX

/* Chunks of 32 MiB and one user; the window is 8 of them, `pinned` what is beside it. All in
 * chunks. */
static void make_tiers(struct world *world, uint64_t budget, uint64_t pinned, uint64_t paged,
                       uint64_t disk)
{
    make_world(world, budget * CHUNK, 1);
    world->window = 8 * CHUNK;
    world->cap[GM_TIER_PINNED] = (8 + pinned) * CHUNK;
    world->cap[GM_TIER_PAGED] = paged * CHUNK;
    world->cap[GM_TIER_DISK] = disk * CHUNK;
    for (uint32_t app = 0; app < 4; app++)
        gm_table_add_app(world->table, app, 1000);
}

/* App `app` takes its turn; the others lose what it needs, in the order A, B, C, D. */
static struct gm_plan run(struct world *world, uint32_t app)
{
    uint32_t others[3], n = 0;
    for (uint32_t i = 0; i < 4; i++)
        if (i != app)
            others[n++] = i;
    struct gm_plan plan = plan_for(world, &app, 1, others, 3);
    if (plan.is_complete)
        carry_out(world, &plan);
    return plan;
}

static uint64_t chunks_in(const struct world *world, uint32_t app, enum gm_tier tier)
{
    return world->table->apps[app].bytes[tier] / CHUNK;
}

/* The first move of `kind` of app `app` from number `from` on; the plan's end if there is none. */
static uint32_t find_move(const struct world *world, const struct gm_plan *plan, uint32_t from,
                          enum gm_move_kind kind, uint32_t app)
{
    while (from < plan->n && (plan->moves[from].kind != kind ||
                              world->table->chunks[plan->moves[from].chunk].app != app))
        from++;
    return from;
}

/* What is evicted stays in the highest tier that has room: pinned, then paged, then disk; and the
 * farthest next use goes deepest. */
static void test_highest_tier_with_room(void **state)
{
    struct world world;
    (void)state;
    make_tiers(&world, 4, 4, 3, 8);
    for (uint32_t app = A; app <= D; app++)
        allocate(&world, app, 4 * CHUNK);
    run(&world, A);
    struct gm_plan plan = run(&world, B);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), 0);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PINNED), 4);
    plan = run(&world, C); /* A is farther than B, which comes next */
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), 4);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 3);
    assert_int_equal(chunks_in(&world, A, GM_TIER_DISK), 1);
    assert_int_equal(chunks_in(&world, B, GM_TIER_PINNED), 4);
    plan = run(&world, D); /* paged memory is full */
    assert_int_equal(chunks_in(&world, B, GM_TIER_DISK), 4);
    assert_int_equal(chunks_in(&world, C, GM_TIER_PINNED), 4);
    end_world(&world);
}

/* An app that comes back from below: every chunk is promoted before it is filled, and its pages
 * there take what goes down for it. */
static void test_promotes_before_fills(void **state)
{
    struct world world;
    (void)state;
    make_tiers(&world, 4, 0, 8, 0);
    for (uint32_t app = A; app <= C; app++)
        allocate(&world, app, 4 * CHUNK);
    run(&world, A);
    run(&world, B);
    run(&world, C); /* A and B fill paged memory, the window is free */
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 4);
    assert_int_equal(chunks_in(&world, B, GM_TIER_PAGED), 4);
    struct gm_plan plan = run(&world, A);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_PROMOTE), 4);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), 4);
    for (uint32_t i = 0; i < plan.n; i++) {
        if (plan.moves[i].kind != GM_MOVE_FILL)
            continue;
        uint32_t promote = 0;
        while (plan.moves[promote].kind != GM_MOVE_PROMOTE ||
               plan.moves[promote].chunk != plan.moves[i].chunk)
            promote++;
        assert_true(promote < i);
    }
    assert_int_equal(chunks_in(&world, B, GM_TIER_PAGED), 4);
    assert_int_equal(chunks_in(&world, C, GM_TIER_PAGED), 4);
    assert_int_equal(free_in(&world, GM_TIER_PINNED), world.window);
    end_world(&world);
}

/* With room in pinned memory all promotions come before the first eviction. */
static void test_promotes_early(void **state)
{
    struct world world;
    (void)state;
    make_tiers(&world, 4, 8, 8, 0);
    allocate(&world, A, 4 * CHUNK);
    allocate(&world, B, 4 * CHUNK);
    run(&world, A);
    run(&world, B);
    world.cap[GM_TIER_PINNED] = 8 * CHUNK; /* for a while there is no room for A */
    run(&world, B);
    allocate(&world, C, 4 * CHUNK);
    run(&world, C);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 4);
    world.cap[GM_TIER_PINNED] = 32 * CHUNK;
    struct gm_plan plan = run(&world, A);
    assert_int_equal(find_move(&world, &plan, 0, GM_MOVE_EVICT, C), 4);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), 0);
    end_world(&world);
}

/* What is in pinned memory is filled first, each chunk after the eviction that takes its pages. */
static void test_pinned_first(void **state)
{
    struct world world;
    (void)state;
    make_tiers(&world, 4, 2, 8, 0);
    for (uint32_t app = A; app <= B; app++)
        allocate(&world, app, 4 * CHUNK);
    run(&world, A);
    run(&world, B);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PINNED), 2);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 2);
    uint32_t pinned = world.table->apps[A].away[GM_TIER_PINNED].head;
    struct gm_plan plan = run(&world, A);
    uint32_t first = find_move(&world, &plan, 0, GM_MOVE_FILL, A);
    assert_int_equal(plan.moves[first].chunk, pinned);
    assert_int_equal(plan.moves[first - 1].kind, GM_MOVE_EVICT);
    end_world(&world);
}

/* A chunk that was never written has no data: it is filled, and is never promoted, evicted or
 * demoted. */
static void test_never_written(void **state)
{
    struct world world;
    const uint32_t targets[] = {A}, victims[] = {B, C};
    (void)state;
    make_tiers(&world, 4, 0, 8, 8);
    for (uint32_t app = A; app <= C; app++)
        allocate(&world, app, 4 * CHUNK);
    struct gm_plan plan = plan_for(&world, targets, 1, victims, 2);
    assert_int_equal(plan.n, 4);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_FILL), 4);
    carry_out(&world, &plan);
    assert_int_equal(world.bytes[GM_MOVE_FILL], 0);
    end_world(&world);
}

/* With no room anywhere the plan says so, and what it has found is possible. */
static void test_nothing_has_room(void **state)
{
    struct world world;
    const uint32_t b = B, a = A;
    (void)state;
    make_tiers(&world, 16, 0, 2, 0);
    allocate(&world, A, 16 * CHUNK);
    allocate(&world, B, 16 * CHUNK); /* 10 chunks of A find room, of 16 */
    run(&world, A);
    struct gm_plan plan = plan_for(&world, &b, 1, &a, 1);
    assert_false(plan.is_complete);
    assert_true(gm_plan_count(&plan, GM_MOVE_FILL) > 0);
    carry_out(&world, &plan);
    plan = plan_for(&world, &b, 1, &a, 1);
    assert_false(plan.is_complete);
    end_world(&world);
}

/* With no space for more moves the plan ends early, and what it has found is possible. */
static void test_space_for_moves(void **state)
{
    struct world world;
    const uint32_t b = B, a = A;
    (void)state;
    make_tiers(&world, 4, 0, 8, 0);
    allocate(&world, A, 4 * CHUNK);
    allocate(&world, B, 4 * CHUNK);
    run(&world, A);
    int plans = 0;
    for (bool is_complete = false; !is_complete; plans++) {
        struct gm_plan plan = {.moves = world.moves, .capacity = 3};
        set_layout(&world, &b, 1, &a, 1, 1);
        gm_layout_share(world.table, &world.layout);
        gm_plan_make(world.table, &world.layout, &plan);
        assert_true(plan.n > 0 && plan.n <= 3);
        carry_out(&world, &plan);
        is_complete = plan.is_complete;
        assert_true(plans < 12);
    }
    assert_true(plans > 1);
    assert_int_equal(world.table->apps[B].missing, 0);
    end_world(&world);
}

/* Evictions leave the reserve free, and moves that come earlier in the plan what they need. */
static void test_may_take(void **state)
{
    struct gm_layout below = {.window = 8 * CHUNK};
    struct gm_plan_hold hold = {.has_eviction = false};
    const struct gm_move evict = {.kind = GM_MOVE_EVICT}, promote = {.kind = GM_MOVE_PROMOTE};
    const struct gm_move demote = {.kind = GM_MOVE_DEMOTE, .to_tier = GM_TIER_DISK};
    const struct gm_move fill = {.kind = GM_MOVE_FILL, .frame = 7};
    (void)state;
    below.tiers[GM_TIER_PINNED].cap = 9 * CHUNK;
    assert_int_equal(gm_plan_reserve(&below), 0); /* no lower tier */
    below.tiers[GM_TIER_DISK].cap = CHUNK;
    assert_int_equal(gm_plan_reserve(&below), GM_PLAN_RESERVE);
    assert_true(gm_plan_may_take(&hold, &evict, CHUNK, 4 * CHUNK, 3 * CHUNK));
    assert_false(gm_plan_may_take(&hold, &evict, CHUNK, 4 * CHUNK - 1, 3 * CHUNK));
    assert_true(gm_plan_may_take(&hold, &promote, CHUNK, CHUNK, 3 * CHUNK));
    gm_plan_pass_over(&hold, &promote, CHUNK);
    assert_false(gm_plan_may_take(&hold, &promote, CHUNK, CHUNK, 3 * CHUNK));
    assert_false(gm_plan_may_take(&hold, &evict, CHUNK, 4 * CHUNK, 3 * CHUNK));
    assert_true(gm_plan_may_take(&hold, &evict, CHUNK, 5 * CHUNK, 3 * CHUNK));
    gm_plan_pass_over(&hold, &evict, CHUNK);
    assert_false(gm_plan_may_take(&hold, &promote, CHUNK, 5 * CHUNK, 3 * CHUNK));
    assert_true(gm_plan_may_take(&hold, &promote, CHUNK, 6 * CHUNK, 3 * CHUNK));
    assert_true(gm_plan_may_take(&hold, &demote, CHUNK, CHUNK, 3 * CHUNK));
    gm_plan_pass_over(&hold, &demote, CHUNK);
    assert_false(gm_plan_may_take(&hold, &demote, CHUNK, CHUNK, 3 * CHUNK));
    gm_plan_pass_over(&hold, &fill, CHUNK);
    assert_true(gm_plan_may_take(&hold, &fill, CHUNK, 0, 3 * CHUNK)); /* it has its frame */
}

/* What is under way below the GPU is planned with, where it goes: nothing is moved twice. */
static void test_counts_on_flights(void **state)
{
    struct world world;
    const uint32_t a = A, b = B;
    (void)state;
    make_tiers(&world, 4, 0, 8, 0);
    allocate(&world, A, 4 * CHUNK);
    allocate(&world, B, 4 * CHUNK);
    run(&world, A);
    run(&world, B);
    struct gm_plan plan = plan_for(&world, &a, 1, &b, 1);
    uint32_t promote = find_move(&world, &plan, 0, GM_MOVE_PROMOTE, A);
    uint32_t evicted = find_move(&world, &plan, 0, GM_MOVE_EVICT, B);
    struct gm_move moves[] = {plan.moves[promote], plan.moves[evicted]};
    uint32_t evictions = gm_plan_count(&plan, GM_MOVE_EVICT);
    uint32_t demotions = gm_plan_count(&plan, GM_MOVE_DEMOTE);
    begin_move(&world, &moves[0]);
    begin_move(&world, &moves[1]);
    plan = plan_for(&world, &a, 1, &b, 1);
    assert_true(plan.is_complete);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_EVICT), evictions - 1);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), demotions);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_PROMOTE), 3);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_FILL), 4);
    end_flight(&world, moves[0].chunk);
    end_flight(&world, moves[1].chunk);
    carry_out(&world, &plan);
    assert_int_equal(world.table->apps[A].missing, 0);
    end_world(&world);
}

/* ---- ahead ---- */

/* Free room on the GPU is filled, from wherever the chunk is; what does not fit there is promoted
 * as far as the window permits; nothing leaves the GPU. */
static void test_ahead_fills_and_promotes(void **state)
{
    struct world world;
    const uint32_t a = A;
    (void)state;
    make_tiers(&world, 8, 0, 16, 0);
    allocate(&world, A, 6 * CHUNK);
    allocate(&world, B, 8 * CHUNK);
    run(&world, A);
    run(&world, B);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 6);
    free_one(&world, B);
    allocate(&world, B, 6 * CHUNK);
    run(&world, B); /* two free frames */
    world.cap[GM_TIER_PINNED] += 3 * CHUNK;
    struct gm_plan plan = plan_ahead(&world, a, NULL, 0, 0);
    assert_false(plan.is_complete);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_FILL), 2);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_PROMOTE), 5);
    assert_int_equal(carry_out(&world, &plan), 0);
    assert_int_equal(world.table->apps[A].resident, 2 * CHUNK);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PINNED), 3);
    assert_int_equal(free_in(&world, GM_TIER_PINNED), world.window);
    end_world(&world);
}

/* With all tiers full, a later app's pinned data and a nearer one's data below change places. */
static void test_ahead_exchanges(void **state)
{
    struct world world;
    const uint32_t a = A, b = B, c = C;
    (void)state;
    make_tiers(&world, 4, 2, 2, 4);
    for (uint32_t app = A; app <= C; app++)
        allocate(&world, app, 4 * CHUNK);
    run(&world, A);
    run(&world, B);
    run(&world, C);
    for (uint32_t app = A; app <= B; app++)
        assert_int_equal(chunks_in(&world, app, GM_TIER_DISK), 2);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 2);
    assert_int_equal(chunks_in(&world, B, GM_TIER_PINNED), 2);
    struct gm_plan plan = plan_ahead(&world, a, &b, 1, 0);
    carry_out(&world, &plan);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_PROMOTE), 2);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DEMOTE), 2);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PINNED), 2);
    assert_int_equal(chunks_in(&world, A, GM_TIER_PAGED), 2); /* from the disk first */
    assert_int_equal(chunks_in(&world, B, GM_TIER_DISK), 4);
    assert_int_equal(free_in(&world, GM_TIER_PINNED), world.window);
    /* nothing of a later app is pinned any more, and nothing is demoted for nothing */
    plan = plan_ahead(&world, a, &b, 1, 0);
    assert_int_equal(plan.n, 0);
    plan = plan_ahead(&world, a, &c, 1, 0);
    assert_int_equal(plan.n, 0);
    end_world(&world);
}

/* Three apps in turn, with room for one and a half: when its turn comes, half of each is there. */
static void test_ahead_takes_what_makes_way(void **state)
{
    struct world world;
    uint32_t victims[2];
    (void)state;
    make_tiers(&world, 6, 16, 0, 0);
    for (uint32_t app = A; app <= C; app++)
        allocate(&world, app, 4 * CHUNK);
    for (uint32_t turn = 0; turn < 9; turn++) {
        uint32_t now = A + turn % 3, next = A + (turn + 1) % 3, last = A + (turn + 2) % 3;
        victims[0] = last;
        victims[1] = next;
        struct gm_plan plan = plan_for(&world, &now, 1, victims, 2);
        carry_out(&world, &plan);
        if (turn > 3) {
            assert_int_equal(gm_plan_count(&plan, GM_MOVE_FILL), 2);
            assert_int_equal(gm_plan_count(&plan, GM_MOVE_EVICT), 2);
        }
        plan = plan_ahead(&world, next, &last, 1, 1);
        carry_out(&world, &plan);
        if (turn > 3) {
            assert_int_equal(world.table->apps[next].resident, 2 * CHUNK);
            assert_int_equal(world.table->apps[last].resident, 0);
        }
        plan = plan_ahead(&world, next, &last, 1, 1);
        assert_int_equal(plan.n, 0); /* there is no more to give */
    }
    end_world(&world);
}

/* Room for `budget` chunks; A and C are of one user, B of another, with so many chunks each. */
static void make_users(struct world *world, uint64_t budget, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t chunks[] = {a, b, c};
    make_world(world, budget * CHUNK, 1);
    for (uint32_t app = A; app <= C; app++) {
        gm_table_add_app(world->table, app, app == B ? 1001 : 1000);
        allocate(world, app, chunks[app - A] * CHUNK);
    }
}

/* Another user makes way as well, but its frames are made anew. */
static void test_ahead_of_another_user(void **state)
{
    struct world world;
    const uint32_t b = B, c = C;
    (void)state;
    make_users(&world, 4, 2, 2, 2);
    run(&world, A);
    run(&world, B);
    run(&world, C);
    assert_int_equal(world.table->apps[A].resident, 0);
    struct gm_plan plan = plan_ahead(&world, A, &c, 1, 1);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_EVICT), 2);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DESTROY), 0);
    plan = plan_ahead(&world, A, &b, 1, 1);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_EVICT), 2);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DESTROY), 2);
    assert_int_equal(carry_out(&world, &plan), 2 * CHUNK);
    assert_int_equal(world.table->apps[A].resident, 2 * CHUNK);
    end_world(&world);
}

/* Free frames of another user are made anew. */
static void test_ahead_frames_of_others(void **state)
{
    struct world world;
    const uint32_t b = B;
    (void)state;
    make_users(&world, 2, 1, 2, 1);
    struct gm_plan plan = plan_for(&world, &b, 1, NULL, 0);
    carry_out(&world, &plan);
    free_one(&world, B);
    plan = plan_ahead(&world, A, NULL, 0, 0);
    assert_true(plan.is_complete);
    assert_int_equal(gm_plan_count(&plan, GM_MOVE_DESTROY), 1);
    carry_out(&world, &plan);
    assert_int_equal(world.table->apps[A].missing, 0);
    end_world(&world);
}

/* A plan that is made again halfway, with frames of another user and size on their way out and some
 * free already, evicts no more than was lacking. */
static void test_ahead_made_again(void **state)
{
    struct world world;
    const uint32_t b = B;
    uint64_t evicted = 0;
    (void)state;
    make_world(&world, 16 * CHUNK, 1);
    gm_table_add_app(world.table, A, 1000);
    gm_table_add_app(world.table, B, 1001);
    allocate(&world, A, 8 * CHUNK);
    for (uint32_t i = 0; i < 32; i++)
        allocate(&world, B, CHUNK / 2);
    struct gm_plan plan = plan_for(&world, &b, 1, NULL, 0);
    carry_out(&world, &plan);
    while (world.table->apps[A].missing > 0) {
        plan = plan_ahead(&world, A, &b, 1, 1);
        assert_true(plan.n > 0);
        plan.n = 1; /* and then another one is made */
        evicted += carry_out(&world, &plan);
    }
    assert_int_equal(evicted, 8 * CHUNK);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evicts_only_what_lacks),
        cmocka_unit_test(test_victims_in_order),
        cmocka_unit_test(test_users_share_no_frame),
        cmocka_unit_test(test_counts_on_leaving_frames),
        cmocka_unit_test(test_leaving_frames_are_room),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_highest_tier_with_room),
        cmocka_unit_test(test_promotes_before_fills),
        cmocka_unit_test(test_promotes_early),
        cmocka_unit_test(test_pinned_first),
        cmocka_unit_test(test_never_written),
        cmocka_unit_test(test_nothing_has_room),
        cmocka_unit_test(test_space_for_moves),
        cmocka_unit_test(test_may_take),
        cmocka_unit_test(test_counts_on_flights),
        cmocka_unit_test(test_ahead_fills_and_promotes),
        cmocka_unit_test(test_ahead_exchanges),
        cmocka_unit_test(test_ahead_frames_of_others),
        cmocka_unit_test(test_ahead_made_again),
        cmocka_unit_test(test_ahead_takes_what_makes_way),
        cmocka_unit_test(test_ahead_of_another_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

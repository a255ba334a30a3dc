/*
 * core/plan in random worlds with all tiers, seeded.
 *
 * In order: every plan is possible move by move, complete, leaves its targets on the GPU and the
 * window free; what was never written is not moved; the same input gives the same plan.
 *
 * Overlapping: moves begin and end in random order under the rule that plan.h states, with plans
 * dropped and made anew for other targets in the middle: it always ends.
 *
 * Switches: beside a closed tier nobody is taken apart for a target that does not become whole.
 */
#include "common/clock.h"
#include "tests/unit/plan_tiers_world.h"

static bool has_closed_tier(const struct world *world)
{
    return world->is_closed[GM_TIER_PAGED] || world->is_closed[GM_TIER_DISK];
}

/*
 * As a switch plans, beside the world's plan; *n_kept: for how many of the targets. While a tier is
 * closed nobody is taken apart for a target that does not become whole, unless it grows. (What is
 * under way can keep a part of it from having a place on the GPU yet.)
 */
static struct gm_plan switch_turn(struct world *world, const struct turn *turn, bool is_growing,
                                  uint32_t *n_kept)
{
    static struct gm_move moves[MAX_MOVES];
    set_layout(world, turn->targets, turn->n_targets, turn->victims, turn->n_victims,
               turn->n_victims);
    struct gm_plan plan = {.moves = moves, .capacity = MAX_MOVES};
    world->layout.is_growing = is_growing;
    gm_layout_share(world->table, &world->layout);
    *n_kept = gm_plan_switch(world->table, &world->layout, &plan);
    check_closed(world, &plan);
    if (has_closed_tier(world) && !is_growing && gm_plan_count(&plan, GM_MOVE_EVICT) > 0)
        assert_true(*n_kept > 0 && (plan.is_complete || world->n_flying + world->n_ends > 0));
    return plan;
}

static struct gm_plan plan_either(struct world *world, const struct turn *turn, bool switches)
{
    uint32_t n_kept;
    return switches ? switch_turn(world, turn, false, &n_kept) : plan_turn(world, turn);
}

static void check_window(const struct world *world)
{
    if (free_in(world, GM_TIER_PINNED) < world->window) {
        assert_true(free_in(world, GM_TIER_PAGED) < GM_CHUNK_MAX);
        assert_true(free_in(world, GM_TIER_DISK) < GM_CHUNK_MAX);
    }
}

static void check_never_written(const struct world *world, const struct gm_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->moves[i].kind != GM_MOVE_FILL && plan->moves[i].kind != GM_MOVE_DESTROY)
            assert_int_not_equal(world->table->chunks[plan->moves[i].chunk].tier, GM_TIER_NONE);
}

static void change_allocations(struct world *world, enum sizes sizes)
{
    for (uint64_t n = draw(world, 4); n > 0; n--)
        free_one(world, (uint32_t)draw(world, MAX_APPS));
    fill_up(world, sizes);
    world_check(world);
}

/*
 * Where every tier is full, a plan may have to stop halfway because what would give pages back
 * comes later for its urgency; the next one goes on. That is rare.
 */
struct counts {
    uint32_t plans, incomplete;
};

static void in_order(uint64_t seed, struct counts *counts)
{
    static struct gm_move again[MAX_MOVES];
    struct world world;
    enum sizes sizes = make_full_world(&world, seed);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        if (draw(&world, 5) == 0)
            change_allocations(&world, sizes);
        draw_turn(&world, &turn);
        struct gm_plan plan = plan_turn(&world, &turn);
        memcpy(again, plan.moves, plan.n * sizeof *again);
        uint32_t n = plan.n;
        plan = plan_turn(&world, &turn);
        assert_int_equal(plan.n, n);
        assert_memory_equal(again, plan.moves, n * sizeof *again);
        check_never_written(&world, &plan);
        carry_out(&world, &plan);
        counts->plans++;
        for (int more = 0; !plan.is_complete && more < 4; more++) {
            counts->incomplete++;
            plan = plan_turn(&world, &turn);
            carry_out(&world, &plan);
        }
        if (!plan.is_complete)
            fail_msg("seed %llu: not complete", (unsigned long long)seed);
        assert_int_equal(missing_of(&world, &turn), 0);
        check_window(&world);
    }
    end_world(&world);
}

static void test_in_order(void **state)
{
    struct counts counts = {0, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 300 / GM_SLOW; seed++)
        in_order(seed, &counts);
    assert_true(counts.incomplete * 500 <= counts.plans);
}

/* One of the moves that are ready: any, or with `is_partial` any of the kind that is preferred
 * most. */
static uint32_t pick_move(struct world *world, const struct gm_plan *plan, const uint32_t *ready,
                          uint32_t n_ready, const uint8_t *rank, bool is_partial)
{
    uint32_t best = ready[draw(world, n_ready)];
    for (uint32_t i = 0; is_partial && i < n_ready; i++)
        if (rank[plan->moves[ready[i]].kind] < rank[plan->moves[best].kind])
            best = ready[i];
    return best;
}

/*
 * Overlapping moves: whatever is ready begins, or something under way ends, at random, or with a
 * preference for some kinds of moves over others. Now and then the plan is dropped, what is under
 * way goes on, and a plan for the same or for other targets follows. With `closes` the disk is
 * closed and open again in between, and where nothing goes on without it, it is opened: then there
 * is a way again. Counts the turns that ended while it was closed. With `switches` the plans are
 * those of switches.
 */
static void overlapping(uint64_t seed, bool closes, bool switches, uint32_t *closed_ends)
{
    uint8_t rank[GM_MOVE_PROMOTE + 1];
    static bool has_begun[MAX_MOVES];
    static uint32_t ready[MAX_MOVES];
    struct world world;
    struct turn turn;
    struct gm_plan plan;
    uint64_t plans = 0, left = 0, drops = 0, haste, steps = 0;
    bool has_changed; /* since the plan was made */

    make_full_world(&world, seed);
    for (unsigned kind = 0; kind <= GM_MOVE_PROMOTE; kind++)
        rank[kind] = (uint8_t)draw(&world, 8);
    bool is_partial = draw(&world, 2);
    haste = 1 + draw(&world, 20); /* beginning is so much more likely than ending */
    for (int round = 0; round < 12; round++) {
        draw_turn(&world, &turn);
        world.is_closed[GM_TIER_DISK] = closes && draw(&world, 2) == 0;
        plan = plan_either(&world, &turn, switches);
        memset(has_begun, 0, sizeof has_begun);
        drops = draw(&world, 80);
        plans = 0;
        has_changed = false;
        for (;;) {
            struct gm_plan_hold hold = {.has_eviction = false};
            uint32_t n_ready = 0, n_ends = world.n_flying + world.n_ends;
            left = 0;
            for (uint32_t i = 0; i < plan.n; i++) {
                const struct gm_move *move = &plan.moves[i];
                if (has_begun[i])
                    continue;
                left++;
                if (is_ready(&world, move) && may_take(&world, &hold, move))
                    ready[n_ready++] = i;
                gm_plan_pass_over(&hold, move, move_bytes(&world, move));
            }
            bool drop = drops > 0 && draw(&world, 16) == 0;
            if (!drop && n_ready + n_ends == 0) {
                if (left > 0)
                    fail_msg("seed %llu: %u moves are stuck", (unsigned long long)seed,
                             (unsigned)left);
                if (missing_of(&world, &turn) == 0)
                    break;
                if (world.is_closed[GM_TIER_DISK] && plan.n == 0)
                    world.is_closed[GM_TIER_DISK] = false;
                else if ((plan.n == 0 && !has_changed) || ++plans > 100)
                    fail_msg("seed %llu: no way on", (unsigned long long)seed);
                drop = true;
            } else if (drop) {
                drops--;
                if (draw(&world, 2))
                    draw_turn(&world, &turn);
                if (closes && draw(&world, 4) == 0)
                    world.is_closed[GM_TIER_DISK] = !world.is_closed[GM_TIER_DISK];
            }
            if (drop) {
                plan = plan_either(&world, &turn, switches);
                check_never_written(&world, &plan);
                memset(has_begun, 0, sizeof has_begun);
                has_changed = false;
                continue;
            }
            has_changed = true;
            if (n_ready > 0 && (n_ends == 0 || draw(&world, haste + 1) > 0)) {
                uint32_t i = pick_move(&world, &plan, ready, n_ready, rank, is_partial);
                has_begun[i] = true;
                begin_move(&world, &plan.moves[i]);
            } else if (draw(&world, n_ends) < world.n_flying) {
                end_flight(&world, world.flying[draw(&world, world.n_flying)]);
            } else {
                end_destroy(&world, (uint32_t)draw(&world, world.n_ends));
            }
            if (++steps % 4 == 0)
                world_check(&world);
        }
        world_check(&world);
        *closed_ends += world.is_closed[GM_TIER_DISK] && world.cap[GM_TIER_DISK] > 0;
    }
    end_world(&world);
}

static void test_overlapping(void **state)
{
    uint32_t closed_ends = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 500 / GM_SLOW; seed++)
        overlapping(seed, false, false, &closed_ends);
    overlapping(3767, false, false, &closed_ends); /* ends only with the reserve */
    assert_int_equal(closed_ends, 0);
}

static void test_overlapping_beside_a_closed_disk(void **state)
{
    uint32_t closed_ends = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 400 / GM_SLOW; seed++)
        overlapping(seed, true, seed % 2 == 0, &closed_ends);
    assert_true(closed_ends > 200 / GM_SLOW);
}

/*
 * The plans of switches, move by move. While nothing is closed they are plain plans. Else as many
 * targets become whole as there is room for, the last being given up first; and if not even the
 * first of all does, nobody is taken apart for it, unless it grows.
 */
struct switches {
    uint32_t plain;                   /* nothing was closed */
    uint32_t all, fewer;              /* kept */
    uint32_t empty, partial, growing; /* nobody was: no plan, one without evictions, one with */
};

static void check_same(const struct gm_plan *a, const struct gm_plan *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->is_complete, b->is_complete);
    assert_int_equal(a->lacks_room, b->lacks_room);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->moves[i].kind, b->moves[i].kind);
        assert_int_equal(a->moves[i].to_tier, b->moves[i].to_tier);
        assert_int_equal(a->moves[i].chunk, b->moves[i].chunk);
        assert_int_equal(a->moves[i].frame, b->moves[i].frame);
    }
}

/*
 * A switch's plan for its first `n_kept` targets beside plain plans: nobody is given up without
 * need, and for those that are kept it is the plain one. If nobody is, what needs no eviction is
 * done for the first.
 */
static void check_switch(struct world *world, const struct turn *turn, const struct gm_plan *plan,
                         uint32_t n_kept, bool is_growing)
{
    struct turn fewer = *turn;
    assert_true(n_kept <= turn->n_targets);
    assert_true(has_closed_tier(world) || n_kept == turn->n_targets);
    for (; fewer.n_targets > n_kept; fewer.n_targets--)
        assert_true(plan_turn(world, &fewer).lacks_room);
    fewer.n_targets = n_kept > 0 ? n_kept : 1;
    struct gm_plan plain = plan_turn(world, &fewer);
    if (n_kept > 0 || is_growing || gm_plan_count(&plain, GM_MOVE_EVICT) == 0)
        check_same(plan, &plain);
    else
        assert_int_equal(plan->n, 0);
    assert_true(!has_closed_tier(world) || plan->is_complete == (n_kept > 0));
}

static void count_switch(struct switches *counts, const struct world *world,
                         const struct turn *turn, const struct gm_plan *plan, uint32_t n_kept)
{
    if (!has_closed_tier(world))
        counts->plain++;
    else if (n_kept == turn->n_targets)
        counts->all++;
    else if (n_kept > 0)
        counts->fewer++;
    else if (plan->n == 0)
        counts->empty++;
    else if (gm_plan_count(plan, GM_MOVE_EVICT) == 0)
        counts->partial++;
    else
        counts->growing++;
}

static void switching(uint64_t seed, struct switches *counts)
{
    struct world world;
    enum sizes sizes = make_full_world(&world, seed);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint32_t n_kept;
        if (draw(&world, 5) == 0)
            change_allocations(&world, sizes);
        draw_turn(&world, &turn);
        world.is_closed[GM_TIER_DISK] = draw(&world, 3) > 0;
        world.is_closed[GM_TIER_PAGED] = draw(&world, 6) == 0;
        const bool is_growing = draw(&world, 4) == 0;
        struct gm_plan plan = switch_turn(&world, &turn, is_growing, &n_kept);
        check_switch(&world, &turn, &plan, n_kept, is_growing);
        count_switch(counts, &world, &turn, &plan, n_kept);
        carry_out(&world, &plan);
        for (uint32_t i = 0; plan.is_complete && i < n_kept; i++)
            assert_int_equal(world.table->apps[turn.targets[i]].missing, 0);
    }
    end_world(&world);
}

static void test_switches(void **state)
{
    struct switches counts = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= 300 / GM_SLOW; seed++)
        switching(seed, &counts);
    /* each of them was seen */
    assert_true(counts.plain > 500 / GM_SLOW && counts.all > 500 / GM_SLOW);
    assert_true(counts.fewer > 100 / GM_SLOW && counts.empty > 100 / GM_SLOW);
    assert_true(counts.partial > 0 && counts.growing > 0);
}

/* What finds a place in paged memory goes there, though it would be the disk's. */
static void test_closed_disk(void **state)
{
    struct world world;
    (void)state;
    make_world(&world, 16 * GM_CHUNK_MAX, 1);
    world.window = GM_PLAN_WINDOW_MIN;
    world.cap[GM_TIER_PINNED] = GM_PLAN_WINDOW_MIN + 8 * GM_CHUNK_MAX;
    world.cap[GM_TIER_PAGED] = 8 * GM_CHUNK_MAX;
    world.cap[GM_TIER_DISK] = 64 * GM_CHUNK_MAX;
    for (uint32_t app = 0; app < 3; app++) {
        assert_true(gm_table_add_app(world.table, app, 1000));
        allocate(&world, app, 16 * GM_CHUNK_MAX);
    }
    for (uint32_t app = 0; app < 2; app++) { /* the first one's half is pinned, half paged */
        const uint32_t before = app - 1;
        struct gm_plan plan = plan_for(&world, &app, 1, &before, app);
        assert_true(plan.is_complete);
        carry_out(&world, &plan);
    }
    const uint32_t target = 2, victims[] = {0, 1};
    struct gm_plan plan = plan_for(&world, &target, 1, victims, 2);
    assert_true(plan.is_complete);
    world.is_closed[GM_TIER_DISK] = true;
    plan = plan_for(&world, &target, 1, victims, 2);
    check_closed(&world, &plan);
    assert_false(plan.is_complete);
    assert_true(plan.n > 0); /* what pinned memory has room for beside the reserve */
    carry_out(&world, &plan);
    assert_int_equal(world.bytes_to[GM_TIER_DISK], 0);
    world.cap[GM_TIER_PAGED] = 24 * GM_CHUNK_MAX;
    plan = plan_for(&world, &target, 1, victims, 2);
    assert_true(plan.is_complete);
    carry_out(&world, &plan);
    assert_int_equal(world.bytes_to[GM_TIER_DISK], 0);
    assert_int_equal(world.table->apps[target].missing, 0);
    end_world(&world);
}

/*
 * Ahead of a turn in worlds like these: nothing leaves the GPU but what makes way, every move is
 * possible in its turn, and the window is as free as it was.
 * Then the app takes its turn, whole.
 */
static void check_way(const struct world *world, const struct gm_plan *plan,
                      const struct turn *turn, uint32_t n_donors)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        uint32_t at = 0;
        if (move->kind == GM_MOVE_FILL || move->kind == GM_MOVE_PROMOTE)
            assert_int_equal(world->table->chunks[move->chunk].app, turn->targets[0]);
        if (move->kind != GM_MOVE_EVICT)
            continue;
        while (at < n_donors && turn->victims[at] != world->table->chunks[move->chunk].app)
            at++;
        assert_true(at < n_donors);
    }
}

/* For one app after the other, each before those that come later, as long as there is something: it
 * comes to an end, and what is brought up for one does not go down for it again. */
static void check_ahead_ends(struct world *world, const struct turn *turn)
{
    unsigned plans = 0;
    for (uint32_t i = 0; i < turn->n_victims;) {
        const uint32_t next = turn->n_victims - 1 - i;
        struct gm_plan plan = plan_ahead(world, turn->victims[next], turn->victims, next, next);
        i = plan.n > 0 ? 0 : i + 1;
        carry_out(world, &plan);
        assert_true(++plans < 64 * MAX_APPS);
    }
}

static void going_ahead(uint64_t seed)
{
    struct world world;
    enum sizes sizes = make_full_world(&world, seed);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint64_t demoted, promoted, written, before;
        if (draw(&world, 3) == 0)
            change_allocations(&world, sizes);
        draw_turn(&world, &turn);
        const uint32_t app = turn.targets[0];
        before = free_in(&world, GM_TIER_PINNED);
        promoted = world.bytes[GM_MOVE_PROMOTE];
        demoted = world.bytes[GM_MOVE_DEMOTE];
        written = world.table->apps[app].bytes[GM_TIER_NONE];
        const uint32_t n_donors = (uint32_t)draw(&world, turn.n_victims + 1);
        struct gm_plan plan = plan_ahead(&world, app, turn.victims, turn.n_victims, n_donors);
        check_way(&world, &plan, &turn, n_donors);
        carry_out(&world, &plan);
        assert_true(free_in(&world, GM_TIER_PINNED) >=
                    (before < world.window ? before : world.window));
        assert_int_equal(plan.is_complete, world.table->apps[app].missing == 0);
        /* what goes down brings as much up, but for the window if that was not free, for what was
         * never written, and for the last chunk that leaves or is promoted */
        promoted = world.bytes[GM_MOVE_PROMOTE] - promoted;
        demoted = world.bytes[GM_MOVE_DEMOTE] - demoted;
        before = before < world.window ? world.window - before : 0;
        assert_true(demoted <= promoted + before + written + 2 * GM_CHUNK_MAX);
        check_ahead_ends(&world, &turn);
        do {
            plan = plan_turn(&world, &turn);
            carry_out(&world, &plan);
        } while (!plan.is_complete);
        assert_int_equal(missing_of(&world, &turn), 0);
        check_window(&world);
    }
    end_world(&world);
}

static void test_ahead(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300 / GM_SLOW; seed++)
        going_ahead(seed);
}

/* What a promotion leaves to evictions: half of the window, or what chunks as small as it need. */
static void test_room_beside_promotions(void **state)
{
    const uint64_t ample = 4096 * MIB, large = 1024 * MIB, least = GM_PLAN_WINDOW_MIN;
    (void)state;
    assert_true(gm_plan_leaves_room(32 * MIB, ample, 544 * MIB, large, GM_PLAN_RESERVE));
    assert_false(gm_plan_leaves_room(32 * MIB, ample, 542 * MIB, large, GM_PLAN_RESERVE));
    assert_true(gm_plan_leaves_room(2 * MIB, ample, 514 * MIB, large, GM_PLAN_RESERVE));
    assert_false(gm_plan_leaves_room(2 * MIB, ample, 512 * MIB, large, GM_PLAN_RESERVE));
    assert_true(gm_plan_leaves_room(32 * MIB, ample, 144 * MIB, least, GM_PLAN_RESERVE));
    assert_false(gm_plan_leaves_room(32 * MIB, ample, 142 * MIB, least, GM_PLAN_RESERVE));
    assert_true(gm_plan_leaves_room(2 * MIB, ample, 102 * MIB, least, GM_PLAN_RESERVE));
    assert_false(gm_plan_leaves_room(2 * MIB, ample, 100 * MIB, least, GM_PLAN_RESERVE));
    /* from a tier in which nothing has room it goes first */
    assert_true(gm_plan_leaves_room(32 * MIB, 30 * MIB, 32 * MIB, large, GM_PLAN_RESERVE));
    assert_false(gm_plan_leaves_room(32 * MIB, 32 * MIB, 32 * MIB, large, GM_PLAN_RESERVE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),    cmocka_unit_test(test_overlapping),
        cmocka_unit_test(test_ahead),       cmocka_unit_test(test_room_beside_promotions),
        cmocka_unit_test(test_closed_disk), cmocka_unit_test(test_overlapping_beside_a_closed_disk),
        cmocka_unit_test(test_switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
 *
 * LRU: a plain LRU planner never moves less.
 *
 * Search: all ways to take chunks away (small worlds): none is better by the objective.
 */
#include "tests/unit/plan_world.h"

/* How the sizes of allocations are drawn. */
enum sizes { SIZES_EQUAL, SIZES_SMALL, SIZES_MIXED, SIZES };

static uint64_t draw_size(struct world *world, enum sizes sizes)
{
    switch (sizes) {
    case SIZES_EQUAL:
        return (1 + draw(world, 4)) * GM_CHUNK_MAX;
    case SIZES_SMALL:
        return (1 + draw(world, 31)) * GM_CHUNK_MIN;
    case SIZES_MIXED:
    case SIZES:
        break;
    }
    return (1 + draw(world, draw(world, 2) ? 100 : 10)) * GM_CHUNK_MIN;
}

static uint64_t capacity_of(const struct world *world)
{
    uint64_t bytes = world->table->budget - world->window;
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        bytes += world->cap[t];
    return bytes;
}

static void make_tiered_world(struct world *world, uint64_t seed)
{
    make_world(world, 0, seed);
    world->table->budget = (64 + draw(world, 256)) * GM_CHUNK_MIN;
    world->window =
        GM_PLAN_WINDOW_MIN + (draw(world, 3) == 0 ? draw(world, 100) * GM_CHUNK_MIN : 0);
    world->cap[GM_TIER_PINNED] = world->window;
    if (draw(world, 4) > 0)
        world->cap[GM_TIER_PINNED] += draw(world, 200) * GM_CHUNK_MIN;
    for (unsigned t = GM_TIER_PAGED; t < GM_TIERS; t++)
        world->cap[t] = draw(world, 3) == 0 ? 0 : draw(world, 300) * GM_CHUNK_MIN;
    world->tells_ending = draw(world, 2) == 0;
    unsigned users = 1 + (unsigned)draw(world, 2);
    for (uint32_t app = 0; app < MAX_APPS; app++)
        assert_true(gm_table_add_app(world->table, app, 1000 + (uint32_t)draw(world, users)));
}

/* Allocate until the tiers are full, or nearly. */
static void fill_up(struct world *world, enum sizes sizes)
{
    for (int attempt = 0; attempt < 60; attempt++) {
        uint32_t app = (uint32_t)draw(world, MAX_APPS);
        uint64_t bytes = draw_size(world, sizes);
        if (world->table->committed + bytes > capacity_of(world))
            bytes = sizes == SIZES_EQUAL ? 0 : capacity_of(world) - world->table->committed;
        if (bytes == 0 || world->table->apps[app].committed + bytes > world->table->budget ||
            world->table->used_chunks + gm_chunk_count(bytes) > MAX_CHUNKS)
            continue;
        allocate(world, app, bytes);
    }
}

/* Apps in the order of their next use: targets that fit together, then the others, farthest first.
 */
struct turn {
    uint32_t targets[MAX_APPS], victims[MAX_APPS];
    uint32_t n_targets, n_victims;
};

static void draw_turn(struct world *world, struct turn *turn)
{
    uint32_t order[MAX_APPS];
    uint64_t fits = 0;
    for (uint32_t i = 0; i < MAX_APPS; i++)
        order[i] = i;
    for (uint32_t i = MAX_APPS; i > 1; i--) {
        uint32_t j = (uint32_t)draw(world, i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    *turn = (struct turn){.n_targets = 0};
    uint32_t most = 1 + (uint32_t)draw(world, 4), n_rest = 0, rest[MAX_APPS];
    for (uint32_t i = 0; i < MAX_APPS; i++) {
        uint64_t bytes = world->table->apps[order[i]].committed;
        if (turn->n_targets < most && fits + bytes <= world->table->budget) {
            fits += bytes;
            turn->targets[turn->n_targets++] = order[i];
        } else {
            rest[n_rest++] = order[i];
        }
    }
    while (n_rest > 0)
        turn->victims[turn->n_victims++] = rest[--n_rest];
}

static void check_closed(const struct world *world, const struct gm_plan *plan)
{
    for (uint32_t i = 0; world->is_closed && i < plan->n; i++)
        if (plan->moves[i].kind == GM_MOVE_LOWER)
            assert_int_not_equal(plan->moves[i].to_tier, GM_TIER_DISK);
    for (uint32_t i = 0; world->is_paged_closed && i < plan->n; i++)
        if (plan->moves[i].kind == GM_MOVE_LOWER)
            assert_int_not_equal(plan->moves[i].to_tier, GM_TIER_PAGED);
}

static struct gm_plan plan_turn(struct world *world, const struct turn *turn)
{
    struct gm_plan plan =
        plan_for(world, turn->targets, turn->n_targets, turn->victims, turn->n_victims);
    check_closed(world, &plan);
    return plan;
}

static uint32_t evictions_of(const struct gm_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        n += plan->moves[i].kind == GM_MOVE_EVICT;
    return n;
}

static bool has_closed_tier(const struct world *world)
{
    return world->is_closed || world->is_paged_closed;
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
    struct gm_plan_input input = {.targets = turn->targets,
                                  .n_targets = turn->n_targets,
                                  .victims = turn->victims,
                                  .n_victims = turn->n_victims,
                                  .is_growing = is_growing};
    struct gm_plan plan = {.moves = moves, .capacity = MAX_MOVES};
    world_input(world, &input);
    *n_kept = gm_plan_switch(world->table, &input, &plan);
    check_closed(world, &plan);
    if (has_closed_tier(world) && !is_growing && evictions_of(&plan) > 0)
        assert_true(*n_kept > 0 && (plan.is_complete || world->n_flying + world->n_ends > 0));
    return plan;
}

static struct gm_plan plan_either(struct world *world, const struct turn *turn, bool switches)
{
    uint32_t n_kept;
    return switches ? switch_turn(world, turn, false, &n_kept) : plan_turn(world, turn);
}

static uint32_t missing_of(const struct world *world, const struct turn *turn)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < turn->n_targets; i++)
        missing += world->table->apps[turn->targets[i]].missing;
    return missing;
}

/* The window is free, or nothing that is pinned has room below. */
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
    make_tiered_world(&world, seed);
    enum sizes sizes = (enum sizes)draw(&world, SIZES);
    fill_up(&world, sizes);
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
    for (uint64_t seed = 1; seed <= 300; seed++)
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
    uint8_t rank[GM_MOVE_RAISE + 1];
    static bool has_begun[MAX_MOVES];
    static uint32_t ready[MAX_MOVES];
    struct world world;
    struct turn turn;
    struct gm_plan plan;
    uint64_t plans = 0, left = 0, drops = 0, haste, steps = 0;
    bool has_changed; /* since the plan was made */

    make_tiered_world(&world, seed);
    enum sizes sizes = (enum sizes)draw(&world, SIZES);
    fill_up(&world, sizes);
    for (unsigned kind = 0; kind <= GM_MOVE_RAISE; kind++)
        rank[kind] = (uint8_t)draw(&world, 8);
    bool is_partial = draw(&world, 2);
    haste = 1 + draw(&world, 20); /* beginning is so much more likely than ending */
    for (int round = 0; round < 12; round++) {
        draw_turn(&world, &turn);
        world.is_closed = closes && draw(&world, 2) == 0;
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
                if (world.is_closed && plan.n == 0)
                    world.is_closed = false;
                else if ((plan.n == 0 && !has_changed) || ++plans > 100)
                    fail_msg("seed %llu: no way on", (unsigned long long)seed);
                drop = true;
            } else if (drop) {
                drops--;
                if (draw(&world, 2))
                    draw_turn(&world, &turn);
                if (closes && draw(&world, 4) == 0)
                    world.is_closed = !world.is_closed;
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
        *closed_ends += world.is_closed && world.cap[GM_TIER_DISK] > 0;
    }
    end_world(&world);
}

static void test_overlapping(void **state)
{
    uint32_t closed_ends = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++)
        overlapping(seed, false, false, &closed_ends);
    overlapping(3767, false, false, &closed_ends); /* ends only with the reserve */
    assert_int_equal(closed_ends, 0);
}

static void test_overlapping_beside_a_closed_disk(void **state)
{
    uint32_t closed_ends = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++)
        overlapping(seed, true, seed % 2 == 0, &closed_ends);
    assert_true(closed_ends > 200);
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
    if (n_kept > 0 || is_growing || evictions_of(&plain) == 0)
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
    else if (evictions_of(plan) == 0)
        counts->partial++;
    else
        counts->growing++;
}

static void switching(uint64_t seed, struct switches *counts)
{
    struct world world;
    make_tiered_world(&world, seed);
    enum sizes sizes = (enum sizes)draw(&world, SIZES);
    fill_up(&world, sizes);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint32_t n_kept;
        if (draw(&world, 5) == 0)
            change_allocations(&world, sizes);
        draw_turn(&world, &turn);
        world.is_closed = draw(&world, 3) > 0;
        world.is_paged_closed = draw(&world, 6) == 0;
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
    for (uint64_t seed = 1; seed <= 300; seed++)
        switching(seed, &counts);
    /* each of them was seen */
    assert_true(counts.plain > 500 && counts.all > 500);
    assert_true(counts.fewer > 100 && counts.empty > 100);
    assert_true(counts.partial > 10 && counts.growing > 10);
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
    world.is_closed = true;
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
 * Prefetching in worlds like these: nothing leaves the GPU but for what comes in its place, of
 * those who give, no frame is destroyed, every move is possible in its turn, and the window is as
 * free as it was. Then the app that was fetched for takes its turn, whole.
 */
static void check_givers(const struct world *world, const struct gm_plan *plan,
                         const struct turn *turn, uint32_t n_givers)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        assert_int_not_equal(move->kind, GM_MOVE_DESTROY);
        if (move->kind != GM_MOVE_EVICT)
            continue;
        uint32_t giver = world->table->chunks[move->chunk].app, at = 0;
        while (at < n_givers && turn->victims[at] != giver)
            at++;
        assert_true(at < n_givers);
        assert_true(i + 1 < plan->n);
        assert_int_equal(move[1].kind, GM_MOVE_FILL);
        assert_int_equal(move[1].frame, move->frame);
        assert_int_equal(world->table->chunks[move[1].chunk].app, turn->targets[0]);
    }
}

/* Staging for one app after the other, each before those that come later, as long as there is
 * something: it comes to an end, and what is brought up for one does not go down for it again. */
static void check_staging_ends(struct world *world, const struct turn *turn)
{
    unsigned plans = 0;
    for (uint32_t i = 0; i < turn->n_victims;) {
        const uint32_t next = turn->n_victims - 1 - i;
        struct gm_plan plan = prefetch_for(world, &turn->victims[next], 1, turn->victims, next);
        i = plan.n > 0 ? 0 : i + 1;
        carry_out(world, &plan);
        assert_true(++plans < 64 * MAX_APPS);
    }
}

static void prefetching(uint64_t seed)
{
    struct world world;
    make_tiered_world(&world, seed);
    enum sizes sizes = (enum sizes)draw(&world, SIZES);
    fill_up(&world, sizes);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint64_t lowered, raised, before;
        if (draw(&world, 3) == 0)
            change_allocations(&world, sizes);
        draw_turn(&world, &turn);
        before = free_in(&world, GM_TIER_PINNED);
        raised = world.bytes[GM_MOVE_RAISE];
        lowered = world.bytes[GM_MOVE_LOWER];
        const uint32_t n_givers = (uint32_t)draw(&world, turn.n_victims + 1);
        world.left_paged = draw(&world, 8) * GM_CHUNK_MAX;
        struct gm_plan plan = prefetch_taking(&world, turn.targets, turn.n_targets, turn.victims,
                                              turn.n_victims, n_givers);
        check_givers(&world, &plan, &turn, n_givers);
        carry_out(&world, &plan);
        assert_true(free_in(&world, GM_TIER_PINNED) >=
                    (before < world.window ? before : world.window));
        assert_int_equal(plan.is_complete, missing_of(&world, &turn) == 0);
        /* what goes down brings as much up, but for the window if that was not free, and for the
         * last chunk */
        raised = world.bytes[GM_MOVE_RAISE] - raised;
        lowered = world.bytes[GM_MOVE_LOWER] - lowered;
        before = before < world.window ? world.window - before : 0;
        assert_true(lowered <= raised + before + GM_CHUNK_MAX);
        check_staging_ends(&world, &turn);
        do {
            plan = plan_turn(&world, &turn);
            carry_out(&world, &plan);
        } while (!plan.is_complete);
        assert_int_equal(missing_of(&world, &turn), 0);
        check_window(&world);
    }
    end_world(&world);
}

static void test_prefetching(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        prefetching(seed);
}

/* ---- LRU ---- */

/*
 * What a plain LRU planner moves in this turn: from the app that ran least recently, chunk after
 * chunk, until what is missing fits; then, the same way, what exceeds pinned memory but for the
 * window goes down. It fills and raises what any planner must.
 */
struct moved {
    uint64_t evicted, lowered;
};

static struct moved lru_plan(const struct world *world, const struct turn *turn,
                             const uint32_t *by_use)
{
    const struct gm_table *table = world->table;
    struct moved moved = {0, 0};
    uint64_t room = table->budget, missing = 0, back = 0, left;
    for (uint32_t a = 0; a < MAX_APPS; a++)
        room -= table->apps[a].resident;
    for (uint32_t i = 0; i < turn->n_targets; i++) {
        const struct gm_table_app *app = &table->apps[turn->targets[i]];
        missing += app->committed - app->resident;
        back += app->bytes[GM_TIER_PINNED];
    }
    for (uint32_t i = 0; i < turn->n_victims; i++)
        for (uint32_t c = 0; c < table->max_chunks && room + moved.evicted < missing; c++) {
            const struct gm_chunk *chunk = &table->chunks[c];
            if (chunk->app == by_use[i] && chunk->tier == GM_TIER_GPU && chunk->is_listed)
                moved.evicted += gm_class_bytes(chunk->class);
        }
    left = world->used[GM_TIER_PINNED] + moved.evicted - back + world->window;
    for (uint32_t i = 0; i < turn->n_victims; i++)
        for (uint32_t c = 0;
             c < table->max_chunks && left > world->cap[GM_TIER_PINNED] + moved.lowered; c++) {
            const struct gm_chunk *chunk = &table->chunks[c];
            if (chunk->app == by_use[i] && chunk->is_listed && chunk->tier != GM_TIER_NONE &&
                chunk->tier <= GM_TIER_PINNED)
                moved.lowered += gm_class_bytes(chunk->class);
        }
    return moved;
}

/* `ran_at` by app: when it ran last. The victims of `turn`, least recent first. */
static void sort_by_use(const struct turn *turn, const uint32_t *ran_at, uint32_t *by_use)
{
    for (uint32_t i = 0; i < turn->n_victims; i++) {
        uint32_t at = i;
        for (; at > 0 && ran_at[by_use[at - 1]] > ran_at[turn->victims[i]]; at--)
            by_use[at] = by_use[at - 1];
        by_use[at] = turn->victims[i];
    }
}

/* In one decision: never more than LRU, but for what a chunk of the wrong size carries over. */
static void lru_decision(uint64_t seed, enum sizes sizes)
{
    struct world world;
    uint32_t ran_at[MAX_APPS] = {0}, by_use[MAX_APPS];
    uint64_t over = sizes == SIZES_EQUAL ? 0 : GM_CHUNK_MAX - GM_CHUNK_MIN;
    make_tiered_world(&world, seed);
    if (sizes == SIZES_EQUAL)
        world.table->budget -= world.table->budget % GM_CHUNK_MAX;
    fill_up(&world, sizes);
    for (uint32_t step = 1; step <= 20; step++) {
        struct turn turn;
        draw_turn(&world, &turn);
        sort_by_use(&turn, ran_at, by_use);
        struct moved lru = lru_plan(&world, &turn, by_use);
        struct gm_plan plan = plan_turn(&world, &turn);
        uint64_t lowered = world.bytes[GM_MOVE_LOWER];
        uint64_t evicted = carry_out(&world, &plan);
        assert_true(plan.is_complete);
        assert_true(evicted <= lru.evicted + over);
        /* what is evicted beyond that can have to go down as well */
        assert_true(world.bytes[GM_MOVE_LOWER] - lowered <= lru.lowered + 2 * over);
        for (uint32_t i = 0; i < turn.n_targets; i++)
            ran_at[turn.targets[i]] = step;
    }
    end_world(&world);
}

static void test_lru_decisions(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        lru_decision(seed, SIZES_EQUAL);
        lru_decision(seed, SIZES_MIXED);
    }
}

/* Over a run of round robin, each planner living with what it did: all bytes moved, victims as the
 * timeline has them, or least recent first (which in round robin is the next to run). */
static uint64_t run_round_robin(uint64_t seed, enum sizes sizes, bool is_lru)
{
    struct world world;
    uint64_t total = 0;
    make_tiered_world(&world, seed);
    fill_up(&world, sizes);
    for (uint32_t step = 0; step < 8 * MAX_APPS; step++) {
        struct turn turn = {.targets = {step % MAX_APPS}, .n_targets = 1};
        for (uint32_t i = 1; i < MAX_APPS; i++) {
            uint32_t next = (step + (is_lru ? i : MAX_APPS - i)) % MAX_APPS;
            turn.victims[turn.n_victims++] = next;
        }
        struct gm_plan plan = plan_turn(&world, &turn);
        carry_out(&world, &plan);
        assert_true(plan.is_complete);
    }
    for (unsigned kind = 0; kind <= GM_MOVE_RAISE; kind++)
        total += world.bytes[kind];
    end_world(&world);
    return total;
}

static void test_lru_round_robin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (enum sizes sizes = SIZES_EQUAL; sizes < SIZES; sizes++)
            assert_true(run_round_robin(seed, sizes, false) <= run_round_robin(seed, sizes, true));
}

/* ---- search ---- */

/* What a choice costs: bytes by victim, the nearest next use first. */
struct cost {
    uint64_t bytes[MAX_APPS];
};

static int compare_costs(const struct cost *a, const struct cost *b)
{
    for (int i = 0; i < (int)MAX_APPS; i++)
        if (a->bytes[i] != b->bytes[i])
            return a->bytes[i] < b->bytes[i] ? -1 : 1;
    return 0;
}

/* Where the app of `chunk` stands in a cost; victims are named farthest first. */
static uint32_t place_of(const struct world *world, const struct turn *turn, uint32_t chunk)
{
    for (uint32_t i = 0; i < turn->n_victims; i++)
        if (turn->victims[i] == world->table->chunks[chunk].app)
            return turn->n_victims - 1 - i;
    fail_msg("the chunk of an app that is no victim is moved");
    return 0;
}

/* A small world: app 0 comes, 1 to 3 have up to 7 chunks between them, some of another user. */
static void make_small_world(struct world *world, uint64_t seed, bool is_equal)
{
    make_world(world, 0, seed);
    world->table->budget = (4 + draw(world, 24)) * GM_CHUNK_MIN;
    if (is_equal)
        world->table->budget = (2 + draw(world, 4)) * GM_CHUNK_MAX;
    for (uint32_t app = 0; app < 4; app++)
        assert_true(gm_table_add_app(world->table, app, 1000 + (uint32_t)draw(world, 2)));
    for (uint32_t chunks = 1 + (uint32_t)draw(world, 7); chunks > 0; chunks--) {
        uint32_t app = (uint32_t)draw(world, 4);
        uint64_t bytes = is_equal ? GM_CHUNK_MAX : GM_CHUNK_MIN << draw(world, 5);
        if (world->table->apps[app].committed + bytes <= world->table->budget)
            allocate(world, app, bytes);
    }
}

static const struct turn small_turn = {
    .targets = {0}, .n_targets = 1, .victims = {1, 2, 3}, .n_victims = 3};

/* Let the victims run in a random order, so that much is on the GPU and the rest somewhere. */
static void run_victims(struct world *world)
{
    for (int i = 0; i < 4; i++) {
        uint32_t app = 1 + (uint32_t)draw(world, 3);
        uint32_t others[] = {0, app % 3 + 1, (app + 1) % 3 + 1};
        struct gm_plan plan = plan_for(world, &app, 1, others, 3);
        assert_true(plan.is_complete);
        carry_out(world, &plan);
    }
}

/* Of all sets of chunks to evict that make the room, no other costs the victims less. */
static void search_victims(uint64_t seed)
{
    struct world world;
    struct cost best = {{UINT64_MAX}}, ours = {{0}};
    uint32_t chunks[8], n = 0;
    uint64_t room;

    make_small_world(&world, seed, false);
    run_victims(&world);
    room = world.table->budget - world.table->apps[0].committed;
    for (uint32_t c = 0; c < MAX_CHUNKS; c++)
        if (world.copies[c] == 1u << GM_TIER_GPU && chunk_of(&world, c)->app != 0)
            chunks[n++] = c;
    for (uint32_t set = 0; set < 1u << n; set++) {
        struct cost cost = {{0}};
        uint64_t stays = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (set & 1u << i)
                cost.bytes[place_of(&world, &small_turn, chunks[i])] += bytes_of(&world, chunks[i]);
            else
                stays += bytes_of(&world, chunks[i]);
        }
        if (stays <= room && compare_costs(&cost, &best) < 0)
            best = cost;
    }
    struct gm_plan plan = plan_turn(&world, &small_turn);
    assert_true(plan.is_complete);
    for (uint32_t i = 0; i < plan.n; i++)
        if (plan.moves[i].kind == GM_MOVE_EVICT)
            ours.bytes[place_of(&world, &small_turn, plan.moves[i].chunk)] +=
                move_bytes(&world, &plan.moves[i]);
    if (compare_costs(&ours, &best) != 0)
        fail_msg("seed %llu: there is a better choice of victims", (unsigned long long)seed);
    carry_out(&world, &plan);
    end_world(&world);
}

static void test_search_victims(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5000; seed++)
        search_victims(seed);
}

/*
 * Below the GPU, chunks of one size: of all ways to leave what is pinned or evicted in the three
 * tiers so that the window is free and no cap is exceeded, none lowers less of a nearer app; and of
 * those that lower the same, none brings less of a nearer app to disk.
 */
static void search_tiers(uint64_t seed)
{
    struct world world;
    struct cost best[2] = {{{UINT64_MAX}}, {{UINT64_MAX}}}, ours[2] = {{{0}}, {{0}}};
    uint32_t chunks[8], n = 0, ways = 1;
    uint64_t room[GM_TIERS];
    bool is_possible = false;

    make_small_world(&world, seed, true);
    world.window = GM_PLAN_WINDOW_MIN;
    world.cap[GM_TIER_PINNED] = world.window + draw(&world, 4) * GM_CHUNK_MAX;
    world.cap[GM_TIER_PAGED] = draw(&world, 4) * GM_CHUNK_MAX;
    world.cap[GM_TIER_DISK] = draw(&world, 4) * GM_CHUNK_MAX;
    run_victims(&world);

    struct gm_plan plan = plan_turn(&world, &small_turn);
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        room[t] = free_in(&world, (enum gm_tier)t) + world.table->apps[0].bytes[t];
    for (uint32_t i = 0; i < plan.n; i++) {
        const struct gm_move *move = &plan.moves[i];
        if (move->kind == GM_MOVE_EVICT)
            chunks[n++] = move->chunk;
        if (move->kind != GM_MOVE_LOWER)
            continue;
        uint32_t place = place_of(&world, &small_turn, move->chunk);
        ours[0].bytes[place] += GM_CHUNK_MAX;
        if (move->to_tier == GM_TIER_DISK)
            ours[1].bytes[place] += GM_CHUNK_MAX;
    }
    for (uint32_t c = 0; c < MAX_CHUNKS; c++)
        if (world.copies[c] == 1u << GM_TIER_PINNED && chunk_of(&world, c)->app != 0) {
            chunks[n++] = c;
            room[GM_TIER_PINNED] += GM_CHUNK_MAX;
        }
    for (uint32_t i = 0; i < n; i++)
        ways *= 3;
    for (uint32_t way = 0; way < ways; way++) {
        struct cost cost[2] = {{{0}}, {{0}}};
        uint64_t put[GM_TIERS] = {0};
        uint32_t digits = way;
        for (uint32_t i = 0; i < n; i++, digits /= 3) {
            enum gm_tier to = (enum gm_tier)(GM_TIER_PINNED + digits % 3);
            uint32_t place = place_of(&world, &small_turn, chunks[i]);
            put[to] += GM_CHUNK_MAX;
            cost[0].bytes[place] += to > GM_TIER_PINNED ? GM_CHUNK_MAX : 0;
            cost[1].bytes[place] += to == GM_TIER_DISK ? GM_CHUNK_MAX : 0;
        }
        if (put[GM_TIER_PINNED] + world.window > room[GM_TIER_PINNED] ||
            put[GM_TIER_PAGED] > room[GM_TIER_PAGED] || put[GM_TIER_DISK] > room[GM_TIER_DISK])
            continue;
        is_possible = true;
        int order = compare_costs(&cost[0], &best[0]);
        if (order < 0 || (order == 0 && compare_costs(&cost[1], &best[1]) < 0))
            memcpy(best, cost, sizeof best);
    }
    if (is_possible &&
        (compare_costs(&ours[0], &best[0]) != 0 || compare_costs(&ours[1], &best[1]) != 0))
        fail_msg("seed %llu: there is a better distribution", (unsigned long long)seed);
    carry_out(&world, &plan);
    assert_int_equal(missing_of(&world, &small_turn), 0);
    end_world(&world);
}

static void test_search_tiers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5000; seed++)
        search_tiers(seed);
}

/* What a raise leaves to evictions: half of the window, or what chunks as small as it need. */
static void test_room_beside_raises(void **state)
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
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_overlapping),
        cmocka_unit_test(test_prefetching),
        cmocka_unit_test(test_lru_decisions),
        cmocka_unit_test(test_lru_round_robin),
        cmocka_unit_test(test_search_victims),
        cmocka_unit_test(test_search_tiers),
        cmocka_unit_test(test_room_beside_raises),
        cmocka_unit_test(test_closed_disk),
        cmocka_unit_test(test_overlapping_beside_a_closed_disk),
        cmocka_unit_test(test_switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

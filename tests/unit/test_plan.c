/*
 * core/plan in random worlds: with tiers below the GPU and without, of one user or two, full or
 * nearly, with fixed chunks and chunks that are to be on the host. Which chunks move test_layout.c
 * says; here it is how.
 *
 * In order: every plan is possible move by move, complete, leaves its targets on the GPU and the
 * window free; what was never written is not moved; the same input gives the same plan; made again
 * and again in the middle it moves no more. No planner could move less, so LRU does not.
 *
 * Overlapping: moves begin and end in random order under the rule that plan.h states, with plans
 * dropped and made anew for other targets in the middle: it always ends.
 *
 * Switches: beside a closed tier nobody is taken apart for a target that does not become whole.
 */
#include "common/clock.h"
#include "tests/unit/plan_world.h"

static struct world world;
static uint64_t seeds = 36;

static bool has_closed_tier(void)
{
    return world.is_closed[GM_TIER_PAGED] || world.is_closed[GM_TIER_DISK];
}

/* The window is free, or nothing that is pinned has room below. */
static void check_window(const struct turn *turn, uint64_t beside)
{
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < turn->n_victims; i++)
        pinned += world.table->apps[turn->victims[i]].bytes[GM_TIER_PINNED];
    if (has_tiers(&world) && free_in(&world, GM_TIER_PINNED) < world.window + beside &&
        pinned > 0) {
        assert_true(free_in(&world, GM_TIER_PAGED) < GM_CHUNK_MAX);
        assert_true(free_in(&world, GM_TIER_DISK) < GM_CHUNK_MAX);
    }
}

static void check_never_written(const struct gm_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->moves[i].kind != GM_MOVE_FILL && plan->moves[i].kind != GM_MOVE_DESTROY)
            assert_int_not_equal(world.table->chunks[plan->moves[i].chunk].tier, GM_TIER_NONE);
}

/* ---- in order ---- */

/* A plan is empty only if not even the first chunk that is at hand has room. */
static void check_empty(const struct turn *turn)
{
    const uint32_t first = world.table->apps[turn->targets[0]].away[GM_TIER_PINNED].head;
    if (first != GM_NONE)
        assert_true(bytes_of(&world, first) > free_in(&world, GM_TIER_GPU) + world.table->free);
}

/* What any planner must evict of others for this turn; and what must go down then. */
static uint64_t least_evicted(const struct turn *turn)
{
    uint64_t room = world.table->budget - world.table->fixed, missing = 0;
    for (uint32_t a = 0; a < MAX_APPS; a++)
        room -= world.table->apps[a].resident;
    for (uint32_t i = 0; i < turn->n_targets; i++) {
        const struct gm_table_app *app = &world.table->apps[turn->targets[i]];
        room += app->leaving;
        missing +=
            movable(&world, turn->targets[i]) - app->resident - (app->on_host - app->leaving);
    }
    return missing > room ? missing - room : 0;
}

static uint64_t least_demoted(const struct turn *turn, uint64_t evicted)
{
    uint64_t pinned = world.used[GM_TIER_PINNED] + world.window + evicted;
    for (uint32_t i = 0; i < turn->n_targets; i++)
        pinned -= world.table->apps[turn->targets[i]].bytes[GM_TIER_PINNED];
    return pinned > world.cap[GM_TIER_PINNED] ? pinned - world.cap[GM_TIER_PINNED] : 0;
}

/*
 * Where every tier is full, a plan may have to stop halfway because what would give pages back
 * comes later for its urgency; the next one goes on. That is rare.
 */
struct counts {
    uint32_t plans, incomplete, again;
};

static void check_same(const struct gm_move *a, const struct gm_move *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_true(a[i].kind == b[i].kind && a[i].to_tier == b[i].to_tier &&
                    a[i].chunk == b[i].chunk && a[i].frame == b[i].frame);
}

/* The second time with space for so many moves: it has the first ones. */
static struct gm_plan plan_twice(const struct turn *turn, uint32_t capacity)
{
    static struct gm_move first[MAX_MOVES];
    struct gm_plan plan = plan_turn(&world, turn);
    memcpy(first, plan.moves, plan.n * sizeof *first);
    const uint32_t n = plan.n;
    plan.capacity = capacity;
    gm_plan_make(world.table, &world.layout, &plan);
    assert_int_equal(plan.n, n < capacity ? n : capacity);
    check_same(first, plan.moves, plan.n);
    check_never_written(&plan);
    return plan;
}

static void end_places(const struct turn *turn)
{
    for (uint32_t i = 0; i < turn->n_targets; i++)
        change_places(&world, turn->targets[i], false);
}

static void one_turn(enum sizes sizes, struct counts *counts)
{
    const uint64_t over = sizes == SIZES_EQUAL ? 0 : GM_CHUNK_MAX - GM_CHUNK_MIN;
    const bool has_places = draw(&world, 4) == 0, is_made_again = draw(&world, 3) == 0;
    uint64_t to_map = 0, leaving = 0;
    struct turn turn;
    draw_turn(&world, &turn);
    for (uint32_t i = 0; i < turn.n_targets; i++) {
        const struct gm_table_app *app = &world.table->apps[turn.targets[i]];
        if (has_places)
            change_places(&world, turn.targets[i], true);
        to_map += app->to_map_bytes;
        leaving += app->leaving;
    }
    uint64_t evicts = least_evicted(&turn) + leaving;
    const uint64_t lowers = least_demoted(&turn, evicts);
    const uint32_t incomplete = counts->incomplete;
    const uint64_t evicted = world.bytes[GM_MOVE_EVICT], lowered = world.bytes[GM_MOVE_DEMOTE];
    struct gm_plan plan = plan_twice(&turn, MAX_MOVES);
    for (int more = 0; is_made_again && more < 4; more++, counts->again++) {
        begin_some(&world, &plan, 1 + draw(&world, 4));
        plan = plan_twice(&turn, 1 + (uint32_t)draw(&world, MAX_MOVES / 8));
        end_all(&world);
    }
    carry_out(&world, &plan);
    counts->plans++;
    for (int more = is_made_again ? -1 : 0; more < 0 || (!plan.is_complete && more < 6); more++) {
        if (has_places && more == 3)
            end_places(&turn), to_map = 0, evicts = UINT64_MAX / 2; /* there is no room */
        counts->incomplete += !has_places && more >= 0;
        plan = plan_twice(&turn, MAX_MOVES);
        if (plan.n == 0 && !plan.is_complete)
            check_empty(&turn);
        carry_out(&world, &plan);
    }
    if (!plan.is_complete)
        fail_msg("seed %llu: not complete", (unsigned long long)world.seed);
    assert_true(world.bytes[GM_MOVE_EVICT] - evicted <= evicts + over);
    /* what is evicted beyond that can have to go down as well */
    if (has_tiers(&world) && !has_places && counts->incomplete == incomplete && !is_made_again)
        assert_true(world.bytes[GM_MOVE_DEMOTE] - lowered <= lowers + 2 * over);
    for (uint32_t i = 0; i < turn.n_targets; i++) {
        const struct gm_table_app *app = &world.table->apps[turn.targets[i]];
        assert_int_equal(app->missing, app->to_map.count);
        assert_int_equal(app->leaving, 0);
    }
    check_window(&turn, to_map);
    for (uint32_t i = 0; i < turn.n_targets; i++)
        change_places(&world, turn.targets[i], false);
}

static void test_in_order(void **state)
{
    struct counts counts = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= seeds / GM_SLOW; seed++) {
        const enum sizes sizes = make_full_world(&world, seed);
        for (int step = 0; step < 25; step++) {
            if (draw(&world, 3) == 0)
                change_world(&world, sizes);
            one_turn(sizes, &counts);
        }
        end_world(&world);
    }
    assert_true(counts.incomplete * 500 <= counts.plans && counts.again > counts.plans / 2);
}

/* ---- beside LRU ---- */

/* Over a run of round robin, each planner living with what it did: all bytes moved, victims as the
 * timeline has them, or least recent first (which in round robin is the next to run). */
static uint64_t run_round_robin(uint64_t seed, enum sizes sizes, bool is_lru)
{
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
    for (unsigned kind = 0; kind <= GM_MOVE_PROMOTE; kind++)
        total += world.bytes[kind];
    end_world(&world);
    return total;
}

static void test_lru(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds / 4 / GM_SLOW; seed++)
        for (enum sizes sizes = SIZES_EQUAL; sizes < SIZES; sizes++)
            assert_true(run_round_robin(seed, sizes, false) <= run_round_robin(seed, sizes, true));
}

/* ---- switches ---- */

/*
 * As a switch plans, beside the world's plan; *n_kept: for how many of the targets. While a tier is
 * closed nobody is taken apart for a target that does not become whole, unless it grows. (What is
 * under way can keep a part of it from having a place on the GPU yet.)
 */
static struct gm_plan switch_turn(const struct turn *turn, bool is_growing, uint32_t *n_kept)
{
    static struct gm_move moves[MAX_MOVES];
    set_layout(&world, turn->targets, turn->n_targets, turn->victims, turn->n_victims,
               turn->n_victims);
    struct gm_plan plan = {.moves = moves, .capacity = MAX_MOVES};
    world.layout.is_growing = is_growing;
    gm_layout_share(world.table, &world.layout);
    *n_kept = gm_plan_switch(world.table, &world.layout, &plan);
    check_closed(&world, &plan);
    if (has_closed_tier() && !is_growing && gm_plan_count(&plan, GM_MOVE_EVICT) > 0)
        assert_true(*n_kept > 0 && (plan.is_complete || world.n_flying + world.n_ends > 0));
    return plan;
}

static struct gm_plan plan_either(const struct turn *turn, bool switches)
{
    uint32_t n_kept;
    return switches ? switch_turn(turn, false, &n_kept) : plan_turn(&world, turn);
}

/* ---- overlapping ---- */

/* One of the moves that are ready: any, or with `is_partial` any of the kind that is preferred
 * most. */
static uint32_t pick_move(const struct gm_plan *plan, const uint32_t *ready, uint32_t n_ready,
                          const uint8_t *rank, bool is_partial)
{
    uint32_t best = ready[draw(&world, n_ready)];
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
        plan = plan_either(&turn, switches);
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
                plan = plan_either(&turn, switches);
                check_never_written(&plan);
                memset(has_begun, 0, sizeof has_begun);
                has_changed = false;
                continue;
            }
            has_changed = true;
            if (n_ready > 0 && (n_ends == 0 || draw(&world, haste + 1) > 0)) {
                uint32_t i = pick_move(&plan, ready, n_ready, rank, is_partial);
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
    for (uint64_t seed = 1; seed <= seeds / GM_SLOW; seed++)
        overlapping(seed, false, false, &closed_ends);
    assert_int_equal(closed_ends, 0);
    for (uint64_t seed = 1; seed <= seeds / GM_SLOW; seed++)
        overlapping(seed, true, seed % 2 == 0, &closed_ends);
    assert_true(closed_ends > seeds / GM_SLOW);
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

/*
 * A switch's plan for its first `n_kept` targets beside plain plans: nobody is given up without
 * need, and for those that are kept it is the plain one. If nobody is, what needs no eviction is
 * done for the first.
 */
static void check_switch(const struct turn *turn, const struct gm_plan *plan, uint32_t n_kept,
                         bool is_growing)
{
    struct turn fewer = *turn;
    assert_true(n_kept <= turn->n_targets);
    assert_true(has_closed_tier() || n_kept == turn->n_targets);
    for (; fewer.n_targets > n_kept; fewer.n_targets--)
        assert_true(plan_turn(&world, &fewer).lacks_room);
    fewer.n_targets = n_kept > 0 ? n_kept : 1;
    struct gm_plan plain = plan_turn(&world, &fewer);
    if (n_kept == 0 && !is_growing && gm_plan_count(&plain, GM_MOVE_EVICT) > 0)
        plain.n = 0;
    check_same(plan->moves, plain.moves, plan->n);
    assert_int_equal(plan->n, plain.n);
    assert_int_equal(plan->is_complete, plain.is_complete);
    assert_true(!has_closed_tier() || plan->is_complete == (n_kept > 0));
}

static void count_switch(struct switches *counts, const struct turn *turn,
                         const struct gm_plan *plan, uint32_t n_kept)
{
    if (!has_closed_tier())
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
    enum sizes sizes = make_full_world(&world, seed);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint32_t n_kept;
        if (draw(&world, 5) == 0)
            change_world(&world, sizes);
        draw_turn(&world, &turn);
        world.is_closed[GM_TIER_DISK] = draw(&world, 3) > 0;
        world.is_closed[GM_TIER_PAGED] = draw(&world, 6) == 0;
        const bool is_growing = draw(&world, 4) == 0;
        struct gm_plan plan = switch_turn(&turn, is_growing, &n_kept);
        check_switch(&turn, &plan, n_kept, is_growing);
        count_switch(counts, &turn, &plan, n_kept);
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
    for (uint64_t seed = 1; seed <= seeds; seed++)
        switching(seed, &counts);
    /* each of them was seen */
    assert_true(counts.plain > seeds && counts.all > seeds);
    assert_true(counts.fewer > seeds / 4 && counts.empty > seeds / 4);
    assert_true(counts.partial > 0 && counts.growing > 0);
}

/* ---- ahead ---- */

/*
 * Ahead of a turn in worlds like these: nothing leaves the GPU but what makes way, every move is
 * possible in its turn, and the window is as free as it was.
 * Then the app takes its turn, whole.
 */
static void check_way(const struct gm_plan *plan, const struct turn *turn, uint32_t n_donors)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct gm_move *move = &plan->moves[i];
        uint32_t at = 0;
        if (move->kind == GM_MOVE_FILL || move->kind == GM_MOVE_PROMOTE)
            assert_int_equal(world.table->chunks[move->chunk].app, turn->targets[0]);
        if (move->kind != GM_MOVE_EVICT)
            continue;
        while (at < n_donors && turn->victims[at] != world.table->chunks[move->chunk].app)
            at++;
        assert_true(at < n_donors);
    }
}

/* Nothing goes down last but for the window: it would be for nothing. Where not all comes, the
 * layout counts a chunk at most as evicted that then has no use. */
static void carry_out_ahead(const struct gm_plan *plan)
{
    const struct gm_move last = plan->n > 0 ? plan->moves[plan->n - 1] : (struct gm_move){0};
    carry_out(&world, plan);
    const uint64_t over = world.layout.is_whole ? 0 : GM_CHUNK_MAX;
    if (last.kind == GM_MOVE_DEMOTE)
        assert_true(free_in(&world, GM_TIER_PINNED) <
                    world.window + move_bytes(&world, &last) + over);
}

/* For one app after the other, each before those that come later, as long as there is something: it
 * comes to an end, and what is brought up for one does not go down for it again. */
static void check_ahead_ends(const struct turn *turn)
{
    unsigned plans = 0;
    for (uint32_t i = 0; i < turn->n_victims;) {
        const uint32_t next = turn->n_victims - 1 - i;
        struct gm_plan plan = plan_ahead(&world, turn->victims[next], turn->victims, next, next);
        i = plan.n > 0 ? 0 : i + 1;
        carry_out_ahead(&plan);
        assert_true(++plans < 64 * MAX_APPS);
    }
}

static void going_ahead(uint64_t seed)
{
    enum sizes sizes = make_full_world(&world, seed);
    for (int step = 0; step < 25; step++) {
        struct turn turn;
        uint64_t demoted, promoted, written, before;
        if (draw(&world, 3) == 0)
            change_world(&world, sizes);
        draw_turn(&world, &turn);
        const uint32_t app = turn.targets[0];
        before = free_in(&world, GM_TIER_PINNED);
        promoted = world.bytes[GM_MOVE_PROMOTE];
        demoted = world.bytes[GM_MOVE_DEMOTE];
        written = world.table->apps[app].bytes[GM_TIER_NONE];
        const uint32_t n_donors = (uint32_t)draw(&world, turn.n_victims + 1);
        struct gm_plan plan = plan_ahead(&world, app, turn.victims, turn.n_victims, n_donors);
        check_way(&plan, &turn, n_donors);
        carry_out_ahead(&plan);
        assert_true(free_in(&world, GM_TIER_PINNED) >=
                    (before < world.window ? before : world.window));
        assert_int_equal(plan.is_complete, world.table->apps[app].missing == 0);
        /* what goes down brings as much up, but for the window if that was not free, for what was
         * never written, and for the last chunk that leaves or is promoted */
        promoted = world.bytes[GM_MOVE_PROMOTE] - promoted;
        demoted = world.bytes[GM_MOVE_DEMOTE] - demoted;
        before = before < world.window ? world.window - before : 0;
        assert_true(demoted <= promoted + before + written + 2 * GM_CHUNK_MAX);
        check_ahead_ends(&turn);
        do {
            plan = plan_turn(&world, &turn);
            carry_out(&world, &plan);
        } while (!plan.is_complete);
        assert_int_equal(missing_of(&world, &turn), 0);
        check_window(&turn, 0);
    }
    end_world(&world);
}

static void test_ahead(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds / GM_SLOW; seed++)
        going_ahead(seed);
}

/* ---- the rules for who carries a plan out ---- */

/* Evictions leave the reserve free, and moves that come earlier in the plan what they need. */
static void test_may_take(void **state)
{
    struct gm_layout below = {.window = 8 * GM_CHUNK_MAX};
    struct gm_plan_hold hold = {.has_eviction = false};
    const struct gm_move evict = {.kind = GM_MOVE_EVICT}, promote = {.kind = GM_MOVE_PROMOTE};
    const struct gm_move demote = {.kind = GM_MOVE_DEMOTE, .to_tier = GM_TIER_DISK};
    const struct gm_move fill = {.kind = GM_MOVE_FILL, .frame = 7};
    (void)state;
    below.tiers[GM_TIER_PINNED].cap = 9 * GM_CHUNK_MAX;
    assert_int_equal(gm_plan_reserve(&below), 0); /* no lower tier */
    below.tiers[GM_TIER_DISK].cap = GM_CHUNK_MAX;
    assert_int_equal(gm_plan_reserve(&below), GM_PLAN_RESERVE);
    assert_true(gm_plan_may_take(&hold, &evict, GM_CHUNK_MAX, 4 * GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    assert_false(
        gm_plan_may_take(&hold, &evict, GM_CHUNK_MAX, 4 * GM_CHUNK_MAX - 1, 3 * GM_CHUNK_MAX));
    assert_true(gm_plan_may_take(&hold, &promote, GM_CHUNK_MAX, GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    gm_plan_pass_over(&hold, &promote, GM_CHUNK_MAX);
    assert_false(gm_plan_may_take(&hold, &promote, GM_CHUNK_MAX, GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    assert_false(gm_plan_may_take(&hold, &evict, GM_CHUNK_MAX, 4 * GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    assert_true(gm_plan_may_take(&hold, &evict, GM_CHUNK_MAX, 5 * GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    gm_plan_pass_over(&hold, &evict, GM_CHUNK_MAX);
    assert_false(
        gm_plan_may_take(&hold, &promote, GM_CHUNK_MAX, 5 * GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    assert_true(
        gm_plan_may_take(&hold, &promote, GM_CHUNK_MAX, 6 * GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    assert_true(gm_plan_may_take(&hold, &demote, GM_CHUNK_MAX, GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    gm_plan_pass_over(&hold, &demote, GM_CHUNK_MAX);
    assert_false(gm_plan_may_take(&hold, &demote, GM_CHUNK_MAX, GM_CHUNK_MAX, 3 * GM_CHUNK_MAX));
    gm_plan_pass_over(&hold, &fill, GM_CHUNK_MAX);
    assert_true(
        gm_plan_may_take(&hold, &fill, GM_CHUNK_MAX, 0, 3 * GM_CHUNK_MAX)); /* it has its frame */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_lru),
        cmocka_unit_test(test_overlapping),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_may_take),
        cmocka_unit_test(test_room_beside_promotions),
    };
    if (argc > 1) /* more of them */
        seeds = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

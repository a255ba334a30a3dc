/*
 * core/plan beside other planners, in random worlds, seeded.
 *
 * LRU: a plain LRU planner never moves less.
 *
 * Search: all ways to take chunks away (small worlds): none is better by the objective.
 */
#include "common/clock.h"
#include "tests/unit/plan_tiers_world.h"

/* ---- LRU ---- */

/*
 * What a plain LRU planner moves in this turn: from the app that ran least recently, chunk after
 * chunk, until what is missing fits; then, the same way, what exceeds pinned memory but for the
 * window goes down. It fills and promotes what any planner must.
 */
struct moved {
    uint64_t evicted, demoted;
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
            if (chunk->app == by_use[i] && chunk->tier == GM_TIER_GPU &&
                chunk->list != GM_LIST_NONE)
                moved.evicted += gm_class_bytes(chunk->class);
        }
    left = world->used[GM_TIER_PINNED] + moved.evicted - back + world->window;
    for (uint32_t i = 0; i < turn->n_victims; i++)
        for (uint32_t c = 0;
             c < table->max_chunks && left > world->cap[GM_TIER_PINNED] + moved.demoted; c++) {
            const struct gm_chunk *chunk = &table->chunks[c];
            if (chunk->app == by_use[i] && chunk->list != GM_LIST_NONE &&
                chunk->tier != GM_TIER_NONE && chunk->tier <= GM_TIER_PINNED)
                moved.demoted += gm_class_bytes(chunk->class);
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
        uint64_t demoted = world.bytes[GM_MOVE_DEMOTE];
        uint64_t evicted = carry_out(&world, &plan);
        assert_true(plan.is_complete);
        assert_true(evicted <= lru.evicted + over);
        /* what is evicted beyond that can have to go down as well */
        assert_true(world.bytes[GM_MOVE_DEMOTE] - demoted <= lru.demoted + 2 * over);
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
    for (unsigned kind = 0; kind <= GM_MOVE_PROMOTE; kind++)
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
    for (uint64_t seed = 1; seed <= 5000 / GM_SLOW; seed++)
        search_victims(seed);
}

/*
 * Below the GPU, chunks of one size: of all ways to leave what is pinned or evicted in the three
 * tiers so that the window is free and no cap is exceeded, none demotes less of a nearer app; and
 * of those that demote the same, none brings less of a nearer app to disk.
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
        if (move->kind != GM_MOVE_DEMOTE)
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
    for (uint64_t seed = 1; seed <= 5000 / GM_SLOW; seed++)
        search_tiers(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_decisions),
        cmocka_unit_test(test_lru_round_robin),
        cmocka_unit_test(test_search_victims),
        cmocka_unit_test(test_search_tiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

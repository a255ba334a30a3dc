/*
 * core/working: when chunks of an app are used next, and the order in which they leave and come.
 * Programs that go round their memory, each part in its own time, are foreseen exactly; so what
 * stays and what comes is what Belady's rule on the real future says.
 */
#include "tests/unit/plan_world.h"

#include "daemon/core/table.h"
#include "daemon/core/working.h"
#include "daemon/core/working.h"

enum { CHUNKS = 40, PERIODS = 6 };

/* ---- programs whose future is known ---- */

/* Chunk i is used in the windows that are phase[i] of period[i], after rank[i] others. */
struct program {
    uint32_t n, chunks[CHUNKS], period[CHUNKS], phase[CHUNKS], rank[CHUNKS];
    uint32_t window; /* now */
    struct gm_working working;
};

static void draw_program(struct world *world, struct program *program, uint32_t n)
{
    *program = (struct program){.n = n, .working.memory = GM_WORKING_MOST};
    for (uint32_t i = 0; i < n; i++) {
        program->period[i] = 1 + (uint32_t)draw(world, PERIODS);
        program->phase[i] = (uint32_t)draw(world, program->period[i]);
        program->rank[i] = i;
    }
    for (uint32_t i = n; i > 1; i--) { /* no two are used at once */
        const uint32_t j = (uint32_t)draw(world, i), rank = program->rank[i - 1];
        program->rank[i - 1] = program->rank[j];
        program->rank[j] = rank;
    }
}

static void add_app(struct world *world, uint32_t app, struct program *program,
                    const uint64_t *bytes)
{
    gm_table_add_app(world->table, app, 1000);
    for (uint32_t i = 0; i < program->n; i++)
        program->chunks[i] = world->table->allocations[allocate(world, app, bytes[i])].first;
}

static bool is_used_in(const struct program *program, uint32_t i, uint32_t window)
{
    return window % program->period[i] == program->phase[i];
}

/* When chunk i is really used next. */
static uint64_t truth(const struct program *program, uint32_t i)
{
    uint32_t window = program->window;
    while (!is_used_in(program, i, window))
        window++;
    return (uint64_t)(window - program->window) << 32 | program->rank[i];
}

static void run_window(struct world *world, struct program *program, uint32_t app)
{
    struct gm_use uses[CHUNKS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n; i++) /* by address */
        if (is_used_in(program, i, program->window))
            uses[n++] = (struct gm_use){.va = world->table->chunks[program->chunks[i]].va,
                                        .count = 1,
                                        .window = program->window,
                                        .order = program->rank[i]};
    gm_working_end_window(world->table, app, &program->working, uses, n, false);
    program->window++;
    world_check(world);
}

/* Twice the longest round: all is known. */
static void learn(struct world *world, struct program *program, uint32_t app)
{
    while (program->window < 2 * PERIODS)
        run_window(world, program, app);
}

static uint32_t number_of(const struct program *program, uint32_t chunk)
{
    uint32_t i = 0;
    while (program->chunks[i] != chunk)
        i++;
    return i;
}

static void it_is_foreseen_exactly(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct world world;
        struct program program;
        uint64_t bytes[CHUNKS];
        make_world(&world, CHUNKS * GM_CHUNK_MIN, seed);
        for (uint32_t i = 0; i < CHUNKS; i++)
            bytes[i] = GM_CHUNK_MIN;
        draw_program(&world, &program, CHUNKS);
        add_app(&world, 0, &program, bytes);
        learn(&world, &program, 0);
        for (uint32_t windows = 0; windows < 20; windows++) {
            for (uint32_t i = 0; i < program.n; i++)
                assert_int_equal(gm_timeline_next(world.table, program.chunks[i]),
                                 truth(&program, i));
            run_window(&world, &program, 0);
        }
        end_world(&world);
    }
}

/* It was used every third window, and is not any more: it is expected later and later. */
static void what_is_overdue_comes_later(void **state)
{
    (void)state;
    struct world world;
    const uint64_t bytes[] = {GM_CHUNK_MIN};
    struct program program = {.n = 1, .period = {3}, .working.memory = GM_WORKING_MOST};
    static const uint64_t expected[] = {2, 1, 0, 1, 2, 3};
    make_world(&world, GM_CHUNK_MAX, 1);
    add_app(&world, 0, &program, bytes);
    while (program.window < 7)
        run_window(&world, &program, 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(gm_timeline_next(world.table, program.chunks[0]) >> 32, expected[i]);
        gm_table_end_window(world.table, 0);
    }
    gm_table_set_cold(world.table, program.chunks[0], true);
    assert_int_equal(gm_timeline_next(world.table, program.chunks[0]), GM_TIMELINE_NEVER);
    end_world(&world);
}

/* ---- what leaves, and what comes ---- */

static void bring(struct world *world, uint32_t app, uint32_t other)
{
    const struct gm_plan plan = plan_for(world, &app, 1, &other, 1);
    assert_true(plan.is_complete);
    carry_out(world, &plan);
}

/* Of all ways to take as many chunks of each size, none leaves the app with a later first miss: so
 * whatever leaves is used later than all of its size that stays. */
static void check_belady(const struct world *world, const struct program *program, uint32_t app)
{
    for (uint32_t i = 0; i < program->n; i++)
        for (uint32_t k = 0; k < program->n; k++) {
            const struct gm_chunk *out = &world->table->chunks[program->chunks[i]];
            const struct gm_chunk *in = &world->table->chunks[program->chunks[k]];
            assert_int_equal(out->app, app);
            if (out->state == GM_CHUNK_AWAY && in->state == GM_CHUNK_RESIDENT &&
                out->class == in->class)
                assert_true(truth(program, i) > truth(program, k));
        }
}

/* Each comes back before all of its size that are used later. */
static void check_return(const struct world *world, const struct program *program,
                         const struct gm_plan *plan)
{
    uint64_t last[GM_CHUNK_CLASSES] = {0};
    for (uint32_t i = 0; i < plan->n; i++) {
        if (plan->moves[i].kind != GM_MOVE_FILL)
            continue;
        const uint32_t chunk = plan->moves[i].chunk;
        const uint64_t next = truth(program, number_of(program, chunk));
        assert_true(next > last[world->table->chunks[chunk].class] || next == 0);
        last[world->table->chunks[chunk].class] = next;
    }
}

static uint32_t count_away(const struct world *world, const struct program *program)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n; i++)
        n += world->table->chunks[program->chunks[i]].state == GM_CHUNK_AWAY;
    return n;
}

/* App 0 has all of the GPU; app 1 comes, for a part of it, and goes; and 0 comes back. */
static void what_leaves_is_used_last_and_comes_back_in_order(void **state)
{
    (void)state;
    const uint32_t app = 0, other = 1;
    uint64_t cuts = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world world;
        struct program program;
        uint64_t bytes[CHUNKS], all = 0;
        make_world(&world, 0, seed);
        const bool is_mixed = draw(&world, 2) == 0;
        const uint32_t n = 2 + (uint32_t)draw(&world, CHUNKS - 1);
        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = GM_CHUNK_MIN << (is_mixed ? draw(&world, GM_CHUNK_CLASSES) : 0);
            all += bytes[i];
        }
        gm_table_set_budget(world.table, all);
        draw_program(&world, &program, n);
        add_app(&world, app, &program, bytes);
        gm_table_add_app(world.table, other, 1000);
        bring(&world, app, other);
        learn(&world, &program, app);
        for (uint32_t turn = 0; turn < 4; turn++) {
            allocate(&world, other, GM_CHUNK_MIN * (1 + draw(&world, all / GM_CHUNK_MIN)));
            bring(&world, other, app);
            check_belady(&world, &program, app);
            const uint32_t away = count_away(&world, &program);
            cuts += away > 0 && away < n;
            free_one(&world, other);
            const struct gm_plan plan = plan_for(&world, &app, 1, &other, 1);
            check_return(&world, &program, &plan);
            carry_out(&world, &plan);
            assert_int_equal(count_away(&world, &program), 0);
            run_window(&world, &program, app);
        }
        end_world(&world);
    }
    assert_true(cuts > 600);
}

/* Of what waits below the GPU, what is used last goes further down. */
static void what_is_used_last_goes_down_first(void **state)
{
    (void)state;
    enum { N = 16 };
    for (uint64_t seed = 1; seed <= 50; seed++) {
        const uint32_t apps[] = {0, 1, 2};
        struct world world;
        struct program program;
        uint64_t bytes[N];
        make_world(&world, N * GM_CHUNK_MAX, seed);
        world.window = GM_PLAN_WINDOW_MIN;
        world.cap[GM_TIER_PINNED] = N * GM_CHUNK_MAX + world.window;
        world.cap[GM_TIER_PAGED] = 2 * N * GM_CHUNK_MAX;
        for (uint32_t i = 0; i < N; i++)
            bytes[i] = GM_CHUNK_MAX;
        draw_program(&world, &program, N);
        add_app(&world, apps[0], &program, bytes);
        gm_table_add_app(world.table, apps[1], 1000);
        gm_table_add_app(world.table, apps[2], 1000);
        bring(&world, apps[0], apps[1]);
        learn(&world, &program, apps[0]);
        allocate(&world, apps[1], N * GM_CHUNK_MAX);
        bring(&world, apps[1], apps[0]);
        assert_int_equal(count_away(&world, &program), N);
        const uint32_t down = 1 + (uint32_t)draw(&world, N);
        allocate(&world, apps[2], down * GM_CHUNK_MAX);
        const struct gm_plan plan = plan_for(&world, &apps[2], 1, apps, 2);
        carry_out(&world, &plan);
        uint32_t lowered = 0;
        for (uint32_t i = 0; i < N; i++) {
            const bool is_down = world.table->chunks[program.chunks[i]].tier == GM_TIER_PAGED;
            lowered += is_down;
            for (uint32_t k = 0; k < N && is_down; k++)
                assert_true(world.table->chunks[program.chunks[k]].tier == GM_TIER_PAGED ||
                            truth(&program, k) < truth(&program, i));
        }
        assert_int_equal(lowered, down);
        end_world(&world);
    }
}

/* What is not needed leaves first; then what costs nothing, as it has a shadow. */
static void what_is_cold_leaves_first_and_then_what_has_a_shadow(void **state)
{
    (void)state;
    const uint32_t app = 0, other = 1;
    const uint64_t bytes[] = {GM_CHUNK_MIN, GM_CHUNK_MIN, GM_CHUNK_MIN, GM_CHUNK_MIN};
    struct program program = {.n = 4, .period = {1, 1, 1, 1}, .rank = {0, 1, 2, 3}};
    struct world world;
    make_world(&world, 4 * GM_CHUNK_MIN, 1);
    add_app(&world, app, &program, bytes);
    gm_table_add_app(world.table, other, 1000);
    bring(&world, app, other);
    gm_chunk_at(world.table, program.chunks[1])->page = 7;
    assert_true(gm_table_keep_shadow(world.table, program.chunks[1], 0));
    run_window(&world, &program, app);
    gm_table_set_cold(world.table, program.chunks[0], true);
    gm_timeline_sort(world.table, app);
    static const uint32_t leaves[] = {0, 1, 3, 2};
    uint32_t at = world.table->apps[app].by_class[0].head;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(at, program.chunks[leaves[i]]);
        at = world.table->chunks[at].next;
    }
    assert_int_equal(at, GM_NONE);
    gm_table_leave_pages(world.table, program.chunks[1]);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_foreseen_exactly),
        cmocka_unit_test(what_is_overdue_comes_later),
        cmocka_unit_test(what_leaves_is_used_last_and_comes_back_in_order),
        cmocka_unit_test(what_is_used_last_goes_down_first),
        cmocka_unit_test(what_is_cold_leaves_first_and_then_what_has_a_shadow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * engine/step/windows and engine/act/windows: when the windows of a program end, and what is read
 * of them, from any file that a program may have made of its words. The engine around them is this
 * test: a table, a clock, and who is told what was touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <pthread.h>
#include <cmocka.h>

#include "common/windows.h"
#include "daemon/engine/act/windows.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/windows.h"

#define MIB (1ull << 20)
#define BASE 0x7f0000000000ull
#define CHUNKS 200000u
#define GPUS 2u

static struct gm_client client;
static struct gm_engine *engines[GPUS];
static struct gm_engine *engine; /* the first */
static _Atomic uint64_t *words;

/* What the first engine's app touched, as it was told. */
static struct gm_use told[CHUNKS];
static uint32_t n_told, tells;

void gm_engine_uses(struct gm_engine *e, uint32_t app, const struct gm_use *uses, uint32_t n,
                    bool is_whole)
{
    assert_int_equal(is_whole, e->apps[app].windows.is_whole);
    assert_int_equal(app, 0);
    for (uint32_t i = 1; i < n; i++)
        assert_true(uses[i - 1].va < uses[i].va);
    if (e != engine)
        return;
    memcpy(told, uses, n * sizeof *uses);
    n_told = n;
    tells++;
}

/* ---- the world ---- */

/* Windows end, and what was touched in them is read. */
static void follow(struct gm_engine *e)
{
    gm_engine_follow_windows(e);
    for (struct gm_action *at = gm_engine_carry(e); at; at = at->next) {
        assert_int_equal(at->kind, GM_ACTION_READ_WINDOW);
        gm_engine_answer_window(e, at);
        gm_engine_take_window(e, at->window.app, at->window.before, at->window.is_whole,
                              at->window.uses, at->window.n);
    }
    gm_engine_carried(e);
}

static struct gm_engine *make_engine(uint32_t index)
{
    struct gm_engine *e = calloc(1, sizeof *e);
    void *memory = calloc(1, gm_table_size(1, CHUNKS, 1));
    e->config.max_apps = 1;
    e->config.index = index;
    e->now = GM_S;
    e->apps = calloc(1, sizeof *e->apps);
    gm_check_init(&e->check, calloc(1, sizeof *e->check.apps), 1);
    e->table = gm_table_init(memory, 1, CHUNKS, 1, 0);
    assert_true(gm_table_add_app(e->table, 0, 1000));
    e->apps[0] = (struct gm_app){.state = GM_APP_RUNNING,
                                 .client = &client,
                                 .session = (struct gm_session *)8,
                                 .ctl = client.ctl,
                                 .stat = client.stat};
    return e;
}

static int set_up(void **state)
{
    (void)state;
    memset(&client, 0, sizeof client);
    client.fds[0] = -1;
    client.fds[1] = memfd_create("stat", MFD_CLOEXEC);
    assert_int_equal(ftruncate(client.fds[1], (off_t)GM_STAT_BYTES), 0);
    client.stat = mmap(NULL, GM_STAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client.fds[1], 0);
    assert_true(client.stat != MAP_FAILED);
    words = (_Atomic uint64_t *)(void *)((char *)client.stat + GM_WINDOW_WORDS_AT);
    client.ctl = calloc(1, sizeof *client.ctl);
    atomic_store(&client.ctl->window, 1);
    atomic_store(&client.ctl->is_counting, 3);
    atomic_store(&client.stat->marks_from, 1);
    for (uint32_t i = 0; i < GPUS; i++)
        engines[i] = make_engine(i);
    engine = engines[0];
    tells = n_told = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < GPUS; i++) {
        gm_actions_close(engines[i]);
        free(engines[i]->table);
        free(engines[i]->apps);
        free(engines[i]->check.apps);
        free(engines[i]);
    }
    munmap(client.stat, GM_STAT_BYTES);
    free(client.ctl);
    if (client.fds[1] >= 0)
        close(client.fds[1]);
    return 0;
}

static void allocate(uint64_t va, uint64_t bytes)
{
    assert_int_not_equal(gm_table_add_allocation(engine->table, 0, va, bytes), GM_NONE);
}

static void set_word(uint64_t va, uint32_t window, uint32_t order, uint32_t count)
{
    atomic_store(
        &words[gm_window_place(va)],
        gm_touch_pack((struct gm_touch){.window = window, .order = order, .count = count}));
}

static uint32_t window_now(void)
{
    return atomic_load(&client.ctl->window);
}

/* The program submits work in the window that is now, */
static void work(void)
{
    atomic_store(&client.stat->works_in, window_now());
}

/* ... which touches `va`. */
static void touch(uint64_t va)
{
    set_word(va, window_now(), 0, 1);
    work();
}

/* It is so much later. */
static void pass(uint64_t ns)
{
    for (uint32_t i = 0; i < GPUS; i++) {
        engines[i]->now += ns;
        follow(engines[i]);
    }
}

static int64_t read_some(uint32_t from, uint32_t to)
{
    n_told = 0;
    const int64_t n = gm_engine_read_window(engine, 0, from, to, told, CHUNKS);
    n_told = n > 0 ? (uint32_t)n : 0;
    return n;
}

/* ---- reading ---- */

/* Of allocations only, in these windows only, in the order of addresses. */
static void test_read(void **state)
{
    (void)state;
    allocate(BASE + 64 * MIB, 6 * MIB); /* the list is not in this order */
    allocate(BASE, 6 * MIB);
    allocate(BASE + (1ull << 38), 2 * MIB); /* far away */
    set_word(BASE - 2 * MIB, 7, 0, 1);      /* nobody's */
    set_word(BASE, 7, 3, 9);
    set_word(BASE + 2 * MIB, 6, 0, 1);
    set_word(BASE + 4 * MIB, 5, 1, 2);
    set_word(BASE + 6 * MIB, 7, 0, 1); /* behind it */
    set_word(BASE + 66 * MIB, 8, GM_WINDOW_ORDER_MAX, GM_WINDOW_COUNT_MAX);
    set_word(BASE + (1ull << 38), 7, 0, 4);
    words[gm_window_place(BASE + 2 * MIB)] |= GM_WINDOW_EXACT;
    assert_int_equal(gm_engine_places_of(engine, 0), 3 + 3 + 1);

    assert_int_equal(read_some(5, 7), 3);
    assert_true(told[0].va == BASE && told[0].window == 7 && told[0].order == 3 &&
                told[0].count == 9);
    assert_true(told[1].va == BASE + 2 * MIB && told[1].window == 6);
    assert_true(!told[0].is_exact && told[1].is_exact);
    assert_true(told[2].va == BASE + (1ull << 38) && told[2].count == 4);
    assert_int_equal(read_some(4, 8), 5);
    assert_true(told[2].va == BASE + 4 * MIB && told[2].window == 5);
    assert_true(told[3].va == BASE + 66 * MIB && told[3].order == GM_WINDOW_ORDER_MAX &&
                told[3].count == GM_WINDOW_COUNT_MAX);
    assert_int_equal(read_some(8, 9), 0);
    assert_int_equal(read_some(7, 7), 0);
    assert_int_equal(gm_engine_read_window(engine, 0, 4, 8, told, 2), 2);
}

/* Numbers go on when those of words begin anew. */
static void test_numbers(void **state)
{
    const uint32_t now = (3u << GM_WINDOW_BITS) + 2;
    (void)state;
    allocate(BASE, 8 * MIB);
    set_word(BASE, GM_WINDOW_MASK, 0, 1); /* 3 windows ago */
    set_word(BASE + 2 * MIB, 2, 0, 1);
    set_word(BASE + 4 * MIB, 3, 0, 1); /* from the future */
    set_word(BASE + 6 * MIB, 0, 5, 5); /* never */
    assert_int_equal(read_some(now - 4, now), 2);
    assert_int_equal(told[0].window, now - 3);
    assert_int_equal(told[1].window, now);
    assert_int_equal(read_some(now - 1, now), 1);
}

/* Many allocations near each other, and one that is larger than what is read at once. */
static void test_large(void **state)
{
    uint64_t bytes = 0;
    uint32_t marked = 0;
    (void)state;
    for (uint64_t i = 0; i < 300; i++)
        allocate(BASE + i * 64 * MIB, (2 + 2 * (i % 20)) * MIB);
    const uint64_t big = BASE + 512 * 1024 * MIB;
    allocate(big, 140 * 1024 * MIB);
    for (uint64_t i = 0; i < 300; i += 3)
        for (uint64_t k = 0; k < 1 + i % 20; k++, marked++)
            set_word(BASE + i * 64 * MIB + k * 2 * MIB, 4, 0, 1);
    for (bytes = 0; bytes < 140 * 1024 * MIB; bytes += 30 * MIB, marked++)
        set_word(big + bytes, 4, 0, 1);
    assert_int_equal(read_some(3, 4), marked);
    for (uint32_t i = 1; i < n_told; i++)
        assert_true(told[i - 1].va < told[i].va);
    assert_int_equal(told[n_told - 1].va, (big + bytes - 30 * MIB) & ~(GM_CHUNK_MIN - 1));
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    read_some(3, 4);
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_message("149 GiB are read in %ld us\n",
                  (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
}

/* A file that ends before the words do, and none at all. */
static void test_short(void **state)
{
    (void)state;
    allocate(BASE, 64 * MIB);
    set_word(BASE, 1, 0, 1);
    assert_int_equal(read_some(0, 1), 1);
    assert_int_equal(ftruncate(client.fds[1], (off_t)gm_window_offset(BASE + 8 * MIB)), 0);
    assert_true(read_some(0, 1) < 0);
    close(client.fds[1]);
    client.fds[1] = -1;
    assert_true(read_some(0, 1) < 0);
}

/* Addresses without a word. */
static void test_beyond(void **state)
{
    (void)state;
    allocate((1ull << 47) - 2 * MIB, 2 * MIB);
    allocate(1ull << 47, 2 * MIB);
    allocate((1ull << 63) + (1ull << 62), 2 * MIB);
    set_word((1ull << 47) - 1, 1, 0, 1);
    assert_int_equal(gm_engine_places_of(engine, 0), 1);
    assert_int_equal(read_some(0, 1), 1);
    assert_int_equal(told[0].va, (1ull << 47) - 2 * MIB);
}

static _Atomic bool is_over;

static void *write_words(void *unused)
{
    uint64_t word = 1;
    (void)unused;
    while (!atomic_load(&is_over))
        for (uint64_t i = 0; i < 1024; i++) {
            word = word * 6364136223846793005ull + 1442695040888963407ull;
            atomic_store_explicit(&words[gm_window_place(BASE) + i], word, memory_order_relaxed);
        }
    return NULL;
}

/* Whatever the program writes there, and while it does: what is read is in its bounds. */
static void test_garbage(void **state)
{
    pthread_t thread;
    uint32_t n = 0;
    (void)state;
    allocate(BASE, 1024 * MIB);
    allocate(BASE + 1030 * MIB, 512 * MIB);
    assert_int_equal(pthread_create(&thread, NULL, write_words, NULL), 0);
    for (uint32_t round = 1; round < 2000 || n == 0; round++) {
        const uint32_t to = round * 0x9e3779b9u, from = to - 1 - round % 100000;
        assert_in_range(read_some(from, to), 0, 768);
        for (uint32_t i = 0; i < n_told; i++) {
            assert_true(i == 0 || told[i - 1].va < told[i].va);
            assert_true((told[i].va >= BASE && told[i].va < BASE + 1024 * MIB) ||
                        (told[i].va >= BASE + 1030 * MIB && told[i].va < BASE + 1542 * MIB));
            assert_true(told[i].window - from - 1 < to - from);
            assert_true(told[i].count <= GM_WINDOW_COUNT_MAX &&
                        told[i].order <= GM_WINDOW_ORDER_MAX);
        }
        n += n_told;
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
}

/* ---- when windows end ---- */

static void test_time(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    assert_true(gm_engine_window_due(engine, 0) == GM_TIME_NEVER);
    pass(0);
    assert_true(gm_engine_window_due(engine, 0) == engine->now + GM_WINDOW_NS);
    touch(BASE);
    pass(GM_WINDOW_NS - 1);
    assert_int_equal(tells, 0);
    assert_true(gm_engine_window_due(engine, 0) == engine->now + 1);
    pass(1);
    assert_int_equal(tells, 1);
    assert_int_equal(window_now(), 2);
    assert_int_equal(n_told, 1);
    assert_true(told[0].va == BASE && told[0].window == 1);
    assert_false(engine->apps[0].windows.is_whole); /* it began to mark in it */

    /* Nothing is submitted, but copies to the host: the window has yet to begin. */
    for (int i = 0; i < 10; i++) {
        pass(GM_WINDOW_NS);
        assert_true(gm_engine_window_due(engine, 0) == engine->now + GM_WINDOW_NS);
    }
    assert_int_equal(window_now(), 2);
    assert_int_equal(tells, 1);
    touch(BASE + 2 * MIB);
    pass(GM_WINDOW_NS - 1);
    assert_int_equal(tells, 1);
    pass(1);
    assert_int_equal(tells, 2);
    assert_int_equal(n_told, 1);
    assert_true(told[0].va == BASE + 2 * MIB && told[0].window == 2);
    assert_true(engine->apps[0].windows.is_whole);
}

/* What is touched while a window ends counts for both. */
static void test_edge(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    pass(0);
    touch(BASE);
    set_word(BASE + 2 * MIB, 2, 0, 1); /* as if it came between the new number and the look */
    pass(GM_WINDOW_NS);
    assert_int_equal(n_told, 2);
    assert_int_equal(told[1].window, 2);
    work();
    pass(GM_WINDOW_NS);
    assert_int_equal(n_told, 1);
    assert_int_equal(told[0].va, BASE + 2 * MIB);
}

static bool is_told(uint64_t va, uint32_t count)
{
    for (uint32_t i = 0; i < n_told; i++)
        if (told[i].va == va)
            return told[i].count == count;
    return false;
}

/* Kernels may run for many windows after they named their memory: that is touched in each, without
 * a use, until the program says that the work has ended. */
static void test_lasting(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    atomic_store(&client.stat->lasts_from, 1);
    pass(0);
    touch(BASE);
    pass(GM_WINDOW_NS);
    for (uint32_t window = 2; window < 6; window++) {
        set_word(BASE + 2 * MIB, window, 0, 7);
        if (window == 2)
            set_word(BASE + 4 * MIB, 2, 0, 7);
        work();
        pass(GM_WINDOW_NS);
        assert_int_equal(n_told, 3);
        assert_true(is_told(BASE, 0) && is_told(BASE + 2 * MIB, 7) &&
                    is_told(BASE + 4 * MIB, window == 2 ? 7 : 0));
        /* What it submitted before it began to mark lasts, too. */
        assert_false(engine->apps[0].windows.is_whole);
    }
    atomic_store(&client.stat->lasts_from, 2);
    work();
    pass(GM_WINDOW_NS);
    assert_int_equal(n_told, 2);
    assert_true(is_told(BASE + 2 * MIB, 0) && is_told(BASE + 4 * MIB, 0));
    assert_true(engine->apps[0].windows.is_whole);
    for (uint32_t i = 0; i < 3; i++) { /* of now, of the future, or not known: this window alone */
        atomic_store(&client.stat->lasts_from, i == 2 ? 0 : window_now() + i * 1000);
        touch(BASE + 6 * MIB);
        pass(GM_WINDOW_NS);
        assert_int_equal(n_told, 1);
        assert_true(is_told(BASE + 6 * MIB, 1));
        assert_true(engine->apps[0].windows.is_whole);
    }
}

static void end_turn(enum gm_app_state state, uint64_t after)
{
    for (uint32_t i = 0; i < GPUS; i++) {
        engines[i]->now += after;
        engines[i]->apps[0].state = state;
        follow(engines[i]);
    }
}

/* The end of a turn ends the window, unless it was short: then it goes on in the next. */
static void test_turns(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    pass(0);
    touch(BASE);
    end_turn(GM_APP_DRAINING, GM_WINDOW_LEAST_NS); /* its work is not over */
    assert_int_equal(tells, 0);
    end_turn(GM_APP_PAUSED, 1);
    assert_int_equal(tells, 1);
    assert_true(gm_engine_window_due(engine, 0) == GM_TIME_NEVER);
    pass(10 * GM_WINDOW_NS); /* it does not run */
    assert_int_equal(tells, 1);
    end_turn(GM_APP_RUNNING, 0);
    touch(BASE);
    for (int i = 0; i < 3; i++) {
        end_turn(GM_APP_PAUSED, GM_WINDOW_LEAST_NS / 4);
        assert_int_equal(tells, 1);
        end_turn(GM_APP_RUNNING, GM_S);
    }
    end_turn(GM_APP_PAUSED, GM_WINDOW_LEAST_NS / 4);
    assert_int_equal(tells, 2);
    assert_int_equal(window_now(), 3);

    /* Its gate is closed for exchanges only: the turn goes on. */
    end_turn(GM_APP_RUNNING, 0);
    touch(BASE);
    engine->apps[0].places.is_held = engines[1]->apps[0].places.is_held = true;
    end_turn(GM_APP_PAUSED, GM_WINDOW_LEAST_NS);
    assert_int_equal(tells, 2);
}

/* Two GPUs: one number, each engine hears of each window. */
static void test_two(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    pass(0);
    for (uint32_t i = 1; i < 10; i++) {
        touch(BASE);
        pass(GM_WINDOW_NS);
        assert_int_equal(window_now(), i + 1);
        assert_int_equal(tells, i);
        assert_int_equal(engines[1]->apps[0].windows.number, i + 1);
    }
    for (uint32_t i = 0; i < 2; i++) { /* the other one comes first */
        touch(BASE + i * 2 * MIB);
        engines[1]->now += GM_WINDOW_NS;
        follow(engines[1]);
        assert_int_equal(window_now(), 11 + i);
    }
    engine->now += GM_WINDOW_NS;
    follow(engine);
    assert_int_equal(window_now(), 12);
    assert_int_equal(engine->apps[0].windows.number, 12);
    assert_int_equal(n_told, 2); /* of both windows */
}

/* What nobody knows. */
static void test_unseen(void **state)
{
    (void)state;
    allocate(BASE, 8 * MIB);
    pass(0);
    touch(BASE);
    pass(GM_WINDOW_NS);
    touch(BASE);
    atomic_fetch_add(&client.stat->unseen, 1);
    pass(GM_WINDOW_NS);
    assert_false(engine->apps[0].windows.is_whole);
    assert_int_equal(n_told, 1);
    touch(BASE);
    pass(GM_WINDOW_NS);
    assert_true(engine->apps[0].windows.is_whole);
    touch(BASE);
    assert_int_equal(ftruncate(client.fds[1], (off_t)GM_WINDOW_WORDS_AT), 0);
    pass(GM_WINDOW_NS);
    assert_false(engine->apps[0].windows.is_whole);

    /* It stops to mark, and begins again. */
    const uint32_t before = tells;
    atomic_store(&client.stat->marks_from, 0);
    pass(GM_WINDOW_NS);
    assert_int_equal(tells, before);
    assert_true(gm_engine_window_due(engine, 0) == GM_TIME_NEVER);
    atomic_store(&client.stat->marks_from, window_now());
    pass(0);
    assert_true(gm_engine_window_due(engine, 0) == engine->now + GM_WINDOW_NS);
    atomic_store(&client.ctl->is_counting, 2); /* of the other GPU */
    pass(GM_WINDOW_NS);
    assert_true(gm_engine_window_due(engine, 0) == GM_TIME_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_beyond, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_edge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lasting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unseen, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Holding the others: while one thread holds, nobody else is inside, whatever they do and whatever
 * the daemon does; whoever cannot be held makes it fail, and nothing is different then.
 */
#include "tests/unit/gate_world.h"

#define HAMMERS 6

/* ---- hammering ---- */

static _Atomic uint32_t n_held, n_closed;

static void *hold_often(void *unused)
{
    unsigned seed = 5;
    (void)unused;
    while (!atomic_load(&hammer_stop)) {
        struct gm_slot *slot = gm_gate_enter();
        if (!gm_gate_hold(LONG))
            atomic_fetch_add(&hammer_bad, 1);
        may_be_inside = 0;
        if (rand_r(&seed) % 4 == 0)
            sched_yield();
        may_be_inside = 1;
        gm_gate_unhold();
        gm_gate_leave(slot);
        atomic_fetch_add(&n_held, 1);
        if (rand_r(&seed) % 2 == 0)
            sched_yield();
    }
    return NULL;
}

/* The daemon, and the drainer, beside it. */
static void close_often(uint64_t until)
{
    unsigned seed = 9;
    while (gm_now() < until || atomic_load(&n_held) < 20 || atomic_load(&n_closed) < 20) {
        const bool is_quiet = close_gate();
        if (!is_quiet)
            atomic_fetch_add(&hammer_bad, 1);
        may_be_inside = 0; /* nor does anybody hold now */
        if (rand_r(&seed) % 4 == 0)
            sched_yield();
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
        atomic_fetch_add(&n_closed, 1);
        if (!is_quiet)
            break;
        nap(rand_r(&seed) % 300);
    }
}

static void hammer_hold(bool is_asymmetric)
{
    pthread_t thread[HAMMERS + 1];
    attach(is_asymmetric);
    ready_hammers();
    n_held = n_closed = 0;
    for (int i = 0; i <= HAMMERS; i++)
        pthread_create(&thread[i], NULL, i == HAMMERS ? hold_often : hammer,
                       (void *)(uintptr_t)(i + 1));
    close_often(gm_now() + 2 * GM_S);
    atomic_store(&hammer_stop, 1);
    for (int i = 0; i <= HAMMERS; i++)
        pthread_join(thread[i], NULL);
    print_message("held %u times, closed %u times\n", n_held, n_closed);
    assert_int_equal(atomic_load(&hammer_bad), 0);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);
}

static void test_hammer_membarrier(void **state)
{
    (void)state;
    if (!gm_gate_membarrier_register())
        skip();
    hammer_hold(true);
}

static void test_hammer_fences(void **state)
{
    (void)state;
    hammer_hold(false);
}

/* ---- one at a time ---- */

static _Atomic uint32_t stays_inside, may_leave;

static void *stay_inside(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    stays_inside = 1;
    becomes(&may_leave, 1);
    gm_gate_leave(slot);
    return NULL;
}

/* Who waits, waits for the holder and then for the daemon. */
static void *hold_with_a_waiter(void *unused)
{
    pthread_t waiter;
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    atomic_store(&page.window, 7);
    assert_true(gm_gate_hold(LONG));
    assert_int_equal(atomic_load(&atomic_load(&gm_hot.page)->window), 7); /* marking may begin */
    assert_int_equal(pthread_create(&waiter, NULL, go_through, NULL), 0);
    assert_true(becomes(&stat_area.waiting, 1));
    assert_int_equal(went_through, 0);
    store_gate(GM_GATE_CLOSED); /* meanwhile */
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    gm_gate_unhold();
    nap(50000);
    assert_int_equal(went_through, 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    gm_gate_leave(slot);
    assert_true(falls_quiet());
    store_gate(GM_GATE_OPEN);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_int_equal(went_through, 1);
    return NULL;
}

static void test_waiters(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    went_through = 0;
    run(hold_with_a_waiter, NULL);
}

/* What cannot be held in time is let be. */
static void *hold_in_vain(void *unused)
{
    pthread_t other;
    (void)unused;
    assert_int_equal(pthread_create(&other, NULL, stay_inside, NULL), 0);
    assert_true(becomes(&stays_inside, 1));
    struct gm_slot *slot = gm_gate_enter();
    assert_false(gm_gate_hold(20 * GM_MS));
    run(go_through, NULL); /* others go on */
    assert_int_equal(went_through, 1);
    may_leave = 1;
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(gm_gate_hold(LONG));
    gm_gate_unhold();

    gm_gate_capture_begin();
    assert_false(gm_gate_hold(20 * GM_MS));
    gm_gate_capture_end();
    assert_true(gm_gate_hold(LONG));
    gm_gate_unhold();
    gm_gate_leave(slot);
    run(go_through, NULL);
    assert_int_equal(went_through, 2);
    return NULL;
}

static void test_in_vain(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    went_through = stays_inside = may_leave = 0;
    run(hold_in_vain, NULL);
}

/* The daemon goes while somebody holds: whoever waits is refused at once, or goes on, but not
 * before the holder is done. */
static bool is_whole;

static void *hold_and_lose(void *unused)
{
    pthread_t waiter;
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    assert_true(gm_gate_hold(LONG));
    assert_int_equal(pthread_create(&waiter, NULL, go_through, NULL), 0);
    assert_true(becomes(&stat_area.waiting, 1));
    gm_gate_lost(is_whole);
    if (is_whole) {
        nap(50000);
        assert_int_equal(went_through, 0);
    } else {
        assert_int_equal(pthread_join(waiter, NULL), 0);
        assert_int_equal(went_through, 100);
    }
    gm_gate_unhold();
    if (is_whole)
        assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_int_equal(went_through, is_whole ? 1 : 100);
    gm_gate_leave(slot);
    run(go_through, NULL);
    assert_int_equal(went_through, is_whole ? 2 : 200);
    return NULL;
}

static void *hold_refused(void *unused)
{
    (void)unused;
    assert_false(gm_gate_hold(LONG));
    return NULL;
}

static void test_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        attach(gm_gate_membarrier_register());
        is_whole = i == 0;
        went_through = 0;
        run(hold_and_lose, NULL);
    }
    run(hold_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiters),       cmocka_unit_test(test_in_vain),
        cmocka_unit_test(test_lost),          cmocka_unit_test(test_hammer_membarrier),
        cmocka_unit_test(test_hammer_fences),
    };
    return cmocka_run_group_tests_name("gate_hold", tests, NULL, NULL);
}

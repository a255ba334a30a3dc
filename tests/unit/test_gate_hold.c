/*
 * Holding the others: while one thread holds, nobody else is inside, whatever they do and whatever
 * the daemon does; whoever cannot be held makes it fail, and nothing is different then. The test
 * plays boot, the link and the daemon (test_gate.c). Everybody runs in a thread of his own, because
 * a thread keeps the slot it has when the gate is attached anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "shim/boot.h"
#include "shim/gate.h"
#include "shim/link.h"

#define HAMMERS 6
#define LONG (60 * GM_S)

static struct gm_ctl page;
static struct gm_stat stat_area;

enum gm_boot_state gm_boot(void)
{
    return GM_BOOT_LIVE;
}

bool gm_boot_is_over(void)
{
    return true;
}

void gm_link_want(void)
{
}

static void store_gate(enum gm_gate_word word)
{
    if (word == GM_GATE_CLOSED)
        atomic_fetch_add(&page.epoch, 1);
    atomic_store(&page.gate, word);
    if (word == GM_GATE_OPEN)
        syscall(SYS_futex, &page.gate, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void attach(bool is_asymmetric)
{
    memset(&page, 0, sizeof(page));
    memset(&stat_area, 0, sizeof(stat_area));
    assert_int_equal(gm_gate_attach(&page, &stat_area, is_asymmetric), 0);
}

static void nap(long us)
{
    struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

static bool becomes(_Atomic uint32_t *word, uint32_t value)
{
    for (uint64_t until = gm_now() + LONG; gm_now() < until; nap(100))
        if (atomic_load(word) == value)
            return true;
    return false;
}

static void run(void *(*body)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- hammering ---- */

/* Plain memory: true only while others may be inside. The thread sanitizer watches it, too. */
static int may_be_inside;
static _Atomic int is_over, n_bad;
static _Atomic uint32_t n_held, n_closed;

static void *hammer(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        struct gm_slot *slot = gm_gate_enter();
        if (slot == NULL || !may_be_inside)
            atomic_fetch_add(&n_bad, 1);
        if (rand_r(&seed) % 256 == 0)
            sched_yield();
        if (slot != NULL && !may_be_inside)
            atomic_fetch_add(&n_bad, 1);
        if (slot != NULL)
            gm_gate_leave(slot);
    }
    return NULL;
}

static void *hold_often(void *unused)
{
    unsigned seed = 5;
    (void)unused;
    while (!atomic_load(&is_over)) {
        struct gm_slot *slot = gm_gate_enter();
        if (!gm_gate_hold(LONG))
            atomic_fetch_add(&n_bad, 1);
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
        uint64_t deadline = gm_now() + LONG;
        store_gate(GM_GATE_CLOSED);
        gm_gate_fence();
        while (gm_gate_scan() != GM_DRAIN_NONE && gm_now() < deadline)
            sched_yield();
        if (gm_now() >= deadline)
            atomic_fetch_add(&n_bad, 1);
        may_be_inside = 0; /* nor does anybody hold now */
        if (rand_r(&seed) % 4 == 0)
            sched_yield();
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
        atomic_fetch_add(&n_closed, 1);
        if (gm_now() >= deadline)
            break;
        nap(rand_r(&seed) % 300);
    }
}

static void hammer_hold(bool is_asymmetric)
{
    pthread_t thread[HAMMERS + 1];
    attach(is_asymmetric);
    is_over = 0;
    n_bad = 0;
    n_held = n_closed = 0;
    may_be_inside = 1;
    for (int i = 0; i <= HAMMERS; i++)
        pthread_create(&thread[i], NULL, i == HAMMERS ? hold_often : hammer,
                       (void *)(uintptr_t)(i + 1));
    close_often(gm_now() + 2 * GM_S);
    is_over = 1;
    for (int i = 0; i <= HAMMERS; i++)
        pthread_join(thread[i], NULL);
    print_message("held %u times, closed %u times\n", n_held, n_closed);
    assert_int_equal(n_bad, 0);
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

static _Atomic uint32_t went_through, stays_inside, may_leave;

static void *go_through(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    atomic_fetch_add(&went_through, slot != NULL ? 1 : 100);
    if (slot != NULL)
        gm_gate_leave(slot);
    return NULL;
}

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
    assert_true(gm_gate_hold(LONG));
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
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
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
    run(hold_with_a_waiter);
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
    run(go_through); /* others go on */
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
    run(go_through);
    assert_int_equal(went_through, 2);
    return NULL;
}

static void test_in_vain(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    went_through = stays_inside = may_leave = 0;
    run(hold_in_vain);
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
    run(go_through);
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
        run(hold_and_lose);
    }
    run(hold_refused);
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

/*
 * What the tests of the gate share (test_gate.c, test_gate_races.c, test_gate_hold.c): boot, the
 * link and the daemon, which the test plays, and callers that hammer at the gate. Callers run in
 * threads of their own, because attaching anew gives new slots and a thread keeps the one it has.
 * Each program includes this once and need not use all of it.
 */
#ifndef GM_TESTS_GATE_WORLD_H
#define GM_TESTS_GATE_WORLD_H

#pragma GCC diagnostic ignored "-Wunused-function"

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
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"

#define LONG (240 * GM_S) /* for what happens soon on any machine */

/* ---- boot and link ---- */

static _Atomic int boot_state = GM_BOOT_LIVE;
static _Atomic int boots;
static _Atomic int wants;

enum gm_boot_state gm_boot(void)
{
    atomic_fetch_add(&boots, 1);
    return (enum gm_boot_state)atomic_load(&boot_state);
}

bool gm_boot_is_over(void)
{
    return atomic_load(&boot_state) >= GM_BOOT_LIVE;
}

static _Atomic int hurries;

static void count_want(bool is_hurried)
{
    atomic_fetch_add(&wants, 1);
    atomic_fetch_add(&hurries, is_hurried);
    pthread_testcancel(); /* as sending is */
}

static const struct gm_gate_calls gate_calls = {.want = count_want};

/* ---- the daemon, and the closer ---- */

static struct gm_ctl page;
static struct gm_stat stat_area;

static void nap(long us)
{
    struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
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
    atomic_store(&boot_state, GM_BOOT_LIVE);
    atomic_store(&wants, 0);
    atomic_store(&hurries, 0);
    assert_int_equal(gm_gate_attach(&page, &stat_area, is_asymmetric, &gate_calls), 0);
}

/* Nobody is inside, at last. Who waits looks at the gate again from time to time, and is inside for
 * that moment, so one look does not do. False: not within LONG. */
static bool falls_quiet(void)
{
    for (uint64_t until = gm_now() + LONG; gm_gate_scan() != GM_DRAIN_NONE; sched_yield())
        if (gm_now() > until)
            return false;
    return true;
}

/* The closer, until it is quiet. False: not within LONG. */
static bool close_gate(void)
{
    store_gate(GM_GATE_CLOSED);
    gm_gate_fence();
    return falls_quiet();
}

/* ---- threads ---- */

static void run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Wait until *word is `value`; false after LONG. */
static bool becomes(_Atomic uint32_t *word, uint32_t value)
{
    for (uint64_t until = gm_now() + LONG; gm_now() < until; nap(100))
        if (atomic_load(word) == value)
            return true;
    return false;
}

static _Atomic uint32_t went_through; /* how many; 100 for each who was refused */

static void *go_through(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    atomic_fetch_add(&went_through, slot != NULL ? 1 : 100);
    if (slot != NULL)
        gm_gate_leave(slot);
    return NULL;
}

/* ---- hammering ---- */

/* Plain memory: true only while the gate may be open. The thread sanitizer watches it, too. */
static int may_be_inside;
static _Atomic int hammer_stop;
static _Atomic int hammer_bad;
static _Atomic uint64_t hammer_calls;

/* Before the hammers start. */
static void ready_hammers(void)
{
    atomic_store(&hammer_stop, 0);
    atomic_store(&hammer_bad, 0);
    atomic_store(&hammer_calls, 0);
    may_be_inside = 1;
}

static void *hammer(void *argument)
{
    uint64_t calls = 0;
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load_explicit(&hammer_stop, memory_order_relaxed)) {
        struct gm_slot *slot = gm_gate_enter();
        if (slot == NULL || !may_be_inside)
            atomic_fetch_add(&hammer_bad, 1);
        if (rand_r(&seed) % 256 == 0)
            sched_yield();
        if (slot != NULL && !may_be_inside)
            atomic_fetch_add(&hammer_bad, 1);
        if (slot != NULL)
            gm_gate_leave(slot);
        calls++;
    }
    atomic_fetch_add(&hammer_calls, calls);
    return NULL;
}

#endif

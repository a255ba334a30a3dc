/*
 * The gate: nobody is inside after the closer's wait, whatever callers do. The test plays boot, the
 * link and the daemon. Callers run in threads of their own, because attaching anew gives new slots
 * and a thread keeps the one it has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "shim/boot.h"
#include "shim/gate.h"
#include "shim/link.h"

#define HAMMERS 8

static struct gm_ctl page;
static struct gm_stat stat_area;
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

void gm_link_want(void)
{
    atomic_fetch_add(&wants, 1);
    pthread_testcancel(); /* as sending is */
}

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

/* The closer, until it is quiet. False: not within 60 s. */
static bool close_gate(void)
{
    uint64_t until = gm_now() + 60 * GM_S;
    store_gate(GM_GATE_CLOSED);
    gm_gate_fence();
    while (gm_gate_scan() != GM_DRAIN_NONE) {
        if (gm_now() > until)
            return false;
        sched_yield();
    }
    return true;
}

static void attach(bool is_asymmetric)
{
    memset(&page, 0, sizeof(page));
    memset(&stat_area, 0, sizeof(stat_area));
    atomic_store(&boot_state, GM_BOOT_LIVE);
    atomic_store(&wants, 0);
    assert_int_equal(gm_gate_attach(&page, &stat_area, is_asymmetric), 0);
}

static void run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Wait until *word is `value`; false after 60 s. */
static bool becomes(_Atomic uint32_t *word, uint32_t value)
{
    for (uint64_t until = gm_now() + 60 * GM_S; gm_now() < until;) {
        if (atomic_load(word) == value)
            return true;
        nap(100);
    }
    return false;
}

/* ---- hammering ---- */

/* Plain memory: true only while the gate may be open. The thread sanitizer watches it, too. */
static int may_be_inside;
static _Atomic int hammer_stop;
static _Atomic int hammer_bad;
static _Atomic uint64_t hammer_calls;

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

static void hammer_gate(bool is_asymmetric)
{
    pthread_t thread[HAMMERS];
    attach(is_asymmetric);
    atomic_store(&hammer_stop, 0);
    atomic_store(&hammer_bad, 0);
    atomic_store(&hammer_calls, 0);
    may_be_inside = 1;
    for (int i = 0; i < HAMMERS; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));

    unsigned seed = 7;
    uint64_t until = gm_now() + 4 * GM_S;
    int closings = 0;
    bool is_quiet = true;
    while (is_quiet && closings < 3000 && (closings <= 10 || gm_now() < until)) {
        is_quiet = close_gate();
        may_be_inside = 0;
        if (rand_r(&seed) % 8 == 0)
            sched_yield();
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
        if (rand_r(&seed) % 2 == 0)
            sched_yield();
        closings++;
    }
    atomic_store(&hammer_stop, 1);
    store_gate(GM_GATE_OPEN);
    for (int i = 0; i < HAMMERS; i++)
        pthread_join(thread[i], NULL);
    print_message("%d closings, %llu calls\n", closings,
                  (unsigned long long)atomic_load(&hammer_calls));
    assert_true(is_quiet);
    assert_int_equal(atomic_load(&hammer_bad), 0);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);
    uint64_t counted = 0;
    for (unsigned i = 0; i < GM_SLOTS; i++)
        counted += atomic_load(&stat_area.slot[i].calls);
    assert_int_equal(counted, atomic_load(&hammer_calls));
}

static void test_hammer_membarrier(void **state)
{
    (void)state;
    if (!gm_gate_membarrier_register())
        skip();
    hammer_gate(true);
}

static void test_hammer_fences(void **state)
{
    (void)state;
    hammer_gate(false);
}

/*
 * The race that membarrier closes, one round at a time: the caller's inside = 1 may still be in its
 * store buffer when its load of the gate word is done. A round is bad if the closer found nobody
 * inside, and the caller turns out to be inside although the gate never opened again.
 */
static _Atomic uint32_t litmus_go, litmus_entered, litmus_verdict, litmus_done;

static cpu_set_t processors;

/* Keep the calling thread on the n-th of the program's processors, or on none (-1). */
static void pin(int n)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && n >= 0; cpu++)
        if (CPU_ISSET(cpu, &processors) && n-- == 0)
            CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), CPU_COUNT(&one) == 1 ? &one : &processors);
}

static void litmus_wait(_Atomic uint32_t *word, uint32_t value)
{
    for (unsigned spin = 0; atomic_load(word) != value && !atomic_load(&hammer_stop); spin++)
        if (spin > 10000)
            sched_yield();
}

static void *litmus_caller(void *unused)
{
    (void)unused;
    pin(1);
    for (uint32_t i = 1; !atomic_load(&hammer_stop); i++) {
        litmus_wait(&litmus_go, i);
        struct gm_slot *slot = gm_gate_enter();
        atomic_store(&litmus_entered, i);
        litmus_wait(&litmus_verdict, i);
        gm_gate_leave(slot);
        atomic_store(&litmus_done, i);
    }
    return NULL;
}

static void test_litmus(void **state)
{
    pthread_t thread;
    (void)state;
    if (!gm_gate_membarrier_register())
        skip();
    attach(true);
    atomic_store(&hammer_stop, 0);
    pthread_create(&thread, NULL, litmus_caller, NULL);
    pin(0);
    uint64_t until = gm_now() + 2 * GM_S;
    uint32_t i = 0, quiet = 0, bad = 0;
    while (gm_now() < until) {
        i++;
        atomic_store(&litmus_go, i);
        for (uint32_t spin = i * 37 % 1024; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        atomic_store(&page.gate, GM_GATE_CLOSED);
        gm_gate_fence();
        if (gm_gate_scan() == GM_DRAIN_NONE) {
            quiet++;
            for (int look = 0; look < 500 && atomic_load(&litmus_entered) != i; look++)
                continue;
            bad += atomic_load(&litmus_entered) == i;
        }
        store_gate(GM_GATE_OPEN);
        atomic_store(&litmus_verdict, i);
        litmus_wait(&litmus_done, i);
    }
    pin(-1);
    atomic_store(&hammer_stop, 1);
    pthread_join(thread, NULL);
    print_message("%u rounds, %u closed before the caller came\n", i, quiet);
    assert_int_equal(bad, 0);
}

/*
 * The same for a capture that begins while the closer looks. The caller has a high slot, so that
 * there is time between the closer's look for captures and its look at that slot.
 */
#define PARKED 700
static pthread_barrier_t park_barrier;

static void *park(void *unused)
{
    (void)unused;
    gm_gate_leave(gm_gate_enter());
    pthread_barrier_wait(&park_barrier); /* all have a slot */
    pthread_barrier_wait(&park_barrier); /* the test is over */
    return NULL;
}

static void *litmus_capturer(void *unused)
{
    (void)unused;
    pin(1);
    for (uint32_t i = 1; !atomic_load(&hammer_stop); i++) {
        litmus_wait(&litmus_go, i);
        struct gm_slot *slot = gm_gate_enter();
        for (uint32_t spin = i % 128; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        gm_gate_capture_begin();
        gm_gate_leave(slot);
        litmus_wait(&litmus_verdict, i);
        gm_gate_capture_end();
        atomic_store(&litmus_done, i);
    }
    return NULL;
}

static void test_litmus_capture(void **state)
{
    static pthread_t parked[PARKED];
    pthread_t thread;
    pthread_attr_t attr;
    (void)state;
    attach(gm_gate_membarrier_register());
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    pthread_barrier_init(&park_barrier, NULL, PARKED + 1);
    for (int i = 0; i < PARKED; i++)
        assert_int_equal(pthread_create(&parked[i], &attr, park, NULL), 0);
    pthread_barrier_wait(&park_barrier);

    atomic_store(&hammer_stop, 0);
    atomic_store(&litmus_go, 0);
    atomic_store(&litmus_done, 0);
    atomic_store(&litmus_verdict, 0);
    pthread_create(&thread, NULL, litmus_capturer, NULL);
    pin(0);
    uint64_t until = gm_now() + 2 * GM_S;
    uint32_t i = 0, quiet = 0, bad = 0;
    while (gm_now() < until) {
        i++;
        atomic_store(&litmus_go, i);
        for (uint32_t spin = i * 37 % 2048; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        atomic_store(&page.gate, GM_GATE_CLOSED);
        gm_gate_fence();
        if (gm_gate_scan() == GM_DRAIN_NONE) {
            quiet++;
            bad += gm_gate_captures() > 0;
        }
        store_gate(GM_GATE_OPEN);
        atomic_store(&litmus_verdict, i);
        litmus_wait(&litmus_done, i);
    }
    pin(-1);
    atomic_store(&hammer_stop, 1);
    pthread_join(thread, NULL);
    pthread_barrier_wait(&park_barrier);
    for (int k = 0; k < PARKED; k++)
        pthread_join(parked[k], NULL);
    pthread_barrier_destroy(&park_barrier);
    pthread_attr_destroy(&attr);
    print_message("%u rounds, %u closed before the caller came\n", i, quiet);
    assert_int_equal(bad, 0);
}

/* Captures come and go while callers pass because of them. */
static void *capturer(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load_explicit(&hammer_stop, memory_order_relaxed)) {
        struct gm_slot *slot = gm_gate_enter();
        if (!may_be_inside)
            atomic_fetch_add(&hammer_bad, 1);
        gm_gate_capture_begin();
        gm_gate_leave(slot);
        for (int i = rand_r(&seed) % 64; i > 0; i--) {
            slot = gm_gate_enter();
            if (!may_be_inside)
                atomic_fetch_add(&hammer_bad, 1);
            gm_gate_leave(slot);
        }
        gm_gate_capture_end();
    }
    return NULL;
}

static void test_hammer_captures(void **state)
{
    pthread_t thread[4];
    (void)state;
    attach(gm_gate_membarrier_register());
    atomic_store(&hammer_stop, 0);
    atomic_store(&hammer_bad, 0);
    may_be_inside = 1;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, capturer, (void *)(uintptr_t)(i + 1));
    for (int i = 2; i < 4; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    uint64_t until = gm_now() + 2 * GM_S;
    bool is_quiet = true;
    int closings = 0;
    while (is_quiet && closings < 100000 && (closings <= 10 || gm_now() < until)) {
        is_quiet = close_gate();
        may_be_inside = 0;
        for (int spin = closings % 1024; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
        for (int spin = closings % 512; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        closings++;
    }
    atomic_store(&hammer_stop, 1);
    store_gate(GM_GATE_OPEN);
    print_message("%d closings\n", closings);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    assert_true(is_quiet);
    assert_int_equal(atomic_load(&hammer_bad), 0);
    assert_int_equal(gm_gate_captures(), 0);
}

/* ---- signals and cancellation ---- */

#define STRUCK 4
static _Atomic uint64_t struck_calls; /* made by the handler */

/* A handler that submits, wherever it comes: before, in, or after a call of the thread, or in its
 * wait at the gate. */
static void on_strike(int signal)
{
    (void)signal;
    struct gm_slot *slot = gm_gate_enter();
    if (slot == NULL || !may_be_inside)
        atomic_fetch_add(&hammer_bad, 1);
    if (slot != NULL)
        gm_gate_leave(slot);
    atomic_fetch_add(&struck_calls, 1);
}

/* Strikes the thread that it is given until the hammers stop. */
static void *striker(void *argument)
{
    unsigned n = 0;
    while (!atomic_load_explicit(&hammer_stop, memory_order_relaxed)) {
        pthread_kill(((pthread_t *)argument)[n++ % STRUCK], SIGUSR1);
        if (n % 16 == 0)
            sched_yield();
    }
    return NULL;
}

static void strike_hammers(bool is_asymmetric)
{
    pthread_t thread[STRUCK], other;
    struct sigaction action = {.sa_handler = on_strike, .sa_flags = SA_RESTART}, before;
    attach(is_asymmetric);
    sigaction(SIGUSR1, &action, &before);
    atomic_store(&hammer_stop, 0);
    atomic_store(&hammer_bad, 0);
    atomic_store(&struck_calls, 0);
    may_be_inside = 1;
    for (int i = 0; i < STRUCK; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    pthread_create(&other, NULL, striker, thread);
    uint64_t until = gm_now() + 3 * GM_S;
    bool is_quiet = true;
    int closings = 0;
    while (is_quiet && closings < 100000 && (closings <= 10 || gm_now() < until)) {
        is_quiet = close_gate();
        may_be_inside = 0;
        for (int spin = closings % 1024; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        if (closings % 4 == 0)
            sched_yield();
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
        closings++;
    }
    atomic_store(&hammer_stop, 1);
    store_gate(GM_GATE_OPEN);
    pthread_join(other, NULL); /* first: what it strikes must be there */
    for (int i = 0; i < STRUCK; i++)
        pthread_join(thread[i], NULL);
    sigaction(SIGUSR1, &before, NULL);
    print_message("%d closings, %llu calls of handlers\n", closings,
                  (unsigned long long)atomic_load(&struck_calls));
    assert_true(is_quiet);
    assert_int_equal(atomic_load(&hammer_bad), 0);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    assert_true(atomic_load(&struck_calls) > 0);
}

static void test_signals(void **state)
{
    (void)state;
    if (gm_gate_membarrier_register())
        strike_hammers(true);
    strike_hammers(false);
}

/* The handler comes when the thread has claimed its slot and not looked at the gate yet. */
static void *strike_while_trying(void *out)
{
    struct gm_slot *slot = gm_gate_enter();
    gm_gate_leave(slot);
    atomic_store(&slot->inside, GM_SLOT_TRYING);
    struct gm_slot *inner = gm_gate_enter();
    assert_non_null(inner);
    assert_int_equal(atomic_load(&slot->inside), GM_SLOT_IN);
    gm_gate_leave(inner);
    assert_int_equal(atomic_load(&slot->inside), GM_SLOT_TRYING);
    atomic_store(&slot->inside, GM_SLOT_OUT);
    *(bool *)out = true;
    return NULL;
}

static void *open_when_waited_for(void *unused)
{
    (void)unused;
    if (becomes(&stat_area.waiting, 1) && gm_gate_scan() == GM_DRAIN_NONE) {
        may_be_inside = 1;
        store_gate(GM_GATE_OPEN);
    }
    return NULL;
}

static void *claim_and_wait(void *out)
{
    pthread_t opener;
    gm_gate_leave(gm_gate_enter());
    may_be_inside = 0;
    store_gate(GM_GATE_CLOSED);
    pthread_create(&opener, NULL, open_when_waited_for, NULL);
    atomic_store(&gm_gate_self.own->inside, GM_SLOT_TRYING);
    struct gm_slot *inner = gm_gate_enter();
    pthread_join(opener, NULL);
    assert_int_equal(may_be_inside, 1);
    assert_int_equal(atomic_load(&gm_gate_self.own->inside), GM_SLOT_IN);
    gm_gate_leave(inner);
    assert_int_equal(atomic_load(&gm_gate_self.own->inside), GM_SLOT_TRYING);
    atomic_store(&gm_gate_self.own->inside, GM_SLOT_OUT);
    *(bool *)out = true;
    return NULL;
}

static void test_handler_of_a_claim(void **state)
{
    bool is_done = false;
    (void)state;
    attach(gm_gate_membarrier_register());
    run(strike_while_trying, &is_done);
    assert_true(is_done);
    is_done = false;
    run(claim_and_wait, &is_done);
    assert_true(is_done);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
}

/* A thread is cancelled while it waits at the gate: it waits on, and ends at the next place that
 * the program itself chose. */
static void *be_cancelled(void *out)
{
    struct gm_slot *slot = gm_gate_enter();
    *(_Atomic int *)out = 1;
    gm_gate_leave(slot);
    pthread_testcancel();
    *(_Atomic int *)out = 2;
    return NULL;
}

static void test_cancelled_at_the_gate(void **state)
{
    pthread_t thread;
    _Atomic int got = 0;
    void *end;
    (void)state;
    attach(gm_gate_membarrier_register());
    store_gate(GM_GATE_CLOSED);
    pthread_create(&thread, NULL, be_cancelled, &got);
    assert_true(becomes(&stat_area.waiting, 1));
    pthread_cancel(thread);
    nap(100000);
    assert_int_equal(atomic_load(&stat_area.waiting), 1);
    store_gate(GM_GATE_OPEN);
    pthread_join(thread, &end);
    assert_ptr_equal(end, PTHREAD_CANCELED);
    assert_int_equal(atomic_load(&got), 1);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
}

/* ---- nesting ---- */

static void *nest(void *unused)
{
    (void)unused;
    struct gm_slot *outer = gm_gate_enter();
    assert_non_null(outer);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    store_gate(GM_GATE_CLOSED);
    struct gm_slot *inner = gm_gate_enter(); /* must not wait */
    assert_non_null(inner);
    assert_ptr_not_equal(inner, outer);
    gm_gate_leave(inner);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    gm_gate_leave(outer);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    assert_int_equal(atomic_load(&outer->calls), 1);
    store_gate(GM_GATE_OPEN);

    /* A synchronizing call in a submitting one and the other way round. */
    struct gm_slot *sync = gm_sync_enter();
    assert_ptr_equal(sync, gm_sync_enter() == NULL ? outer : NULL);
    outer = gm_gate_enter();
    assert_int_equal(atomic_load(&outer->inside), GM_SLOT_IN);
    assert_int_equal(atomic_load(&outer->blocked), 1);
    gm_sync_leave(NULL);
    assert_int_equal(atomic_load(&outer->blocked), 1);
    gm_gate_leave(outer);
    gm_sync_leave(sync);
    assert_int_equal(atomic_load(&outer->inside), 0);
    assert_int_equal(atomic_load(&outer->blocked), 0);
    assert_int_equal(atomic_load(&outer->calls), 3);
    return NULL;
}

static void test_nested(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    run(nest, NULL);
    attach(false);
    run(nest, NULL);
}

/* ---- waiting ---- */

static _Atomic uint32_t went_through;

static void *go_through(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    atomic_fetch_add(&went_through, slot != NULL ? 1 : 100);
    if (slot != NULL)
        gm_gate_leave(slot);
    return NULL;
}

static void *sync_once(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_sync_enter();
    assert_non_null(slot);
    gm_sync_leave(slot);
    return NULL;
}

static void no_handler(int number)
{
    (void)number;
}

/* A waiter is counted first and asks then: wait until it asked more than `before` times. */
static bool is_wanted(int before)
{
    for (uint64_t until = gm_now() + 60 * GM_S; gm_now() < until; nap(100))
        if (atomic_load(&wants) > before)
            return true;
    return false;
}

static void test_waits_and_asks_once(void **state)
{
    pthread_t thread[3];
    (void)state;
    attach(gm_gate_membarrier_register());
    atomic_store(&went_through, 0);
    store_gate(GM_GATE_CLOSED);
    uint64_t at = gm_now();
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, go_through, NULL);
    assert_true(becomes(&stat_area.waiting, 3));
    assert_true(is_wanted(0));
    int asked = atomic_load(&wants);
    if (gm_now() - at < GM_S / 2) /* later the re-check asks again */
        assert_in_range(asked, 1, 2);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);

    /* A signal does not let a waiter through. */
    struct sigaction action = {.sa_handler = no_handler};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 20; i++) {
        pthread_kill(thread[i % 3], SIGUSR1);
        nap(500);
    }
    assert_int_equal(atomic_load(&went_through), 0);
    assert_int_equal(atomic_load(&stat_area.waiting), 3);

    /* A synchronizing call does not wait. */
    run(sync_once, NULL);

    store_gate(GM_GATE_OPEN);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&went_through), 3);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);

    /* The next closing is asked for anew. */
    int before = atomic_load(&wants);
    store_gate(GM_GATE_CLOSED);
    pthread_create(&thread[0], NULL, go_through, NULL);
    assert_true(becomes(&stat_area.waiting, 1));
    assert_true(is_wanted(before));
    store_gate(GM_GATE_OPEN);
    pthread_join(thread[0], NULL);
}

static void test_capture_passes(void **state)
{
    pthread_t thread;
    (void)state;
    attach(gm_gate_membarrier_register());
    atomic_store(&went_through, 0);
    gm_gate_capture_begin();
    store_gate(GM_GATE_CLOSED);
    gm_gate_fence();
    assert_int_equal(gm_gate_scan(), GM_DRAIN_CAPTURE);
    run(go_through, NULL); /* comes back: the closed gate let it pass */
    assert_int_equal(atomic_load(&went_through), 1);
    assert_int_equal(gm_gate_capture_end(), 0);
    assert_int_equal(gm_gate_capture_end(), 0); /* one too many: stays 0 */
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    pthread_create(&thread, NULL, go_through, NULL);
    assert_true(becomes(&stat_area.waiting, 1));
    assert_int_equal(atomic_load(&went_through), 1);
    store_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&went_through), 2);
}

/* ---- slots ---- */

static void *show_slot(void *out)
{
    struct gm_slot *slot = gm_gate_enter();
    *(struct gm_slot **)out = slot;
    gm_gate_leave(slot);
    return NULL;
}

static void *exit_inside(void *out)
{
    *(struct gm_slot **)out = gm_gate_enter();
    gm_sync_enter();
    pthread_exit(NULL);
}

static void test_slots_are_reused(void **state)
{
    struct gm_slot *first = NULL, *other = NULL;
    (void)state;
    attach(gm_gate_membarrier_register());
    run(show_slot, &first);
    for (int i = 0; i < 2 * (int)GM_SLOTS; i++) {
        run(show_slot, &other);
        assert_ptr_equal(other, first);
    }
    run(exit_inside, &other);
    assert_ptr_equal(other, first);
    assert_int_equal(atomic_load(&other->inside), 0);
    assert_int_equal(atomic_load(&other->blocked), 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    run(show_slot, &other);
    assert_ptr_equal(other, first);
}

#define CROWD (GM_SLOTS + 24u)
static pthread_barrier_t crowd_barrier;
static _Atomic uint32_t crowd_nested;

static void *crowd_member(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    struct gm_slot *sync = gm_sync_enter();
    struct gm_slot *nested = gm_gate_enter();
    if (nested != NULL && nested != slot && gm_sync_enter() == NULL)
        atomic_fetch_add(&crowd_nested, 1);
    gm_gate_leave(nested);
    pthread_barrier_wait(&crowd_barrier); /* all are inside */
    pthread_barrier_wait(&crowd_barrier); /* the test has looked */
    gm_sync_leave(sync);
    gm_gate_leave(slot);
    return NULL;
}

static void test_overflow_shares_a_slot(void **state)
{
    static pthread_t crowd[CROWD];
    struct gm_slot *shared = &stat_area.slot[GM_SLOTS - 1];
    pthread_attr_t attr;
    (void)state;
    attach(gm_gate_membarrier_register());
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    pthread_barrier_init(&crowd_barrier, NULL, CROWD + 1);
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&crowd[i], &attr, crowd_member, NULL), 0);
    pthread_barrier_wait(&crowd_barrier);
    assert_int_equal(atomic_load(&crowd_nested), CROWD);
    assert_int_equal(atomic_load(&shared->inside), CROWD - (GM_SLOTS - 1));
    assert_int_equal(atomic_load(&shared->blocked), CROWD - (GM_SLOTS - 1));
    for (unsigned i = 0; i < GM_SLOTS - 1; i++)
        assert_int_equal(atomic_load(&stat_area.slot[i].inside), GM_SLOT_IN);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    pthread_barrier_wait(&crowd_barrier);
    for (unsigned i = 0; i < CROWD; i++)
        pthread_join(crowd[i], NULL);
    assert_int_equal(atomic_load(&shared->inside), 0);
    assert_int_equal(atomic_load(&shared->blocked), 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    pthread_barrier_destroy(&crowd_barrier);
    pthread_attr_destroy(&attr);
}

/* ---- boot, loss, fork ---- */

static void *before_boot(void *unused)
{
    (void)unused;
    int before = atomic_load(&boots);
    assert_null(gm_sync_enter()); /* does not boot */
    assert_int_equal(atomic_load(&boots), before);
    struct gm_slot *slot = gm_gate_enter(); /* tries to, and is handed through */
    assert_int_equal(atomic_load(&boots), before + 1);
    assert_non_null(slot);
    gm_gate_leave(slot);
    gm_sync_leave(NULL);
    return NULL;
}

static void test_cold_passes(void **state)
{
    (void)state;
    attach(true);
    store_gate(GM_GATE_CLOSED);
    atomic_store(&boot_state, GM_BOOT_COLD);
    run(before_boot, NULL);
    for (unsigned i = 0; i < GM_SLOTS; i++)
        assert_int_equal(atomic_load(&stat_area.slot[i].calls), 0);
}

/* The daemon is lost while somebody waits; how long that one went on waiting. */
static uint64_t lose_with_a_waiter(bool is_whole)
{
    pthread_t thread;
    attach(gm_gate_membarrier_register());
    atomic_store(&went_through, 0);
    store_gate(GM_GATE_CLOSED);
    pthread_create(&thread, NULL, go_through, NULL);
    assert_true(becomes(&stat_area.waiting, 1));
    nap(100000); /* it waits in the kernel by now */
    uint64_t at = gm_now();
    gm_gate_lost(is_whole);
    pthread_join(thread, NULL);
    uint64_t took = gm_now() - at;
    assert_int_equal(atomic_load(&went_through), is_whole ? 1 : 100);
    run(go_through, NULL); /* and the next */
    assert_int_equal(atomic_load(&went_through), is_whole ? 2 : 200);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    return took;
}

static void test_lost(void **state)
{
    (void)state;
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < 10 && least >= GM_S / 2; i++) { /* the machine may be busy */
            uint64_t took = lose_with_a_waiter(is_whole == 1);
            least = took < least ? took : least;
        }
        assert_true(least < GM_S / 2); /* woken, not timed out */
    }
    assert_int_equal(gm_gate_refusal(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void *fork_inside(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    store_gate(GM_GATE_CLOSED);
    pid_t child = fork();
    if (child == 0) {
        gm_gate_after_fork();
        gm_gate_leave(slot); /* the parent's: no effect there */
        struct gm_slot *own = gm_gate_enter();
        gm_gate_leave(own);
        _exit(own == NULL || own == slot || atomic_load(&own->calls) != 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&slot->inside), GM_SLOT_IN);
    gm_gate_leave(slot);
    return NULL;
}

static void test_fork(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    run(fork_inside, NULL);
}

static void test_without_daemon(void **state)
{
    (void)state;
    attach(true);
    store_gate(GM_GATE_CLOSED);
    assert_int_equal(gm_gate_attach(NULL, NULL, false), 0);
    atomic_store(&boot_state, GM_BOOT_PASS);
    atomic_store(&went_through, 0);
    run(go_through, NULL);
    assert_int_equal(atomic_load(&went_through), 1);
    assert_ptr_not_equal(gm_gate_stat(), &stat_area);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_passes),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_waits_and_asks_once),
        cmocka_unit_test(test_capture_passes),
        cmocka_unit_test(test_slots_are_reused),
        cmocka_unit_test(test_overflow_shares_a_slot),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_hammer_membarrier),
        cmocka_unit_test(test_hammer_fences),
        cmocka_unit_test(test_litmus),
        cmocka_unit_test(test_litmus_capture),
        cmocka_unit_test(test_hammer_captures),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_handler_of_a_claim),
        cmocka_unit_test(test_cancelled_at_the_gate),
        cmocka_unit_test(test_without_daemon),
    };
    sched_getaffinity(0, sizeof(processors), &processors);
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}

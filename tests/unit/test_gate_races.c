/*
 * The gate, closed again and again while threads, captures and signal handlers come and go as they
 * like: nobody is inside after the closer's wait. What each of them may expect, one at a time, is
 * in test_gate.c.
 */
#include "tests/unit/gate_world.h"

#include <signal.h>

#define HAMMERS 8

/* How long each of these goes on; with --long eight times that. On two processors a tenth of it
 * finds a closer without its membarrier, each time of five. */
static uint64_t round_ns = 500 * GM_MS;

/* Close and open on: ten times at least, and then as often as `most` until the time `until`. */
static bool is_more(int closings, int most, uint64_t until)
{
    return closings <= 10 || (closings < most && gm_now() < until);
}

static void hammer_gate(bool is_asymmetric)
{
    pthread_t thread[HAMMERS];
    attach(is_asymmetric);
    ready_hammers();
    for (int i = 0; i < HAMMERS; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));

    unsigned seed = 7;
    uint64_t until = gm_now() + round_ns;
    int closings = 0;
    bool is_quiet = true;
    while (is_quiet && is_more(closings, 3000, until)) {
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

/* ---- single rounds ---- */

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

static void ready_litmus(void)
{
    atomic_store(&hammer_stop, 0);
    atomic_store(&litmus_go, 0);
    atomic_store(&litmus_entered, 0);
    atomic_store(&litmus_done, 0);
    atomic_store(&litmus_verdict, 0);
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

/*
 * Close the gate again and again about when `caller` comes, up to `spins` later. Returns how often
 * nobody was seen inside and `is_wrong` said of that round that there was somebody.
 */
static uint32_t run_litmus(void *(*caller)(void *), uint32_t spins, bool (*is_wrong)(uint32_t))
{
    pthread_t thread;
    ready_litmus();
    pthread_create(&thread, NULL, caller, NULL);
    pin(0);
    uint64_t until = gm_now() + round_ns;
    uint32_t i = 0, quiet = 0, bad = 0;
    while (gm_now() < until) {
        i++;
        atomic_store(&litmus_go, i);
        for (uint32_t spin = i * 37 % spins; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
        atomic_store(&page.gate, GM_GATE_CLOSED);
        gm_gate_fence();
        if (gm_gate_scan() == GM_DRAIN_NONE) {
            quiet++;
            bad += is_wrong(i);
        }
        store_gate(GM_GATE_OPEN);
        atomic_store(&litmus_verdict, i);
        litmus_wait(&litmus_done, i);
    }
    pin(-1);
    atomic_store(&hammer_stop, 1);
    pthread_join(thread, NULL);
    print_message("%u rounds, %u closed before the caller came\n", i, quiet);
    return bad;
}

static bool has_entered(uint32_t round)
{
    for (int look = 0; look < 500 && atomic_load(&litmus_entered) != round; look++)
        continue;
    return atomic_load(&litmus_entered) == round;
}

static void test_litmus(void **state)
{
    (void)state;
    if (!gm_gate_membarrier_register())
        skip();
    attach(true);
    assert_int_equal(run_litmus(litmus_caller, 1024, has_entered), 0);
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

static bool is_captured(uint32_t unused)
{
    (void)unused;
    return gm_gate_captures() > 0;
}

static void test_litmus_capture(void **state)
{
    static pthread_t parked[PARKED];
    pthread_attr_t attr;
    (void)state;
    attach(gm_gate_membarrier_register());
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    pthread_barrier_init(&park_barrier, NULL, PARKED + 1);
    for (int i = 0; i < PARKED; i++)
        assert_int_equal(pthread_create(&parked[i], &attr, park, NULL), 0);
    pthread_barrier_wait(&park_barrier);

    uint32_t bad = run_litmus(litmus_capturer, 2048, is_captured);
    pthread_barrier_wait(&park_barrier);
    for (int k = 0; k < PARKED; k++)
        pthread_join(parked[k], NULL);
    pthread_barrier_destroy(&park_barrier);
    pthread_attr_destroy(&attr);
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
    ready_hammers();
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, capturer, (void *)(uintptr_t)(i + 1));
    for (int i = 2; i < 4; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    uint64_t until = gm_now() + round_ns;
    bool is_quiet = true;
    int closings = 0;
    while (is_quiet && is_more(closings, 100000, until)) {
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

/* ---- signals ---- */

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
    ready_hammers();
    atomic_store(&struck_calls, 0);
    for (int i = 0; i < STRUCK; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    pthread_create(&other, NULL, striker, thread);
    uint64_t until = gm_now() + round_ns;
    bool is_quiet = true;
    int closings = 0;
    while (is_quiet && (is_more(closings, 100000, until) ||
                        (atomic_load(&struck_calls) == 0 && gm_now() < until + LONG))) {
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hammer_membarrier),
        cmocka_unit_test(test_hammer_fences),
        cmocka_unit_test(test_litmus),
        cmocka_unit_test(test_litmus_capture),
        cmocka_unit_test(test_hammer_captures),
        cmocka_unit_test(test_signals),
    };
    if (argc > 1 && strcmp(argv[1], "--long") == 0)
        round_ns *= 8;
    sched_getaffinity(0, sizeof(processors), &processors);
    return cmocka_run_group_tests_name("gate_races", tests, NULL, NULL);
}

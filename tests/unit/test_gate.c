/*
 * The gate, one caller at a time: who comes in, who waits, who is let through and who is refused,
 * and what is left of a thread that ends, of a signal handler, of a daemon that is lost and of a
 * fork. test_gate_races.c has them all at once.
 */
#include "tests/unit/gate_world.h"

#include <signal.h>
#include <sys/wait.h>

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

    /* A synchronizing call in a submitting one is no work, whoever wants to know the rhythm. */
    for (uint32_t has_rhythm = 0; has_rhythm < 2; has_rhythm++) {
        outer = gm_gate_enter();
        atomic_store(&page.has_rhythm, has_rhythm);
        gm_gate_waited();
        assert_int_equal(atomic_load(&outer->inside), GM_SLOT_IN);
        assert_int_equal(atomic_load(&outer->calls), 1 + has_rhythm);
        gm_gate_leave(outer);
    }
    atomic_store(&page.has_rhythm, 0);
    assert_int_equal(atomic_load(&outer->inside), 0);
    assert_int_equal(atomic_load(&outer->calls), 3);
    return NULL;
}

/* Who is inside when that is noted has left when that call is over, whatever comes after it. */
static void *leave(void *unused)
{
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    gm_gate_note_inside();
    assert_false(gm_gate_have_left());
    gm_gate_leave(gm_gate_enter()); /* nested: the outer call goes on */
    assert_false(gm_gate_have_left());
    gm_gate_leave(slot);
    slot = gm_gate_enter(); /* the next one, which saw what was stored before */
    assert_true(gm_gate_have_left());
    gm_gate_leave(slot);
    gm_gate_note_inside();
    slot = gm_gate_enter();
    assert_true(gm_gate_have_left());
    gm_gate_leave(slot);
    return NULL;
}

static void test_leaves(void **state)
{
    (void)state;
    attach(gm_gate_membarrier_register());
    run(leave, NULL);
    attach(false);
    run(leave, NULL);
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

static void *sync_once(void *unused)
{
    (void)unused;
    gm_gate_waited();
    assert_null(gm_gate_self.own); /* it leaves no trace */
    return NULL;
}

static void no_handler(int number)
{
    (void)number;
}

/* A waiter is counted first and asks then: wait until it asked more than `before` times. */
static bool is_wanted(int before)
{
    for (uint64_t until = gm_now() + LONG; gm_now() < until; nap(100))
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
    assert_true(falls_quiet());

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

/* Who waits asks again each second. One that signals wake all the time tells of them, at once and
 * then once a second. */
static void test_asks_again(void **state)
{
    pthread_t thread;
    (void)state;
    attach(gm_gate_membarrier_register());
    atomic_store(&went_through, 0);
    struct sigaction action = {.sa_handler = no_handler};
    sigaction(SIGUSR1, &action, NULL);
    store_gate(GM_GATE_CLOSED);
    const uint64_t at = gm_now();
    pthread_create(&thread, NULL, go_through, NULL);
    assert_true(becomes(&stat_area.waiting, 1));
    assert_true(is_wanted(0));
    assert_int_equal(atomic_load(&hurries), 0);
    while (atomic_load(&hurries) < 1 && gm_now() - at < LONG) {
        pthread_kill(thread, SIGUSR1);
        nap(10000);
    }
    while (atomic_load(&wants) < 5 && gm_now() - at < LONG) {
        pthread_kill(thread, SIGUSR1);
        nap(50000);
    }
    assert_true(atomic_load(&wants) >= 5 && atomic_load(&hurries) >= 3);
    assert_true(gm_now() - at >= 2 * GM_S);
    assert_int_equal(atomic_load(&went_through), 0);
    store_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
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
    struct gm_slot *nested = gm_gate_enter();
    atomic_fetch_add(&crowd_nested, nested != NULL && nested != slot);
    gm_gate_leave(nested);
    pthread_barrier_wait(&crowd_barrier); /* all are inside */
    pthread_barrier_wait(&crowd_barrier); /* the test has looked */
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
    for (unsigned i = 0; i < GM_SLOTS - 1; i++)
        assert_int_equal(atomic_load(&stat_area.slot[i].inside), GM_SLOT_IN);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_INSIDE);
    pthread_barrier_wait(&crowd_barrier);
    for (unsigned i = 0; i < CROWD; i++)
        pthread_join(crowd[i], NULL);
    assert_int_equal(atomic_load(&shared->inside), 0);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    pthread_barrier_destroy(&crowd_barrier);
    pthread_attr_destroy(&attr);
}

/* ---- boot, loss, fork ---- */

static void *before_boot(void *unused)
{
    (void)unused;
    int before = atomic_load(&boots);
    gm_gate_waited(); /* does not boot */
    assert_int_equal(atomic_load(&boots), before);
    struct gm_slot *slot = gm_gate_enter(); /* tries to, and is handed through */
    assert_int_equal(atomic_load(&boots), before + 1);
    assert_non_null(slot);
    gm_gate_leave(slot);
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
    /* What a call says of work that lost its memory is the same error; other results stay. */
    assert_int_equal(gm_gate_result(CUDA_ERROR_ILLEGAL_ADDRESS),
                     is_whole ? CUDA_ERROR_ILLEGAL_ADDRESS : gm_gate_refusal());
    assert_int_equal(gm_gate_result(CUDA_ERROR_NOT_READY), CUDA_ERROR_NOT_READY);
    assert_int_equal(gm_gate_result(CUDA_SUCCESS), CUDA_SUCCESS);
    assert_int_equal(gm_gate_scan(), GM_DRAIN_NONE);
    return took;
}

static void test_lost(void **state)
{
    (void)state;
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < 60 && least >= GM_S / 2; i++) { /* the machine may be busy */
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

/* A handler forks in the middle of the wait: the child, whom nobody can let go, goes on. */
static _Atomic pid_t forked;

static void fork_in_handler(int number)
{
    (void)number;
    const pid_t child = fork();
    if (child == 0)
        gm_gate_after_fork();
    else
        atomic_store(&forked, child);
}

static void *wait_and_be_two(void *unused)
{
    const pid_t parent = getpid();
    (void)unused;
    struct gm_slot *slot = gm_gate_enter();
    gm_gate_leave(slot);
    if (getpid() != parent) /* what it had of its parent's is as it was */
        _exit(slot == NULL || atomic_load(&stat_area.waiting) != 1 ||
              atomic_load(&slot->inside) != GM_SLOT_OUT);
    return NULL;
}

static void test_fork_in_the_wait(void **state)
{
    pthread_t thread;
    int status = -1;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes a fork in a handler for an error, whatever follows */
#endif
    attach(gm_gate_membarrier_register());
    struct sigaction action = {.sa_handler = fork_in_handler};
    sigaction(SIGUSR2, &action, NULL);
    store_gate(GM_GATE_CLOSED);
    pthread_create(&thread, NULL, wait_and_be_two, NULL);
    assert_true(becomes(&stat_area.waiting, 1));
    nap(100000); /* in the wait by now, most likely */
    pthread_kill(thread, SIGUSR2);
    while (atomic_load(&forked) == 0)
        nap(1000);
    assert_int_equal(waitpid(atomic_load(&forked), &status, 0), atomic_load(&forked));
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&stat_area.waiting), 1);
    store_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&stat_area.waiting), 0);
}

static void test_without_daemon(void **state)
{
    (void)state;
    attach(true);
    store_gate(GM_GATE_CLOSED);
    assert_int_equal(gm_gate_attach(NULL, NULL, false, NULL), 0);
    atomic_store(&boot_state, GM_BOOT_PASS);
    atomic_store(&went_through, 0);
    run(go_through, NULL);
    assert_int_equal(atomic_load(&went_through), 1);
    assert_ptr_not_equal(gm_gate_stat(), &stat_area);
}

/* ---- signals and cancellation ---- */

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
    if (becomes(&stat_area.waiting, 1) && falls_quiet()) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_passes),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_waits_and_asks_once),
        cmocka_unit_test(test_asks_again),
        cmocka_unit_test(test_capture_passes),
        cmocka_unit_test(test_slots_are_reused),
        cmocka_unit_test(test_overflow_shares_a_slot),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_in_the_wait),
        cmocka_unit_test(test_handler_of_a_claim),
        cmocka_unit_test(test_cancelled_at_the_gate),
        cmocka_unit_test(test_without_daemon),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}

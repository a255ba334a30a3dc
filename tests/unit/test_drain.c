/*
 * shim/gate/drain: `watch` is called in time, however long the work takes that a QUERY or a CLOSE
 * waits for. When work has ended that was marked in a window, the daemon is told.
 * The test is the gate and the contexts around it; the work ends when the test says so.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "shim/driver/real.h"
#include "shim/gate/captures.h"
#include "shim/gate/contexts.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"

#define PATIENCE_S 20

static sem_t watching, go_on;      /* the drainer is in `watch`; it may leave it */
static _Atomic uint64_t watch_ns;  /* what that returns: so much from now, 0: UINT64_MAX */
static _Atomic uint64_t answered;  /* the newest QUERY, or CLOSE that found it quiet */
static _Atomic uint32_t has_ended; /* of the work */
static _Atomic uint32_t inside;    /* enum gm_drain_reason */
static _Atomic uint32_t is_out;    /* something is to be moved back when the gate opens */
static _Atomic uint32_t is_open;   /* the gate */
static _Atomic uint64_t n_resumed; /* how often it was moved back */

/* ---- what is around it ---- */

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

struct gm_real gm_real = {.cuThreadExchangeStreamCaptureMode = exchange_mode};

bool gm_contexts_had_work(void)
{
    return false;
}

CUresult gm_contexts_finish(const _Atomic uint64_t *stamp, uint64_t seen, uint64_t late_ns,
                            uint64_t until)
{
    const struct timespec nap = {.tv_nsec = 100 * GM_US};
    (void)late_ns;
    while (!atomic_load(&has_ended)) {
        if (atomic_load(stamp) != seen || gm_now() >= until)
            return CUDA_ERROR_NOT_READY;
        nanosleep(&nap, NULL);
    }
    return CUDA_SUCCESS;
}

CUresult gm_contexts_synchronize(void)
{
    return CUDA_SUCCESS;
}

static _Atomic uint64_t follows;   /* calls of gm_contexts_follow */
static _Atomic uint32_t followed;  /* the newest one's window */
static _Atomic uint32_t is_passed; /* the work of that has ended */
static _Atomic uint32_t cannot;    /* the driver cannot record an event for a context */
static _Atomic uint32_t stays;     /* a thread is in the call that it was in */
static _Atomic uint32_t is_stopped;

CUresult gm_contexts_follow(uint32_t window)
{
    atomic_store(&followed, window);
    atomic_fetch_add(&follows, 1);
    return atomic_load(&cannot)      ? CUDA_ERROR_NOT_SUPPORTED
           : atomic_load(&is_passed) ? CUDA_SUCCESS
                                     : CUDA_ERROR_NOT_READY;
}

static struct gm_ctl ctl;
static struct gm_stat stat_area;
struct gm_hot gm_hot = {.page = &ctl};

struct gm_stat *gm_gate_stat(void)
{
    return &stat_area;
}

static _Atomic uint64_t noted;

void gm_gate_note_inside(void)
{
    atomic_fetch_add(&noted, 1);
}

bool gm_gate_have_left(void)
{
    return !atomic_load(&stays);
}

void gm_contexts_wake(void)
{
}

void gm_captures_settle(void)
{
}

uint32_t gm_gate_captures(void)
{
    return 0;
}

bool gm_gate_await_open(uint64_t most_ns)
{
    const struct timespec nap = {.tv_nsec = 100 * GM_US};
    if (!atomic_load(&is_open) && most_ns > 0)
        nanosleep(&nap, NULL);
    return atomic_load(&is_open);
}

void gm_gate_fence(void)
{
}

enum gm_drain_reason gm_gate_scan(void)
{
    return (enum gm_drain_reason)atomic_load(&inside);
}

void gm_park_begin(void)
{
}

enum gm_park_outcome gm_park_try(enum gm_park_outcome (*disable)(void))
{
    (void)disable;
    return GM_PARK_NEVER;
}

void gm_park_end(void (*enable)(void))
{
    (void)enable;
}

bool gm_park_is_on(void)
{
    return false;
}

bool gm_park_is_stopped(void)
{
    return atomic_load(&is_stopped);
}

static void drained(const struct gm_msg_drained *message)
{
    atomic_store(&answered, message->status == GM_DRAIN_QUIET ? message->epoch : UINT64_MAX);
}

static void quiet(const struct gm_msg_quiet *message)
{
    atomic_store(&answered, message->query);
}

static void clear(uint64_t until)
{
    (void)until;
}

static bool paused(void)
{
    return atomic_load(&is_out);
}

static void resumed(void)
{
    atomic_store(&is_out, 0);
    atomic_fetch_add(&n_resumed, 1);
}

static uint64_t watch(uint64_t now)
{
    (void)now;
    sem_post(&watching);
    sem_wait(&go_on);
    const uint64_t ns = atomic_load(&watch_ns);
    return ns == 0 ? UINT64_MAX : gm_now() + ns;
}

static const struct gm_drain_calls calls = {
    .drained = drained,
    .quiet = quiet,
    .clear = clear,
    .paused = paused,
    .resumed = resumed,
    .watch = watch,
};

/* ---- tests ---- */

static void await_watch(const char *what)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (sem_timedwait(&watching, &until) != 0)
        fail_msg("watch is not called %s", what);
}

static void await_value(const _Atomic uint64_t *word, uint64_t value)
{
    const struct timespec nap = {.tv_nsec = 100 * GM_US};
    const uint64_t until = gm_now() + PATIENCE_S * GM_S;
    while (atomic_load(word) != value && gm_now() < until)
        nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(word), value);
}

static void end_work(uint64_t number)
{
    atomic_store(&has_ended, 1);
    await_value(&answered, number);
    atomic_store(&has_ended, 0);
}

/* A QUERY comes before the drainer saw that it is to call `watch`. */
static void test_asked_before_a_query(void **state)
{
    (void)state;
    gm_drain_watch();
    await_watch("when idle");
    gm_drain_watch();
    gm_drain_query(1);
    sem_post(&go_on);
    await_watch("though it was asked for before the query");
    sem_post(&go_on);
    end_work(1);
}

/* The time comes while the drainer waits for work. */
static void test_due_in_a_query(void **state)
{
    (void)state;
    atomic_store(&watch_ns, 20 * GM_MS);
    gm_drain_watch();
    await_watch("when idle");
    gm_drain_query(2);
    sem_post(&go_on);
    await_watch("when it is time");
    atomic_store(&watch_ns, 0);
    sem_post(&go_on);
    end_work(2);
}

/* It is asked for while the drainer waits for work: the answer to the query is no. */
static void test_asked_in_a_query(void **state)
{
    (void)state;
    gm_drain_query(3);
    gm_drain_watch();
    await_watch("during a query");
    sem_post(&go_on);
    end_work(3);
}

static void close_gate(uint64_t epoch)
{
    gm_drain_close(epoch, GM_S, 1000 * GM_S, gm_now());
}

/* The same while it waits for work because of a CLOSE: before that is known not to end. */
static void test_asked_in_a_close(void **state)
{
    (void)state;
    close_gate(4);
    gm_drain_watch();
    await_watch("during a drain");
    atomic_store(&watch_ns, 20 * GM_MS);
    sem_post(&go_on);
    await_watch("when it is time during a drain");
    atomic_store(&watch_ns, 0);
    sem_post(&go_on);
    end_work(4);
}

/* A thread is in a call of the driver, which may never end. */
static void test_asked_while_somebody_is_inside(void **state)
{
    (void)state;
    atomic_store(&inside, GM_DRAIN_INSIDE);
    close_gate(5);
    gm_drain_watch();
    await_watch("while somebody is inside");
    sem_post(&go_on);
    atomic_store(&inside, GM_DRAIN_NONE);
    end_work(5);
}

/* What was moved out stays there until the gate opens, though it was asked to watch meanwhile. */
static void test_out_until_open(void **state)
{
    const struct timespec nap = {.tv_nsec = 50 * GM_MS};
    (void)state;
    atomic_store(&is_out, 1);
    close_gate(6);
    gm_drain_watch();
    await_watch("during a drain");
    gm_drain_watch(); /* the drain has begun */
    sem_post(&go_on);
    await_watch("once more");
    sem_post(&go_on);
    end_work(6);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&n_resumed), 0);
    atomic_store(&is_open, 1);
    await_value(&n_resumed, 1);
    atomic_store(&is_open, 0);
}

/* A new CLOSE ends that wait: the gate was open in between. */
static void test_closed_again(void **state)
{
    (void)state;
    atomic_store(&is_out, 1);
    close_gate(7);
    end_work(7);
    close_gate(8);
    await_value(&n_resumed, 2);
    end_work(8);
}

static void await_lasts(uint32_t window)
{
    const struct timespec nap = {.tv_nsec = 100 * GM_US};
    const uint64_t until = gm_now() + PATIENCE_S * GM_S;
    while (atomic_load(&stat_area.lasts_from) != window && gm_now() < until)
        nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&stat_area.lasts_from), window);
}

/* Looks at windows go on, whatever comes of them. */
static void await_follows(void)
{
    const struct timespec nap = {.tv_nsec = 100 * GM_US};
    const uint64_t before = atomic_load(&follows), until = gm_now() + PATIENCE_S * GM_S;
    while (atomic_load(&follows) == before && gm_now() < until)
        nanosleep(&nap, NULL);
    assert_true(atomic_load(&follows) > before);
}

/* What was marked before a window lasts until the work of then has ended; all else is served
 * meanwhile, and newer windows do not put it off. */
static void test_lasts(void **state)
{
    const struct timespec nap = {.tv_nsec = 250 * GM_MS};
    (void)state;
    atomic_store(&ctl.window, 5);
    gm_drain_follow(5);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 5);
    assert_int_equal(atomic_load(&follows), 0); /* there is none before it */

    atomic_store(&ctl.window, 7);
    await_follows();
    assert_int_equal(atomic_load(&noted), 1); /* once a window */
    assert_int_equal(atomic_load(&stat_area.lasts_from), 5);
    gm_drain_watch();
    await_watch("while work of a window goes on");
    sem_post(&go_on);
    atomic_store(&ctl.window, 8);
    await_follows();
    gm_drain_query(9);
    end_work(9);
    await_follows();
    assert_int_equal(atomic_load(&followed), 7);
    assert_int_equal(atomic_load(&noted), 1);
    atomic_store(&is_stopped, 1); /* the driver may wait for the program's channels */
    nanosleep(&nap, NULL);
    const uint64_t stopped = atomic_load(&follows);
    atomic_store(&is_passed, 1);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&follows), stopped);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 5);
    atomic_store(&is_stopped, 0);
    await_lasts(7);
    await_lasts(8);
    assert_int_equal(atomic_load(&noted), 2);

    atomic_store(&stays, 1); /* a thread waits in the driver to submit what it has marked */
    atomic_store(&ctl.window, 9);
    nanosleep(&nap, NULL);
    atomic_store(&ctl.window, 10);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 8);
    assert_int_equal(atomic_load(&noted), 3);
    atomic_store(&is_passed, 0);
    atomic_store(&stays, 0);
    await_follows();
    assert_int_equal(atomic_load(&followed), 9);

    close_gate(10); /* who is quiet has ended all */
    end_work(10);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 10);
    atomic_store(&ctl.window, 11);
    await_follows();
    await_follows();
    assert_int_equal(atomic_load(&followed), 11); /* and what was followed is over */

    atomic_store(&cannot, 1);
    await_lasts(0);
    close_gate(11);
    end_work(11);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 0); /* nor then: that is not known next */
    const uint64_t before = atomic_load(&follows);
    atomic_store(&ctl.window, 12);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&follows), before);
    atomic_store(&cannot, 0);
    gm_drain_follow(12); /* once more, and no more */
    atomic_store(&is_passed, 1);
    atomic_store(&ctl.window, 13);
    await_lasts(13);
    gm_drain_follow(0);
    atomic_store(&ctl.window, 14);
    nanosleep(&nap, NULL);
    assert_int_equal(atomic_load(&stat_area.lasts_from), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked_before_a_query),
        cmocka_unit_test(test_due_in_a_query),
        cmocka_unit_test(test_asked_in_a_query),
        cmocka_unit_test(test_asked_in_a_close),
        cmocka_unit_test(test_asked_while_somebody_is_inside),
        cmocka_unit_test(test_out_until_open),
        cmocka_unit_test(test_closed_again),
        cmocka_unit_test(test_lasts),
    };
    sem_init(&watching, 0, 0);
    sem_init(&go_on, 0, 0);
    if (gm_drain_start(&calls) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

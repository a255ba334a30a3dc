/* core/sched at its edges: accounts, events that are not legal, time, configurations, speed. */
#include <time.h>

#include "tests/unit/sched_fixture.h"

/* ---- Accounts, faults, time ---- */

static void accounts_are_exact_on_edges(void **state)
{
    (void)state;
    arrive(0, 60);
    now += 3;
    assert_int_equal(account(0).wait_ns, 3);
    assert_int_equal(account(0).waiting_at, 1000);
    event(GM_SCHED_OPENED, 0);
    arrive(1, 60);
    now += 41;
    event(GM_SCHED_IDLE, 0); /* open and idle: still its time */
    now += 4;
    assert_int_equal(account(0).run_ns, 45);
    event(GM_SCHED_CLOSED, 0);
    now += 100;
    struct gm_sched_account a = account(0);
    assert_int_equal(a.run_ns, 45);
    assert_int_equal(a.wait_ns, 3); /* it wanted nothing */
    assert_int_equal(a.slice_at, 0);
    assert_int_equal(a.waiting_at, 0);
    assert_int_equal(a.bytes, 60);
    event(GM_SCHED_WANT, 0);
    now += 7;
    a = account(0);
    assert_int_equal(a.wait_ns, 10);
    assert_int_equal(a.waiting_at, now - 7);
    event(GM_SCHED_IDLE, 0);
    now += 9;
    assert_int_equal(account(0).wait_ns, 10);
    assert_int_equal(account(1).wait_ns, 41 + 4 + 100 + 7 + 9);
}

static void illegal_events_change_nothing(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    uint64_t wake = last.wake_at;
    event(GM_SCHED_JOIN, 2);
    static const struct {
        enum gm_sched_event_kind kind;
        uint32_t app;
        int fault;
    } rows[] = {
        {GM_SCHED_JOIN, 0, GM_SCHED_BAD_EVENT},        {GM_SCHED_JOIN, APPS, GM_SCHED_BAD_APP},
        {GM_SCHED_JOIN, UINT32_MAX, GM_SCHED_BAD_APP}, {GM_SCHED_LEAVE, 3, GM_SCHED_BAD_APP},
        {GM_SCHED_WANT, 3, GM_SCHED_BAD_APP},          {GM_SCHED_IDLE, 3, GM_SCHED_BAD_APP},
        {GM_SCHED_SIZE, 3, GM_SCHED_BAD_APP},          {GM_SCHED_OPENED, 3, GM_SCHED_BAD_APP},
        {GM_SCHED_CLOSED, 3, GM_SCHED_BAD_APP},        {GM_SCHED_BUSY, 3, GM_SCHED_BAD_APP},
        {GM_SCHED_OPENED, 0, GM_SCHED_BAD_EVENT},      {GM_SCHED_OPENED, 1, GM_SCHED_BAD_EVENT},
        {GM_SCHED_OPENED, 2, GM_SCHED_BAD_EVENT},      {GM_SCHED_CLOSED, 1, GM_SCHED_BAD_EVENT},
        {GM_SCHED_CLOSED, 2, GM_SCHED_BAD_EVENT},      {GM_SCHED_BUSY, 1, GM_SCHED_BAD_EVENT},
        {GM_SCHED_BUSY, 2, GM_SCHED_BAD_EVENT},        {99, 0, GM_SCHED_BAD_EVENT},
    };
    now += 3 * QUANTUM; /* nor does time pass */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&last, 0, sizeof last);
        assert_int_equal(step(rows[i].kind, rows[i].app, 7), rows[i].fault);
        expect_set("0");
        expect_next("1");
        expect_wake(wake);
    }
    assert_int_equal(account(0).bytes, 60);
    event(GM_SCHED_TIMER, UINT32_MAX);
    expect_set("1");
    assert_int_equal(step(GM_SCHED_CLOSED, 1, 0), GM_SCHED_BAD_EVENT); /* chosen, not open */
    assert_int_equal(step(GM_SCHED_BUSY, 1, 0), GM_SCHED_BAD_EVENT);
}

static void repeated_want_and_idle_change_nothing(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    arrive(2, 60);
    event(GM_SCHED_WANT, 1);
    event(GM_SCHED_WANT, 0);
    expect_set("0");
    expect_next("1 2");
    assert_int_equal(account(1).waiting_at, 1000);
    event(GM_SCHED_IDLE, 1);
    event(GM_SCHED_IDLE, 1);
    expect_next("2");
}

static void earlier_time_counts_as_the_latest_seen(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    now += 50;
    event(GM_SCHED_TIMER, 0);
    now -= 30;
    arrive(1, 60);
    assert_int_equal(account(1).waiting_at, 1050);
    expect_wake(1000 + QUANTUM);
    event(GM_SCHED_IDLE, 0);
    event(GM_SCHED_CLOSED, 0);
    assert_int_equal(account(0).run_ns, 50);
}

static void end_of_time_does_not_wrap(void **state)
{
    (void)state;
    now = UINT64_MAX - 20;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    expect_wake(GM_TIME_NEVER);
    event(GM_SCHED_IDLE, 0);
    event(GM_SCHED_BUSY, 0);
    expect_set("0");
    expect_wake(now + RETRY);
}

static void bad_configs_are_refused(void **state)
{
    (void)state;
    static const struct gm_sched_config bad[] = {
        {0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, 1, 0}, {UINT32_MAX, 1, 1, 1},
    };
    static char memory[4096] __attribute__((aligned(16)));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gm_sched_size(&bad[i]), 0);
        assert_null(gm_sched_init(memory, &bad[i]));
    }
    struct gm_sched_config good = {1, 1, 1, 1};
    assert_true(gm_sched_size(&good) > 0 && gm_sched_size(&good) < sizeof memory - 16);
    assert_null(gm_sched_init(NULL, &good));
    assert_null(gm_sched_init(memory + 8, &good));
    assert_non_null(gm_sched_init(memory, &good));
}

static void every_reason_has_a_text(void **state)
{
    (void)state;
    for (int a = GM_WHY_NONE; a <= GM_WHY_NOT_DRAINED; a++)
        for (int b = GM_WHY_NONE; b < a; b++)
            assert_string_not_equal(gm_sched_reason_text((enum gm_sched_reason)a),
                                    gm_sched_reason_text((enum gm_sched_reason)b));
}

/* ---- Speed: the best of many steps, so that a busy machine does not matter ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif

static uint64_t best_step_ns(uint32_t apps)
{
    struct gm_sched_config config = {apps, 1000, 100, 10};
    struct gm_sched *s = gm_sched_init(aligned_alloc(16, gm_sched_size(&config)), &config);
    struct gm_sched_decision d;
    uint64_t t = 1, best = UINT64_MAX;
    for (uint32_t app = 0; app < apps; app++) {
        gm_sched_step(s, t, &(struct gm_sched_event){GM_SCHED_JOIN, app, 0}, &d);
        uint64_t bytes = app % 7 ? 500 * app / apps : 3000 / apps;
        gm_sched_step(s, t, &(struct gm_sched_event){GM_SCHED_SIZE, app, bytes}, &d);
        if (app % 16 == 0)
            gm_sched_step(s, t++, &(struct gm_sched_event){GM_SCHED_WANT, app, 0}, &d);
    }
    for (uint32_t app = 0; app < apps; app++) /* one after the other: 10,000 steps are enough */
        gm_sched_step(s, t, &(struct gm_sched_event){GM_SCHED_WANT, app, 0}, &d);
    assert_true(d.n_set + d.n_next == apps);
    for (int i = 0; i < 200; i++) {
        struct timespec a, b;
        bool is_slice_end = d.wake_at != GM_TIME_NEVER;
        t = is_slice_end ? d.wake_at : t + 1;
        struct gm_sched_event e = {GM_SCHED_TIMER, 0, 0};
        clock_gettime(CLOCK_MONOTONIC, &a);
        gm_sched_step(s, t, &e, &d);
        clock_gettime(CLOCK_MONOTONIC, &b);
        uint64_t took = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec -
                        (uint64_t)a.tv_nsec;
        if (is_slice_end && took < best) /* a step in which slices end */
            best = took;
        for (uint32_t k = 0, n = d.n_set; k < n; k++) /* the engine opens the first that is not */
            if (gm_sched_step(s, t, &(struct gm_sched_event){GM_SCHED_OPENED, d.set[k], 0}, &d) ==
                0)
                break;
    }
    free(s);
    return best;
}

static void want_at(uint32_t app, uint64_t at)
{
    now = at;
    event(GM_SCHED_WANT, app);
    now = at + 10;
    event(GM_SCHED_IDLE, app);
}

static void next_use_is_expected_by_the_gaps_between_wants(void **state)
{
    (void)state;
    assert_true(gm_sched_expect(sched, now, 0) == GM_TIME_NEVER); /* unknown */
    assert_true(gm_sched_expect(sched, now, APPS) == GM_TIME_NEVER);
    event(GM_SCHED_JOIN, 0);
    assert_true(gm_sched_expect(sched, now, 0) == GM_TIME_NEVER);
    want_at(0, 2000);
    assert_true(gm_sched_expect(sched, now, 0) == GM_TIME_NEVER); /* once says nothing */
    event(GM_SCHED_JOIN, 1);
    assert_true(gm_sched_is_later(sched, now, 1, 0)); /* it has never wanted anything */
    assert_false(gm_sched_is_later(sched, now, 0, 1));
    want_at(0, 3000);
    assert_int_equal(gm_sched_expect(sched, now, 0), 4000);
    assert_true(gm_sched_is_later(sched, now, 1, 0)); /* nothing is known of it */
    event(GM_SCHED_WANT, 0);
    assert_int_equal(gm_sched_expect(sched, now, 0), now); /* it does */
    event(GM_SCHED_WANT, 0);                               /* nothing new */
    event(GM_SCHED_IDLE, 0);
    uint64_t gap = 1000 - 250 + 2; /* a quarter of the new gap, 10 */
    assert_int_equal(gm_sched_expect(sched, now, 0), now + gap);
    /* Overdue: as long again. */
    assert_int_equal(gm_sched_expect(sched, now + gap + 300, 0), now + gap + 600);
    assert_true(gm_sched_expect(sched, GM_TIME_NEVER, 0) == GM_TIME_NEVER);
    event(GM_SCHED_LEAVE, 0);
    event(GM_SCHED_JOIN, 0);
    assert_true(gm_sched_expect(sched, now, 0) == GM_TIME_NEVER); /* another app */
}

static void a_step_is_fast(void **state)
{
    (void)state;
    uint64_t hundred = best_step_ns(100), many = best_step_ns(10000);
    print_message("a step: 100 apps %.1f us, 10,000 apps %.0f us\n", (double)hundred / 1e3,
                  (double)many / 1e3);
    assert_true(hundred < 50000u * SLOWER);
    assert_true(many < 3000000u * SLOWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(accounts_are_exact_on_edges),
        rule(illegal_events_change_nothing),
        rule(repeated_want_and_idle_change_nothing),
        rule(earlier_time_counts_as_the_latest_seen),
        rule(end_of_time_does_not_wrap),
        rule(bad_configs_are_refused),
        rule(every_reason_has_a_text),
        rule(next_use_is_expected_by_the_gaps_between_wants),
        rule(a_step_is_fast),
    };
    return cmocka_run_group_tests_name("sched_edges", tests, NULL, NULL);
}

/* core/sched, drains that take long or fail: what they cost the app that does not drain. */
#include "tests/unit/sched_fixture.h"

#define SECOND 1000000000ull

/* ---- Slices ---- */

/* App 0 has had its slice, and is closed only `late` after it. Whoever comes into the set opens. */
static void close_late(uint64_t late)
{
    pass(QUANTUM - 1);
    now++;
    event(GM_SCHED_TIMER, 0);
    assert_false(is_in_set(0));
    now += late;
    engine();
}

static void arrive_all(uint32_t n)
{
    for (uint32_t app = 0; app < n; app++)
        arrive(app, 60);
    engine();
}

static void late_is_taken_off_the_next_slice(void **state)
{
    (void)state;
    arrive_all(2);
    close_late(QUANTUM - QUANTUM / 4);
    pass(QUANTUM);
    expect_set("0");
    expect_wake(now + QUANTUM / 4);
}

/* Not a switch there and back for nothing. */
static void slice_that_was_used_up_before_is_forfeited(void **state)
{
    (void)state;
    arrive_all(2);
    close_late(QUANTUM + 25);
    expect_set("1");
    pass(QUANTUM);
    expect_set("1");
    assert_true(is_open[1]);
    expect_next("0");
    pass(QUANTUM);
    expect_set("0");
    expect_wake(now + QUANTUM);
    assert_int_equal(account(0).run_ns, 2 * QUANTUM + 25);
    assert_int_equal(account(1).run_ns, 2 * QUANTUM);
}

static void too_little_of_a_slice_is_forfeited_as_well(void **state)
{
    (void)state;
    arrive_all(3);
    close_late(QUANTUM - QUANTUM / 8); /* just enough is left */
    pass(2 * QUANTUM);
    expect_set("0");
    for (uint32_t app = 0; app < 3; app++)
        event(GM_SCHED_LEAVE, app);
    memset(is_open, 0, sizeof is_open);
    arrive_all(3);
    close_late(QUANTUM - QUANTUM / 8 + 1);
    pass(QUANTUM);
    expect_set("2");
    pass(QUANTUM);
    expect_set("1");
    expect_next("0 2");
    pass(QUANTUM);
    expect_set("0");
}

static void one_turn_is_forfeited_and_no_more(void **state)
{
    (void)state;
    arrive_all(2);
    close_late(50 * QUANTUM);
    pass(2 * QUANTUM);
    expect_set("0");
    expect_wake(now + QUANTUM);
}

static void nothing_is_forfeited_to_nobody(void **state)
{
    (void)state;
    arrive_all(2);
    close_late(2 * QUANTUM);
    expect_set("1");
    event(GM_SCHED_IDLE, 1);
    engine();
    expect_set("0");
    pass(QUANTUM / 2);
    event(GM_SCHED_WANT, 1);
    expect_set("0");
    expect_wake(now + QUANTUM / 2);
}

static void failed_drain_is_late_as_well(void **state)
{
    (void)state;
    arrive_all(2);
    pass(QUANTUM - 1);
    now++;
    event(GM_SCHED_TIMER, 0);
    for (unsigned i = 0; i < 12; i++) { /* each a retry of 10 */
        event(GM_SCHED_BUSY, 0);
        expect_set("0");
        now += RETRY;
        event(GM_SCHED_TIMER, 0);
        expect_set("");
    }
    engine();
    expect_set("1");
    engine();
    pass(QUANTUM);
    expect_set("1");
    pass(QUANTUM);
    expect_set("0");
}

static void debt_ends_with_the_rank(void **state)
{
    (void)state;
    struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    arrive_all(2);
    close_late(2 * QUANTUM);
    policy.class = GM_CLASS_LATENCY;
    assert_int_equal(gm_sched_set(sched, now, 0, &policy, &last), 0);
    expect_set("0");
    engine();
    expect_wake(GM_TIME_NEVER);
}

static void who_was_paused_comes_anew(void **state)
{
    (void)state;
    struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    arrive_all(2);
    pass(90);
    policy.is_paused = true;
    assert_int_equal(gm_sched_set(sched, now, 0, &policy, &last), 0);
    engine();
    expect_set("1");
    policy.is_paused = false;
    assert_int_equal(gm_sched_set(sched, now, 0, &policy, &last), 0);
    expect_set("1");
    expect_next("0");
    pass(QUANTUM);
    expect_set("0");
    expect_wake(now + QUANTUM);
}

/* ---- Shares ---- */

static int setup_shares(void **state)
{
    (void)state;
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = 1,
                                     .allotment_ns = 8 * SECOND,
                                     .slice_ns = 4 * SECOND,
                                     .patience_ns = GM_TIME_NEVER,
                                     .retry_ns = 4 * SECOND};
    return setup_with(&config);
}

static void limit(uint32_t share)
{
    struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = share};
    assert_int_equal(gm_sched_set(sched, now, 0, &policy, &last), 0);
}

/* App 0 has used up its share, and its gate is to be closed. */
static void use_up(uint32_t share)
{
    arrive(0, 60);
    limit(share);
    engine();
    now = last.wake_at;
    event(GM_SCHED_TIMER, 0);
    expect_set("");
    expect_reason(0, GM_WHY_SHARE);
}

/* It waits for its share, alone. Returns for how long. */
static uint64_t wait_for_share(void)
{
    uint64_t from = now;
    while (!is_in_set(0)) {
        assert_true(last.wake_at > now && last.wake_at != GM_TIME_NEVER);
        now = last.wake_at;
        event(GM_SCHED_TIMER, 0);
    }
    return now - from;
}

/* Whatever its share, it waits for ten windows of 10 s and half of one, at most. */
static void debt_of_a_failed_drain_is_paid_in_bounded_time(void **state)
{
    static const uint32_t shares[] = {1, 10, 50, 100, 500, 999};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        teardown(state);
        setup_shares(state);
        use_up(shares[i]);
        for (unsigned fails = 0; fails < 10; fails++) {
            now += 2 * SECOND; /* the deadline of a drain */
            event(GM_SCHED_BUSY, 0);
            expect_set("0");
            now += 4 * SECOND;
            event(GM_SCHED_TIMER, 0);
            expect_set("");
        }
        event(GM_SCHED_CLOSED, 0);
        uint64_t waited = wait_for_share();
        assert_in_range(waited, shares[i] < 100 ? 104 * SECOND : 5 * SECOND, 106 * SECOND);
    }
}

/* What it takes to drain is paid in full. */
static void drain_is_paid_for(void **state)
{
    (void)state;
    use_up(10);
    now += 2 * SECOND;
    event(GM_SCHED_CLOSED, 0);
    uint64_t waited = wait_for_share();
    assert_in_range(waited, 203 * SECOND, 204 * SECOND); /* 2 s at 1 %, and half a window's */
}

#define shares_rule(f) cmocka_unit_test_setup_teardown(f, setup_shares, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(late_is_taken_off_the_next_slice),
        rule(slice_that_was_used_up_before_is_forfeited),
        rule(too_little_of_a_slice_is_forfeited_as_well),
        rule(one_turn_is_forfeited_and_no_more),
        rule(nothing_is_forfeited_to_nobody),
        rule(failed_drain_is_late_as_well),
        rule(debt_ends_with_the_rank),
        rule(who_was_paused_comes_anew),
        shares_rule(debt_of_a_failed_drain_is_paid_in_bounded_time),
        shares_rule(drain_is_paid_for),
    };
    return cmocka_run_group_tests_name("sched_drains", tests, NULL, NULL);
}

/* core/sched at its edges: accounts, events that are not legal, time, configurations. */
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
    event(GM_SCHED_IDLE, 0); /* open and idle: not its time */
    now += 4;
    assert_int_equal(account(0).run_ns, 41);
    event(GM_SCHED_CLOSED, 0);
    now += 100;
    struct gm_sched_account a = account(0);
    assert_int_equal(a.run_ns, 41);
    assert_int_equal(a.idle_ns, 104);
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
    static const struct gm_sched_config good = {.max_apps = 1,
                                                .budget = 1,
                                                .levels = GM_SCHED_LEVELS_MAX,
                                                .allotment_ns = 1,
                                                .slice_ns = 1,
                                                .patience_ns = 1,
                                                .retry_ns = 1};
    struct gm_sched_config bad[11];
    static char memory[8192] __attribute__((aligned(16)));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    bad[0].max_apps = 0;
    bad[1].max_apps = UINT32_MAX;
    bad[2].budget = 0;
    bad[3].levels = 0;
    bad[4].levels = GM_SCHED_LEVELS_MAX + 1;
    bad[5].allotment_ns = 0;
    bad[6].allotment_ns = GM_TIME_NEVER;
    bad[7].slice_ns = 0;
    bad[8].slice_ns = GM_TIME_NEVER;
    bad[9].patience_ns = 0;
    bad[10].retry_ns = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gm_sched_size(&bad[i]), 0);
        assert_null(gm_sched_init(memory, &bad[i]));
    }
    assert_true(gm_sched_size(&good) > 0 && gm_sched_size(&good) < sizeof memory - 16);
    assert_null(gm_sched_init(NULL, &good));
    assert_null(gm_sched_init(memory + 8, &good));
    assert_non_null(gm_sched_init(memory, &good));
}

static void every_reason_has_a_text_and_a_name(void **state)
{
    (void)state;
    for (int a = GM_WHY_NONE; a < GM_WHYS; a++)
        for (int b = GM_WHY_NONE; b < a; b++) {
            enum gm_why one = (enum gm_why)a, other = (enum gm_why)b;
            assert_string_not_equal(gm_why_text(one), gm_why_text(other));
            assert_string_not_equal(gm_why_name(one), gm_why_name(other));
        }
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
    uint64_t gap = 10; /* the second: the first is its start */
    assert_int_equal(gm_sched_expect(sched, now, 0), now + gap);
    /* Overdue: at any moment. Overdue for long: as long again. */
    assert_int_equal(gm_sched_expect(sched, now + gap + 30, 0), now + gap);
    assert_int_equal(gm_sched_expect(sched, now + 9 * gap, 0), now + 17 * gap);
    event(GM_SCHED_JOIN, 2);
    event(GM_SCHED_WANT, 2);
    event(GM_SCHED_IDLE, 2);
    assert_true(gm_sched_is_later(sched, now + 8 * gap, 2, 0)); /* of 2 nothing is known */
    assert_true(gm_sched_expect(sched, GM_TIME_NEVER, 0) == GM_TIME_NEVER);
    event(GM_SCHED_LEAVE, 0);
    event(GM_SCHED_JOIN, 0);
    assert_true(gm_sched_expect(sched, now, 0) == GM_TIME_NEVER); /* another app */
}

/* Half way to the latest; but one that is quite another changes nothing for long. */
static void the_usual_gap(void **state)
{
    static const uint64_t gaps[] = {90000, 1000, 1100, 50, 1200, 1300, 8000, 9000, 9100};
    static const uint64_t usual[] = {90000, 1000, 1050, 1000, 1100, 1200, 1200, 1300, 8550};
    (void)state;
    event(GM_SCHED_JOIN, 0);
    uint64_t at = 100000;
    want_at(0, at);
    for (unsigned i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        at += gaps[i];
        want_at(0, at);
        assert_int_equal(gm_sched_expect(sched, now, 0), at + usual[i]);
    }
}

/* The first gap counts only until there is another, whichever is the longer. */
static void the_first_gap_is_the_start(void **state)
{
    (void)state;
    event(GM_SCHED_JOIN, 0);
    want_at(0, 1000);
    want_at(0, 1100);
    assert_int_equal(gm_sched_expect(sched, now, 0), 1200);
    want_at(0, 2100);
    assert_int_equal(gm_sched_expect(sched, now, 0), 3100);
}

/* Three in turn, whose turns get shorter and shorter, then alternate: the one that wanted the GPU
 * before the others is next, all the time. */
static void in_turn_the_order_is_known(void **state)
{
    static const uint64_t turns[] = {900, 2100, 3000, 1170, 600, 300, 560, 640, 680, 585, 330, 540,
                                     345, 435,  370,  430,  370, 430, 370, 430, 370, 430, 370, 430};
    uint64_t at = 100000;
    (void)state;
    for (uint32_t app = 0; app < 3; app++)
        event(GM_SCHED_JOIN, app);
    for (uint32_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        want_at(i % 3, at);
        if (i >= 9) { /* each began, and has wanted it twice since */
            assert_true(gm_sched_is_later(sched, now, (i + 2) % 3, (i + 1) % 3));
            assert_true(gm_sched_is_later(sched, now, i % 3, (i + 2) % 3));
        }
        at += turns[i];
    }
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
        rule(every_reason_has_a_text_and_a_name),
        rule(next_use_is_expected_by_the_gaps_between_wants),
        rule(the_usual_gap),
        rule(the_first_gap_is_the_start),
        rule(in_turn_the_order_is_known),
    };
    return cmocka_run_group_tests_name("sched_edges", tests, NULL, NULL);
}

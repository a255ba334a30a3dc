/* core/sched, turns that idleness ends: what is left of the slice is added to the next one. */
#include "tests/unit/sched_fixture.h"

/* ---- Programs that pause: time in steps of 1 ns ---- */

struct habit {
    uint64_t work, pause; /* it pauses after so much run time, for so long; work 0: never */
    uint64_t left, until;
    bool is_resting;
};

static struct habit habits[APPS];
static uint64_t longest_wait[APPS];   /* closed and wanting */
static uint64_t most_between[APPS];   /* run time of any one other app during one wait */
static uint64_t waits_from[APPS];     /* 0: it does not wait */
static uint64_t run_then[APPS][APPS]; /* run times when the wait of the first began */

static void forget_habits(void)
{
    memset(habits, 0, sizeof habits);
    memset(longest_wait, 0, sizeof longest_wait);
    memset(most_between, 0, sizeof most_between);
    memset(waits_from, 0, sizeof waits_from);
}

static void pauses(uint32_t app, uint64_t work, uint64_t pause)
{
    habits[app] = (struct habit){.work = work, .pause = pause, .left = work};
}

/* Tell it, and let the engine do it. Who comes into the set was the first of the timeline. */
static void tell(enum gm_sched_event_kind kind, uint32_t app)
{
    uint32_t before = last.n_set > 0 ? last.set[0] : UINT32_MAX;
    uint32_t coming = last.n_next > 0 ? last.next[0] : UINT32_MAX;
    event(kind, app);
    if (kind != GM_SCHED_WANT && coming != UINT32_MAX && last.n_set > 0 && last.set[0] != before)
        assert_int_equal(last.set[0], coming);
    engine();
}

static void watch_wait(uint32_t n, uint32_t app)
{
    if (is_open[app] || habits[app].is_resting) {
        waits_from[app] = 0;
        return;
    }
    if (waits_from[app] == 0) {
        waits_from[app] = now;
        for (uint32_t other = 0; other < n; other++)
            run_then[app][other] = account(other).run_ns;
    }
    if (now - waits_from[app] > longest_wait[app])
        longest_wait[app] = now - waits_from[app];
    for (uint32_t other = 0; other < n; other++) {
        uint64_t ran = account(other).run_ns - run_then[app][other];
        if (ran > most_between[app])
            most_between[app] = ran;
    }
}

/* The apps below `n` work for so long; no two of them fit together. */
static void work(uint32_t n, uint64_t ns)
{
    for (uint64_t end = now + ns; now < end;) {
        for (uint32_t app = 0; app < n; app++) {
            struct habit *h = &habits[app];
            if (h->is_resting && now >= h->until) {
                h->is_resting = false;
                h->left = h->work;
                tell(GM_SCHED_WANT, app);
            } else if (h->work && !h->is_resting && h->left == 0) {
                h->is_resting = true;
                h->until = now + h->pause;
                tell(GM_SCHED_IDLE, app);
            }
        }
        if (last.wake_at <= now)
            tell(GM_SCHED_TIMER, 0);
        for (uint32_t app = 0; app < n; app++) {
            habits[app].left -= is_open[app] && !habits[app].is_resting && habits[app].left > 0;
            watch_wait(n, app);
        }
        now++;
    }
}

static void arrive_all(uint32_t n)
{
    forget_habits();
    for (uint32_t app = 0; app < n; app++)
        arrive(app, 60);
    engine();
}

/* App 0 goes idle when it has used `used` of its first slice, and wants again after `pause`. */
static void interrupt(uint64_t used, uint64_t pause)
{
    pass(used);
    event(GM_SCHED_IDLE, 0);
    expect_set("1");
    engine();
    pass(pause);
}

/* ---- What is left of a slice is added to the next ---- */

static void what_is_left_is_added_to_the_next_slice(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(69, 2);
    event(GM_SCHED_WANT, 0);
    expect_set("1");
    expect_next("2 0");
    assert_int_equal(gm_sched_expect(sched, now, 2), now + 98);
    assert_int_equal(gm_sched_expect(sched, now, 0), now + 98 + QUANTUM);
    pass(98 + QUANTUM);
    expect_set("0");
    expect_next("1 2");
    expect_wake(now + 31 + QUANTUM);
    pass(31 + 3 * QUANTUM);
    expect_set("0"); /* as if nothing had been */
    for (uint32_t app = 0; app < 3; app++)
        assert_int_equal(account(app).run_ns, 2 * QUANTUM);
    expect_wake(now + QUANTUM);
}

static void of_two_as_well(void **state)
{
    (void)state;
    arrive_all(2);
    interrupt(69, 2);
    event(GM_SCHED_WANT, 0);
    pass(98);
    expect_set("0");
    expect_next("1");
    expect_wake(now + 31 + QUANTUM);
    pass(31 + QUANTUM);
    expect_set("1");
    assert_int_equal(account(0).run_ns, 2 * QUANTUM);
    pass(QUANTUM);
    assert_int_equal(account(1).run_ns, 2 * QUANTUM);
}

static void wanting_late_in_the_round_is_as_good(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(69, 150); /* 1 has had its slice, and 2 runs */
    event(GM_SCHED_WANT, 0);
    expect_set("2");
    expect_next("1 0");
    assert_int_equal(gm_sched_expect(sched, now, 1), now + 50);
    assert_int_equal(gm_sched_expect(sched, now, 0), now + 50 + QUANTUM);
    pass(50 + QUANTUM);
    expect_set("0");
    expect_wake(now + 31 + QUANTUM);
}

static void newcomer_waits_for_a_turn_of_each(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(69, 2);
    event(GM_SCHED_WANT, 0);
    arrive(3, 60);
    expect_next("2 0 3");
    pass(98 + QUANTUM + 31 + QUANTUM);
    expect_set("3");
    expect_next("1 2 0");
}

static void two_that_were_interrupted_stand_in_the_order_of_their_wants(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(50, 10);
    event(GM_SCHED_IDLE, 1); /* after 10 of its slice */
    expect_set("2");
    engine();
    pass(20);
    event(GM_SCHED_WANT, 1);
    event(GM_SCHED_WANT, 0);
    expect_next("1 0");
    pass(80);
    expect_set("1");
    expect_wake(now + 90 + QUANTUM);
    pass(90 + QUANTUM);
    expect_set("0");
    expect_next("2 1");
    expect_wake(now + 50 + QUANTUM);
}

static void little_is_added_as_well(void **state)
{
    (void)state;
    arrive_all(2);
    interrupt(QUANTUM - 5, 2);
    event(GM_SCHED_WANT, 0);
    pass(98);
    expect_set("0");
    expect_wake(now + 5 + QUANTUM);
}

/* ---- Shares ---- */

static void expect_equal(uint32_t n, uint64_t percent)
{
    for (uint32_t app = 1; app < n; app++) {
        uint64_t a = account(0).run_ns, b = account(app).run_ns;
        assert_in_range(a * 100, b * (100 - percent), b * (100 + percent));
    }
}

static void interrupted_in_every_slice_has_its_share(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 5; n++)
        for (uint64_t length = QUANTUM; length <= 170; length += 10) {
            arrive_all(n);
            pauses(0, length, 3);
            work(n, 400 * n * QUANTUM);
            expect_equal(n, 3);
            for (uint32_t app = 1; app < n; app++) /* a slice, and the rest of one before it */
                assert_true(most_between[app] < 2 * QUANTUM);
            for (uint32_t app = 0; app < n; app++)
                event(GM_SCHED_LEAVE, app);
        }
}

static void all_interrupted_have_equal_shares(void **state)
{
    (void)state;
    arrive_all(4);
    for (uint32_t app = 0; app < 4; app++)
        pauses(app, QUANTUM + 1 + 13 * app, 2 + app);
    work(4, 3000 * QUANTUM);
    expect_equal(4, 3);
    for (uint32_t app = 0; app < 4; app++)
        assert_true(most_between[app] < 2 * QUANTUM);
}

/* Who pauses after less than a slice has a turn in each round, and gives the rest of it away. */
static void shorter_than_a_slice_has_a_turn_a_round(void **state)
{
    (void)state;
    arrive_all(4);
    pauses(0, 71, 3);
    work(4, 3000 * QUANTUM);
    for (uint32_t app = 1; app < 4; app++) {
        uint64_t ran = account(app).run_ns;
        assert_in_range(account(0).run_ns * 100, ran * 69, ran * 73);
        assert_true(most_between[app] < 2 * QUANTUM);
    }
}

static void nobody_waits_longer_if_nobody_is_interrupted(void **state)
{
    (void)state;
    arrive_all(4);
    work(4, 40 * QUANTUM);
    for (uint32_t app = 0; app < 4; app++) {
        assert_true(longest_wait[app] <= 3 * QUANTUM);
        assert_true(most_between[app] <= QUANTUM);
    }
}

/* Two that rest again and again do not hand the GPU to each other for as long as their slices last:
 * each has one turn a round. */
static void many_short_interruptions_starve_nobody(void **state)
{
    (void)state;
    arrive_all(4);
    for (uint32_t app = 0; app < 2; app++)
        pauses(app, 5, 3);
    work(4, 400 * QUANTUM);
    for (uint32_t app = 2; app < 4; app++) {
        assert_true(longest_wait[app] <= QUANTUM + 2 * 2 * 5 + 8);
        assert_true(account(app).run_ns >= 400 * QUANTUM * 45 / 100);
    }
    assert_true(account(0).run_ns >= 400 * QUANTUM * 2 / 100); /* 5 of each 210 */
}

static void weights_hold_with_interruptions(void **state)
{
    (void)state;
    for (uint32_t heavy = 0; heavy < 2; heavy++) { /* the one that pauses, or another */
        arrive_all(3);
        struct gm_sched_policy policy = {.weight = 2 * GM_SCHED_WEIGHT,
                                         .share = GM_SCHED_SHARE_ALL};
        assert_int_equal(gm_sched_set(sched, now, heavy, &policy, &last), 0);
        pauses(0, 103, 3);
        work(3, 3000 * QUANTUM);
        uint64_t two = account(heavy).run_ns;
        for (uint32_t app = 0; app < 3; app++)
            if (app != heavy)
                assert_in_range(two * 100, account(app).run_ns * 196, account(app).run_ns * 204);
        for (uint32_t app = 0; app < 3; app++)
            event(GM_SCHED_LEAVE, app);
    }
}

/* ---- How long it is kept, and how much ---- */

static void what_is_left_is_kept_for_a_round(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(40, 3 * QUANTUM - 1);
    event(GM_SCHED_WANT, 0);
    while (!is_open[0])
        pass(1);
    expect_wake(now + 60 + QUANTUM);
}

/* A whole slice in its turn, and no more. */
static void nothing_is_saved_up(void **state)
{
    (void)state;
    arrive_all(3);
    interrupt(40, 3 * QUANTUM + 1);
    event(GM_SCHED_WANT, 0);
    expect_set("2");
    expect_next("1 0");
    pass(3 * QUANTUM);
    assert_int_equal(account(0).run_ns, 40 + QUANTUM);
}

static void one_slice_is_saved_up_at_most(void **state)
{
    (void)state;
    arrive_all(2);
    for (unsigned i = 0; i < 5; i++) {
        while (!is_open[0])
            pass(1);
        interrupt(1, 1);
        event(GM_SCHED_WANT, 0);
    }
    while (!is_open[0])
        pass(1);
    expect_wake(now + 2 * QUANTUM);
}

static void who_did_not_drain_stands_behind(void **state)
{
    (void)state;
    arrive_all(3);
    pass(40);
    event(GM_SCHED_IDLE, 0);
    event(GM_SCHED_BUSY, 0);
    expect_set("0");
    now += RETRY;
    event(GM_SCHED_TIMER, 0);
    expect_set("");
    event(GM_SCHED_WANT, 0);
    expect_next("1 2 0");
}

/* ---- Levels ---- */

enum { LEVELS = 3, ALLOTMENT = 200, LOWEST = 4 * QUANTUM };

static int setup_levels(void **state)
{
    (void)state;
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = LEVELS,
                                     .allotment_ns = ALLOTMENT,
                                     .slice_ns = QUANTUM,
                                     .patience_ns = 5000,
                                     .retry_ns = RETRY};
    return setup_with(&config);
}

static void set_class(uint32_t app, enum gm_sched_class class)
{
    struct gm_sched_policy policy = {
        .class = (uint8_t) class, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    assert_int_equal(gm_sched_set(sched, now, app, &policy, &last), 0);
}

/* 0, 1 and 2 take turns at the last level; 3 goes before them when it wants. */
static void arrive_with_a_better_one(void)
{
    arrive_all(4);
    set_class(3, GM_CLASS_INTERACTIVE);
    event(GM_SCHED_IDLE, 3);
    for (uint32_t app = 0; app < 3; app++)
        set_class(app, GM_CLASS_BATCH);
    engine();
}

static void better_level_comes_between_and_all_go_on(void **state)
{
    (void)state;
    arrive_with_a_better_one();
    interrupt(LOWEST - 100, 50);
    event(GM_SCHED_WANT, 3);
    expect_set("3");
    expect_next("1 2");
    engine();
    event(GM_SCHED_WANT, 0);
    expect_next("1 2 0"); /* 1 is in the middle of its slice */
    pass(30);
    event(GM_SCHED_IDLE, 3);
    expect_set("1");
    engine();
    expect_wake(now + LOWEST - 50);
    pass(LOWEST - 50);
    expect_set("2");
    pass(LOWEST);
    expect_set("0");
    expect_next("1 2");
    expect_wake(now + 100 + LOWEST);
    pass(100 + 3 * LOWEST);
    expect_set("0");
    for (uint32_t app = 0; app < 3; app++)
        assert_int_equal(account(app).run_ns, 2 * LOWEST);
}

/* Who was sent away in its slice by a better level, and has nothing to do by then, is no more in
 * the way than one that rested before; and has no less when it wants again. */
static void sent_away_and_idle(void **state)
{
    (void)state;
    arrive_with_a_better_one();
    pass(100);
    event(GM_SCHED_WANT, 3);
    expect_set("3");
    expect_next("0 1 2");
    engine();
    event(GM_SCHED_IDLE, 0);
    expect_set("3");
    expect_next("1 2");
    expect_reason(0, GM_WHY_IDLE);
    now += 30;
    event(GM_SCHED_IDLE, 3);
    expect_set("1");
    engine();
    pass(50);
    event(GM_SCHED_WANT, 0);
    expect_set("1");
    expect_next("2 0");
    pass(LOWEST - 50 + LOWEST);
    expect_set("0");
    expect_wake(now + LOWEST - 100 + LOWEST); /* the rest of its slice, and the next */
    pass(40);
    event(GM_SCHED_WANT, 3);
    engine();
    expect_next("0 1 2");
    event(GM_SCHED_IDLE, 0); /* again */
    event(GM_SCHED_WANT, 0);
    expect_next("1 2 0");
}

/* What it runs while it drains counts for its next slice, also if it is idle in between. */
static void resting_pays_no_debt(void **state)
{
    static const uint64_t late[] = {30, 50, 80, 95};
    (void)state;
    for (unsigned i = 0; i < 2 * sizeof late / sizeof *late; i++) {
        for (uint32_t app = 0; app < 2; app++)
            arrive(app, 60);
        engine();
        for (uint64_t end = now + 1000 * QUANTUM; now < end;) {
            now = last.wake_at;
            event(GM_SCHED_TIMER, 0);
            bool is_closing = is_open[0] && !is_in_set(0);
            if (is_closing) {
                now += late[i / 2];
                event(GM_SCHED_CLOSED, 0);
            }
            engine();
            if (is_closing && i % 2 == 1) { /* while the other one runs */
                now += 10;
                event(GM_SCHED_IDLE, 0);
                now += 1;
                event(GM_SCHED_WANT, 0);
            }
        }
        assert_in_range(account(0).run_ns * 100, account(1).run_ns * 95, account(1).run_ns * 105);
        for (uint32_t app = 0; app < 2; app++)
            event(GM_SCHED_LEAVE, app);
        memset(is_open, 0, sizeof is_open);
    }
}

static void debts_are_forgotten_after_a_round(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 2; app++)
        arrive(app, 60);
    engine();
    for (unsigned is_late = 0; is_late < 2; is_late++) {
        now = last.wake_at;
        event(GM_SCHED_TIMER, 0);
        expect_set("1");
        now += 60;
        event(GM_SCHED_CLOSED, 0);
        engine();
        event(GM_SCHED_IDLE, 0);
        now += is_late ? 2 * QUANTUM + 1 : 1;
        event(GM_SCHED_WANT, 0);
        engine();
        while (!is_open[0])
            pass(1);
        expect_wake(now + (is_late ? QUANTUM : QUANTUM - 60));
    }
}

static void rest_is_forgotten_with_a_level(void **state)
{
    (void)state;
    for (uint32_t app = 1; app < 3; app++) { /* they drop to level 2, and rest no more */
        arrive(app, 60);
        engine();
        now += ALLOTMENT + 1;
        event(GM_SCHED_TIMER, 0);
        engine();
        assert_int_equal(account(app).level, 2);
    }
    arrive(0, 60);
    expect_set("0");
    engine();
    now += ALLOTMENT + 20; /* of the slice of level 2 it has used 20, as it turns out */
    event(GM_SCHED_IDLE, 0);
    assert_int_equal(account(0).level, 2);
    engine();
    uint32_t other = 3 - last.set[0];
    now += 2;
    event(GM_SCHED_WANT, 0);
    expect_set("0"); /* it comes back from a rest: first it uses up what it has for that */
    engine();
    pass(ALLOTMENT);
    assert_int_equal(account(0).level, 2);
    assert_int_equal(last.n_next, 2);
    assert_int_equal(last.next[0], other);
    assert_int_equal(last.next[1], 0);
}

/* With one level a wasted turn is charged to the slice only: it ends, and the next one is as long
 * as any. */
static void wasted_turn_is_over_and_used_up(void **state)
{
    (void)state;
    arrive_all(2);
    pass(20);
    event(GM_SCHED_WASTE, 0);
    expect_set("1");
    engine();
    pass(QUANTUM);
    expect_set("0");
    pass(QUANTUM - 1); /* nothing of the turn before is added to this one */
    expect_set("0");
    pass(1);
    expect_set("1");
}

#define levels_rule(f) cmocka_unit_test_setup_teardown(f, setup_levels, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(what_is_left_is_added_to_the_next_slice),
        rule(of_two_as_well),
        rule(wanting_late_in_the_round_is_as_good),
        rule(newcomer_waits_for_a_turn_of_each),
        rule(two_that_were_interrupted_stand_in_the_order_of_their_wants),
        rule(little_is_added_as_well),
        rule(interrupted_in_every_slice_has_its_share),
        rule(all_interrupted_have_equal_shares),
        rule(shorter_than_a_slice_has_a_turn_a_round),
        rule(nobody_waits_longer_if_nobody_is_interrupted),
        rule(many_short_interruptions_starve_nobody),
        rule(weights_hold_with_interruptions),
        rule(what_is_left_is_kept_for_a_round),
        rule(nothing_is_saved_up),
        rule(one_slice_is_saved_up_at_most),
        rule(who_did_not_drain_stands_behind),
        levels_rule(better_level_comes_between_and_all_go_on),
        levels_rule(sent_away_and_idle),
        rule(resting_pays_no_debt),
        rule(debts_are_forgotten_after_a_round),
        levels_rule(rest_is_forgotten_with_a_level),
        rule(wasted_turn_is_over_and_used_up),
    };
    return cmocka_run_group_tests_name("sched_turns", tests, NULL, NULL);
}

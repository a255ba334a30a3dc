/* core/sched, what goes beyond round robin: levels, classes, weights, shares, pause, patience. */
#include "tests/unit/sched_fixture.h"

enum { LEVELS = 3, ALLOTMENT = 200, SLICE = 100, PATIENCE = 5000 };

static const struct gm_sched_config levels_config = {.max_apps = APPS,
                                                     .budget = BUDGET,
                                                     .levels = LEVELS,
                                                     .allotment_ns = ALLOTMENT,
                                                     .slice_ns = SLICE,
                                                     .patience_ns = PATIENCE,
                                                     .retry_ns = RETRY};

static int setup_levels(void **state)
{
    (void)state;
    return setup_with(&levels_config);
}

#define levels_rule(f) cmocka_unit_test_setup_teardown(f, setup_levels, teardown)

static const struct gm_sched_policy usual = {
    .class = GM_CLASS_AUTO, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};

static void set_policy(uint32_t app, struct gm_sched_policy policy)
{
    assert_int_equal(gm_sched_set(sched, now, app, &policy, &last), 0);
}

static void set_class(uint32_t app, enum gm_sched_class class)
{
    struct gm_sched_policy policy = usual;
    policy.class = (uint8_t) class;
    set_policy(app, policy);
}

static void set_weight(uint32_t app, uint32_t weight)
{
    struct gm_sched_policy policy = usual;
    policy.weight = weight;
    set_policy(app, policy);
}

/* ---- Levels ---- */

static void app_drops_when_its_allotment_is_used_up(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    assert_int_equal(account(0).level, 1);
    assert_int_equal(account(0).allotment_ns, ALLOTMENT);
    arrive(1, 60);
    set_class(1, GM_CLASS_BATCH); /* waits, so that levels matter */
    expect_set("0");
    expect_wake(now + ALLOTMENT + 1);
    expect_reason(0, GM_WHY_FIRST);
    expect_reason(1, GM_WHY_PRIORITY);
    assert_int_equal(account(1).ahead, 0);
    now += ALLOTMENT;
    event(GM_SCHED_TIMER, 0);
    assert_int_equal(account(0).level, 1); /* exactly used up is not exceeded */
    now++;
    event(GM_SCHED_TIMER, 0);
    assert_int_equal(account(0).level, 2);
    assert_int_equal(account(0).charged_ns, 1); /* what was beyond was run at level 2 */
    assert_int_equal(account(0).allotment_ns, 2 * ALLOTMENT);
    expect_set("0");
    pass(2 * ALLOTMENT + 1);
    assert_int_equal(account(0).level, 3);
    assert_true(account(0).allotment_ns == GM_TIME_NEVER);
    expect_next("0"); /* beside 1 now, and 1 waited for longer */
}

static void one_long_run_alone_drops_as_if_it_had_been_looked_at(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    expect_wake(GM_TIME_NEVER);
    now += ALLOTMENT + 2 * ALLOTMENT + 7;
    arrive(1, 60);
    assert_int_equal(account(0).level, 3);
    assert_int_equal(account(0).charged_ns, 7);
    expect_set("1"); /* new: better than one that had its allotments */
    expect_reason(0, GM_WHY_PRIORITY);
}

static void better_level_need_not_wait_for_a_slice_and_worse_has_its_rest(void **state)
{
    (void)state;
    arrive(0, 60);
    arrive(1, 60);
    arrive(2, 60);
    for (uint32_t app = 0; app < 2; app++)
        set_class(app, GM_CLASS_BATCH);
    set_class(2, GM_CLASS_INTERACTIVE);
    event(GM_SCHED_IDLE, 2);
    engine();
    expect_set("0");
    expect_wake(now + 4 * SLICE); /* of level 3 */
    pass(150);
    event(GM_SCHED_WANT, 2);
    expect_set("2");
    expect_next("0 1"); /* 0 before 1: it goes on where it was */
    engine();
    pass(40);
    event(GM_SCHED_IDLE, 2);
    expect_set("0");
    engine();
    expect_wake(now + 4 * SLICE - 150);
    pass(4 * SLICE - 150);
    expect_set("1");
    /* With less than an eighth of a slice left it goes behind. */
    pass(4 * SLICE - 4 * SLICE / 8 + 1);
    event(GM_SCHED_WANT, 2);
    expect_next("0 1");
}

static void who_rests_for_more_than_half_of_the_time_rises(void **state)
{
    (void)state;
    arrive(0, 10);
    engine();
    pass(ALLOTMENT + 1);
    event(GM_SCHED_TIMER, 0);
    assert_int_equal(account(0).level, 2);
    /* t = 1 here, T(1) = 200: more than 201 of idleness, and not before T(2) = 400. */
    event(GM_SCHED_IDLE, 0);
    now += ALLOTMENT + 2;
    assert_int_equal(account(0).level, 2);
    now += ALLOTMENT - 4;
    assert_int_equal(account(0).level, 2);
    now += 3;
    assert_int_equal(account(0).level, 1);
    event(GM_SCHED_WANT, 0);
    assert_int_equal(account(0).level, 1);
    assert_int_equal(account(0).charged_ns, 0);
}

static void waiting_is_held_against_an_app_by_its_part(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    pass(ALLOTMENT + 1);
    event(GM_SCHED_TIMER, 0);
    assert_int_equal(account(0).level, 2);
    arrive(1, 60);
    set_class(1, GM_CLASS_LATENCY);
    engine();
    uint64_t from = now;
    pass(600); /* q = 600 of a level that has one app: R = 1/2 */
    event(GM_SCHED_IDLE, 0);
    assert_int_equal(now - from, 600);
    now += 1 + ALLOTMENT + 300;
    assert_int_equal(account(0).level, 2);
    now += 1;
    assert_int_equal(account(0).level, 1);
}

static void idle_since(uint32_t app, uint64_t ago_ns)
{
    struct gm_sched_event e = {.kind = GM_SCHED_IDLE, .app = app, .ago_ns = ago_ns};
    assert_int_equal(gm_sched_step(sched, now, &e, &last), 0);
}

static void idleness_counts_from_when_it_began(void **state)
{
    (void)state;
    arrive(0, 10);
    engine();
    now += 50;
    idle_since(0, 20);
    assert_int_equal(account(0).run_ns, 30);
    assert_int_equal(account(0).charged_ns, 30);
    assert_int_equal(account(0).idle_ns, 20);
    event(GM_SCHED_WANT, 0);
    now += 10;
    idle_since(0, 1000); /* it cannot have been idle for longer than it was open and wanted */
    assert_int_equal(account(0).run_ns, 30);
    idle_since(0, 5); /* it is already */
    assert_int_equal(account(0).run_ns + account(0).idle_ns, now - 1000);
}

static void who_rests_for_more_than_it_runs_stays_at_level_1(void **state)
{
    (void)state;
    arrive(0, 10);
    engine();
    for (int request = 0; request < 100; request++) {
        now += 40;
        event(GM_SCHED_IDLE, 0);
        now += 60;
        event(GM_SCHED_WANT, 0);
        assert_int_equal(account(0).level, 1);
    }
    assert_true(account(0).run_ns > 10 * ALLOTMENT);
    for (int request = 0; request < 100; request++) {
        now += 60;
        event(GM_SCHED_IDLE, 0);
        now += 40;
        event(GM_SCHED_WANT, 0);
    }
    assert_int_equal(account(0).level, LEVELS);
}

static void loading_is_no_waiting_for_others(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    pass(ALLOTMENT + 1);
    event(GM_SCHED_TIMER, 0); /* at level 2 with t = 1 */
    event(GM_SCHED_IDLE, 0);
    arrive(1, 60);
    engine(); /* 0 is closed */
    event(GM_SCHED_IDLE, 1);
    event(GM_SCHED_WANT, 0);
    expect_set("0");
    now += 10000; /* its memory is being moved */
    engine();
    event(GM_SCHED_IDLE, 0);
    now += ALLOTMENT + 1;
    assert_int_equal(account(0).level, 2);
    now += 1;
    assert_int_equal(account(0).level, 1); /* q is 0 */
}

static void long_rest_rises_through_all_levels(void **state)
{
    (void)state;
    arrive(0, 10);
    engine();
    now += 3 * ALLOTMENT + 50;
    event(GM_SCHED_IDLE, 0);
    assert_int_equal(account(0).level, 3);
    now += 4 * ALLOTMENT - 50; /* T(3) since it came there */
    assert_int_equal(account(0).level, 2);
    now += 2 * ALLOTMENT - 1;
    assert_int_equal(account(0).level, 2);
    now++;
    assert_int_equal(account(0).level, 1);
    event(GM_SCHED_WANT, 0);
    assert_int_equal(account(0).level, 1);
}

static void unknown_interactive_app_goes_before_a_known_batch(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    now += 10 * ALLOTMENT;
    arrive(1, 60);
    for (int request = 0; request < 20; request++) {
        expect_set("1");
        engine();
        pass(30);
        event(GM_SCHED_IDLE, 1);
        expect_set("0");
        engine();
        pass(70);
        event(GM_SCHED_WANT, 1);
    }
    assert_true(account(1).level < account(0).level);
}

/* ---- The order of next use ---- */

static void who_waits_is_expected_after_the_slices_before_it(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 4; app++)
        arrive(app, 60);
    set_class(3, GM_CLASS_BATCH);
    engine();
    expect_set("0");
    expect_next("1 2 3");
    pass(30);
    assert_int_equal(gm_sched_expect(sched, now, 0), now);
    event(GM_SCHED_TIMER, 0);
    assert_int_equal(gm_sched_expect(sched, now, 1), now + SLICE - 30);
    assert_int_equal(gm_sched_expect(sched, now, 2), now + 2 * SLICE - 30);
    assert_int_equal(gm_sched_expect(sched, now, 3), now + 3 * SLICE - 30);
    assert_true(gm_sched_is_later(sched, now, 3, 2));
    assert_false(gm_sched_is_later(sched, now, 1, 2));
    struct gm_sched_policy policy = usual;
    policy.is_paused = true;
    set_policy(1, policy);
    assert_true(gm_sched_expect(sched, now, 1) == GM_TIME_NEVER);
    assert_int_equal(gm_sched_expect(sched, now, 2), now + SLICE - 30);
}

/* ---- Classes ---- */

static void classes_stand_above_levels(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 4; app++)
        arrive(app, 60);
    engine();
    set_class(3, GM_CLASS_LATENCY);
    expect_set("3");
    assert_int_equal(account(3).level, 0);
    engine();
    pass(20 * ALLOTMENT); /* it is never dropped */
    expect_set("3");
    expect_reason(3, GM_WHY_FIRST);
    set_class(2, GM_CLASS_INTERACTIVE);
    set_class(1, GM_CLASS_BATCH);
    assert_int_equal(account(2).level, 1);
    assert_int_equal(account(1).level, LEVELS);
    event(GM_SCHED_IDLE, 3);
    engine();
    expect_set("0"); /* who had to make room has the rest of its slice */
    expect_next("2 1");
    set_class(1, GM_CLASS_AUTO); /* comes back to the level that it had */
    assert_int_equal(account(1).level, 1);
}

static void bad_policies_are_refused(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    struct gm_sched_policy bad[6] = {usual, usual, usual, usual, usual, usual};
    bad[0].class = GM_CLASSES;
    bad[1].weight = 0;
    bad[2].weight = GM_SCHED_WEIGHT_MIN - 1;
    bad[3].weight = GM_SCHED_WEIGHT_MAX + 1;
    bad[4].share = 0;
    bad[5].share = GM_SCHED_SHARE_ALL + 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i].is_paused = true;
        assert_int_equal(gm_sched_set(sched, now, 0, &bad[i], &last), GM_SCHED_BAD_POLICY);
        expect_set("0");
    }
    assert_int_equal(gm_sched_set(sched, now, 1, &usual, &last), GM_SCHED_BAD_APP);
    assert_int_equal(gm_sched_set(sched, now, APPS, &usual, &last), GM_SCHED_BAD_APP);
    assert_false(account(0).policy.is_paused);
}

/* ---- Weights ---- */

static void slices_are_as_the_weights(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 3; app++) {
        arrive(app, 60);
        set_class(app, GM_CLASS_INTERACTIVE); /* together at level 1 */
    }
    struct gm_sched_policy policy = usual;
    policy.class = GM_CLASS_INTERACTIVE;
    policy.weight = 2 * GM_SCHED_WEIGHT;
    set_policy(0, policy);
    engine();
    pass(400 * SLICE);
    uint64_t one = account(1).run_ns, two = account(0).run_ns;
    assert_true(two * 100 >= 2 * one * 99 && two * 100 <= 2 * one * 101);
    assert_in_range(account(2).run_ns * 100, one * 99, one * 101);
}

static void least_slice_is_a_quarter_of_the_first_level(void **state)
{
    (void)state;
    arrive(0, 60);
    arrive(1, 60);
    set_weight(0, GM_SCHED_WEIGHT_MAX);
    set_weight(1, GM_SCHED_WEIGHT_MIN);
    set_class(0, GM_CLASS_AUTO);
    engine();
    expect_set("0"); /* the class was set with the weight 1: 10 to 1 */
    pass(10 * SLICE / 4);
    expect_set("1");
}

/* ---- Shares ---- */

static void limited_share_holds_even_when_nobody_else_wants(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    struct gm_sched_policy policy = usual;
    policy.share = 250;
    arrive(0, 60);
    set_policy(0, policy);
    engine();
    uint64_t begin = now, run;
    bool was_out = false;
    for (int i = 0; i < 100; i++) {
        uint64_t end = begin + (uint64_t)(i + 1) * s;
        while (last.wake_at <= end) {
            now = last.wake_at;
            event(GM_SCHED_TIMER, 0);
            if (!is_in_set(0)) {
                expect_reason(0, GM_WHY_SHARE);
                expect_next("");
                was_out = true;
            }
            engine();
        }
        now = end;
    }
    run = account(0).run_ns;
    assert_true(was_out);
    assert_in_range(run, 25 * s, (25 * s) + 25 * s / 10); /* and one burst */
    policy.share = GM_SCHED_SHARE_ALL;
    set_policy(0, policy);
    expect_set("0");
    expect_wake(GM_TIME_NEVER);
}

static void changing_a_limit_wins_nothing(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    struct gm_sched_policy policy = usual;
    arrive(0, 60);
    engine();
    for (int i = 0; i < 400; i++) { /* as often as one likes, also without any limit for no time */
        policy.share = i % 2 ? 250 : 249;
        set_policy(0, policy);
        if (i % 3 == 0) {
            set_policy(0, usual);
            set_policy(0, policy);
        }
        engine();
        uint64_t end = now + s / 4;
        while (last.wake_at <= end) {
            now = last.wake_at;
            event(GM_SCHED_TIMER, 0);
            engine();
        }
        now = end;
    }
    assert_in_range(account(0).run_ns, 24 * s, 25 * s + 25 * s / 10);
}

static void changing_the_class_wins_nothing(void **state)
{
    (void)state;
    arrive(0, 60);
    arrive(1, 60);
    engine();
    now += SLICE / 2;
    event(GM_SCHED_TIMER, 0);
    set_class(0, GM_CLASS_INTERACTIVE);
    set_class(0, GM_CLASS_AUTO);
    assert_int_equal(account(0).charged_ns, SLICE / 2);
    for (int i = 0; i < 100; i++) {
        now += ALLOTMENT / 10;
        event(GM_SCHED_TIMER, 0);
        engine();
        set_class(0, GM_CLASS_BATCH);
        set_class(0, GM_CLASS_AUTO);
        engine();
    }
    assert_true(account(0).run_ns <= account(1).run_ns + 2 * SLICE);
    assert_true(account(1).run_ns > 20 * ALLOTMENT / 10);
}

/* ---- Pause ---- */

static void paused_app_does_not_run_nor_grow_impatient(void **state)
{
    (void)state;
    struct gm_sched_policy policy = usual;
    arrive(0, 20);
    arrive(1, 20);
    engine();
    expect_set("0 1");
    policy.is_paused = true;
    set_policy(0, policy);
    expect_set("1");
    expect_reason(0, GM_WHY_PAUSED);
    engine();
    pass(100 * PATIENCE);
    expect_set("1");
    expect_next("");
    event(GM_SCHED_IDLE, 0);
    expect_reason(0, GM_WHY_IDLE);
    event(GM_SCHED_WANT, 0);
    expect_set("1");
    set_policy(0, usual);
    expect_set("0 1"); /* 1 has dropped meanwhile */
    engine();
    event(GM_SCHED_IDLE, 0);
    expect_set("1 0");
    set_policy(0, policy); /* idle with an open gate: it closes */
    expect_set("1");
    engine();
    set_policy(0, usual);
    expect_set("1");
    event(GM_SCHED_WANT, 0);
    expect_set("0 1");
}

static void paused_app_that_does_not_drain_keeps_its_room(void **state)
{
    (void)state;
    struct gm_sched_policy policy = usual;
    policy.is_paused = true;
    arrive(0, 60);
    engine();
    set_policy(0, policy);
    expect_set("");
    event(GM_SCHED_BUSY, 0);
    expect_set("0");
    expect_reason(0, GM_WHY_NOT_DRAINED);
    arrive(1, 60);
    expect_set("0");
    expect_reason(1, GM_WHY_TURN);
    assert_int_equal(account(1).ahead, 0);
    expect_wake(now + RETRY);
    now += RETRY;
    event(GM_SCHED_TIMER, 0);
    expect_set("");
    event(GM_SCHED_CLOSED, 0);
    expect_set("1");
}

/* ---- Patience: what an app of the lowest priority can expect ---- */

static void lowest_priority_gets_a_slice_when_patience_ends(void **state)
{
    (void)state;
    arrive(0, 60);
    arrive(1, 60);
    set_class(0, GM_CLASS_LATENCY);
    set_class(1, GM_CLASS_BATCH);
    engine();
    expect_set("0");
    uint64_t out = PATIENCE + 4 * SLICE; /* a round of its level is its own slice */
    pass(out - 1);
    expect_set("0");
    pass(1);
    expect_set("1");
    expect_reason(1, GM_WHY_BOOSTED);
    pass(SLICE - 1);
    expect_set("1");
    pass(1);
    expect_set("0");
    expect_reason(1, GM_WHY_PRIORITY);
    pass(100 * (out + SLICE));
    uint64_t slices = account(1).run_ns / SLICE;
    assert_in_range(slices, 100, 102);
    assert_true(out + 2 * SLICE <= gm_sched_bound(&levels_config, 2, 1, 0, 0));
}

static void those_out_of_patience_take_turns(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 4; app++)
        arrive(app, 60);
    set_class(0, GM_CLASS_LATENCY);
    for (uint32_t app = 1; app < 4; app++)
        set_class(app, GM_CLASS_BATCH);
    engine();
    expect_set("0");
    pass(PATIENCE + 3 * 4 * SLICE);
    expect_set("1");
    expect_next("2 3 0");
    pass(SLICE);
    expect_set("2");
    pass(SLICE);
    expect_set("3");
    pass(SLICE);
    expect_set("0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        levels_rule(app_drops_when_its_allotment_is_used_up),
        levels_rule(one_long_run_alone_drops_as_if_it_had_been_looked_at),
        levels_rule(better_level_need_not_wait_for_a_slice_and_worse_has_its_rest),
        levels_rule(who_rests_for_more_than_half_of_the_time_rises),
        levels_rule(waiting_is_held_against_an_app_by_its_part),
        levels_rule(idleness_counts_from_when_it_began),
        levels_rule(who_rests_for_more_than_it_runs_stays_at_level_1),
        levels_rule(loading_is_no_waiting_for_others),
        levels_rule(long_rest_rises_through_all_levels),
        levels_rule(unknown_interactive_app_goes_before_a_known_batch),
        levels_rule(who_waits_is_expected_after_the_slices_before_it),
        levels_rule(classes_stand_above_levels),
        levels_rule(bad_policies_are_refused),
        levels_rule(slices_are_as_the_weights),
        levels_rule(least_slice_is_a_quarter_of_the_first_level),
        levels_rule(limited_share_holds_even_when_nobody_else_wants),
        levels_rule(changing_a_limit_wins_nothing),
        levels_rule(changing_the_class_wins_nothing),
        levels_rule(paused_app_does_not_run_nor_grow_impatient),
        levels_rule(paused_app_that_does_not_drain_keeps_its_room),
        levels_rule(lowest_priority_gets_a_slice_when_patience_ends),
        levels_rule(those_out_of_patience_take_turns),
    };
    return cmocka_run_group_tests_name("sched_levels", tests, NULL, NULL);
}

/* core/sched: who comes back from a rest goes before who works without a pause. */
#include "tests/unit/sched_fixture.h"

/* A lead is at least 10 (an eighth of a slice), goes before other leads for 5, and 160 (the
 * allotment) are saved up at most, which an app has when it joins. */
enum { SLICE = 80, ALLOTMENT = 160, LEAST = 10, FRESH = 5 };

static int setup_rests(void **state)
{
    (void)state;
    static const struct gm_sched_config config = {.max_apps = APPS,
                                                  .budget = BUDGET,
                                                  .levels = 3,
                                                  .allotment_ns = ALLOTMENT,
                                                  .slice_ns = SLICE,
                                                  .patience_ns = GM_TIME_NEVER,
                                                  .retry_ns = RETRY};
    return setup_with(&config);
}

static void set_class(uint32_t app, enum gm_sched_class class)
{
    const struct gm_sched_policy policy = {
        .class = (uint8_t) class, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    assert_int_equal(gm_sched_set(sched, now, app, &policy, &last), 0);
    engine();
}

/* App 1 rests, and app 0 has the GPU: both are at level `level`. */
static void begin(uint32_t level)
{
    arrive(0, 60);
    engine();
    arrive(1, 60);
    engine();
    while (account(0).level < level || account(1).level < level || !is_open[1])
        pass(1);
    event(GM_SCHED_IDLE, 1);
    engine();
    expect_set("0");
}

static void comes_back(uint32_t app)
{
    event(GM_SCHED_WANT, app);
    engine();
}

static void who_comes_back_goes_before_its_own_level(void **state)
{
    (void)state;
    for (uint32_t level = 1; level <= 3; level++) {
        begin(level);
        pass(3);
        comes_back(1);
        expect_set("1");
        expect_reason(1, GM_WHY_RESTED);
        expect_reason(0, GM_WHY_PRIORITY);
        event(GM_SCHED_IDLE, 1);
        engine();
        expect_set("0"); /* and goes on with its slice */
        teardown(NULL);
        assert_int_equal(setup_rests(NULL), 0);
    }
}

static void and_before_better_levels(void **state)
{
    (void)state;
    begin(2);
    arrive(2, 60); /* new: level 1 */
    engine();
    expect_set("2");
    comes_back(1);
    assert_int_equal(account(1).level, 2);
    expect_set("1");
}

static void not_before_class_latency(void **state)
{
    (void)state;
    begin(1);
    set_class(0, GM_CLASS_LATENCY);
    comes_back(1);
    expect_set("0");
}

static void first_want_is_no_return(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    expect_set("0");
}

static void class_batch_and_round_robin_know_no_rests(void **state)
{
    (void)state;
    begin(1);
    set_class(1, GM_CLASS_BATCH);
    comes_back(1);
    expect_set("0");
    teardown(NULL);
    assert_int_equal(setup(NULL), 0);
    arrive(0, 60);
    arrive(1, 60);
    engine();
    event(GM_SCHED_IDLE, 1);
    now += 30;
    comes_back(1);
    expect_set("0");
}

/* What it began with lasts for so long, together with the time in which its memory is moved. */
static void lead_is_used_up(void **state)
{
    (void)state;
    begin(3);
    event(GM_SCHED_WANT, 1);
    event(GM_SCHED_CLOSED, 0);
    now += 30;
    event(GM_SCHED_OPENED, 1);
    assert_int_equal(account(1).rested_ns, ALLOTMENT - 30);
    pass(100);
    assert_true(account(1).has_lead);
    event(GM_SCHED_IDLE, 1); /* 30 are left */
    event(GM_SCHED_CLOSED, 1);
    now += 5;
    event(GM_SCHED_WANT, 1); /* nobody had the GPU meanwhile: it earned nothing */
    assert_int_equal(account(1).rested_ns, 30);
    event(GM_SCHED_OPENED, 1);
    is_open[0] = false;
    pass(29);
    expect_set("1");
    pass(2);
    engine();
    expect_set("0");
    assert_false(account(1).has_lead);
    expect_next("1");
}

/* A rest earns what each of the others had of the GPU meanwhile, less an eighth of the work before.
 */
static void rest_earns_what_others_had(void **state)
{
    (void)state;
    begin(3);
    comes_back(1);
    pass(ALLOTMENT + 1); /* it is used up */
    while (!is_open[1])
        pass(1);
    expect_set("1");
    event(GM_SCHED_IDLE, 1);
    engine();
    const uint64_t worked = account(1).run_ns;
    pass(LEAST - 1);
    comes_back(1);
    expect_set("0"); /* too little, beside what is a pause in its work */
    assert_in_range(account(1).rested_ns, 0, LEAST - 1);
    while (!is_open[1])
        pass(1);
    event(GM_SCHED_IDLE, 1);
    engine();
    arrive(2, 60); /* two share it from here on */
    engine();
    const uint64_t before = account(1).rested_ns, burst = account(1).run_ns - worked;
    pass(100);
    comes_back(1);
    expect_set("1");
    assert_in_range(account(1).rested_ns, before + 50 - burst / 8 - 1, before + 50);
}

static void several_that_come_back_take_short_turns(void **state)
{
    (void)state;
    begin(1);
    comes_back(1);
    pass(FRESH);
    event(GM_SCHED_IDLE, 0); /* closed as it is */
    event(GM_SCHED_WANT, 0);
    engine();
    expect_set("1");
    expect_next("0");
    pass(1);
    expect_set("0");
    pass(FRESH + 1);
    expect_set("0"); /* it goes on before who came back earlier, for a whole turn */
    pass(LEAST);
    expect_set("1");
    pass(LEAST);
    expect_set("0");
}

/* Another one came back as well, and never rested since. */
static void who_just_came_back_goes_before_who_ran_since(void **state)
{
    (void)state;
    begin(1);
    comes_back(1);
    pass(FRESH + 1);
    for (int request = 0; request < 5; request++) {
        event(GM_SCHED_IDLE, 0);
        event(GM_SCHED_WANT, 0);
        engine();
        expect_set("0");
        pass(FRESH);
        event(GM_SCHED_IDLE, 0);
        engine();
        expect_set("1");
        assert_true(account(1).has_lead);
        pass(FRESH); /* less than a turn */
    }
}

/* Beside one that never rests: who goes first as often as it may has no more than half. */
static void nothing_is_gained(void **state)
{
    (void)state;
    for (uint64_t rest = 1; rest <= 60; rest += 7)
        for (uint64_t work = 1; work <= 200; work += 13) {
            arrive(0, 60);
            arrive(1, 60);
            engine();
            for (int i = 0; i < 500; i++) {
                uint64_t from = account(1).run_ns;
                while (!is_open[1] || account(1).run_ns - from < work)
                    pass(1);
                event(GM_SCHED_IDLE, 1);
                engine();
                pass(rest);
                comes_back(1);
            }
            if (account(1).level == account(0).level)
                assert_true(account(1).run_ns <= account(0).run_ns + 4 * ALLOTMENT);
            teardown(NULL);
            assert_int_equal(setup_rests(NULL), 0);
        }
}

#define rests_rule(f) cmocka_unit_test_setup_teardown(f, setup_rests, teardown)

/* A turn that is hardly used is over, and charged as one that was: at its level, and before all. */
static void who_wastes_its_turn_pays_for_all_of_it(void **state)
{
    (void)state;
    begin(1);
    const uint32_t level = account(0).level;
    comes_back(1);
    expect_set("1");
    pass(2);
    event(GM_SCHED_WASTE, 1);
    engine();
    expect_set("0");
    assert_false(account(1).has_lead);
    const uint64_t ran = account(1).run_ns;
    while (!is_open[1])
        pass(1);
    assert_int_equal(account(1).run_ns, ran); /* it does not come before its turn */
    pass(1);
    const uint64_t charged = account(1).charged_ns;
    event(GM_SCHED_WASTE, 1);
    engine();
    expect_set("0");
    assert_true(account(1).level > level || account(1).charged_ns > charged);
    event(GM_SCHED_WASTE, 1); /* it has no turn to lose */
    expect_set("0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rests_rule(who_comes_back_goes_before_its_own_level),
        rests_rule(and_before_better_levels),
        rests_rule(not_before_class_latency),
        rests_rule(first_want_is_no_return),
        rests_rule(class_batch_and_round_robin_know_no_rests),
        rests_rule(lead_is_used_up),
        rests_rule(rest_earns_what_others_had),
        rests_rule(several_that_come_back_take_short_turns),
        rests_rule(who_just_came_back_goes_before_who_ran_since),
        rests_rule(nothing_is_gained),
        rests_rule(who_wastes_its_turn_pays_for_all_of_it),
    };
    return cmocka_run_group_tests_name("sched_rests", tests, NULL, NULL);
}

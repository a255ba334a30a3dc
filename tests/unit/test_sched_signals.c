/* core/sched: a signal came to an app that waits: it has an early, short turn, now and then. */
#include "tests/unit/sched_fixture.h"

#include "common/clock.h"
#include "daemon/core/tunables.h"

enum { SLICE_S = 60 };

static int setup_long(void **state)
{
    (void)state;
    static const struct gm_sched_config config = {.max_apps = APPS,
                                                  .budget = BUDGET,
                                                  .levels = 3,
                                                  .allotment_ns = SLICE_S * GM_S,
                                                  .slice_ns = SLICE_S * GM_S,
                                                  .patience_ns = GM_TIME_NEVER,
                                                  .retry_ns = GM_S};
    return setup_with(&config);
}

static void set_class(uint32_t app, enum gm_sched_class class)
{
    const struct gm_sched_policy policy = {
        .class = (uint8_t) class, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    assert_int_equal(gm_sched_set(sched, now, app, &policy, &last), 0);
    engine();
}

/* App 0 runs, and those up to `last_one` wait, of whatever class. */
static void begin(uint32_t last_one)
{
    for (uint32_t app = 0; app <= last_one; app++) {
        arrive(app, 60);
        engine();
    }
    expect_set("0");
}

static void hurry(uint32_t app)
{
    event(GM_SCHED_HURRY, app);
    engine();
}

static void it_has_one_short_turn_and_the_other_goes_on(void **state)
{
    (void)state;
    begin(1);
    set_class(1, GM_CLASS_BATCH);
    pass(GM_S);
    const uint64_t used = account(0).run_ns;
    hurry(1);
    expect_set("1");
    expect_reason(1, GM_WHY_HURRIED);
    pass(GM_SCHED_HURRY_NS - 1);
    expect_set("1");
    pass(1);
    expect_set("0");
    assert_int_equal(account(1).run_ns, GM_SCHED_HURRY_NS);
    /* ... to the end of its slice, as if nothing had been. */
    pass(SLICE_S * GM_S - used - 1);
    expect_set("0");
}

static void an_app_gets_it_rarely_whatever_it_says(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 500; i++) { /* 50 s */
        hurry(1);
        pass(100 * GM_MS);
    }
    assert_int_equal(account(1).run_ns, 2 * GM_SCHED_HURRY_NS);
}

static void all_together_get_it_rarely(void **state)
{
    (void)state;
    uint64_t sum = 0;
    begin(APPS - 1);
    for (int i = 0; i < 250; i++) { /* 25 s */
        for (uint32_t app = 1; app < APPS; app++)
            hurry(app);
        pass(100 * GM_MS);
    }
    for (uint32_t app = 1; app < APPS; app++)
        sum += account(app).run_ns;
    assert_int_equal(sum, 3 * GM_SCHED_HURRY_NS);
}

/* What one user's apps use up, another user's do not lack; nor does the user by leaving. */
static void each_user_has_it(void **state)
{
    (void)state;
    begin(0);
    for (uint32_t app = 1; app <= 3; app++) {
        const struct gm_sched_event join = {
            .kind = GM_SCHED_JOIN, .app = app, .user = app == 3 ? 8 : 7};
        assert_int_equal(gm_sched_step(sched, now, &join, &last), 0);
        size(app, 60);
        event(GM_SCHED_WANT, app);
    }
    engine();
    hurry(1);
    expect_set("1");
    pass(GM_SCHED_HURRY_NS);
    hurry(2);
    expect_set("0");
    hurry(3);
    expect_set("3");
    pass(GM_SCHED_HURRY_NS);
    expect_set("0");
    event(GM_SCHED_LEAVE, 1);
    event(GM_SCHED_LEAVE, 2);
    const struct gm_sched_event again = {.kind = GM_SCHED_JOIN, .app = 1, .user = 7};
    assert_int_equal(gm_sched_step(sched, now, &again, &last), 0);
    size(1, 60);
    event(GM_SCHED_WANT, 1);
    engine();
    hurry(1);
    expect_set("0");
}

static void who_may_not_run_gets_none(void **state)
{
    (void)state;
    static const struct gm_sched_policy paused = {
        .is_paused = true, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    begin(2);
    assert_int_equal(gm_sched_set(sched, now, 1, &paused, &last), 0);
    hurry(1); /* it is paused */
    expect_set("0");
    size(2, BUDGET + 1);
    hurry(2); /* too large */
    expect_set("0");
    hurry(0); /* it runs */
    expect_set("0");
    arrive(3, 60);
    set_class(3, GM_CLASS_LATENCY);
    expect_set("3");
    hurry(0); /* a latency-critical one wants the GPU */
    expect_set("3");
    event(GM_SCHED_IDLE, 3);
    event(GM_SCHED_IDLE, 0);
    engine();
    hurry(0); /* it wants nothing */
    assert_int_equal(step(GM_SCHED_HURRY, 7, 0), GM_SCHED_BAD_APP);
    /* All of that used nothing up. */
    event(GM_SCHED_LEAVE, 3);
    event(GM_SCHED_WANT, 0);
    engine();
    arrive(4, 60);
    engine();
    const uint32_t waits = is_in_set(4) ? 0 : 4;
    hurry(waits);
    assert_true(is_in_set(waits));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_has_one_short_turn_and_the_other_goes_on, setup_long,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_app_gets_it_rarely_whatever_it_says, setup_long,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_together_get_it_rarely, setup_long, teardown),
        cmocka_unit_test_setup_teardown(each_user_has_it, setup_long, teardown),
        cmocka_unit_test_setup_teardown(who_may_not_run_gets_none, setup_long, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

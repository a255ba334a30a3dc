/* Apps that need other GPUs, too: they stand in line, others have the room, and they are told when
 * they could run. */
#include "tests/unit/sched_fixture.h"

static bool is_ready(uint32_t app)
{
    return gm_sched_is_ready(sched, app);
}

/* What it could have is others' until it is untied, and then at once its own. */
static void who_stands_by_keeps_nobody_out(void **state)
{
    (void)state;
    arrive(0, 60);
    event(GM_SCHED_TIE, 0);
    arrive(1, 60);
    engine();
    expect_set("1");
    expect_next("0");
    assert_true(is_ready(0));
    expect_reason(0, GM_WHY_TIED);
    expect_reason(1, GM_WHY_SLICE);
    pass(10 * QUANTUM); /* the other one only borrows the room */
    expect_set("1");
    assert_true(is_ready(0));
    event(GM_SCHED_UNTIE, 0);
    expect_set("0");
    assert_false(is_ready(0));
    engine();
    expect_set("0");
    pass(2 * QUANTUM); /* the other one has had a slice */
    expect_set("1");
}

/* Turns of others that began before it came are not cut short. */
static void its_place_in_the_line(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    event(GM_SCHED_TIE, 1);
    arrive(2, 60);
    engine();
    expect_set("0");
    assert_false(is_ready(1));
    pass(QUANTUM - 1);
    assert_false(is_ready(1));
    pass(1);
    assert_true(is_ready(1)); /* its turn has come, and the next one's */
    expect_set("2");
    for (int i = 0; i < 5; i++) {
        pass(QUANTUM); /* those behind it take turns meanwhile */
        assert_true(is_ready(1));
        assert_int_equal(last.n_set, 1);
    }
    assert_true(account(0).run_ns > 2 * QUANTUM && account(2).run_ns > 2 * QUANTUM);
    event(GM_SCHED_IDLE, 1);
    assert_false(is_ready(1));
}

/* Its gate is open: it goes on until its turn is over. Then it stands by. */
static void who_runs_goes_on(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    event(GM_SCHED_TIE, 0);
    expect_set("0");
    event(GM_SCHED_CLOSED, 0);
    is_open[0] = false;
    expect_set("");
    assert_true(is_ready(0));
    event(GM_SCHED_UNTIE, 0);
    expect_set("0");
    event(GM_SCHED_TIE, 0); /* before its gate opened */
    expect_set("");
    assert_true(is_ready(0));
}

/* Two that are tied do not wait for each other. */
static void both_are_ready(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 2; app++) {
        arrive(app, 60);
        event(GM_SCHED_TIE, app);
    }
    assert_true(is_ready(0) && is_ready(1));
    event(GM_SCHED_UNTIE, 1);
    engine();
    expect_set("1");
    assert_true(is_ready(0)); /* the other one went before it by favour only */
    event(GM_SCHED_UNTIE, 0);
    expect_set("0");
}

/* After --patience it goes first: then it is ready whoever works. */
static int setup_patient(void **state)
{
    const struct gm_sched_config config = {.max_apps = APPS,
                                           .budget = BUDGET,
                                           .levels = 2,
                                           .allotment_ns = 1000,
                                           .slice_ns = QUANTUM,
                                           .patience_ns = 10 * QUANTUM,
                                           .retry_ns = RETRY};
    (void)state;
    return setup_with(&config);
}

static void it_grows_old(void **state)
{
    const struct gm_sched_policy latency = {
        .class = GM_CLASS_LATENCY, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    (void)state;
    arrive(0, 60);
    assert_int_equal(gm_sched_set(sched, now, 0, &latency, &last), 0);
    engine();
    arrive(1, 60);
    event(GM_SCHED_TIE, 1);
    engine();
    expect_set("0");
    assert_false(is_ready(1));
    pass(12 * QUANTUM);
    assert_true(is_ready(1));
    expect_set("0");
    event(GM_SCHED_UNTIE, 1);
    expect_set("1");
    expect_reason(1, GM_WHY_BOOSTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(who_stands_by_keeps_nobody_out),
        rule(its_place_in_the_line),
        rule(who_runs_goes_on),
        rule(both_are_ready),
        cmocka_unit_test_setup_teardown(it_grows_old, setup_patient, teardown),
    };
    return cmocka_run_group_tests_name("sched_tied", tests, NULL, NULL);
}

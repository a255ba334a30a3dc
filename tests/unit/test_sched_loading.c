/* core/sched, a slice that is over while the next app's memory is still on its way: it goes on. */
#include "tests/unit/sched_fixture.h"

/* Of three apps, two of which fit beside each other, 0 runs and 2 is being loaded; 1 waits. 0 has
 * begun its second slice. */
static void begin_load(void)
{
    for (uint32_t app = 0; app < 3; app++)
        arrive(app, 45);
    engine();
    expect_set("0 1");
    expect_wake(1000 + QUANTUM);
    now = last.wake_at;
    event(GM_SCHED_TIMER, 0);
    expect_set("2 0");
    event(GM_SCHED_CLOSED, 1);
    expect_set("2 0");
    expect_next("1");
}

static void it_goes_on_until_the_next_is_loaded(void **state)
{
    (void)state;
    begin_load();
    now += QUANTUM + QUANTUM / 2;
    event(GM_SCHED_TIMER, 0);
    expect_set("2 0");
    expect_next("1");
    expect_wake(now + QUANTUM / 2);
    event(GM_SCHED_OPENED, 2);
    expect_set("2 1");
    expect_next("0");
}

static void for_no_longer_than_one_slice_more(void **state)
{
    (void)state;
    begin_load();
    expect_wake(now + 2 * QUANTUM);
    now += 2 * QUANTUM - 1;
    event(GM_SCHED_TIMER, 0);
    expect_set("2 0");
    now++;
    event(GM_SCHED_TIMER, 0);
    expect_set("2 1");
    expect_next("0");
}

/* What it ran meanwhile is not taken off its next slice. */
static void it_owes_nothing_for_it(void **state)
{
    (void)state;
    begin_load();
    now += QUANTUM + QUANTUM / 2;
    event(GM_SCHED_OPENED, 2);
    event(GM_SCHED_CLOSED, 0);
    event(GM_SCHED_OPENED, 1);
    assert_int_equal(account(0).run_ns, 5 * QUANTUM / 2);
    now = last.wake_at;
    event(GM_SCHED_TIMER, 0);
    event(GM_SCHED_CLOSED, 2);
    event(GM_SCHED_CLOSED, 1);
    expect_set("0 2");
    event(GM_SCHED_OPENED, 0);
    event(GM_SCHED_OPENED, 2);
    expect_wake(now + QUANTUM);
}

/* ... by the end of the other one. */
static void it_ends_when_nobody_is_loaded(void **state)
{
    (void)state;
    begin_load();
    now += QUANTUM + 1;
    event(GM_SCHED_LEAVE, 2);
    expect_set("1 0"); /* behind who waited, and there is room for both */
}

/* Who stands behind those who wait does not keep them waiting. */
static void not_for_one_of_a_worse_level(void **state)
{
    (void)state;
    struct gm_sched_policy batch = {
        .class = GM_CLASS_BATCH, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = 2,
                                     .allotment_ns = 1000 * QUANTUM,
                                     .slice_ns = QUANTUM,
                                     .patience_ns = GM_TIME_NEVER,
                                     .retry_ns = RETRY};
    free(sched);
    assert_int_equal(setup_with(&config), 0);
    event(GM_SCHED_JOIN, 2);
    assert_int_equal(gm_sched_set(sched, now, 2, &batch, &last), 0);
    arrive(0, 60);
    arrive(1, 60);
    engine();
    size(2, 40);
    event(GM_SCHED_WANT, 2);
    expect_set("0 2");
    expect_wake(now + QUANTUM);
    now = last.wake_at;
    event(GM_SCHED_TIMER, 0);
    expect_set("1 2");
}

/* One that grows does not wait for it. */
static void not_when_memory_is_short(void **state)
{
    (void)state;
    begin_load();
    now += QUANTUM + 1;
    event(GM_SCHED_TIMER, 0);
    expect_set("2 0");
    size(2, 60);
    expect_set("2");
    expect_next("1 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(it_goes_on_until_the_next_is_loaded),
        rule(for_no_longer_than_one_slice_more),
        rule(it_owes_nothing_for_it),
        rule(it_ends_when_nobody_is_loaded),
        rule(not_for_one_of_a_worse_level),
        rule(not_when_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* core/sched, apps of several users: turns go by user first. */
#include "daemon/core/sched_users.h"
#include "tests/unit/sched_fixture.h"

enum { PATIENCE = 1000 };

static int setup_patient(void **state)
{
    (void)state;
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = 1,
                                     .allotment_ns = QUANTUM,
                                     .slice_ns = QUANTUM,
                                     .patience_ns = PATIENCE,
                                     .retry_ns = RETRY};
    return setup_with(&config);
}

/* An app of `user` comes and wants. */
static void arrive_with(uint32_t user, uint32_t app, uint64_t bytes)
{
    struct gm_sched_event join = {.kind = GM_SCHED_JOIN, .app = app, .user = user};
    assert_int_equal(gm_sched_step(sched, now, &join, &last), 0);
    size(app, bytes);
    event(GM_SCHED_WANT, app);
    engine();
}

/* ... and no two of these fit beside each other. */
static void arrive_of(uint32_t user, uint32_t app)
{
    arrive_with(user, app, 60);
}

static uint64_t run_of(uint32_t first, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t app = first; app < first + n; app++)
        sum += account(app).run_ns;
    return sum;
}

/* The order in which they are there changes nothing. */
static void each_user_has_half(void **state)
{
    (void)state;
    for (uint32_t app = 1; app < 5; app++)
        arrive_of(7, app);
    arrive_of(8, 0);
    arrive_of(7, 5);
    arrive_of(7, 6);
    expect_set("1");
    expect_next("2 0 3 4 5 6");
    pass(400 * QUANTUM);
    const uint64_t before = account(0).run_ns;
    pass(100000 * QUANTUM);
    assert_in_range(account(0).run_ns - before, 49999 * QUANTUM, 50001 * QUANTUM);
    for (uint32_t app = 1; app < 7; app++) /* within a user each has as much */
        assert_in_range(account(app).run_ns, 8300 * QUANTUM, 8400 * QUANTUM);
}

static void three_users_have_a_third(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 4; app++)
        arrive_of(1, app);
    for (uint32_t app = 4; app < 6; app++)
        arrive_of(2, app);
    arrive_of(3, 6);
    expect_next("1 4 6 2 5 3");
    pass(30000 * QUANTUM);
    assert_in_range(run_of(0, 4), 9990 * QUANTUM, 10010 * QUANTUM);
    assert_in_range(run_of(4, 2), 9990 * QUANTUM, 10010 * QUANTUM);
    assert_in_range(run_of(6, 1), 9990 * QUANTUM, 10010 * QUANTUM);
}

/* Two fit beside each other, and their turns do not end together: a turn of another user that goes
 * on when one's own ends has been had. */
static void each_user_has_half_of_two_places(void **state)
{
    (void)state;
    arrive_with(7, 1, 40);
    pass(QUANTUM / 2);
    arrive_with(8, 0, 40);
    for (uint32_t app = 2; app < 5; app++)
        arrive_with(7, app, 40);
    pass(1000 * QUANTUM);
    assert_in_range(account(0).run_ns, 990 * QUANTUM, 1000 * QUANTUM);
    assert_in_range(run_of(1, 4), 990 * QUANTUM, 1010 * QUANTUM);
    for (uint32_t app = 1; app < 5; app++)
        assert_in_range(account(app).run_ns, 240 * QUANTUM, 260 * QUANTUM);
}

/* Nor is it one more turn for a user who has others that wait. */
static void two_users_with_two_each(void **state)
{
    (void)state;
    arrive_with(7, 0, 40);
    pass(QUANTUM / 2);
    arrive_with(8, 1, 40);
    arrive_with(7, 2, 40);
    arrive_with(8, 3, 40);
    pass(1000 * QUANTUM);
    for (uint32_t app = 0; app < 4; app++)
        assert_in_range(account(app).run_ns, 490 * QUANTUM, 510 * QUANTUM);
}

/* Whose turns others' go on beside does not keep a large one waiting. */
static void large_one_beside_small_ones(void **state)
{
    (void)state;
    arrive_with(7, 1, 40);
    pass(QUANTUM / 2);
    arrive_with(8, 0, 40);
    arrive_with(7, 2, 40);
    arrive_with(7, 3, 100);
    pass(3000 * QUANTUM);
    for (uint32_t app = 1; app < 4; app++)
        assert_in_range(account(app).run_ns, 990 * QUANTUM, 1010 * QUANTUM);
    assert_in_range(account(0).run_ns, 1990 * QUANTUM, 2010 * QUANTUM);
}

static void three_users_of_two_places(void **state)
{
    (void)state;
    arrive_with(1, 0, 40);
    pass(QUANTUM / 2);
    arrive_with(2, 1, 40);
    arrive_with(1, 2, 40);
    arrive_with(3, 3, 40);
    arrive_with(3, 4, 40);
    arrive_with(3, 5, 40);
    pass(3000 * QUANTUM);
    assert_in_range(account(1).run_ns, 1950 * QUANTUM, 2050 * QUANTUM);
    assert_in_range(run_of(3, 3), 1950 * QUANTUM, 2050 * QUANTUM);
    assert_in_range(account(0).run_ns + account(2).run_ns, 1950 * QUANTUM, 2050 * QUANTUM);
}

/* Programs that pause, leave and come again have no more of it for their user. */
static void pauses_and_newcomers_gain_nothing(void **state)
{
    (void)state;
    arrive_of(8, 0);
    for (uint32_t app = 1; app < 7; app++)
        arrive_of(7, app);
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t app = 1 + i % 6;
        event(i % 2 ? GM_SCHED_LEAVE : GM_SCHED_IDLE, app);
        is_open[app] = is_open[app] && i % 2 == 0;
        engine();
        if (i % 2)
            arrive_of(7, app);
        else
            event(GM_SCHED_WANT, app);
        engine();
        pass(QUANTUM / 4);
    }
    assert_in_range(account(0).run_ns, 2400 * QUANTUM, 5000 * QUANTUM);
}

/* With one user it is the tail, whatever his number. */
static void one_user_has_the_turns_of_before(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 5; app++)
        arrive_of(3, app);
    expect_next("1 2 3 4");
    pass(QUANTUM);
    engine();
    expect_set("1");
    expect_next("2 3 4 0");
    arrive_of(4, 5); /* another comes: and the first one's order stays */
    expect_next("2 5 3 4 0");
    event(GM_SCHED_LEAVE, 5);
    arrive_of(3, 6);
    expect_next("2 3 4 0 6");
}

/* One that can never run keeps nobody of its user behind others. */
static void too_large_counts_for_nothing(void **state)
{
    (void)state;
    arrive_of(8, 0);
    arrive_of(7, 1);
    size(1, BUDGET + 1);
    engine();
    arrive_of(7, 2);
    pass(1000 * QUANTUM);
    assert_in_range(account(0).run_ns, 490 * QUANTUM, 510 * QUANTUM);
    assert_in_range(account(2).run_ns, 490 * QUANTUM, 510 * QUANTUM);
}

/* Patience counts from a round of users: class latency goes first, and of those that wait the one
 * of the small user is the first whose patience ends, though it came last. */
static void patience_grows_with_users_only(void **state)
{
    (void)state;
    arrive_of(9, 0);
    struct gm_sched_policy latency = {
        .class = GM_CLASS_LATENCY, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    assert_int_equal(gm_sched_set(sched, now, 0, &latency, &last), 0);
    engine();
    for (uint32_t app = 1; app < 6; app++)
        arrive_of(7, app);
    arrive_of(8, 6);
    expect_set("0");
    pass(PATIENCE + 2 * QUANTUM);
    expect_set("0");
    pass(2);
    expect_set("6");
    expect_reason(6, GM_WHY_BOOSTED);
    pass(PATIENCE + 11 * QUANTUM);
    uint64_t others = run_of(1, 5), its = run_of(6, 1);
    assert_true(others >= QUANTUM && its >= QUANTUM);
    pass(1000 * PATIENCE);
    others = run_of(1, 5);
    its = run_of(6, 1);
    assert_true(its + 2 * QUANTUM >= others / 5 && others > 100 * QUANTUM);
}

static int setup_levels(void **state)
{
    (void)state;
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = 3,
                                     .allotment_ns = 8 * QUANTUM,
                                     .slice_ns = QUANTUM,
                                     .patience_ns = GM_TIME_NEVER,
                                     .retry_ns = RETRY};
    return setup_with(&config);
}

/* Each app may go first for a while after its first rest. A user who brings new ones all the time
 * goes first for the user's part of the time all the same. */
static void new_apps_go_first_no_longer(void **state)
{
    (void)state;
    const struct gm_sched_policy interactive = {
        .class = GM_CLASS_INTERACTIVE, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    arrive_of(8, 0);
    assert_int_equal(gm_sched_set(sched, now, 0, &interactive, &last), 0);
    const uint64_t from = now;
    for (uint32_t i = 0; i < 3000; i++) {
        const uint32_t app = 1 + i % 6;
        if (i >= 6)
            event(GM_SCHED_LEAVE, app);
        is_open[app] = false;
        arrive_of(7, app);
        event(GM_SCHED_IDLE, app);
        event(GM_SCHED_WANT, app);
        engine();
        pass(QUANTUM);
    }
    assert_true(account(0).run_ns > (now - from) / 5);
}

static void small_of(uint32_t user, uint32_t app)
{
    struct gm_sched_event join = {.kind = GM_SCHED_JOIN, .app = app, .user = user};
    assert_int_equal(gm_sched_step(sched, now, &join, &last), 0);
    event(GM_SCHED_WANT, app);
}

/* Programs that have less than an eighth of the budget together cost their user nothing, and from
 * there on as much as others: here an eighth is 12. */
static void small_ones_cost_nothing(void **state)
{
    (void)state;
    for (uint64_t bytes = 11; bytes <= 12; bytes++) {
        teardown(state);
        setup_levels(state);
        arrive_of(8, 0);
        arrive_of(7, 1);
        small_of(7, 2);
        size(2, bytes);
        engine();
        pass(400 * QUANTUM);
        const uint64_t from = now, mine = account(0).run_ns, its = account(1).run_ns;
        const uint64_t of_small = account(2).run_ns;
        pass(1000 * QUANTUM);
        assert_int_equal(account(2).run_ns - of_small, now - from); /* beside all */
        if (bytes == 11) {
            assert_in_range(account(0).run_ns - mine, 480 * QUANTUM, 520 * QUANTUM);
            assert_in_range(account(1).run_ns - its, 480 * QUANTUM, 520 * QUANTUM);
        } else {
            assert_true(account(0).run_ns - mine > 900 * QUANTUM);
        }
    }
}

/* Small programs keep one from running that needs nearly all of the budget: alone or with small
 * ones of others. Who brings new ones all the time has no more by that. */
static void small_ones_in_the_way_cost(void **state)
{
    (void)state;
    for (uint32_t users = 1; users <= 2; users++) {
        teardown(state);
        setup_levels(state);
        arrive_with(8, 0, users == 1 ? 95 : 80);
        pass(200 * QUANTUM);
        const uint64_t before = account(0).run_ns;
        for (uint32_t i = 0; i < 3000; i++) {
            const uint32_t app = 1 + i % 6;
            if (i > 5)
                event(GM_SCHED_LEAVE, app);
            is_open[app] = false;
            arrive_with(6 + i % users, app, 11);
            if (i > 5 - users)
                event(GM_SCHED_IDLE, 1 + (i + 6 - users) % 6);
            engine();
            pass(QUANTUM);
        }
        assert_in_range(account(0).run_ns - before, 1400 * QUANTUM, 1600 * QUANTUM);
    }
}

static uint32_t rate_of(uint32_t user)
{
    for (uint32_t i = 0; i < APPS; i++)
        if (sched->users[i].n_apps > 0 && sched->users[i].user == user)
            return sched->users[i].rate;
    fail();
    return 0;
}

/* A small program costs nothing while what waits, waits for others of its own user: here 7's app 2
 * is beside all of 8's, and only 7's own app 3 lacks room beside it. */
static void own_small_ones_are_in_no_other_way(void **state)
{
    (void)state;
    arrive_with(8, 0, 97);
    arrive_with(8, 1, 5);
    arrive_with(7, 2, 2);
    arrive_with(7, 3, 99);
    uint32_t alone = 0, beside = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        pass(QUANTUM / 4);
        beside += is_open[2] && is_open[0];
        alone += is_open[2] && is_open[1];
        assert_int_equal(rate_of(7) != 0, is_open[3]);
        assert_int_equal(rate_of(8) != 0, is_open[0] || is_open[1]);
    }
    assert_true(beside > 100 && alone > 50);
}

/* A small program that always works, in nobody's way, saves nothing up for its user, nobody yields
 * to it, and who comes has no more by it. */
static void small_ones_save_nothing_up(void **state)
{
    (void)state;
    small_of(7, 6);
    size(6, 5);
    engine();
    arrive_of(8, 0);
    pass(2000 * QUANTUM);
    arrive_of(9, 1); /* the least of all accounts is not that of user 7 */
    pass(200 * QUANTUM);
    uint64_t mine = account(0).run_ns, its = account(1).run_ns;
    arrive_of(8, 2); /* a new one, which is behind 9's only */
    pass(1000 * QUANTUM);
    mine = account(0).run_ns + account(2).run_ns - mine;
    its = account(1).run_ns - its;
    assert_in_range(mine, 480 * QUANTUM, 520 * QUANTUM);
    assert_in_range(its, 480 * QUANTUM, 520 * QUANTUM);
    const uint64_t others = account(0).run_ns + account(1).run_ns + account(2).run_ns;
    arrive_of(7, 3);
    pass(60 *
         QUANTUM); /* an allotment before all that are at worse levels, and from there on a part */
    assert_true(account(0).run_ns + account(1).run_ns + account(2).run_ns - others >= 30 * QUANTUM);
}

/* Else one after the other could begin beside what does not drain, grow, and not drain either. */
static void user_that_is_late_begins_nothing_more(void **state)
{
    (void)state;
    arrive_of(7, 1);
    arrive_of(8, 0);
    now += QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("0");
    event(GM_SCHED_BUSY, 1);
    expect_set("1");
    small_of(7, 2);
    small_of(8, 3);
    expect_set("1 3");
    event(GM_SCHED_OPENED, 3);
    now = last.wake_at;
    event(GM_SCHED_TIMER, 0); /* it is asked again */
    expect_set("3");
    event(GM_SCHED_CLOSED, 1);
    expect_set("0 3 2");
}

/* The only program of a user drops to the last level, and another brings new ones all the time, or
 * three that drop one after the other. Each user has half all the same, within a slice. */
static void levels_give_no_user_more(void **state)
{
    (void)state;
    arrive_of(8, 0);
    for (uint32_t app = 1; app < 4; app++)
        arrive_of(7, app);
    for (uint32_t i = 1; i <= 300; i++) {
        pass(QUANTUM);
        const uint64_t mine = account(0).run_ns, its = run_of(1, 3);
        const uint64_t apart = mine > its ? mine - its : its - mine;
        assert_true(apart <= 4 * QUANTUM + 1); /* a slice of the last level */
    }
    assert_int_equal(account(0).level, 3);
    for (uint32_t app = 1; app < 4; app++) /* and within a user each has as much */
        assert_in_range(account(app).run_ns, 46 * QUANTUM, 54 * QUANTUM);
}

/* What app 0 runs while user 7 brings `n` new programs. */
static uint64_t run_beside_new_ones(uint32_t from, uint32_t n)
{
    const uint64_t before = account(0).run_ns;
    for (uint32_t i = from; i < from + n; i++) {
        const uint32_t app = 1 + i % 6;
        if (i == 0 || i > 5)
            event(GM_SCHED_LEAVE, app);
        is_open[app] = false;
        arrive_of(7, app);
        pass(QUANTUM);
    }
    return account(0).run_ns - before;
}

static void new_programs_give_no_user_more(void **state)
{
    const struct gm_sched_policy twice = {
        .class = GM_CLASS_AUTO, .weight = 2 * GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    (void)state;
    arrive_of(8, 0);
    arrive_of(7, 1);
    pass(200 * QUANTUM);
    assert_in_range(run_beside_new_ones(0, 3000), 1470 * QUANTUM, 1530 * QUANTUM);
    assert_int_equal(gm_sched_set(sched, now, 0, &twice, &last), 0);
    engine();
    assert_in_range(run_beside_new_ones(3000, 3000), 1960 * QUANTUM, 2040 * QUANTUM);
}

/* What a weight gives a program, levels and users leave it. */
static void weights_count_across_levels(void **state)
{
    (void)state;
    struct gm_sched_policy twice = {
        .class = GM_CLASS_AUTO, .weight = 2 * GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    arrive_of(8, 0);
    assert_int_equal(gm_sched_set(sched, now, 0, &twice, &last), 0);
    for (uint32_t app = 1; app < 4; app++)
        arrive_of(7, app);
    pass(3000 * QUANTUM);
    assert_in_range(account(0).run_ns, 1950 * QUANTUM, 2050 * QUANTUM);
}

/* Who wants to be behind others has no claim. */
static void nobody_yields_to_batch(void **state)
{
    (void)state;
    const struct gm_sched_policy batch = {
        .class = GM_CLASS_BATCH, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    const struct gm_sched_policy interactive = {
        .class = GM_CLASS_INTERACTIVE, .weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
    arrive_of(8, 0);
    assert_int_equal(gm_sched_set(sched, now, 0, &batch, &last), 0);
    arrive_of(7, 1);
    assert_int_equal(gm_sched_set(sched, now, 1, &interactive, &last), 0);
    engine();
    const uint64_t before = account(0).run_ns;
    pass(100 * QUANTUM);
    assert_true(account(0).run_ns - before <= QUANTUM);
    expect_set("1");
    /* ... and one of the same class has: interactive for ever is no way to have it all. */
    assert_int_equal(gm_sched_set(sched, now, 0, &interactive, &last), 0);
    struct gm_sched_policy plain = interactive;
    plain.class = GM_CLASS_AUTO;
    assert_int_equal(gm_sched_set(sched, now, 0, &plain, &last), 0);
    engine();
    const uint64_t from = account(0).run_ns;
    pass(1000 * QUANTUM);
    assert_in_range(account(0).run_ns - from, 480 * QUANTUM, 520 * QUANTUM);
}

/* A user who was away comes back with no more than a slice to catch up on, and says why others
 * wait. */
static void absence_saves_up_a_slice(void **state)
{
    (void)state;
    arrive_of(8, 0);
    arrive_of(7, 1);
    pass(200 * QUANTUM);
    event(GM_SCHED_IDLE, 0);
    engine();
    pass(1000 * QUANTUM);
    const uint64_t mine = account(0).run_ns, its = account(1).run_ns;
    event(GM_SCHED_WANT, 0);
    engine();
    pass(100 * QUANTUM);
    /* what a rest gives by itself is one allotment (sched_rests) */
    assert_true(account(0).run_ns - mine <= account(1).run_ns - its + 8 * QUANTUM + 6 * QUANTUM);
}

static void who_yields_says_so(void **state)
{
    (void)state;
    arrive_of(8, 0);
    arrive_of(7, 1);
    pass(200 * QUANTUM);
    arrive_of(7, 2);
    for (uint32_t i = 0; i < 400 && account(2).reason != GM_WHY_OTHER_USER; i++)
        pass(QUANTUM / 4);
    expect_reason(2, GM_WHY_OTHER_USER);
    expect_set("0");
}

#define levels_rule(f) cmocka_unit_test_setup_teardown(f, setup_levels, teardown)
#define patient_rule(f) cmocka_unit_test_setup_teardown(f, setup_patient, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(each_user_has_half),
        rule(three_users_have_a_third),
        rule(each_user_has_half_of_two_places),
        rule(two_users_with_two_each),
        rule(large_one_beside_small_ones),
        rule(three_users_of_two_places),
        rule(pauses_and_newcomers_gain_nothing),
        rule(one_user_has_the_turns_of_before),
        rule(too_large_counts_for_nothing),
        rule(user_that_is_late_begins_nothing_more),
        levels_rule(small_ones_cost_nothing),
        levels_rule(small_ones_in_the_way_cost),
        levels_rule(own_small_ones_are_in_no_other_way),
        levels_rule(small_ones_save_nothing_up),
        levels_rule(new_apps_go_first_no_longer),
        levels_rule(levels_give_no_user_more),
        levels_rule(new_programs_give_no_user_more),
        levels_rule(weights_count_across_levels),
        levels_rule(nobody_yields_to_batch),
        levels_rule(absence_saves_up_a_slice),
        levels_rule(who_yields_says_so),
        patient_rule(patience_grows_with_users_only),
    };
    return cmocka_run_group_tests_name("sched_users", tests, NULL, NULL);
}

/* core/sched, rule by rule: who is in the set, in which order, until when, and why. */
#include "tests/unit/sched_fixture.h"

/* ---- Room for all ---- */

static void everything_fits_and_no_gate_closes(void **state)
{
    (void)state;
    arrive(0, 50);
    arrive(1, 30);
    arrive(2, 20);
    engine();
    expect_set("0 1 2");
    expect_next("");
    expect_wake(GM_TIME_NEVER);
    for (uint32_t app = 0; app < 3; app++)
        expect_reason(app, GM_WHY_FITS);
    now += 1000 * QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("0 1 2");
    expect_wake(GM_TIME_NEVER);
}

static void idle_open_app_stays_while_there_is_room(void **state)
{
    (void)state;
    arrive(0, 50);
    arrive(1, 50);
    engine();
    event(GM_SCHED_IDLE, 0);
    expect_set("1 0");
    now += 50 * QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("1 0");
    expect_reason(0, GM_WHY_FITS);
    expect_wake(GM_TIME_NEVER);
}

static void idle_closed_app_comes_in_with_want_only(void **state)
{
    (void)state;
    event(GM_SCHED_JOIN, 0);
    size(0, 10);
    expect_set("");
    expect_reason(0, GM_WHY_IDLE);
    event(GM_SCHED_WANT, 0);
    expect_set("0");
}

static void least_recently_runnable_idle_app_goes_first(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 3; app++)
        arrive(app, 30);
    engine();
    event(GM_SCHED_IDLE, 1);
    event(GM_SCHED_IDLE, 0);
    event(GM_SCHED_IDLE, 2);
    expect_set("2 0 1");
    arrive(3, 40);
    expect_set("3 2 0");
    expect_reason(1, GM_WHY_IDLE);
    expect_reason(3, GM_WHY_SLICE);
    expect_reason(2, GM_WHY_FITS);
    arrive(4, 30);
    expect_set("3 4 2");
    expect_wake(GM_TIME_NEVER);
    /* It is not the oldest one's room that is needed: the small one stays, the large one goes. */
    size(2, 40);
    expect_set("3 4 0");
}

static void idle_app_that_was_dropped_is_out_once_closed(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    event(GM_SCHED_IDLE, 0);
    arrive(1, 60);
    expect_set("1");
    event(GM_SCHED_CLOSED, 0);
    event(GM_SCHED_LEAVE, 1);
    expect_set("");
}

static void zero_bytes_always_fit(void **state)
{
    (void)state;
    arrive(0, 100);
    engine();
    arrive(1, 0);
    arrive(2, 100);
    arrive(3, 0);
    expect_set("0 1 3");
    expect_next("2");
    engine();
    pass(QUANTUM);
    expect_set("2 1 3");
    expect_next("0");
}

/* ---- Turns ---- */

static void two_that_do_not_fit_alternate_by_quantum(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    now += 10;
    arrive(1, 60);
    expect_set("0");
    expect_next("1");
    expect_reason(0, GM_WHY_SLICE);
    expect_reason(1, GM_WHY_TURN);
    assert_int_equal(account(1).ahead, 0);
    expect_wake(1000 + QUANTUM);
    now = last.wake_at - 1;
    event(GM_SCHED_TIMER, 0);
    expect_set("0");
    expect_wake(now + 1);
    now++;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    expect_next("0");
    expect_wake(GM_TIME_NEVER); /* nothing by time alone: 1 is not open yet */
    engine();
    expect_wake(now + QUANTUM);
    pass(QUANTUM);
    expect_set("0");
    expect_next("1");
}

static void slice_starts_at_opened(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    pass(QUANTUM - 1);
    now++;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    now += 30;
    event(GM_SCHED_CLOSED, 0);
    now += 7 * QUANTUM; /* a long load */
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    expect_wake(GM_TIME_NEVER);
    event(GM_SCHED_OPENED, 1);
    expect_wake(now + QUANTUM);
    assert_int_equal(account(1).slice_at, now);
}

static void newcomer_comes_at_once_if_slices_are_over(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    now += 5 * QUANTUM;
    arrive(1, 60);
    expect_set("1");
    expect_next("0");
}

static void longest_wait_is_served_first(void **state)
{
    (void)state;
    arrive(3, 100);
    engine();
    arrive(2, 100); /* at the same time: in the order of the events */
    arrive(0, 100);
    now += 5;
    arrive(1, 100);
    expect_next("2 0 1");
    pass(QUANTUM - 5);
    expect_set("2");
    expect_next("0 1 3");
    pass(QUANTUM);
    expect_set("0");
    expect_next("1 3 2");
}

static void chosen_app_keeps_its_turn_while_it_loads(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    arrive(2, 60);
    now += QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    event(GM_SCHED_CLOSED, 0);
    for (int i = 0; i < 10; i++) {
        now += QUANTUM;
        event(GM_SCHED_TIMER, 0);
        event(GM_SCHED_WANT, 2);
        expect_set("1");
    }
    event(GM_SCHED_IDLE, 1);
    expect_set("2");
    expect_next("0");
}

static void app_at_the_tail_that_still_fits_keeps_its_gate(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 3; app++)
        arrive(app, 40);
    engine();
    expect_set("0 1");
    pass(QUANTUM);
    expect_set("2 0");
    expect_next("1");
    assert_int_equal(account(0).run_ns, QUANTUM);
    assert_int_equal(account(0).slice_at, now); /* a new slice, the gate open all the time */
    pass(QUANTUM);
    expect_set("1 2");
    pass(QUANTUM);
    expect_set("0 1");
    pass(QUANTUM * 297);
    for (uint32_t app = 0; app < 3; app++)
        assert_int_equal(account(app).run_ns, 200 * QUANTUM);
}

static void want_of_an_open_app_keeps_it_open_beside_who_waits(void **state)
{
    (void)state;
    arrive(0, 60);
    arrive(1, 30);
    engine();
    now += 40;
    event(GM_SCHED_IDLE, 1);
    now += 10;
    arrive(2, 80);
    expect_set("0 1");
    event(GM_SCHED_WANT, 1);
    expect_set("0 1");
    expect_wake(1000 + QUANTUM); /* of 0 */
    event(GM_SCHED_LEAVE, 0);
    expect_set("2"); /* the turn of 1 ended when it went idle */
    engine();
    pass(QUANTUM);
    expect_set("1");
    expect_wake(now + QUANTUM - 40 + QUANTUM); /* what it had left, and a slice */
}

static void want_of_an_idle_borrower_makes_no_turn(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 80);
    arrive(2, 30);
    engine();
    event(GM_SCHED_IDLE, 2);
    event(GM_SCHED_WANT, 2);
    expect_set("0 2");
    event(GM_SCHED_LEAVE, 0);
    expect_set("1");
    expect_next("2");
}

static void idle_ends_a_turn_when_another_needs_the_room(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    arrive(2, 60);
    now += 10;
    event(GM_SCHED_IDLE, 0);
    expect_set("1");
    expect_reason(0, GM_WHY_IDLE);
    event(GM_SCHED_WANT, 0);
    expect_set("1");
    expect_next("2 0");
}

/* ---- Borrowing ---- */

static void later_app_borrows_what_the_blocked_head_cannot_use(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    now += 10;
    arrive(1, 80);
    arrive(2, 30);
    expect_set("0 2");
    expect_next("1");
    engine();
    expect_reason(2, GM_WHY_SLICE);
    arrive(3, 40); /* fits beside 0, not beside the borrower before it */
    expect_reason(3, GM_WHY_ROOM);
    assert_int_equal(account(3).ahead, 2);
    now += 20;
    event(GM_SCHED_IDLE,
          0); /* the head could run without the borrower, in the middle of its slice */
    expect_set("1");
    expect_next("2 3");
    expect_reason(2, GM_WHY_TURN);
}

static void head_is_not_starved_by_small_apps(void **state)
{
    (void)state;
    for (uint32_t app = 1; app < APPS; app++)
        arrive(app, 20);
    engine();
    now += 10;
    arrive(0, 100);
    uint64_t since = now;
    while (!is_open[0]) {
        assert_true(last.wake_at != GM_TIME_NEVER);
        pass(last.wake_at - now);
        assert_true(now - since <= 2 * QUANTUM); /* those 5 whose turn it was, the 2 before it */
    }
    expect_set("0");
}

static void borrowers_take_turns_too(void **state)
{
    (void)state;
    arrive(0, 50);
    engine();
    arrive(1, 60);
    arrive(2, 50);
    arrive(3, 50);
    now += QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    event(GM_SCHED_BUSY, 0); /* 0 cannot leave: 1 is blocked for long */
    expect_set("2 0");
    event(GM_SCHED_OPENED, 2);
    uint64_t begin = now;
    bool was_three = false;
    while (now < begin + 4 * QUANTUM) {
        assert_true(last.wake_at > now && last.wake_at <= now + QUANTUM);
        now = last.wake_at;
        event(GM_SCHED_TIMER, 0);
        if (!is_in_set(0))
            event(GM_SCHED_BUSY, 0);
        engine();
        assert_true(is_in_set(0) && is_in_set(2) != is_in_set(3) && !is_in_set(1));
        was_three |= is_in_set(3);
    }
    assert_true(was_three);
    uint64_t two = account(2).run_ns, three = account(3).run_ns;
    assert_true(two + three == now - begin && (two > three ? two - three : three - two) <= QUANTUM);
    event(GM_SCHED_LEAVE, 0);
    assert_true(is_in_set(1)); /* and now it has its turn */
}

/* ---- Sizes ---- */

static void growth_ends_the_most_junior_turn(void **state)
{
    (void)state;
    arrive(0, 40);
    engine();
    now += 10;
    arrive(1, 40);
    engine();
    now += 10;
    size(0, 61); /* the senior one grows: it stays */
    expect_set("0");
    expect_next("1");
    size(0, 40);
    engine();
    expect_set("0 1");
    size(1, 61); /* the junior one grows: it yields */
    expect_set("0");
    expect_next("1");
    engine();
    expect_wake(1000 + QUANTUM);
}

static void idle_apps_go_before_growth_ends_a_turn(void **state)
{
    (void)state;
    arrive(0, 40);
    arrive(1, 40);
    engine();
    event(GM_SCHED_IDLE, 0);
    size(1, 70);
    expect_set("1");
    expect_wake(GM_TIME_NEVER);
}

static void turn_that_ended_early_comes_back_before_the_queue(void **state)
{
    (void)state;
    arrive(0, 40);
    arrive(1, 40);
    engine();
    arrive(2, 100);
    expect_next("2");
    size(0, 70);
    expect_next("1 2");
    engine();
    pass(QUANTUM);
    expect_set("1");
    expect_next("2 0");
}

static void turns_that_ended_early_keep_their_order(void **state)
{
    (void)state;
    for (uint32_t app = 0; app < 4; app++)
        arrive(app, 25);
    engine();
    size(0, 60);
    expect_set("0 1");
    expect_next("2 3");
}

static void rest_of_a_slice_that_ends_early_goes_to_the_tail(void **state)
{
    (void)state;
    arrive(0, 40);
    arrive(1, 40);
    engine();
    arrive(2, 100);
    event(GM_SCHED_IDLE, 0);
    event(GM_SCHED_WANT, 0);
    size(0, 70);
    expect_set("1");
    expect_next("2 0");
}

static void two_that_grow_in_turns_both_run(void **state)
{
    (void)state;
    arrive(0, 10);
    arrive(1, 10);
    engine();
    uint64_t begin = now;
    for (uint64_t i = 0; i < 400;
         i++) { /* whoever may run grows first, and shrinks when it is out */
        for (uint32_t app = 0; app < 2; app++)
            size(app, is_in_set((app + (uint32_t)i) % 2) ? 10 + i % 51 : 45);
        engine();
        pass(7);
    }
    uint64_t run = account(0).run_ns, other = account(1).run_ns;
    assert_true(run >= (now - begin) / 3 && other >= (now - begin) / 3);
}

static void app_larger_than_the_budget_never_runs_and_keeps_nobody_waiting(void **state)
{
    (void)state;
    arrive(0, 101);
    expect_set("");
    expect_reason(0, GM_WHY_ROOM);
    assert_int_equal(account(0).ahead, UINT32_MAX);
    arrive(1, 60);
    engine();
    expect_set("1");
    expect_next("");
    expect_wake(GM_TIME_NEVER);
    size(1, UINT64_MAX); /* in the middle of its slice */
    expect_set("");
    size(0, 100);
    expect_set("0");
    event(GM_SCHED_CLOSED, 1);
    size(1, 100);
    expect_set("0");
    expect_next("1");
}

static void budget_may_change(void **state)
{
    (void)state;
    arrive(0, 50);
    arrive(1, 50);
    engine();
    assert_int_equal(step(GM_SCHED_ROOM, UINT32_MAX, 99), 0);
    expect_set("0");
    expect_next("1");
    engine();
    assert_int_equal(step(GM_SCHED_ROOM, UINT32_MAX, 49), 0);
    expect_set("");
    expect_next("");
    expect_reason(0, GM_WHY_ROOM);
    assert_int_equal(step(GM_SCHED_ROOM, UINT32_MAX, 100), 0);
    expect_set("1 0");
}

/* ---- Not drained ---- */

static void app_that_did_not_drain_stays_until_retry(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    arrive(2, 30);
    engine();
    expect_set("0 2");
    now += QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("1 2");
    now += 5;
    event(GM_SCHED_BUSY, 0);
    expect_set("0 2"); /* another that fits beside it may run */
    expect_next("1");
    expect_reason(0, GM_WHY_NOT_DRAINED);
    expect_reason(1, GM_WHY_TURN);
    assert_int_equal(account(1).ahead, 0);
    expect_wake(now + RETRY);
    now += RETRY - 1;
    event(GM_SCHED_TIMER, 0);
    expect_set("0 2");
    now++;
    event(GM_SCHED_TIMER, 0);
    expect_set("2"); /* asked again; what it frees is given away once it is free */
    expect_next("1 0");
    expect_wake(GM_TIME_NEVER);
    event(GM_SCHED_BUSY, 0);
    expect_set("0 2");
    expect_wake(now + RETRY);
    pass(RETRY);
    assert_true(is_open[1] && !is_open[0]);
    assert_int_equal(account(0).run_ns, QUANTUM + 5 + 2 * RETRY);
}

static void not_drained_and_needed_by_nobody_is_not_asked_again(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    event(GM_SCHED_IDLE, 0);
    arrive(1, 60);
    expect_set("1");
    event(GM_SCHED_BUSY, 0);
    expect_set("0");
    expect_reason(0, GM_WHY_NOT_DRAINED);
    expect_wake(now + RETRY);
    event(GM_SCHED_LEAVE, 1);
    expect_set("0");
    expect_reason(0, GM_WHY_FITS);
    expect_wake(GM_TIME_NEVER);
}

static void not_drained_is_not_asked_if_that_would_not_help(void **state)
{
    (void)state;
    arrive(0, 30);
    engine();
    now += 20;
    arrive(1, 60);
    engine();
    arrive(2, 80);
    pass(80);
    expect_set("1 0"); /* the slice of 0 is over, and it fits behind 2 */
    event(GM_SCHED_BUSY, 0);
    expect_set("1 0");
    now += RETRY;
    event(GM_SCHED_TIMER, 0);
    expect_set("1 0");
    expect_wake(1020 + QUANTUM);
    now += 10;
    event(GM_SCHED_TIMER, 0);
    expect_set("2"); /* now 2 has the room of both */
    expect_next("0 1");
}

static void not_drained_may_exceed_the_budget(void **state)
{
    (void)state;
    arrive(0, 50);
    arrive(2, 0);
    engine();
    event(GM_SCHED_BUSY, 0);
    size(0, 120);
    expect_set("0 2");
    arrive(1, 1);
    expect_set("0 2");
    expect_wake(now + RETRY);
    now += RETRY;
    event(GM_SCHED_TIMER, 0);
    expect_set("2"); /* asked, but it still has the room */
    event(GM_SCHED_CLOSED, 0);
    expect_set("2 1");
}

/* ---- Coming and going ---- */

static void leave_is_legal_at_any_time(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    arrive(2, 60);
    arrive(3, 60);
    event(GM_SCHED_LEAVE, 2); /* waiting */
    expect_next("1 3");
    now += QUANTUM;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    event(GM_SCHED_LEAVE, 0); /* closing */
    expect_set("1");
    event(GM_SCHED_LEAVE, 1); /* loading */
    expect_set("3");
    engine();
    event(GM_SCHED_LEAVE, 3); /* running */
    expect_set("");
    struct gm_sched_account a;
    assert_false(gm_sched_account(sched, now, 3, &a));
    arrive(3, 10); /* the id again, with a new account */
    expect_set("3");
    assert_int_equal(account(3).run_ns, 0);
}

static void slice_used_up_while_draining_is_not_given_again(void **state)
{
    (void)state;
    arrive(0, 40);
    arrive(1, 40);
    engine();
    arrive(2, 70);
    now += 50;
    size(0, 70); /* ends the turn of 1, which drains slowly */
    expect_set("0");
    expect_next("1 2");
    now += 50;
    event(GM_SCHED_TIMER, 0);
    expect_set("2"); /* 1 could stay, but it was open for a whole quantum and 2 waits */
    expect_next("0 1");
}

static void reselected_before_it_closed_has_a_new_slice(void **state)
{
    (void)state;
    arrive(0, 60);
    engine();
    arrive(1, 60);
    now += QUANTUM + 20;
    event(GM_SCHED_TIMER, 0);
    expect_set("1");
    event(GM_SCHED_LEAVE, 1);
    expect_set("0");
    assert_int_equal(account(0).slice_at, now);
    event(GM_SCHED_CLOSED, 0); /* the drain had ended already: it opens again */
    expect_set("0");
    event(GM_SCHED_OPENED, 0);
    expect_set("0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(everything_fits_and_no_gate_closes),
        rule(idle_open_app_stays_while_there_is_room),
        rule(idle_closed_app_comes_in_with_want_only),
        rule(least_recently_runnable_idle_app_goes_first),
        rule(idle_app_that_was_dropped_is_out_once_closed),
        rule(zero_bytes_always_fit),
        rule(two_that_do_not_fit_alternate_by_quantum),
        rule(slice_starts_at_opened),
        rule(newcomer_comes_at_once_if_slices_are_over),
        rule(longest_wait_is_served_first),
        rule(chosen_app_keeps_its_turn_while_it_loads),
        rule(app_at_the_tail_that_still_fits_keeps_its_gate),
        rule(want_of_an_open_app_keeps_it_open_beside_who_waits),
        rule(want_of_an_idle_borrower_makes_no_turn),
        rule(idle_ends_a_turn_when_another_needs_the_room),
        rule(later_app_borrows_what_the_blocked_head_cannot_use),
        rule(head_is_not_starved_by_small_apps),
        rule(borrowers_take_turns_too),
        rule(growth_ends_the_most_junior_turn),
        rule(idle_apps_go_before_growth_ends_a_turn),
        rule(turn_that_ended_early_comes_back_before_the_queue),
        rule(turns_that_ended_early_keep_their_order),
        rule(rest_of_a_slice_that_ends_early_goes_to_the_tail),
        rule(two_that_grow_in_turns_both_run),
        rule(app_larger_than_the_budget_never_runs_and_keeps_nobody_waiting),
        rule(budget_may_change),
        rule(app_that_did_not_drain_stays_until_retry),
        rule(not_drained_and_needed_by_nobody_is_not_asked_again),
        rule(not_drained_is_not_asked_if_that_would_not_help),
        rule(not_drained_may_exceed_the_budget),
        rule(leave_is_legal_at_any_time),
        rule(slice_used_up_while_draining_is_not_given_again),
        rule(reselected_before_it_closed_has_a_new_slice),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}

/* shim/link/comeback: what a program does whose daemon dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "shim/link/comeback.h"

#define START (100 * GM_S)

static struct gm_comeback comeback;

static int set_up(void **state)
{
    (void)state;
    comeback = (struct gm_comeback){.limit_ns = 30 * GM_S};
    return 0;
}

static void take(enum gm_link_event event, uint64_t at, enum gm_link_state to, unsigned actions)
{
    assert_int_equal(gm_comeback_step(&comeback, event, at), actions);
    assert_int_equal(comeback.state, to);
}

static void lose(uint64_t at)
{
    take(GM_LINK_EV_HANG_UP, at, GM_LINK_LOST, GM_LINK_DO_PART);
}

/* Each state knows these events, and no others. */
static void test_table(void **state)
{
    static const struct {
        enum gm_link_state from;
        enum gm_link_event event;
        enum gm_link_state to;
        unsigned actions;
    } known[] = {
        {GM_LINK_UP, GM_LINK_EV_HANG_UP, GM_LINK_LOST, GM_LINK_DO_PART},
        {GM_LINK_UP, GM_LINK_EV_ENDED, GM_LINK_GONE, GM_LINK_DO_PART | GM_LINK_DO_GIVE_UP},
        {GM_LINK_LOST, GM_LINK_EV_CONNECTED, GM_LINK_REJOIN, 0},
        {GM_LINK_LOST, GM_LINK_EV_NOBODY, GM_LINK_GONE, GM_LINK_DO_GIVE_UP},
        {GM_LINK_REJOIN, GM_LINK_EV_HANG_UP, GM_LINK_LOST, GM_LINK_DO_HANG_UP},
        {GM_LINK_REJOIN, GM_LINK_EV_WELCOME, GM_LINK_UP, GM_LINK_DO_GO_ON},
        {GM_LINK_REJOIN, GM_LINK_EV_LATER, GM_LINK_LOST, GM_LINK_DO_HANG_UP},
        {GM_LINK_REJOIN, GM_LINK_EV_NO_FILES, GM_LINK_REJOIN, 0},
        {GM_LINK_REJOIN, GM_LINK_EV_REFUSED, GM_LINK_GONE, GM_LINK_DO_HANG_UP | GM_LINK_DO_GIVE_UP},
        {GM_LINK_REJOIN, GM_LINK_EV_NOBODY, GM_LINK_GONE, GM_LINK_DO_HANG_UP | GM_LINK_DO_GIVE_UP},
    };
    (void)state;
    for (int from = 0; from < GM_LINK_STATES; from++)
        for (int event = 0; event < GM_LINK_EVENTS; event++) {
            int to = from;
            unsigned actions = 0;
            if (event == GM_LINK_EV_TIME)
                continue;
            for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
                if ((int)known[i].from == from && (int)known[i].event == event) {
                    to = known[i].to;
                    actions = known[i].actions;
                }
            comeback = (struct gm_comeback){.state = (enum gm_link_state)from};
            take((enum gm_link_event)event, START, (enum gm_link_state)to, actions);
        }
}

/* It connects again and again, at first often, and says once that it waits. */
static void test_attempts(void **state)
{
    uint64_t at = START, gap = GM_COMEBACK_GAP_MIN;
    (void)state;
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
    take(GM_LINK_EV_TIME, at, GM_LINK_UP, 0);
    lose(at);
    for (unsigned i = 0; i < 10; i++) {
        at += gap;
        assert_int_equal(gm_comeback_due(&comeback), at);
        take(GM_LINK_EV_TIME, at - 1, GM_LINK_LOST, 0);
        take(GM_LINK_EV_TIME, at, GM_LINK_LOST,
             GM_LINK_DO_CONNECT | (i == 0 ? GM_LINK_DO_TELL : 0));
        gap = 2 * gap < GM_COMEBACK_GAP_MAX ? 2 * gap : GM_COMEBACK_GAP_MAX;
    }
    assert_int_equal(gap, GM_COMEBACK_GAP_MAX);
}

/* Requests are refused once, when the limit has passed since the loss, in either state. */
static void test_limit(void **state)
{
    (void)state;
    lose(START);
    comeback.try_at = UINT64_MAX;
    assert_int_equal(gm_comeback_due(&comeback), START + 30 * GM_S);
    take(GM_LINK_EV_TIME, START + 30 * GM_S - 1, GM_LINK_LOST, 0);
    take(GM_LINK_EV_TIME, START + 30 * GM_S, GM_LINK_LOST, GM_LINK_DO_REFUSE);
    take(GM_LINK_EV_TIME, START + 31 * GM_S, GM_LINK_LOST, 0);

    /* The limit counts from the loss. One that does not answer is waited for. */
    take(GM_LINK_EV_CONNECTED, START + 32 * GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_WELCOME, START + 33 * GM_S, GM_LINK_UP, GM_LINK_DO_GO_ON);
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
    lose(START + 40 * GM_S);
    take(GM_LINK_EV_CONNECTED, START + 65 * GM_S, GM_LINK_REJOIN, 0);
    assert_int_equal(gm_comeback_due(&comeback), START + 70 * GM_S);
    take(GM_LINK_EV_TIME, START + 70 * GM_S, GM_LINK_REJOIN, GM_LINK_DO_REFUSE);
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
    take(GM_LINK_EV_TIME, START + 3600 * GM_S, GM_LINK_REJOIN, 0);
}

/* A limit of 0 refuses at once, and one without an end never does. */
static void test_extremes(void **state)
{
    (void)state;
    comeback.limit_ns = 0;
    lose(START);
    take(GM_LINK_EV_TIME, START, GM_LINK_LOST, GM_LINK_DO_REFUSE);
    comeback = (struct gm_comeback){.limit_ns = UINT64_MAX};
    lose(START);
    comeback.try_at = UINT64_MAX;
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
}

/* A daemon that is not ready refuses for now; who is sent away for good does not ask again. */
static void test_refusals(void **state)
{
    (void)state;
    lose(START);
    take(GM_LINK_EV_CONNECTED, START + GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_LATER, START + GM_S, GM_LINK_LOST, GM_LINK_DO_HANG_UP);
    assert_true(gm_comeback_due(&comeback) > START + GM_S);
    take(GM_LINK_EV_CONNECTED, START + 2 * GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_REFUSED, START + 2 * GM_S, GM_LINK_GONE,
         GM_LINK_DO_HANG_UP | GM_LINK_DO_GIVE_UP);
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
    take(GM_LINK_EV_TIME, START + 90 * GM_S, GM_LINK_GONE, 0);
}

/* An answer for which there are no files waits in the socket, and is looked at again: at first
 * soon, at last each second. Requests are refused meanwhile as ever. */
static void test_no_files(void **state)
{
    uint64_t at = START, gap = GM_COMEBACK_GAP_MIN;
    (void)state;
    lose(START);
    take(GM_LINK_EV_CONNECTED, START, GM_LINK_REJOIN, 0);
    assert_false(comeback.is_deaf);
    for (unsigned i = 0; i < 10; i++) {
        gap = 2 * gap < GM_COMEBACK_GAP_MAX ? 2 * gap : GM_COMEBACK_GAP_MAX;
        take(GM_LINK_EV_NO_FILES, at, GM_LINK_REJOIN, 0);
        assert_true(comeback.is_deaf);
        at += gap;
        assert_int_equal(gm_comeback_due(&comeback), at);
        take(GM_LINK_EV_TIME, at - 1, GM_LINK_REJOIN, 0);
        assert_true(comeback.is_deaf);
        take(GM_LINK_EV_TIME, at, GM_LINK_REJOIN, 0);
        assert_false(comeback.is_deaf);
        assert_int_equal(gm_comeback_due(&comeback), START + 30 * GM_S);
    }
    assert_int_equal(gap, GM_COMEBACK_GAP_MAX);
    take(GM_LINK_EV_NO_FILES, START + 30 * GM_S - 1, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_TIME, START + 30 * GM_S, GM_LINK_REJOIN, GM_LINK_DO_REFUSE);
    assert_true(comeback.is_deaf);
    take(GM_LINK_EV_HANG_UP, START + 31 * GM_S, GM_LINK_LOST, GM_LINK_DO_HANG_UP);
    assert_false(comeback.is_deaf);
    take(GM_LINK_EV_CONNECTED, START + 32 * GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_NO_FILES, START + 32 * GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_TIME, START + 34 * GM_S, GM_LINK_REJOIN, 0);
    take(GM_LINK_EV_WELCOME, START + 34 * GM_S, GM_LINK_UP, GM_LINK_DO_GO_ON);
    assert_int_equal(gm_comeback_due(&comeback), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_table, set_up),
        cmocka_unit_test_setup(test_attempts, set_up),
        cmocka_unit_test_setup(test_limit, set_up),
        cmocka_unit_test_setup(test_extremes, set_up),
        cmocka_unit_test_setup(test_refusals, set_up),
        cmocka_unit_test_setup(test_no_files, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

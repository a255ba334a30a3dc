/* shim/gate/park: when a program stands still, for a HOLD, a CLOSE or both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "shim/gate/gate.h"
#include "shim/gate/park.h"

/* Nobody is inside. */
void gm_gate_fence(void)
{
}

uint32_t gm_gate_list(uint32_t *tids, uint32_t most)
{
    (void)tids;
    (void)most;
    return 0;
}

static struct gm_stat stat_area;

struct gm_stat *gm_gate_stat(void)
{
    return &stat_area;
}

static bool is_stopped;
static unsigned n_disabled, n_enabled;
static enum gm_park_outcome outcome;

static enum gm_park_outcome disable(void)
{
    n_disabled += !is_stopped;
    if (outcome == GM_PARK_IS_ON)
        is_stopped = true;
    return outcome;
}

static void enable(void)
{
    assert_int_equal(atomic_load(&stat_area.moving), GM_MOVING_GOES); /* the daemon sees it */
    n_enabled++;
    is_stopped = false;
}

static int set_up(void **state)
{
    (void)state;
    gm_park_take_back();
    gm_hold_end(enable);
    gm_park_end(enable);
    outcome = GM_PARK_IS_ON;
    is_stopped = false;
    n_disabled = n_enabled = 0;
    return 0;
}

/* Look at `at` ms: whether it stands still then, and when to look again; 0: never. */
static void look(uint64_t at, bool is_expected, uint64_t next)
{
    const uint64_t found = gm_hold_look(at * GM_MS, disable, enable);
    assert_int_equal(is_stopped, is_expected);
    assert_int_equal(found, next == 0 ? UINT64_MAX : next * GM_MS);
}

static void hold(uint64_t at, uint64_t length)
{
    gm_hold(at * GM_MS, length * GM_MS);
}

static void test_alone(void **state)
{
    (void)state;
    look(1, false, 0);
    look(1, false, 0);
    hold(3, 5);
    look(3, true, 8);
    look(7, true, 8);
    look(8, false, 0);
    assert_int_equal(n_disabled, 1);
    assert_int_equal(n_enabled, 1);
    assert_false(gm_park_is_on());
}

static void test_too_late(void **state)
{
    (void)state;
    hold(1, 5);
    look(20, false, 0); /* the program did not run meanwhile */
    assert_int_equal(n_disabled, 0);
}

static void test_several(void **state)
{
    (void)state;
    hold(1, 5);
    look(1, true, 6);
    hold(3, 10); /* one that begins before the other ends goes on */
    look(3, true, 13);
    hold(4, 2); /* one that ends earlier changes nothing */
    look(5, true, 13);
    look(13, false, 0);
    assert_int_equal(n_disabled, 1);
    assert_int_equal(n_enabled, 1);

    hold(20, 9);
    hold(22, 4); /* overlapping ones are one */
    look(23, true, 29);
    look(29, false, 0);
}

/* Whatever the daemon says, it is over in a second. */
static void test_absurd(void **state)
{
    (void)state;
    gm_hold(GM_S, UINT64_MAX);
    look(1000, true, 2000);
    look(2000, false, 0);
}

static void test_refused(void **state)
{
    (void)state;
    outcome = GM_PARK_NEVER;
    hold(1, 5);
    look(1, false, 0);
    outcome = GM_PARK_LATER; /* a channel comes: once more, but not beyond its end */
    hold(10, 5);
    assert_in_range(gm_hold_look(10 * GM_MS, disable, enable), 10 * GM_MS + 1, 11 * GM_MS);
    outcome = GM_PARK_IS_ON;
    look(11, true, 15);
    look(15, false, 0);
    outcome = GM_PARK_LATER;
    hold(20, 5);
    gm_hold_look(20 * GM_MS, disable, enable);
    look(25, false, 0);
}

/* A CLOSE while it is held: it stays parked when the hold is over, until it is resumed. */
static void test_close_lasts_longer(void **state)
{
    (void)state;
    hold(1, 5);
    look(1, true, 6);
    gm_park_begin();
    assert_false(gm_park_is_on()); /* that it is held does not mean that its memory may go */
    assert_int_equal(gm_park_try(disable), GM_PARK_IS_ON);
    assert_true(gm_park_is_on());
    look(6, true, 0);
    assert_true(gm_park_is_on());
    gm_park_end(enable);
    assert_false(is_stopped);
    assert_int_equal(n_disabled, 1);
    assert_int_equal(n_enabled, 1);
}

/* ... and the other way round: it is resumed, and is held on. */
static void test_hold_lasts_longer(void **state)
{
    (void)state;
    hold(1, 50);
    look(1, true, 51);
    gm_park_begin();
    assert_int_equal(gm_park_try(disable), GM_PARK_IS_ON);
    gm_park_end(enable);
    assert_false(gm_park_is_on());
    assert_true(is_stopped);
    look(51, false, 0);
    assert_int_equal(n_enabled, 1);
}

/* The gate closes before the hold begins. */
static void test_forgotten(void **state)
{
    (void)state;
    hold(1, 50);
    gm_hold_forget();
    look(6, false, 0);
    hold(10, 5);
    look(10, true, 15);
    gm_hold_forget(); /* one that is on goes on */
    look(11, true, 15);
    gm_hold_end(enable);
    assert_false(is_stopped);
    look(12, false, 0);
    gm_hold_end(enable); /* there is none */
    assert_int_equal(n_enabled, 1);
}

/* What the daemon has marked as moving goes on when the mark is gone, and at no other time. */
static void test_moving(void **state)
{
    (void)state;
    gm_park_begin();
    assert_int_equal(gm_park_try(disable), GM_PARK_IS_ON);
    atomic_store(&stat_area.moving, GM_MOVING_AWAY);
    gm_park_end(enable);
    assert_true(is_stopped && gm_park_is_on());
    hold(1, 5);
    look(1, true, 6);
    look(6, true, 0); /* nor at the end of a hold */
    assert_true(gm_park_is_on());
    assert_int_equal(atomic_load(&stat_area.moving), GM_MOVING_AWAY);
    atomic_store(&stat_area.moving, GM_MOVING_FREE);
    gm_park_end(enable);
    assert_false(is_stopped);
    assert_int_equal(n_enabled, 1);
    assert_int_equal(atomic_load(&stat_area.moving), GM_MOVING_FREE);
}

/* It is held and not parked, and marked nevertheless: it waits for RESUME then. */
static void test_moving_while_held(void **state)
{
    (void)state;
    hold(1, 5);
    look(1, true, 6);
    atomic_store(&stat_area.moving, GM_MOVING_AWAY);
    look(6, true, 0);
    atomic_store(&stat_area.moving, GM_MOVING_FREE);
    look(7, true, 0);
    gm_park_end(enable);
    assert_false(is_stopped);
    assert_int_equal(n_enabled, 1);
}

/* The daemon is gone for good, with its mark. */
static void test_taken_back(void **state)
{
    (void)state;
    gm_park_begin();
    assert_int_equal(gm_park_try(disable), GM_PARK_IS_ON);
    atomic_store(&stat_area.moving, GM_MOVING_AWAY);
    gm_park_take_back();
    gm_park_end(enable);
    assert_false(is_stopped || gm_park_is_stopped());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_alone, set_up),
        cmocka_unit_test_setup(test_too_late, set_up),
        cmocka_unit_test_setup(test_several, set_up),
        cmocka_unit_test_setup(test_absurd, set_up),
        cmocka_unit_test_setup(test_refused, set_up),
        cmocka_unit_test_setup(test_close_lasts_longer, set_up),
        cmocka_unit_test_setup(test_hold_lasts_longer, set_up),
        cmocka_unit_test_setup(test_forgotten, set_up),
        cmocka_unit_test_setup(test_moving, set_up),
        cmocka_unit_test_setup(test_moving_while_held, set_up),
        cmocka_unit_test_setup(test_taken_back, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

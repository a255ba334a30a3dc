/* daemon/service/bounds: what one user may ask of the daemon. Time is a value here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/tunables.h"
#include "daemon/service/bounds.h"

static struct gm_bounds *bounds;

static int set_up(void **state)
{
    (void)state;
    bounds = calloc(1, sizeof *bounds);
    bounds->max_files = 100;
    return bounds ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(bounds);
    return 0;
}

static void test_share_of_a_round(void **state)
{
    (void)state;
    struct gm_bound *a = gm_bounds_join(bounds, 1, false, 0);
    struct gm_bound *b = gm_bounds_join(bounds, 2, false, 0);
    struct gm_bound *root = gm_bounds_join(bounds, 0, true, 0);
    assert_ptr_equal(gm_bounds_join(bounds, 1, false, 0), a); /* all its connections share it */
    assert_ptr_not_equal(gm_bounds_join(bounds, 0, false, 0), root); /* of a container */
    assert_true(root->is_trusted);
    assert_false(gm_bound_is_spent(bounds, a));
    gm_bound_spend(bounds, a, GM_BOUND_ROUND_NS - 1);
    assert_false(gm_bound_is_spent(bounds, a));
    gm_bound_spend(bounds, a, 1);
    assert_true(gm_bound_is_spent(bounds, a));
    assert_false(gm_bound_is_spent(bounds, b));
    gm_bound_spend(bounds, root, 1000 * GM_BOUND_ROUND_NS);
    assert_false(gm_bound_is_spent(bounds, root));
    gm_bounds_turn(bounds); /* whoever is left over has a share again, however much it had */
    assert_false(gm_bound_is_spent(bounds, a));
    gm_bound_spend(bounds, a, UINT64_MAX / 2);
    assert_true(gm_bound_is_spent(bounds, a));
}

/* A burst is nothing to speak of: only who stands in line in every round is slowed. */
static void test_slowed(void **state)
{
    (void)state;
    struct gm_bound *user = gm_bounds_join(bounds, 1, false, 0);
    uint64_t now = GM_S;
    for (int i = 0; i < 100; i++, now += GM_BOUND_SLOW_NS / 10) {
        assert_false(gm_bound_is_slowed(bounds, user, now));
        gm_bounds_turn(bounds);
        gm_bounds_turn(bounds); /* in one of two rounds it does not */
    }
    for (int i = 0; i < 10; i++, now += GM_BOUND_SLOW_NS / 10) {
        assert_false(gm_bound_is_slowed(bounds, user, now));
        gm_bounds_turn(bounds);
    }
    assert_true(gm_bound_is_slowed(bounds, user, now));
}

static void test_output(void **state)
{
    (void)state;
    struct gm_bound *a = gm_bounds_join(bounds, 1, false, 0);
    struct gm_bound *root = gm_bounds_join(bounds, 0, true, 0);
    assert_true(gm_bound_queue(bounds, a, GM_BOUND_BYTES, 0));
    assert_false(gm_bound_queue(bounds, a, 1, 0));
    gm_bound_unqueue(a, GM_BOUND_BYTES, 0);
    assert_false(gm_bound_queue(bounds, a, GM_BOUND_BYTES + 1, 0));
    assert_true(gm_bound_queue(bounds, a, 1, 99));
    assert_false(gm_bound_queue(bounds, a, 1, 2));
    assert_true(gm_bound_queue(bounds, a, 1, 1));
    assert_int_equal(a->messages, 2);
    while (gm_bound_queue(bounds, a, 1, 0))
        continue;
    assert_int_equal(a->messages, GM_BOUND_MESSAGES);
    assert_true(gm_bound_queue(bounds, root, 10ull * GM_BOUND_BYTES, 1000));
}

static void test_settings(void **state)
{
    (void)state;
    struct gm_bound *a = gm_bounds_join(bounds, 1, false, 0);
    struct gm_bound *b = gm_bounds_join(bounds, 2, false, 0);
    for (int i = 0; i < GM_SETTINGS_A_SECOND; i++)
        assert_true(gm_bound_may_set(a, 5 * GM_S));
    assert_false(gm_bound_may_set(a, 5 * GM_S + GM_S - 1));
    assert_true(gm_bound_may_set(b, 5 * GM_S)); /* each has its own */
    gm_bound_leave(a, 5 * GM_S);
    assert_ptr_equal(gm_bounds_join(bounds, 1, false, 5 * GM_S), a);
    assert_false(gm_bound_may_set(a, 5 * GM_S)); /* coming anew gains nothing */
    assert_true(gm_bound_may_set(a, 6 * GM_S));
}

static void test_tell(void **state)
{
    (void)state;
    struct gm_bound *a = gm_bounds_join(bounds, 1, false, 0);
    uint64_t more = 77, now = GM_S;
    assert_true(gm_bound_tell(a, GM_BOUND_OUTPUT, now, &more));
    assert_int_equal(more, 0);
    for (int i = 0; i < 1000; i++)
        assert_false(gm_bound_tell(a, GM_BOUND_OUTPUT, now + GM_BOUND_TOLD_NS - 1, &more));
    assert_true(gm_bound_tell(a, GM_BOUND_VISITORS, now, &more));
    assert_true(gm_bound_tell(a, GM_BOUND_OUTPUT, now + GM_BOUND_TOLD_NS, &more));
    assert_int_equal(more, 1000);
}

/* One user after the other, more than there are records: who is connected keeps its own. */
static void test_many_users(void **state)
{
    (void)state;
    struct gm_bound *first = gm_bounds_join(bounds, 7, false, 0);
    for (uid_t uid = 100; uid < 100 + 3 * GM_BOUND_USERS; uid++) {
        struct gm_bound *user = gm_bounds_join(bounds, uid, false, uid);
        assert_non_null(user);
        assert_ptr_not_equal(user, first);
        gm_bound_leave(user, uid);
    }
    assert_int_equal(first->uid, 7);
    for (uid_t uid = 100000; uid < 100000 + GM_BOUND_USERS - 1; uid++)
        assert_non_null(gm_bounds_join(bounds, uid, false, 1));
    assert_null(gm_bounds_join(bounds, 99, false, 1)); /* all are connected */
    gm_bound_leave(first, GM_S);
    assert_ptr_equal(gm_bounds_join(bounds, 99, false, GM_S), first);
    /* a record that is over is used again before a new one is begun */
    memset(bounds, 0, sizeof *bounds);
    first = gm_bounds_join(bounds, 1, false, 0);
    gm_bound_leave(first, 1);
    assert_ptr_equal(gm_bounds_join(bounds, 2, false, 1 + GM_BOUND_TOLD_NS), first);
    assert_int_equal(bounds->n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_share_of_a_round, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slowed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_settings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tell, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_users, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

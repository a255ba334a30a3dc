/* daemon/core/saving: whom a daemon that stops saves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/saving.h"

/* Choose, and expect this order of apps, of which the first `chosen` have room. */
static void expect(struct gm_saving *apps, uint32_t n, uint64_t room, const uint32_t *order,
                   uint32_t chosen)
{
    assert_int_equal(gm_saving_choose(apps, n, room), chosen);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(apps[i].app, order[i]);
}

static void all_that_fit(void **state)
{
    struct gm_saving apps[] = {{0, false, 40, 40}, {1, true, 30, 0}, {2, false, 30, 10}};
    (void)state;
    expect(apps, 3, 100, (uint32_t[]){1, 2, 0}, 3);
    expect(apps, 0, 100, NULL, 0);
}

/* Who lacks least goes first; who is as far by number. */
static void least_missing_first(void **state)
{
    struct gm_saving apps[] = {
        {0, false, 60, 60}, {1, false, 50, 20}, {2, false, 50, 20}, {3, false, 40, 0}};
    (void)state;
    expect(apps, 4, 90, (uint32_t[]){3, 1, 2, 0}, 2);
}

/* A program for which there is no room does not stop a smaller one behind it. */
static void too_large_is_passed_over(void **state)
{
    struct gm_saving apps[] = {{0, false, 90, 10}, {1, false, 30, 30}, {2, true, 60, 0}};
    (void)state;
    expect(apps, 3, 100, (uint32_t[]){2, 1, 0}, 2);
}

/* An open gate counts whatever the room is, and leaves none for others. */
static void open_ones_stay(void **state)
{
    struct gm_saving apps[] = {{0, false, 10, 0}, {1, true, 80, 5}, {2, true, 70, 0}};
    (void)state;
    expect(apps, 3, 100, (uint32_t[]){2, 1, 0}, 2);
}

/* What a paused program was promised is less than what it takes, if nothing of it has its place. */
static void what_has_no_place_counts(void **state)
{
    static struct gm_table_app apps[2];
    const struct gm_table table = {.apps = apps};
    (void)state;
    apps[1] = (struct gm_table_app){.committed = 100, .fixed = 10, .beyond = 60, .resident = 20};
    const struct gm_saving away = gm_saving_of(&table, 1, true, false); /* 30 were promised */
    assert_int_equal(away.app, 1);
    assert_true(away.is_open);
    assert_int_equal(away.bytes, 90);
    assert_int_equal(away.missing, 70);
    assert_int_equal(gm_saving_of(&table, 1, false, true).bytes, 30);
    apps[1].on_host = 60;
    assert_int_equal(gm_saving_of(&table, 1, false, false).bytes, 30);
    apps[1].on_host = 70; /* not all that it may have */
    const struct gm_saving placed = gm_saving_of(&table, 1, false, false);
    assert_int_equal(placed.bytes, 30);
    assert_int_equal(placed.missing, 10);
    assert_false(placed.is_open);
    assert_int_equal(gm_saving_beyond(&table, 1, 30), 60);
    assert_int_equal(gm_saving_beyond(&table, 1, 50), 60);
    assert_int_equal(gm_saving_beyond(&table, 1, 8), 82);
    assert_int_equal(gm_saving_beyond(&table, 1, 0), 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_fit),
        cmocka_unit_test(least_missing_first),
        cmocka_unit_test(too_large_is_passed_over),
        cmocka_unit_test(open_ones_stay),
        cmocka_unit_test(what_has_no_place_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* daemon/core/staging: when staging counts as behind the switches, and what is left to them then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/staging.h"

#define MIB (1ull << 20)

static struct gm_table_app with(uint64_t pinned, uint64_t paged, uint64_t disk)
{
    return (struct gm_table_app){.bytes = {[GM_TIER_GPU] = 8192 * MIB,
                                           [GM_TIER_PINNED] = pinned,
                                           [GM_TIER_PAGED] = paged,
                                           [GM_TIER_DISK] = disk}};
}

static void note(struct gm_staging *staging, struct gm_table_app app)
{
    gm_staging_note(staging, &app);
}

/* What a switch found below pinned memory says whether there was time before it; a small program
 * says nothing of the others, and one that lacks nothing was no switch. */
static void not_every_switch_tells(void **state)
{
    struct gm_staging staging = {0};
    (void)state;
    note(&staging, with(0, 255 * MIB, 0));
    assert_int_equal(staging.behind, 0);
    note(&staging, with(0, 256 * MIB, 0));
    assert_int_equal(staging.behind, 8);
    note(&staging, with(0, 224 * MIB, 0));
    note(&staging, with(0, 0, 0));
    assert_int_equal(staging.behind, 8);
    note(&staging, with(1024 * MIB, 0, 0));
    assert_int_equal(staging.behind, 7);
    note(&staging, with(0, 0, 1024 * MIB)); /* nor was it staged from the disk */
    assert_int_equal(staging.behind, 8);
}

/* Two fifths are not too much: that is about what the next time leaves. */
static void two_fifths_keep_up(void **state)
{
    struct gm_staging staging = {0};
    (void)state;
    note(&staging, with(960 * MIB, 640 * MIB, 0));
    assert_int_equal(staging.behind, 0);
    note(&staging, with(960 * MIB, 320 * MIB, 352 * MIB));
    assert_int_equal(staging.behind, 8);
}

/* It keeps up again when eight switches in a row found enough. */
static void eight_switches_forgive(void **state)
{
    struct gm_staging staging = {0};
    (void)state;
    note(&staging, with(0, 1024 * MIB, 0));
    for (unsigned i = 0; i < 7; i++)
        note(&staging, with(1024 * MIB, 0, 0));
    assert_int_equal(staging.behind, 1);
    note(&staging, with(0, 1024 * MIB, 0));
    assert_int_equal(staging.behind, 8);
    for (unsigned i = 0; i < 9; i++)
        note(&staging, with(1024 * MIB, 0, 0));
    assert_int_equal(staging.behind, 0);
}

/* A third of the next program's, wherever it is; of a later one's, all that is in paged memory. */
static void a_third_is_left(void **state)
{
    const struct gm_table_app app = with(300 * MIB, 600 * MIB, 600 * MIB);
    struct gm_staging staging = {0};
    (void)state;
    assert_int_equal(gm_staging_left(&staging, &app, true), 0);
    assert_int_equal(gm_staging_left(&staging, &app, false), 0);
    staging.behind = 1;
    assert_int_equal(gm_staging_left(&staging, &app, true), 500 * MIB);
    assert_true(gm_staging_left(&staging, &app, false) >= 600 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_every_switch_tells),
        cmocka_unit_test(two_fifths_keep_up),
        cmocka_unit_test(eight_switches_forgive),
        cmocka_unit_test(a_third_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

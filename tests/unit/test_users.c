/* Names of users, when the system answers at once, late, never, or knows nobody of that number. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "daemon/service/users.h"

static _Atomic unsigned lookups;
static _Atomic bool is_stuck;

static int look_up(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    lookups++;
    while (is_stuck)
        usleep(1000);
    if (uid == 404)
        return -1;
    snprintf(name, GM_USERS_NAME, "user-%u\n", uid);
    groups->gid = calloc(2, sizeof *groups->gid);
    groups->n = groups->gid ? 2 : 0;
    for (int i = 0; i < groups->n; i++)
        groups->gid[i] = 1000 * (unsigned)(i + 1) + uid;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    gm_users_ask_by(look_up);
    lookups = 0;
    return 0;
}

/* Asks until the name is `wanted`. */
static void expect_in_the_end(uid_t uid, const char *wanted)
{
    char name[GM_USERS_NAME];
    uint64_t end = gm_now() + 60 * GM_S;
    while (strcmp(gm_users_name(uid, name), wanted) != 0 && gm_now() < end)
        usleep(1000);
    assert_string_equal(name, wanted);
}

/* The number of a user is his name until he is looked up, and may be it then. */
static void expect_lookups(unsigned wanted)
{
    uint64_t end = gm_now() + 60 * GM_S;
    while (lookups < wanted && gm_now() < end)
        usleep(1000);
    assert_int_equal(lookups, wanted);
}

static void test_names(void **state)
{
    (void)state;
    expect_in_the_end(7, "user-7?"); /* what a terminal would obey is not in it */
    expect_in_the_end(7, "user-7?");
    assert_int_equal(lookups, 1);
    expect_in_the_end(404, "404");
    expect_lookups(2);
    /* another uid in the same place */
    expect_in_the_end(7 + GM_USERS_MAX, "user-71?");
    expect_in_the_end(7, "user-7?");
    assert_int_equal(lookups, 4);
}

/* A system that does not answer: all names are numbers, and only the first question waits. */
static void test_stuck(void **state)
{
    (void)state;
    char name[GM_USERS_NAME];
    is_stuck = true;
    assert_string_equal(gm_users_name(8, name), "8");
    assert_string_equal(gm_users_name(9, name), "9");
    uint64_t begin = gm_now();
    for (unsigned i = 0; i < 10000; i++)
        assert_string_equal(gm_users_name(8 + i % 2, name), i % 2 ? "9" : "8");
    /* so many patient questions would take 200 s */
    assert_true(gm_now() - begin < 10000 * GM_USERS_WAIT_MS * GM_MS);
    is_stuck = false;
    expect_in_the_end(8, "user-8?");
    expect_in_the_end(9, "user-9?");
}

/* Who belongs to a group; nobody does of whom nothing is known. */
static void test_members(void **state)
{
    (void)state;
    expect_in_the_end(7, "user-7?");
    assert_true(gm_users_is_member(7, 1007) && gm_users_is_member(7, 2007));
    assert_false(gm_users_is_member(7, 3007) || gm_users_is_member(7, 0));
    assert_int_equal(lookups, 1);
    expect_in_the_end(404, "404");
    assert_false(gm_users_is_member(404, 1404));
    is_stuck = true;
    assert_false(gm_users_is_member(8, 1008));
    is_stuck = false;
    expect_in_the_end(8, "user-8?");
    assert_true(gm_users_is_member(8, 1008));
    gm_users_forget();
    expect_in_the_end(8, "user-8?");
    expect_lookups(4);
}

static void test_system(void **state)
{
    (void)state;
    gm_users_ask_by(NULL);
    expect_in_the_end(0, "root");
    assert_true(gm_users_is_member(0, 0));
    expect_in_the_end(4294967290u, "4294967290");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_names, set_up),
        cmocka_unit_test_setup(test_stuck, set_up),
        cmocka_unit_test_setup(test_members, set_up),
        cmocka_unit_test_setup(test_system, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

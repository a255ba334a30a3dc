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
static _Atomic bool is_stuck, is_down;
static _Atomic gid_t moved; /* added to all groups */
static _Atomic unsigned answers;

static int look_up(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    lookups++;
    while (is_stuck)
        usleep(1000);
    if (uid == 404)
        return GM_USERS_NOBODY;
    if (is_down)
        return -1;
    snprintf(name, GM_USERS_NAME, "user-%u\n", uid);
    groups->gid = calloc(2, sizeof *groups->gid);
    groups->n = groups->gid ? 2 : 0;
    for (int i = 0; i < groups->n; i++)
        groups->gid[i] = 1000 * (unsigned)(i + 1) + uid + moved;
    return 0;
}

static _Atomic bool is_short; /* of memory for groups */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return is_short && size == sizeof(gid_t) ? NULL : __real_calloc(n, size);
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
    /* users whose numbers have the same place do not take it from each other */
    for (unsigned i = 0; i < 4; i++) {
        expect_in_the_end(7 + GM_USERS_MAX, "user-1031?");
        expect_in_the_end(7, "user-7?");
    }
    assert_int_equal(lookups, 3);
}

/* One user more than there is room for: whom nobody has asked for longest makes room. */
static void test_many(void **state)
{
    (void)state;
    char name[GM_USERS_NAME];
    for (uid_t uid = 1000; uid < 1000 + GM_USERS_MAX; uid++)
        gm_users_name(uid, name);
    expect_lookups(GM_USERS_MAX);
    expect_in_the_end(1000, "user-1000?");
    expect_in_the_end(9999, "user-9999?");
    expect_in_the_end(1000, "user-1000?");
    expect_lookups(GM_USERS_MAX + 1);
    expect_in_the_end(1001, "user-1001?");
    expect_lookups(GM_USERS_MAX + 2);
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

static void note_answer(void *arg)
{
    assert_ptr_equal(arg, &answers);
    answers++;
}

static void expect_member_in_the_end(uid_t uid, gid_t gid)
{
    uint64_t end = gm_now() + 60 * GM_S;
    while (gm_users_is_member(uid, gid) != GM_MEMBER_IS && gm_now() < end)
        usleep(1000);
    assert_int_equal(gm_users_is_member(uid, gid), GM_MEMBER_IS);
}

/* Who belongs to a group. A late answer is told; what is known holds until there is a newer one. */
static void test_members(void **state)
{
    (void)state;
    answers = 0;
    gm_users_listen(note_answer, (void *)&answers);
    expect_in_the_end(7, "user-7?");
    assert_int_equal(gm_users_is_member(7, 1007), GM_MEMBER_IS);
    assert_int_equal(gm_users_is_member(7, 2007), GM_MEMBER_IS);
    assert_int_equal(gm_users_is_member(7, 3007), GM_MEMBER_NOT);
    assert_int_equal(gm_users_is_member(7, 0), GM_MEMBER_NOT);
    assert_int_equal(lookups, 1);
    assert_int_equal(answers, 1);
    for (int i = 0; i < 60000 && gm_users_is_member(404, 1404) != GM_MEMBER_NOT; i++)
        usleep(1000);
    assert_int_equal(gm_users_is_member(404, 1404), GM_MEMBER_NOT);
    assert_int_equal(answers, 2);

    is_stuck = true;
    assert_int_equal(gm_users_is_member(8, 1008), GM_MEMBER_PERHAPS);
    assert_int_equal(gm_users_is_member(8, 1), GM_MEMBER_PERHAPS);
    is_stuck = false;
    expect_member_in_the_end(8, 1008);
    assert_int_equal(answers, 3);

    is_stuck = true; /* a reload, and the system takes its time */
    const uint64_t begin = gm_now();
    gm_users_ask_again();
    for (int i = 0; i < 1000; i++)
        assert_int_equal(gm_users_is_member(7 + (uid_t)i % 2, 1007 + (gid_t)i % 2), GM_MEMBER_IS);
    assert_true(gm_now() - begin < 1000 * GM_USERS_WAIT_MS * GM_MS);
    is_stuck = false;
    expect_lookups(6);
    assert_int_equal(answers, 3); /* nothing new */
    moved = 50;
    gm_users_ask_again();
    expect_member_in_the_end(7, 1057);
    expect_member_in_the_end(8, 2058);
    assert_int_equal(gm_users_is_member(7, 1007), GM_MEMBER_NOT);
    assert_int_equal(answers, 5);
    gm_users_listen(NULL, NULL);
    moved = 0;
}

/* A system that cannot say is asked again after a while; what it said before holds. */
static void test_down(void **state)
{
    (void)state;
    expect_member_in_the_end(7, 1007);
    is_down = true;
    gm_users_ask_again();
    expect_lookups(2);
    assert_int_equal(gm_users_is_member(7, 1007), GM_MEMBER_IS);
    assert_int_equal(gm_users_is_member(8, 1008), GM_MEMBER_PERHAPS);
    expect_lookups(3);
    is_down = false;
    expect_member_in_the_end(8, 1008);
    assert_true(lookups < 10); /* and not all the time */
}

static void expect_owner(uid_t uid, uid_t owner)
{
    char name[GM_USERS_NAME], number[16];
    snprintf(number, sizeof number, "%u", uid);
    const uint64_t end = gm_now() + 60 * GM_S;
    while (gm_users_is(uid, 1) == GM_MEMBER_PERHAPS && gm_now() < end)
        usleep(1000);
    assert_int_equal(gm_users_owner(uid), owner);
    assert_int_equal(gm_users_is(uid, owner), GM_MEMBER_IS);
    assert_int_equal(gm_users_is(uid, 77777), GM_MEMBER_NOT);
    if (uid != 0)
        assert_string_equal(gm_users_name(uid, name), number); /* it has no name of its own */
}

/* Subordinate ids count for their owner, by the first good line; what is no line is none, and
 * nobody who exists is another's. */
static void test_subordinates(void **state)
{
    (void)state;
    char path[] = "/tmp/gm-subuid.XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    fputs("# a comment\n\n"
          "1000000:0:5000000000\n"           /* all, and root */
          "1000000:0:65536\n"                /* root */
          "1000000:4294967290:65536\n"       /* beyond the end */
          "1000000:18446744073709551615:2\n" /* as a sum: 1 */
          "1000000:3000000:0\n:3000000:10\n" /* none; nobody's */
          "1000000:3000000\n1000000\n"       /* half lines */
          "1000000:+3000000:10\n1000000:3000000:10:9\n1000000: 3000000:10\n"
          "no-such-user-here:3000000:10\n",
          file);
    for (int i = 0; i < 1000; i++)
        fputs("long", file);
    fputs(":3000000:10\n"
          "1000001:3000000:65536\n"
          "1000002:3000000:65536\n" /* overlaps: the first has it */
          "root:3100000:65536\n0:4000000:65536\n" /* nobody counts as root */
          "daemon:5000000:1\n"
          "1000003:1:4000000",
          file); /* all users of this machine; no end of line */
    fclose(file);
    gm_users_ask_by(NULL);
    gm_users_subordinates_in(path);
    expect_owner(3000000, 1000001);
    expect_owner(3065535, 1000001);
    expect_owner(3065536, 1000003);
    expect_owner(3100000, 1000003);
    assert_int_equal(gm_users_is_member(3000000, 0), GM_MEMBER_NOT);
    expect_owner(4000000, 1000003);
    expect_owner(4000001, 4000001);
    assert_int_equal(gm_users_is(4000001, 0), GM_MEMBER_NOT);
    assert_int_equal(gm_users_is_member(4000001, 0), GM_MEMBER_NOT);
    expect_owner(5000000, 1);
    assert_int_equal(gm_users_is_member(5000000, 1), GM_MEMBER_IS); /* as its owner */
    expect_owner(4294967290u, 4294967290u);
    expect_owner(0, 0);
    expect_in_the_end(1, "daemon");
    assert_int_equal(gm_users_owner(1), 1);

    file = fopen(path, "w"); /* it is another's by now: when all are asked again */
    assert_non_null(file);
    fputs("1000009:3000000:65536\n", file);
    fclose(file);
    gm_users_ask_again();
    for (int i = 0; i < 60000 && gm_users_owner(3000000) != 1000009; i++)
        usleep(1000);
    assert_int_equal(gm_users_owner(3000000), 1000009);
    unlink(path);
    gm_users_subordinates_in(path); /* there is none */
    expect_owner(3000000, 3000000);
    gm_users_subordinates_in("/"); /* no file */
    expect_owner(3000000, 3000000);
    gm_users_subordinates_in(NULL);
}

static void test_system(void **state)
{
    (void)state;
    gm_users_ask_by(NULL);
    is_short = true;
    for (int i = 0; i < 20; i++, usleep(1000)) /* nobody says that it belongs to no group */
        assert_int_equal(gm_users_is_member(0, 0), GM_MEMBER_PERHAPS);
    is_short = false;
    expect_in_the_end(0, "root");
    assert_int_equal(gm_users_is_member(0, 0), GM_MEMBER_IS);
    expect_in_the_end(4294967290u, "4294967290");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_names, set_up),
        cmocka_unit_test_setup(test_stuck, set_up),
        cmocka_unit_test_setup(test_many, set_up),
        cmocka_unit_test_setup(test_members, set_up),
        cmocka_unit_test_setup(test_down, set_up),
        cmocka_unit_test_setup(test_system, set_up),
        cmocka_unit_test_setup(test_subordinates, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Places that are kept for programs: for how long, for whom, and who was refused. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/service/places.h"

#define NOW (1000 * GM_S)

/* A process that does nothing until it is killed. */
static pid_t start(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_taken_once(void **state)
{
    struct gm_places places = {0};
    (void)state;
    assert_true(gm_places_reserve(&places, getpid(), 7, NOW));
    assert_true(gm_places_reserve(&places, getpid(), 7, NOW)); /* the same one again */
    assert_int_equal(gm_places_reserved(&places, NOW), 1);
    assert_int_equal(gm_places_reserved_for(&places, 7, NOW), 1);
    assert_int_equal(gm_places_reserved_for(&places, 8, NOW), 0);
    assert_false(gm_places_take(&places, getpid(), 8, NOW)); /* another user */
    assert_false(gm_places_take(&places, 1, 7, NOW));        /* another process */
    assert_true(gm_places_take(&places, getpid(), 7, NOW));
    assert_false(gm_places_take(&places, getpid(), 7, NOW));
    assert_int_equal(gm_places_reserved(&places, NOW), 0);
}

static void test_descendant(void **state)
{
    struct gm_places places = {0};
    pid_t child = start();
    (void)state;
    assert_true(gm_places_reserve(&places, getpid(), 7, NOW));
    assert_false(gm_places_take(&places, getppid(), 7, NOW));
    assert_false(gm_places_take(&places, child, 8, NOW));
    assert_true(gm_places_take(&places, child, 7, NOW));
    assert_int_equal(gm_places_reserved(&places, NOW), 0);
    assert_true(gm_places_reserve(&places, child, 7, NOW)); /* a parent has no right to it */
    assert_false(gm_places_take(&places, getpid(), 7, NOW));
    end(child);
}

static void test_over(void **state)
{
    struct gm_places places = {0};
    pid_t child = start();
    (void)state;
    assert_true(gm_places_reserve(&places, getpid(), 7, NOW));
    assert_true(gm_places_reserve(&places, child, 7, NOW));
    assert_int_equal(gm_places_reserved(&places, NOW + GM_PLACE_NS - 1), 2);
    end(child);
    assert_int_equal(gm_places_reserved(&places, NOW), 1);
    assert_false(gm_places_take(&places, child, 7, NOW));
    assert_int_equal(gm_places_reserved(&places, NOW + GM_PLACE_NS), 0);
    assert_false(gm_places_take(&places, getpid(), 7, NOW + GM_PLACE_NS));
}

static void test_full(void **state)
{
    struct gm_places places = {0};
    pid_t children[GM_PLACES_USER + 1];
    (void)state;
    for (uint32_t i = 0; i <= GM_PLACES_USER; i++)
        children[i] = start();
    for (uint32_t i = 0; i < GM_PLACES_USER; i++)
        assert_true(gm_places_reserve(&places, children[i], 7, NOW));
    assert_false(gm_places_reserve(&places, children[GM_PLACES_USER], 7, NOW));
    assert_true(gm_places_reserve(&places, children[GM_PLACES_USER], 8, NOW));
    assert_true(gm_places_reserve(&places, children[0], 7, NOW)); /* what it has, it can keep */
    for (uint32_t i = 0; i <= GM_PLACES_USER; i++)
        end(children[i]);
    assert_int_equal(gm_places_reserved(&places, NOW), 0);

    /* As many as one process can have, by the users that it is. */
    for (uint32_t i = 0; i < GM_PLACES_MAX; i++)
        assert_true(gm_places_reserve(&places, getpid(), i, NOW));
    assert_false(gm_places_reserve(&places, getpid(), GM_PLACES_MAX, NOW));
    assert_true(gm_places_take(&places, getpid(), 3, NOW));
    assert_true(gm_places_reserve(&places, getpid(), GM_PLACES_MAX, NOW));
    assert_int_equal(gm_places_reserved(&places, NOW), GM_PLACES_MAX);
    assert_false(gm_places_take(&places, 0, 77, NOW)); /* of another pid namespace */
}

static void test_refused(void **state)
{
    struct gm_places places = {0};
    char text[400];
    (void)state;
    gm_places_refuse(&places, 4, 5, "first", "why", NOW);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gm_places_refuse(&places, 6, 7, text, text, NOW + 1);
    assert_int_equal(places.refused, 2);
    assert_int_equal(places.last.pid, 6);
    assert_int_equal(places.last.uid, 7);
    assert_int_equal(places.last.at, NOW + 1);
    assert_int_equal(strlen(places.last.name), sizeof places.last.name - 1);
    assert_int_equal(strlen(places.last.why), sizeof places.last.why - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken_once), cmocka_unit_test(test_descendant),
        cmocka_unit_test(test_over),       cmocka_unit_test(test_full),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* common/locks: locks in the order of their ranks, and the assertion when they are not. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/locks.h"
#include "shim/tables/allocs.h"

static struct gm_lock outer = GM_LOCK_INITIALIZER(GM_LOCK_USERS);
static struct gm_lock inner = GM_LOCK_INITIALIZER(GM_LOCK_LOG);
static struct gm_lock second = GM_LOCK_INITIALIZER(GM_LOCK_LOG);

static void in_order(void)
{
    for (int i = 0; i < 2; i++) {
        gm_lock(&outer);
        gm_lock(&inner);
        gm_unlock(&inner);
        gm_lock(&second);
        gm_unlock(&outer); /* the order of giving up does not matter */
        gm_unlock(&second);
    }
}

static void out_of_order(void)
{
    gm_lock(&inner);
    gm_lock(&outer);
}

static void two_of_a_rank(void)
{
    gm_lock(&inner);
    gm_lock(&second);
}

static void not_held(void)
{
    gm_unlock(&inner);
}

/* A wait gives the lock up and takes it again: its rank is held after it as it was before. */
static void after_a_wait(void)
{
    pthread_cond_t change = PTHREAD_COND_INITIALIZER;
    const struct timespec now = gm_timespec(gm_now());
    gm_lock(&inner);
    if (gm_lock_wait_until(&change, &inner, &now) == 0)
        _exit(1);
    gm_lock(&outer);
}

/* The shim's own table of allocations, which calls others with its lock: they may take locks of a
 * higher rank only. */
static struct gm_lock heap = GM_LOCK_INITIALIZER(GM_LOCK_HEAP);
static struct gm_lock vmm = GM_LOCK_INITIALIZER(GM_LOCK_VMM);
static struct gm_lock *taken_below;

static bool takes_a_lock(const struct gm_alloc *alloc)
{
    (void)alloc;
    gm_lock(taken_below);
    gm_unlock(taken_below);
    return true;
}

static void look_through_allocs(void)
{
    const struct gm_alloc alloc = {.va = 1, .bytes = 1, .span = 1, .kind = GM_ALLOC_REAL};
    if (gm_allocs_insert(&alloc) != 0 || !gm_allocs_all(GM_ALLOC_REAL, takes_a_lock))
        _exit(1);
}

static void below_the_shim(void)
{
    taken_below = &vmm;
    gm_lock(&heap);
    look_through_allocs();
    gm_unlock(&heap);
}

static void above_the_shim(void)
{
    taken_below = &heap;
    look_through_allocs();
}

/* Returns the signal that ended a process which does this; 0: it ended well. */
static int try(void (*what)(void))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        what();
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(try(in_order), 0);
    assert_int_equal(try(out_of_order), SIGABRT);
    assert_int_equal(try(two_of_a_rank), SIGABRT);
    assert_int_equal(try(not_held), SIGABRT);
    assert_int_equal(try(after_a_wait), SIGABRT);
}

static void test_shim(void **state)
{
    (void)state;
    assert_int_equal(try(below_the_shim), 0);
    assert_int_equal(try(above_the_shim), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_shim)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

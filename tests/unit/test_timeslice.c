/* daemon/core/timeslice: who keeps the GPU for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"

#define MOST 8u

/* One letter a program: its class, l(atency), i(nteractive), a(uto) or b(atch), in upper case if it
 * has work. That of `unholdable` cannot be held. Ids are 1, 3, 5 and so on. */
static uint32_t fill(struct gm_timeslice_app *apps, const char *programs, uint32_t unholdable)
{
    const uint32_t n = (uint32_t)strlen(programs);
    assert_true(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        static const char letters[] = "alib"; /* by enum gm_sched_class */
        const char lower = (char)(programs[i] | 0x20);
        apps[i] = (struct gm_timeslice_app){
            .id = 2 * i + 1,
            .class = (enum gm_sched_class)(strchr(letters, lower) - letters),
            .is_idle = programs[i] == lower,
            .can_be_held = i != unholdable,
            .us = 77};
    }
    return n;
}

/*
 * `expected` has a letter for each: M the most, O the shortest, S of several that cannot be held,
 * - the driver's own. With a T before, the best-effort ones take turns.
 */
static void expect_beside(const char *programs, uint32_t unholdable, const char *expected)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = fill(apps, programs, unholdable);
    const bool take_turns = *expected == 'T';
    expected += take_turns;
    assert_int_equal(n, strlen(expected));
    if (gm_timeslice_assign(apps, n) != take_turns)
        fail_msg("%s: turns are not %d", programs, take_turns);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t us = expected[i] == 'M'   ? (uint64_t)GM_TIMESLICE_CRITICAL_US
                            : expected[i] == 'O' ? (uint64_t)GM_TIMESLICE_OTHER_US
                            : expected[i] == 'S' ? (uint64_t)GM_TIMESLICE_SHARED_US
                                                 : 0;
        if (apps[i].us != us)
            fail_msg("%s: program %u has %llu us", programs, i, (unsigned long long)apps[i].us);
    }
}

static void expect(const char *programs, const char *expected)
{
    expect_beside(programs, MOST, expected);
}

/* Nobody is critical, or everybody is. */
static void test_alike(void **state)
{
    (void)state;
    expect("", "");
    expect("A", "-");
    expect("AB", "--");
    expect("aBa", "---");
    expect("L", "-");
    expect("LI", "--");
    expect("li", "--");
}

static void test_mixed(void **state)
{
    (void)state;
    expect("LB", "MO");
    expect("AI", "OM");
    expect("lB", "MO"); /* its next request must not wait until it is seen to work */
    expect("LAB", "TMOO");
    expect("LIBA", "TMMOO");
    expect("Lab", "TMOO"); /* either of them may begin, and then both */
}

/* One that cannot be held would work in the turns of the others. */
static void test_unholdable(void **state)
{
    (void)state;
    expect_beside("LB", 1, "MO");
    expect_beside("LBA", 2, "MSS");
    expect_beside("LBa", 2, "MSS");
    expect_beside("LBA", 0, "TMOO"); /* nobody wants to */
    expect_beside("BA", 0, "--");
}

static void expect_next(const char *programs, uint32_t last, uint32_t next)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = fill(apps, programs, MOST);
    assert_int_equal(gm_timeslice_next(apps, n, last), next);
}

/* Those with work, one after the other, whoever comes and goes. */
static void test_turns(void **state)
{
    (void)state;
    expect_next("", 1, GM_NONE);
    expect_next("LIab", 1, GM_NONE);
    expect_next("LAB", 0, 3);
    expect_next("LAB", 3, 5);
    expect_next("LAB", 5, 3);
    expect_next("LAB", GM_NONE, 3);
    expect_next("LaBLbA", 5, 11);
    expect_next("LaBLbA", 11, 5);
    expect_next("LaBLbA", 9, 11); /* it had the last turn, and is idle now */
    expect_next("LaBLbA", 12, 5); /* ... or gone */
    expect_next("aB", 3, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_unholdable),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

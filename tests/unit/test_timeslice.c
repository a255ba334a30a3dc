/* daemon/core/timeslice: who keeps the GPU for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"

#define MOST 8u

/*
 * One letter a program: its class, l(atency), i(nteractive), a(uto) or b(atch), in upper case if it
 * has work. `expected` has a letter for each: M the most, O of the only one, S of several, - the
 * driver's own.
 */
static void expect(const char *programs, const char *expected)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = (uint32_t)strlen(programs);
    assert_true(n <= MOST && n == strlen(expected));
    for (uint32_t i = 0; i < n; i++) {
        static const char letters[] = "alib"; /* by enum gm_sched_class */
        const char lower = (char)(programs[i] | 0x20);
        apps[i] = (struct gm_timeslice_app){
            .class = (enum gm_sched_class)(strchr(letters, lower) - letters),
            .is_idle = programs[i] == lower,
            .us = 77};
    }
    gm_timeslice_assign(apps, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t us = expected[i] == 'M'   ? (uint64_t)GM_TIMESLICE_CRITICAL_US
                            : expected[i] == 'O' ? (uint64_t)GM_TIMESLICE_ONLY_US
                            : expected[i] == 'S' ? (uint64_t)GM_TIMESLICE_SHARED_US
                                                 : 0;
        if (apps[i].us != us)
            fail_msg("%s: program %u has %llu us", programs, i, (unsigned long long)apps[i].us);
    }
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
    expect("LAB", "MSS");
    expect("LIBA", "MMSS");
}

static void test_idle(void **state)
{
    (void)state;
    expect("LBb", "MOS");
    expect("LbBa", "MSOS");
    expect("LBaA", "MSSS");
    expect("Lb", "MO");
    expect("Lba", "MSS"); /* either of them may begin, and then both */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

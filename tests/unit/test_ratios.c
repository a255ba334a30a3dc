/* The median of ratios: order does not matter, and a ratio and its inverse weigh the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/ratios.h"

#define MEDIAN(...)                                                                                \
    gm_ratios_median((double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define NEAR 1e-6f

static void test_odd(void **state)
{
    (void)state;
    assert_float_equal((float)MEDIAN(1.25), 1.25, NEAR);
    assert_float_equal((float)MEDIAN(3, 1, 2), 2, NEAR);
    assert_float_equal((float)MEDIAN(9, 1.5, 1, 1.25, 100), 1.5, NEAR);
}

static void test_even(void **state)
{
    (void)state;
    assert_float_equal((float)MEDIAN(4, .25), 1, NEAR);
    assert_float_equal((float)MEDIAN(2, 1.01, 1 / 1.01, .1), 1, NEAR);
    assert_float_equal((float)MEDIAN(8, 2, 1, 4), 2.828427, NEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_odd), cmocka_unit_test(test_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

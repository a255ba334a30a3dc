/* Summaries of samples: their order does not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/samples.h"

#define COUNT(...) (sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define SPREAD(...) gm_samples_spread((double[]){__VA_ARGS__}, COUNT(__VA_ARGS__))
#define NEAR 1e-6f

static void check(struct gm_spread spread, double low, double median, double high)
{
    assert_float_equal((float)spread.low, (float)low, NEAR);
    assert_float_equal((float)spread.median, (float)median, NEAR);
    assert_float_equal((float)spread.high, (float)high, NEAR);
}

static void test_sort(void **state)
{
    (void)state;
    double values[] = {3, -1, 2, -1, 1e9, 0};
    const double sorted[] = {-1, -1, 0, 2, 3, 1e9};
    gm_samples_sort(values, 6);
    assert_memory_equal(values, sorted, sizeof(sorted));
}

/* The nearest rank is a value that was measured. */
static void test_percentile(void **state)
{
    (void)state;
    double values[1000];
    for (size_t i = 0; i < 1000; i++)
        values[i] = (double)(i + 1);
    for (unsigned percent = 1; percent <= 100; percent++) {
        assert_true(gm_samples_percentile(values, 1, percent) == 1);
        assert_true(gm_samples_percentile(values, 100, percent) == percent);
        assert_true(gm_samples_percentile(values, 1000, percent) == 10 * percent);
    }
    assert_true(gm_samples_percentile(values, 3, 50) == 2);
    assert_true(gm_samples_percentile(values, 4, 50) == 2);
    assert_true(gm_samples_percentile(values, 5, 50) == 3);
    assert_true(gm_samples_percentile(values, 101, 99) == 100);
    assert_true(gm_samples_percentile(values, 99, 99) == 99);
}

static void test_spread(void **state)
{
    (void)state;
    check(SPREAD(7), 7, 7, 7);
    check(SPREAD(2, 1), 1, 1.5, 2);
    check(SPREAD(5, 1, 4, 2, 3), 1, 3, 5);
    check(SPREAD(10, 9, 8, 7, 6, 5, 4, 3, 2, 1), 1, 5.5, 9);
    check(SPREAD(11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1), 2, 6, 10);
}

/* A ratio and its inverse weigh the same. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * daemon/profile/fit: amounts of every form are found again from intervals of a page, what fits
 * lies in every interval, and extremes give neither overflow nor an endless search.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/profile.h"
#include "daemon/profile/fit.h"

#define MOST 64u

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

/* A world: columns w0, w4, ..., and what is observed. */
static uint32_t n, n_columns;
static uint64_t values[GM_COLUMNS_MAX][MOST];
static struct gm_column columns[GM_COLUMNS_MAX];
static struct gm_interval seen[MOST];
static struct gm_amount amount;

static void begin(uint32_t observations)
{
    n = observations;
    n_columns = 0;
}

static void column(bool is_constant, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < n; i++)
        values[n_columns][i] =
            is_constant && i > 0 ? values[n_columns][0] : from + draw(to - from + 1);
    columns[n_columns] =
        (struct gm_column){(uint16_t)(4 * n_columns), is_constant, values[n_columns]};
    n_columns++;
}

/* The page in which `value` lies, anywhere in it. */
static void see(uint32_t i, int64_t value)
{
    const int64_t low = value - (int64_t)draw(4096);
    seen[i] = (struct gm_interval){low, low + 4095};
}

static const char *fitted(void)
{
    static char text[GM_AMOUNT_TEXT];
    return gm_fit(seen, n, columns, n_columns, &amount) ? gm_amount_format(&amount, text) : "none";
}

static int64_t value_at(uint32_t i)
{
    unsigned char words[4 * GM_COLUMNS_MAX];
    int64_t value = 0;
    for (uint32_t c = 0; c < n_columns; c++) {
        const uint32_t word = (uint32_t)values[c][i];
        memcpy(words + 4 * c, &word, 4);
    }
    const struct gm_arguments arguments = {{1, 1, 1, 1, 1, 1}, 4 * n_columns, words};
    assert_true(gm_amount_value(&amount, &arguments, &value));
    return value;
}

static void test_constants(void **state)
{
    (void)state;
    begin(0);
    assert_string_equal(fitted(), "none");
    begin(1);
    seen[0] = (struct gm_interval){-100, 3995};
    assert_string_equal(fitted(), "0");
    seen[0] = (struct gm_interval){60000, 64095};
    assert_string_equal(fitted(), "61440"); /* the roundest */
    seen[0] = (struct gm_interval){-8000, -3905};
    assert_string_equal(fitted(), "-4096");
    seen[0] = (struct gm_interval){5, 4};
    assert_string_equal(fitted(), "none");
    begin(2);
    seen[0] = (struct gm_interval){0, 4095};
    seen[1] = (struct gm_interval){4096, 8191};
    assert_string_equal(fitted(), "none"); /* no factor explains it */
}

/* Every form, in 200 random worlds with other words beside. */
static void test_forms(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        random_state = seed;
        begin(8);
        column(false, 10000, 10000000);
        column(false, 100, 5000);
        column(false, 100, 5000);
        column(false, 1, 1000);
        column(true, 7, 7);
        for (uint32_t i = 0; i < n; i++)
            see(i, (int64_t)(4 * values[0][i]));
        assert_string_equal(fitted(), "0+4/1*w0");
        for (uint32_t i = 0; i < n; i++)
            see(i, (int64_t)(2 * values[1][i] * values[2][i]));
        assert_string_equal(fitted(), "0+2/1*w4*w8");
        for (uint32_t i = 0; i < n; i++)
            see(i, (int64_t)(values[1][i] * values[2][i] * values[3][i]));
        assert_string_equal(fitted(), "0+1/1*w4*w8*w12");
        for (uint32_t i = 0; i < n; i++)
            see(i, (int64_t)(34 * values[1][i] * values[2][i] / 32));
        assert_string_not_equal(fitted(), "none");
        for (uint32_t i = 0; i < n; i++)
            assert_in_range(value_at(i) - seen[i].low, 0, 4095);
        for (uint32_t i = 0; i < n; i++)
            see(i, (int64_t)(8 * values[0][i] + 1000000));
        assert_string_not_equal(fitted(), "none");
        assert_int_equal(amount.numerator, 8 * amount.denominator);
        assert_in_range(amount.constant, 1000000 - 8192, 1000000 + 8192);
    }
}

/* A size that follows a word which is the same in all launches. */
static void test_one_size(void **state)
{
    (void)state;
    random_state = 1;
    begin(1);
    column(true, 1 << 20, 1 << 20);
    column(true, 3, 3);
    see(0, 4 << 20);
    assert_string_equal(fitted(), "0+4/1*w0");
    begin(1);
    column(true, 100, 100);
    see(0, 400); /* a page tells nothing of 400 bytes */
    assert_string_not_equal(fitted(), "0+4/1*w0");
    assert_int_equal(amount.n, 0);
    /* By chance a word explains a size of 10 pages: at most rarely. */
    unsigned explained = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        random_state = seed;
        begin(1);
        for (unsigned c = 0; c < 8; c++)
            column(true, 2, 100000);
        see(0, 40960 + (int64_t)draw(4096));
        assert_true(gm_fit(seen, n, columns, n_columns, &amount));
        explained += amount.n > 0;
    }
    assert_in_range(explained, 0, 20);
    /* The constant factor of a product, seen through the other. */
    random_state = 3;
    begin(6);
    column(false, 1000, 100000);
    column(true, 4096, 4096);
    for (uint32_t i = 0; i < n; i++)
        see(i, (int64_t)(2 * values[0][i] * 4096));
    assert_string_equal(fitted(), "0+2/1*w0*w4");
}

/* Whatever is seen, what fits lies in all intervals, also at the ends of what numbers can be. */
static void test_anything(void **state)
{
    (void)state;
    unsigned fits = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        random_state = seed;
        begin((uint32_t)(1 + draw(6)));
        for (uint64_t c = draw(6); c > 0; c--) {
            const uint64_t most = 1ull << draw(33);
            column(draw(3) == 0, 0, most - 1);
        }
        for (uint32_t i = 0; i < n; i++) {
            const int shift = (int)draw(64);
            const int64_t low = (int64_t)(draw(1ull << 31) << shift);
            seen[i] = (struct gm_interval){low, low + (int64_t)draw(1u << draw(20))};
            if (seen[i].high < low)
                seen[i].high = INT64_MAX;
        }
        if (!gm_fit(seen, n, columns, n_columns, &amount))
            continue;
        fits++;
        for (uint32_t i = 0; i < n; i++) {
            const int64_t value = value_at(i);
            assert_true(value >= seen[i].low && value <= seen[i].high);
        }
    }
    assert_in_range(fits, 100, 2999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* common/size.h: sizes and durations as people write them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/size.h"

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull

struct parse_case {
    const char *text;
    int result;
    uint64_t value;
};

static void check(int (*parse)(const char *, uint64_t *), const struct parse_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = UNTOUCHED;
        int result = parse(cases[i].text, &value);
        uint64_t expected = cases[i].result == 0 ? cases[i].value : UNTOUCHED;
        if (result != cases[i].result || value != expected)
            fail_msg("\"%s\": %d, %llu; expected %d, %llu", cases[i].text, result,
                     (unsigned long long)value, cases[i].result, (unsigned long long)expected);
    }
}

static void test_parse_size(void **state)
{
    static const struct parse_case cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"4096B", 0, 4096},
        {"007", 0, 7},
        {"1K", 0, 1024},
        {"1KB", 0, 1024},
        {"1KiB", 0, 1024},
        {"512MiB", 0, 512ull << 20},
        {"24G", 0, 24ull << 30},
        {"24GB", 0, 24ull << 30},
        {"24GiB", 0, 24ull << 30},
        {"1.5T", 0, 3ull << 39},
        {"0.5G", 0, 1ull << 29},
        {"0.1G", 0, 107374182},                            /* rounded down */
        {"1.9", 0, 1},                                     /* bytes have no parts */
        {"2.000000000000000000000000000000M", 0, 2 << 20}, /* digits without end */
        {"0.999999999999999999999999999999T", 0, (1ull << 40) - 1},
        {"9223372036854775807", 0, INT64_MAX},
        {"8388607T", 0, 8388607ull << 40},
        {"9223372036854775808", -ERANGE, 0},
        {"18446744073709551615", -ERANGE, 0},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999999999999", -ERANGE, 0},
        {"8388608T", -ERANGE, 0},
        {"36893488147419103232T", -ERANGE, 0}, /* wraps to 0 in 64 bits */
        {"99999999999999999999x", -EINVAL, 0}, /* malformed before too large */
        {"", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1 G", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"G", -EINVAL, 0},
        {"B", -EINVAL, 0},
        {"iB", -EINVAL, 0},
        {".5G", -EINVAL, 0},
        {"5.G", -EINVAL, 0},
        {"5.", -EINVAL, 0},
        {"1.2.3", -EINVAL, 0},
        {"1,5G", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1g", -EINVAL, 0},
        {"1P", -EINVAL, 0},
        {"1BB", -EINVAL, 0},
        {"1iB", -EINVAL, 0},
        {"1Gi", -EINVAL, 0},
        {"1GiBs", -EINVAL, 0},
        {"1GBi", -EINVAL, 0},
        {"24GM", -EINVAL, 0},
        {"inf", -EINVAL, 0},
        {"nan", -EINVAL, 0},
    };
    (void)state;
    check(gm_parse_size, cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_parse_duration(void **state)
{
    static const struct parse_case cases[] = {
        {"0", 0, 0},
        {"0.0", 0, 0},
        {"2", -EINVAL, 0}, /* of what? */
        {"2s", 0, 2000000000ull},
        {"250ms", 0, 250000000ull},
        {"0.25s", 0, 250000000ull},
        {"0.25", -EINVAL, 0},
        {"1.5m", 0, 90000000000ull},
        {"0.0000000019s", 0, 1},
        {"9223372036s", 0, 9223372036000000000ull},
        {"9223372037s", -ERANGE, 0},
        {"153722868m", -ERANGE, 0},
        {"99999999999999999999s", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"1 s", -EINVAL, 0},
        {"1h", -EINVAL, 0},
        {"1us", -EINVAL, 0},
        {"1M", -EINVAL, 0},
        {"1sm", -EINVAL, 0},
        {"1mss", -EINVAL, 0},
    };
    (void)state;
    check(gm_parse_duration, cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_parse_number(void **state)
{
    (void)state;
    uint64_t value = 7;
    assert_int_equal(gm_parse_number("18446744073709551615", &value), 0);
    assert_int_equal(value, UINT64_MAX);
    assert_int_equal(gm_parse_number("0", &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(gm_parse_number("18446744073709551616", &value), -ERANGE);
    static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(gm_parse_number(wrong[i], &value), -EINVAL);
    assert_int_equal(value, 0);
}

static void test_format_size(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {1ull << 20, "1 MiB"},
        {(1ull << 20) - 1, "1 MiB"}, /* not "1024 KiB" */
        {512ull << 20, "512 MiB"},
        {17072495821ull, "15.9 GiB"},
        {16ull << 30, "16 GiB"},
        {(16ull << 30) + 1, "16 GiB"},
        {3ull << 39, "1.5 TiB"},
        {1ull << 50, "1 PiB"},
        {1ull << 63, "8 EiB"},
        {UINT64_MAX, "16 EiB"},
    };
    char text[32];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ptr_equal(gm_format_size(cases[i].bytes, text, sizeof(text)), text);
        assert_string_equal(text, cases[i].text);
    }
}

/* Too little room: cut, and ended within it. */
static void test_format_cut(void **state)
{
    (void)state;
    for (size_t size = 1; size < 10; size++) {
        char text[16];
        memset(text, 'x', sizeof(text));
        gm_format_size(17072495821ull, text, size);
        assert_int_equal(strlen(text), size - 1 < 8 ? size - 1 : 8);
        assert_memory_equal(text, "15.9 GiB", strlen(text));
        assert_int_equal(text[size], 'x');
    }
}

/* What is written for people is read back to within the half tenth that was rounded away. */
static void test_round_trip(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes < 1ull << 49; bytes += bytes / 3 + 1) {
        char text[32], packed[32];
        uint64_t back;
        size_t n = 0;
        gm_format_size(bytes, text, sizeof(text));
        for (const char *c = text; *c != '\0'; c++)
            if (*c != ' ')
                packed[n++] = *c;
        packed[n] = '\0';
        assert_int_equal(gm_parse_size(packed, &back), 0);
        uint64_t off = back > bytes ? back - bytes : bytes - back;
        assert_true(off <= bytes / 19);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_size),  cmocka_unit_test(test_parse_duration),
        cmocka_unit_test(test_format_size), cmocka_unit_test(test_format_cut),
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_parse_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

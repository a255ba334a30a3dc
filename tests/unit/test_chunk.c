/* common/chunk.h: the cut of an allocation into chunks, which both ends must make alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/chunk.h"

#define MIB (1ull << 20)

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(GM_CHUNK_MIN, 2 * MIB);
    assert_int_equal(GM_CHUNK_MAX, 32 * MIB);
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        assert_int_equal(gm_class_bytes(class), (2 * MIB) << class);
    assert_true(GM_SMALL_MAX < GM_CHUNK_MIN);
}

static void test_round(void **state)
{
    (void)state;
    assert_int_equal(gm_chunk_round(0), 0);
    assert_int_equal(gm_chunk_round(1), GM_CHUNK_MIN);
    assert_int_equal(gm_chunk_round(GM_CHUNK_MIN - 1), GM_CHUNK_MIN);
    assert_int_equal(gm_chunk_round(GM_CHUNK_MIN), GM_CHUNK_MIN);
    assert_int_equal(gm_chunk_round(GM_CHUNK_MIN + 1), 2 * GM_CHUNK_MIN);
    assert_int_equal(gm_chunk_round((1ull << 40) + 1), (1ull << 40) + GM_CHUNK_MIN);
}

/* 86 MiB is 32 + 32 + 16 + 4 + 2. */
static void test_example(void **state)
{
    static const uint64_t expected[] = {32, 32, 16, 4, 2};
    uint64_t left = 86 * MIB;
    (void)state;
    assert_int_equal(gm_chunk_count(left), 5);
    for (size_t i = 0; i < 5; i++) {
        uint64_t bytes = gm_class_bytes(gm_chunk_next(left));
        assert_int_equal(bytes, expected[i] * MIB);
        left -= bytes;
    }
    assert_int_equal(left, 0);
}

/* Each cut ends exactly, never grows, has the counted number of chunks and no avoidable one. */
static void check_cut(uint64_t total)
{
    uint64_t left = total, chunks = 0, at = 0;
    unsigned last = GM_CHUNK_CLASSES - 1;
    unsigned of_class[GM_CHUNK_CLASSES] = {0};

    while (left > 0) {
        unsigned class = gm_chunk_next(left);
        uint64_t bytes = gm_class_bytes(class);
        assert_true(class <= last);
        assert_true(bytes <= left);
        assert_int_equal(at % bytes, 0); /* naturally aligned within the allocation */
        last = class;
        of_class[class]++;
        left -= bytes;
        at += bytes;
        chunks++;
    }
    assert_int_equal(chunks, gm_chunk_count(total));
    for (unsigned class = 0; class + 1 < GM_CHUNK_CLASSES; class ++)
        assert_true(of_class[class] <= 1);
}

static void test_cuts(void **state)
{
    (void)state;
    for (uint64_t units = 0; units <= 700; units++)
        check_cut(units * GM_CHUNK_MIN);
    check_cut(16ull << 30);
    check_cut((141ull << 30) - GM_CHUNK_MIN);
    assert_int_equal(gm_chunk_count(16ull << 30), 512);
    assert_int_equal(gm_chunk_count(1ull << 62), 1ull << 37);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

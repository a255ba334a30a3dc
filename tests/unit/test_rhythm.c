/* shim/gate/rhythm: which requests are announced, and for when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "shim/gate/rhythm.h"

static struct gm_rhythm rhythm;
static uint64_t after_us, for_us;

static int set_up(void **state)
{
    (void)state;
    rhythm = (struct gm_rhythm){0};
    return 0;
}

/* A request at `at` that takes `needs`, both in us. Whether the next one is announced. */
static bool request(uint64_t at, uint64_t needs)
{
    gm_rhythm_submit(&rhythm, GM_S + at * GM_US);
    return gm_rhythm_rest(&rhythm, GM_S + (at + needs) * GM_US, &after_us, &for_us);
}

static void test_steady(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        const bool is_told = request(i * 10000, 1200);
        assert_int_equal(is_told, i >= 5);
        if (!is_told)
            continue;
        assert_int_equal(after_us, 10000 - 1200);
        assert_int_equal(for_us, 1200);
    }
}

/* The hint leaves room for what came too early or too late before. */
static void test_jitter(void **state)
{
    (void)state;
    unsigned told = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const uint64_t at = i * 10000 + (i * 7919) % 200;
        if (!request(at, 1000 + i % 3 * 100))
            continue;
        told++;
        const uint64_t next = (i + 1) * 10000 + ((i + 1) * 7919) % 200;
        const uint64_t begin = at + 1000 + i % 3 * 100 + after_us;
        assert_in_range(next, begin - 50, begin + 500);
        assert_in_range(for_us, 1000, 1200 + 2 * 300);
    }
    assert_in_range(told, 90, 95);
}

/* One that comes late is the first of others. */
static void test_interrupted(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(request(i * 20000, 500), i >= 5);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(request(1000000 + i * 20000, 500), i >= 5);
}

static void test_random(void **state)
{
    (void)state;
    uint32_t seed = 1;
    uint64_t at = 0;
    for (unsigned i = 0; i < 1000; i++) {
        assert_false(request(at, 1000));
        seed = seed * 1664525 + 1013904223;
        at += 3000 + (seed >> 16) % 20000;
    }
}

/* A program that works all the time: each round follows the one before at once. */
static void test_closed_loop(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(request(i * 10000, 9900));
}

/* The next one comes too soon to be of use. */
static void test_soon(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        gm_rhythm_submit(&rhythm, GM_S + i * 5000 * GM_US);
        assert_false(gm_rhythm_rest(&rhythm, GM_S + (i * 5000 + 4000) * GM_US + GM_US / 2,
                                    &after_us, &for_us));
    }
}

/* A request that synchronizes in its middle is one request, and announces the next one once. */
static void test_several_calls(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(request(i * 16000, 300), i >= 5);
        assert_int_equal(i < 5 || after_us == 16000 - 300, 1);
        assert_false(request(i * 16000 + 320, 2000));
        assert_true(i < 5 || for_us == 2320);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_steady, set_up),
        cmocka_unit_test_setup(test_jitter, set_up),
        cmocka_unit_test_setup(test_interrupted, set_up),
        cmocka_unit_test_setup(test_random, set_up),
        cmocka_unit_test_setup(test_closed_loop, set_up),
        cmocka_unit_test_setup(test_soon, set_up),
        cmocka_unit_test_setup(test_several_calls, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

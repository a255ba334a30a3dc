/* daemon/core/need: what is needed, and what was lately. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/need.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* The most of the current period and of the one before it. */
static void test_lately(void **state)
{
    struct gm_lately lately = {0};
    const uint64_t period = GM_LATELY_NS, begin = 1000 * period;
    (void)state;
    gm_lately_note(&lately, begin, 5);
    assert_int_equal(gm_lately_most(&lately), 5);
    assert_int_equal(gm_lately_falls_at(&lately), UINT64_MAX);
    gm_lately_note(&lately, begin + 1, 9);
    gm_lately_note(&lately, begin + 2, 3);
    assert_int_equal(gm_lately_most(&lately), 9);
    assert_int_equal(gm_lately_falls_at(&lately), begin + period);
    gm_lately_note(&lately, begin + period, 3);
    assert_int_equal(gm_lately_most(&lately), 9); /* it was the period before */
    assert_int_equal(gm_lately_falls_at(&lately), begin + 2 * period);
    gm_lately_note(&lately, begin + 2 * period, 3);
    assert_int_equal(gm_lately_most(&lately), 3);
    assert_int_equal(gm_lately_falls_at(&lately), UINT64_MAX);
    /* a long time in which it did not change */
    gm_lately_note(&lately, begin + 3 * period, 8);
    gm_lately_note(&lately, begin + 9 * period, 1);
    assert_int_equal(gm_lately_most(&lately), 8);
    gm_lately_note(&lately, begin + 11 * period, 1);
    assert_int_equal(gm_lately_most(&lately), 1);
}

/* Just before it would fall. */
static void test_held(void **state)
{
    struct gm_lately lately = {0};
    const uint64_t period = GM_LATELY_NS, begin = 1000 * period;
    (void)state;
    gm_lately_note(&lately, begin, 9);
    gm_lately_note(&lately, begin + 1, 3);
    gm_lately_note(&lately, begin + period, 3);
    const uint64_t held = begin + 2 * period - 1;
    gm_lately_hold(&lately, held);
    assert_int_equal(gm_lately_most(&lately), 9);
    assert_int_equal(gm_lately_falls_at(&lately), held + period);
    gm_lately_note(&lately, held + 2 * period - 1, 3);
    assert_int_equal(gm_lately_most(&lately), 9);
    gm_lately_note(&lately, held + 2 * period, 3);
    assert_int_equal(gm_lately_most(&lately), 3);
}

static void test_forgotten(void **state)
{
    struct gm_lately lately = {0};
    (void)state;
    gm_lately_note(&lately, 10, 9);
    gm_lately_note(&lately, 20, 4);
    gm_lately_forget(&lately);
    assert_int_equal(gm_lately_most(&lately), 4);
    assert_int_equal(gm_lately_falls_at(&lately), UINT64_MAX);
}

/* Whatever is noted when: nothing is kept for longer than 4 s after its last need, nor dropped
 * within 2 s of it. */
static void test_bounds(void **state)
{
    struct gm_lately lately = {0};
    uint32_t random = 1;
    uint64_t now = 0, value[4096], at[4096];
    (void)state;
    for (int i = 0; i < 4096; i++) {
        random = random * 1103515245u + 12345u;
        now += (random >> 8) % (GM_LATELY_NS / 4);
        at[i] = now;
        value[i] = (random >> 16) % 100;
        gm_lately_note(&lately, now, value[i]);
        uint64_t least = value[i], most = value[i];
        for (int j = i; j >= 1; j--) { /* value[j - 1] held until at[j] */
            if (at[j] + GM_LATELY_NS > now && value[j - 1] > least)
                least = value[j - 1];
            if (at[j] + 2 * GM_LATELY_NS >= now && value[j - 1] > most)
                most = value[j - 1];
        }
        assert_in_range(gm_lately_most(&lately), least, most);
    }
}

static struct gm_need need(uint64_t committed, uint64_t budget)
{
    const struct gm_need_input input = {
        .committed = committed, .budget = budget, .pinned_cap = 8 * GIB, .window = 512 * MIB};
    struct gm_need need;
    gm_need_of(&input, &need);
    return need;
}

static void test_need(void **state)
{
    (void)state;
    struct gm_need n = need(0, 2 * GIB);
    assert_int_equal(n.frames + n.pinned + n.paged, 0);
    n = need(2 * GIB, 2 * GIB); /* all of it fits */
    assert_int_equal(n.frames, 2 * GIB);
    assert_int_equal(n.pinned + n.paged, 0);
    n = need(2 * GIB + 2 * MIB, 2 * GIB);
    assert_int_equal(n.frames, 2 * GIB);
    assert_int_equal(n.pinned, 66 * MIB);
    assert_int_equal(need(2 * GIB + 64 * MIB, 2 * GIB).pinned, 128 * MIB);
    assert_int_equal(need(2 * GIB + 300 * MIB, 2 * GIB).pinned, 600 * MIB);
    assert_int_equal(need(6 * GIB, 2 * GIB).pinned, 5 * GIB); /* never more than 1 GiB ahead */
    assert_int_equal(need(9 * GIB, 2 * GIB).paged, 0);
    n = need(10 * GIB, 2 * GIB); /* half a GiB of pinned memory is the window */
    assert_int_equal(n.paged, GIB);
    assert_int_equal(n.pinned, 9 * GIB); /* the pool's cap is what bounds it */
}

/* More is made than was foreseen where nothing else helps. */
static void test_stuck(void **state)
{
    struct gm_need_input input = {
        .committed = 3 * GIB, .budget = 2 * GIB, .pinned_cap = 8 * GIB, .pinned_used = 2 * GIB};
    struct gm_need n;
    (void)state;
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 2 * GIB);
    input.is_stuck = true;
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 2 * GIB + 64 * MIB);
}

/* What ended programs still have of pinned memory holds nothing of others. */
static void test_left(void **state)
{
    struct gm_need_input input = {
        .committed = 3 * GIB, .budget = 2 * GIB, .pinned_cap = 8 * GIB, .pinned_left = GIB};
    struct gm_need n;
    (void)state;
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 3 * GIB);
    assert_int_equal(n.paged, 0);
    input.committed = 9 * GIB + 512 * MIB;
    gm_need_of(&input, &n);
    assert_int_equal(n.paged, 512 * MIB);
    input.committed = 2 * GIB; /* nobody needs any */
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 0);
}

/* What lies below pinned memory needs some to come up, though all of it fits on the GPU now. */
static void test_lower(void **state)
{
    struct gm_need_input input = {.committed = GIB, .budget = 2 * GIB, .pinned_cap = 8 * GIB};
    struct gm_need n;
    (void)state;
    input.lower_used = 2 * MIB;
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 64 * MIB);
    input.pinned_used = 10 * MIB;
    gm_need_of(&input, &n);
    assert_int_equal(n.pinned, 74 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lately),    cmocka_unit_test(test_held),
        cmocka_unit_test(test_forgotten), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_need),      cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_left),      cmocka_unit_test(test_lower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

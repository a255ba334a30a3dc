/* daemon/core/hint: which hints count, and how much a program can be held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/core/hint.h"
#include "daemon/core/tunables.h"

#define LEAD GM_HINT_LEAD_NS
#define MOST GM_HOLD_MOST_NS

static struct gm_hint_rate rate;
static const uint64_t now = 100 * GM_S;

static bool take(uint64_t after_us, uint64_t for_us, struct gm_hold *hold)
{
    memset(&rate, 0, sizeof rate);
    return gm_hint_take(&rate, now, after_us, for_us, hold);
}

static void expect_hold(uint64_t after_us, uint64_t for_us, uint64_t begin, uint64_t end)
{
    struct gm_hold hold;
    assert_true(take(after_us, for_us, &hold));
    assert_int_equal(hold.begin - now, begin);
    assert_int_equal(hold.end - now, end);
}

static void test_times(void **state)
{
    (void)state;
    expect_hold(1000, 1200, GM_MS - LEAD, GM_MS + 1200 * GM_US);
    expect_hold(200, 1200, 0, 1400 * GM_US);
    expect_hold(0, 1200, 0, 1200 * GM_US);
    expect_hold(10000000, 1, 10 * GM_S - LEAD, 10 * GM_S + GM_US);
}

static void test_absurd(void **state)
{
    struct gm_hold hold;
    (void)state;
    expect_hold(0, UINT64_MAX, 0, MOST);
    expect_hold(1000, UINT64_MAX, GM_MS - LEAD, GM_MS - LEAD + MOST);
    expect_hold(1000, 1000001, GM_MS - LEAD, GM_MS - LEAD + MOST);
    assert_false(take(1000, 0, &hold));
    assert_false(take(10000001, 1000, &hold));
    assert_false(take(UINT64_MAX, 1000, &hold));
    assert_false(take(UINT64_MAX, UINT64_MAX, &hold));
    assert_false(take(0, LEAD / GM_US, &hold)); /* over before anybody stands still */
    assert_true(take(0, LEAD / GM_US + 1, &hold));
}

static void test_too_many(void **state)
{
    struct gm_hold hold;
    unsigned n = 0;
    (void)state;
    memset(&rate, 0, sizeof rate);
    for (unsigned i = 0; i < 3 * GM_HINTS_A_SECOND; i++)
        n += gm_hint_take(&rate, now + i * 100 * GM_US, 0, 1200, &hold);
    assert_int_equal(n, GM_HINTS_A_SECOND);
    assert_true(gm_hint_take(&rate, now + GM_S, 0, 1200, &hold));
}

static void test_grants(void **state)
{
    struct gm_hold_account account = {0};
    struct gm_hold hold = {now, now + 20 * GM_MS};
    (void)state;
    assert_true(gm_hold_grant(&account, 30, &hold));
    assert_int_equal(hold.end, now + 20 * GM_MS);
    const uint64_t paid_at = account.paid_at;
    /* Of another program's hint, at the same time: nothing is charged. */
    hold = (struct gm_hold){now + GM_MS, now + 19 * GM_MS};
    assert_true(gm_hold_grant(&account, 30, &hold));
    assert_int_equal(hold.end, now + 19 * GM_MS);
    assert_int_equal(account.paid_at, paid_at);
    /* One that lasts longer: the rest is. */
    hold = (struct gm_hold){now + GM_MS, now + 21 * GM_MS};
    assert_true(gm_hold_grant(&account, 30, &hold));
    assert_int_equal(account.paid_at - paid_at, (paid_at - now) / 20);

    hold = (struct gm_hold){now + GM_S, now + GM_S + MOST};
    assert_false(gm_hold_grant(&account, 100, &hold));
}

/* One hint after the other, and for ever: the last holds are shorter, then there are none. */
static void test_used_up(void **state)
{
    struct gm_hold_account account = {0};
    bool is_shorter = false, is_refused = false;
    uint64_t held = 0;
    (void)state;
    for (uint64_t at = now; at < now + 10 * GM_S; at += MOST) {
        struct gm_hold hold = {at, at + MOST};
        if (!gm_hold_grant(&account, 30, &hold)) {
            is_refused = true;
            continue;
        }
        is_shorter = is_shorter || hold.end < at + MOST;
        held += hold.end - at;
    }
    assert_true(is_shorter);
    assert_true(is_refused || held < 7 * GM_S);
    assert_in_range(held, 6 * GM_S, 7 * GM_S);
}

static uint64_t seed;
static uint64_t random_below(uint64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

enum { HINTS = 2000 };

/* Held time in the second that ends at `end`. The holds are merged: none begins before the one
 * ahead of it ends. */
static uint64_t held_before(const struct gm_hold *holds, unsigned n, uint64_t end)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t from = holds[i].begin > end - GM_S ? holds[i].begin : end - GM_S;
        const uint64_t to = holds[i].end < end ? holds[i].end : end;
        held += to > from ? to - from : 0;
    }
    return held;
}

/* Whatever is hinted, in no second is a program held for more than the rest of its share. */
static void test_no_second_is_worse(void **state)
{
    static struct gm_hold holds[HINTS + 1];
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        const uint32_t share = (uint32_t)random_below(100);
        const uint64_t pause = 1 + random_below(30 * GM_MS), length = 1 + random_below(MOST);
        const uint64_t ahead = round % 2 == 0 ? 1 : 10 * GM_MS; /* so some come out of order */
        struct gm_hold_account account = {0};
        unsigned n = 0;
        uint64_t at = now;
        for (unsigned i = 0; i < HINTS; i++) {
            at += random_below(pause);
            const uint64_t begin = at + random_below(ahead);
            struct gm_hold hold = {begin, begin + LEAD + random_below(length)};
            if (hold.end - hold.begin > MOST)
                hold.end = hold.begin + MOST;
            if (!gm_hold_grant(&account, share, &hold))
                continue;
            unsigned k = n; /* keep them in order, and merged */
            while (k > 0 && holds[k - 1].begin > hold.begin)
                k--;
            memmove(&holds[k + 1], &holds[k], (n - k) * sizeof holds[0]);
            holds[k] = hold;
            n++;
            for (k = k > 0 ? k - 1 : 0; k + 1 < n;) {
                if (holds[k].end < holds[k + 1].begin) {
                    k++;
                    continue;
                }
                if (holds[k + 1].end > holds[k].end)
                    holds[k].end = holds[k + 1].end;
                memmove(&holds[k + 1], &holds[k + 2], (n - k - 2) * sizeof holds[0]);
                n--;
            }
            if (n == HINTS)
                break;
        }
        assert_true(n > 0);
        for (unsigned i = 0; i < n; i++)
            assert_true(held_before(holds, n, holds[i].end) <= GM_S * (100 - share) / 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),    cmocka_unit_test(test_absurd),
        cmocka_unit_test(test_too_many), cmocka_unit_test(test_grants),
        cmocka_unit_test(test_used_up),  cmocka_unit_test(test_no_second_is_worse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

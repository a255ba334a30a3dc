/* daemon/core/timeslice: who keeps the GPU for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/chunk.h"
#include "common/units.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"

#define MOST 8u

/* One letter a program, in upper case if it has work: its class, l(atency), i(nteractive), a(uto)
 * or b(atch). An auto program is new, and at level 1; w has worked without a rest since it came;
 * c(hat) is one that is mostly idle, v one that works for longer than an answer takes this time,
 * and d one that has worked for long, at level 2. Batch programs are at level 3. That of
 * `unholdable` cannot be held. Ids are 1, 3, 5 and so on. */
static uint32_t fill(struct gm_timeslice_app *apps, const char *programs, uint32_t unholdable)
{
    const uint32_t n = (uint32_t)strlen(programs);
    assert_true(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        static const char letters[] = "alib"; /* by enum gm_sched_class */
        const char lower = (char)(programs[i] | 0x20);
        const char class = strchr("cdevw", lower) ? 'a' : lower;
        apps[i] = (struct gm_timeslice_app){
            .id = 2 * i + 1,
            .class = (enum gm_sched_class)(strchr(letters, class) - letters),
            .level = lower == 'b'                   ? 3
                     : lower == 'd' || lower == 'e' ? 2
                                                    : 1,
            .run_ns = GM_S,
            .idle_ns = strchr("cev", lower) ? 2 * GM_S : 0,
            .burst_ns = strchr("vw", lower) ? GM_S : GM_MS,
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

/* Nobody is critical by class: who is found to be interactive is, while it works. */
static void test_found(void **state)
{
    (void)state;
    expect("CD", "-O");
    expect("CB", "-O");
    expect("cD", "--");
    expect("CA", "--"); /* not known to be worse */
    expect("EB", "-O"); /* its answer is long */
    expect("ED", "--");
    expect("EC", "O-");
    expect("Cd", "--"); /* without work */
    expect("EDb", "---");
    expect("CAD", "T-OO");
    expect("CCD", "--O");
    expect("CDd", "T-OO");
    expect("CW", "-O"); /* long before levels know it */
    expect("Cw", "--");
    expect("cW", "--");
    expect("AW", "--");
    expect("VW", "--");
    expect("VC", "O-");
    expect("EW", "-O");
    expect_beside("CDB", 2, "-SS");
    expect("ICD", "TMOO"); /* what is said stands above what is found */
    expect("iCD", "TMOO");
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

/* When each program had its last turn or came, in half milliseconds; and whose it is, digits. */
static uint64_t turn_at[MOST], held_until[MOST];
static const char *users;

static struct gm_turns set(const char *whose)
{
    memset(turn_at, 0, sizeof turn_at);
    memset(held_until, 0, sizeof held_until);
    users = whose;
    return (struct gm_turns){.are_on = true, .whose = GM_NONE};
}

/* A step at `now` ms. `told` has a letter for each: H held for the turn, L for longer, G goes on,
 * - nothing. With a B before, a turn begins. */
static void step(struct gm_turns *turns, uint64_t now, const char *programs, const char *told)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = fill(apps, programs, MOST);
    for (uint32_t i = 0; i < n; i++) {
        turn_at[i] = turn_at[i] == 0 ? 2 * now - 1 : turn_at[i]; /* it came just before */
        apps[i].turn_at = turn_at[i];
        apps[i].held_until = held_until[i];
        apps[i].user = users == NULL ? 0 : (uint32_t)users[i];
    }
    const bool begins = *told == 'B';
    told += begins;
    assert_int_equal(n, strlen(told));
    gm_timeslice_assign(apps, n); /* who is critical */
    if (gm_turns_step(turns, apps, n, now * GM_MS) != begins)
        fail_msg("%s at %llu: begins is not %d", programs, (unsigned long long)now, begins);
    if (begins)
        turn_at[(turns->whose - 1) / 2] = 2 * now;
    for (uint32_t i = 0; i < n; i++) {
        held_until[i] = apps[i].held_until;
        const char is = !apps[i].is_told                ? '-'
                        : apps[i].hold_ns == 0          ? 'G'
                        : apps[i].hold_ns == GM_TURN_NS ? 'H'
                                                        : 'L';
        if (is != told[i])
            fail_msg("%s at %llu: program %u is told %c", programs, (unsigned long long)now, i, is);
    }
}

static void test_turns(void **state)
{
    (void)state;
    struct gm_turns turns = set(NULL);
    step(&turns, 1, "LABA", "B--HL");
    step(&turns, 20, "LABA", "----");
    step(&turns, 51, "LABA", "B-L-H");
    step(&turns, 101, "LABA", "B-HL-");
    step(&turns, 151, "LABA", "B--HL");
    /* It has no work any more, or is gone: the next one goes on at once. */
    step(&turns, 160, "LaBA", "B--GH");
    step(&turns, 170, "LaB", "---");
    step(&turns, 180, "LAbA", "B-H-G");
    /* Another one comes: it waits until those that are there had theirs. */
    step(&turns, 190, "LABAB", "-----");
    step(&turns, 230, "LABAB", "B--HLL");
}

/* Who was to be next has no work when the turn ends: another one, which is held for longer, goes
 * on. */
static void test_turn_of_another(void **state)
{
    (void)state;
    struct gm_turns turns = set(NULL);
    step(&turns, 1, "LABA", "B--HL");
    step(&turns, 51, "LAbA", "B-H-G");
}

/* The turns before that of one that is held for two have ended early. */
static void test_turn_is_early(void **state)
{
    (void)state;
    struct gm_turns turns = set(NULL);
    step(&turns, 1, "LABA", "B--HL");
    step(&turns, 10, "LaBA", "B--GH");
    step(&turns, 60, "LaBA", "B--HG");
    step(&turns, 110, "LaBA", "B---H");
}

/* A user with three programs has as many turns as one with a single one. */
static void test_turns_by_user(void **state)
{
    (void)state;
    struct gm_turns turns = set("01112");
    unsigned n_turns[MOST] = {0};
    step(&turns, 1, "LABAA", "B--LLH");
    for (uint64_t now = 51; now < 51 + 50 * 60; now += 50) {
        struct gm_timeslice_app apps[MOST];
        const uint32_t n = fill(apps, "LABAA", MOST);
        gm_timeslice_assign(apps, n);
        for (uint32_t i = 0; i < n; i++) {
            apps[i].turn_at = turn_at[i];
            apps[i].user = (uint32_t)users[i];
        }
        assert_true(gm_turns_step(&turns, apps, n, now * GM_MS));
        turn_at[(turns.whose - 1) / 2] = 2 * now;
        n_turns[(turns.whose - 1) / 2]++;
    }
    assert_int_equal(n_turns[4], 30);
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(n_turns[i], 10);
}

static void test_one_has_work(void **state)
{
    (void)state;
    struct gm_turns turns = set(NULL);
    step(&turns, 1, "", "");
    step(&turns, 1, "LIab", "----");
    step(&turns, 1, "LAb", "---");
    assert_int_equal(turns.until, 0);
    step(&turns, 2, "LAB", "B--H");
    step(&turns, 3, "LaB", "--G"); /* who is held goes on, and has no turn */
    assert_int_equal(turns.until, 0);
    step(&turns, 4, "LAB", "B-H-"); /* whose turn it was has had it */
    step(&turns, 54, "LAb", "---"); /* ... and the other one has no work */
    assert_int_equal(turns.until, 0);
    step(&turns, 55, "LaB", "---");
    assert_int_equal(turns.until, 0);
    step(&turns, 56, "Lab", "---");
    assert_int_equal(turns.until, 0);
}

/* Who is held goes on, once. */
static void test_turns_end(void **state)
{
    (void)state;
    struct gm_turns turns = set(NULL);
    step(&turns, 1, "LABaA", "B--H-L");
    turns.are_on = false;
    step(&turns, 2, "LABaA", "--G-G");
    assert_int_equal(turns.until, 0);
    step(&turns, 3, "LABaA", "-----");
}

#define KEPT 77u /* as it had it before */

/* One letter a program: whose it is, in upper case if it has work. `kinds` has F for each that can
 * have no other timeslice, J for one that is joined with others of its user, - for others.
 * `weights` are in thousandths; NULL: all have 1. */
static uint32_t fill_users(struct gm_timeslice_app *apps, const char *programs, const char *kinds,
                           const uint32_t *weights)
{
    const uint32_t n = (uint32_t)strlen(programs);
    assert_int_equal(n, strlen(kinds));
    for (uint32_t i = 0; i < n; i++) {
        apps[i] = (struct gm_timeslice_app){.id = i,
                                            .user = (uint32_t)programs[i] | 0x20,
                                            .rests = (programs[i] & 0x20) != 0,
                                            .is_fixed = kinds[i] != '-',
                                            .is_joined = kinds[i] == 'J',
                                            .weight = weights ? weights[i] : GM_SCHED_WEIGHT,
                                            .part_us = KEPT};
    }
    return n;
}

static void expect_parts(const char *programs, const char *kinds, const uint32_t *weights,
                         const uint64_t *us)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = fill_users(apps, programs, kinds, weights);
    gm_timeslice_share(apps, n);
    assert_false(gm_timeslice_assign(apps, n));
    for (uint32_t i = 0; i < n; i++)
        if (apps[i].us != us[i])
            fail_msg("%s: program %u has %llu us", programs, i, (unsigned long long)apps[i].us);
}

#define PARTS(programs, kinds, ...)                                                                \
    expect_parts(programs, kinds, NULL, (const uint64_t[]){__VA_ARGS__})
#define WEIGHTS(...)                                                                               \
    (const uint32_t[])                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void test_parts_by_user(void **state)
{
    (void)state;
    expect_parts("", "", NULL, NULL);
    PARTS("A", "-", KEPT);
    PARTS("AA", "--", 0, 0);
    PARTS("AB", "--", 0, 0);
    PARTS("ABB", "---", 4096, 2048, 2048);
    PARTS("BABBB", "-----", 2048, 8192, 2048, 2048, 2048);
    PARTS("AABB", "----", 0, 0, 0, 0);
    PARTS("ABBCCC", "------", 6144, 3072, 3072, 2048, 2048, 2048);
    /* Who rests is none, and keeps what it had. */
    PARTS("ABb", "---", 0, 0, KEPT);
    PARTS("ABBb", "----", 4096, 2048, 2048, KEPT);
    PARTS("Abb", "---", KEPT, KEPT, KEPT);
    PARTS("aBb", "---", KEPT, KEPT, KEPT);
}

static void test_parts_by_weight(void **state)
{
    (void)state;
    expect_parts("AA", "--", WEIGHTS(1000, 2000), (const uint64_t[]){2048, 4096});
    expect_parts("AB", "--", WEIGHTS(3000, 1000), (const uint64_t[]){6144, 2048});
    expect_parts("AB", "--", WEIGHTS(500, 500), (const uint64_t[]){0, 0});
    /* B has the weight of its heaviest, and no more: 2 of 3, in 2 to 1. */
    expect_parts("ABB", "---", WEIGHTS(1000, 2000, 1000), (const uint64_t[]){3072, 4096, 2048});
    expect_parts("ABb", "---", WEIGHTS(1000, 1000, 9000), (const uint64_t[]){0, 0, KEPT});
}

/* A round is no longer than 20 ms, or than it is by the driver; and no part is too small. */
static void test_parts_are_bounded(void **state)
{
    struct gm_timeslice_app apps[64];
    char programs[65] = "", kinds[65] = "";
    (void)state;
    for (uint32_t n = 2; n <= 64; n++) {
        uint64_t sum = 0;
        memset(programs, 'B', n);
        memset(kinds, '-', n);
        programs[0] = 'A';
        fill_users(apps, programs, kinds, NULL);
        gm_timeslice_share(apps, n);
        for (uint32_t i = 0; i < n; i++) {
            sum += apps[i].part_us;
            assert_true(n == 2 || apps[i].part_us >= GM_TIMESLICE_LEAST_US);
        }
        assert_true(sum <= GM_TIMESLICE_ROUND_US || sum <= n * GM_TIMESLICE_DRIVER_US);
        for (uint32_t i = 1; i < n;
             i++) /* as much as all others together, but for what is cut off */
            assert_true(apps[0].part_us - (n - 1) * apps[i].part_us < n);
    }
    expect_parts("AB", "--", WEIGHTS(10000, 100), (const uint64_t[]){19801, 500});
    expect_parts("AAAAB", "-----", WEIGHTS(10000, 100, 100, 100, 10000),
                 (const uint64_t[]){9708, 500, 500, 500, 10000});
}

/* The others are measured by who has the driver's own. */
static void test_parts_beside_fixed(void **state)
{
    (void)state;
    PARTS("ABBBB", "F----", 2048, 512, 512, 512, 512);
    PARTS("ABBBB", "-F---", 8192, 2048, 2048, 2048, 2048);
    PARTS("ABBBBBB", "F------", 2048, 500, 500, 500, 500, 500, 500);
    /* Joined ones are one program of their user, who has another one. */
    PARTS("AJJJ", "-JJJ", 0, 0, KEPT, KEPT);
    PARTS("AJJJ", "-JJ-", 4096, 2048, KEPT, 2048);
    PARTS("AjJJ", "-JJJ", 0, KEPT, 0, KEPT);
    PARTS("AJJKK", "-JJJJ", 0, 0, KEPT, 0, KEPT);
    expect_parts("AB", "-F", WEIGHTS(10000, 100), (const uint64_t[]){20000, 2048});
}

/* While somebody is latency-critical, the parts wait. */
static void test_parts_beside_critical(void **state)
{
    struct gm_timeslice_app apps[MOST];
    const uint32_t n = fill_users(apps, "ABB", "---", NULL);
    (void)state;
    apps[0].class = GM_CLASS_LATENCY;
    gm_timeslice_share(apps, n);
    gm_timeslice_assign(apps, n);
    assert_int_equal(apps[0].us, GM_TIMESLICE_CRITICAL_US);
    assert_int_equal(apps[1].us, GM_TIMESLICE_SHARED_US);
    apps[0].class = GM_CLASS_BATCH;
    gm_timeslice_assign(apps, n);
    assert_int_equal(apps[0].us, 4096);
    assert_int_equal(apps[1].us, 2048);
    apps[0].class = apps[1].class = apps[2].class = GM_CLASS_LATENCY;
    gm_timeslice_assign(apps, n);
    assert_int_equal(apps[0].us, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_unholdable),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_one_has_work),
        cmocka_unit_test(test_turns_end),
        cmocka_unit_test(test_turns_by_user),
        cmocka_unit_test(test_turn_of_another),
        cmocka_unit_test(test_turn_is_early),
        cmocka_unit_test(test_parts_by_user),
        cmocka_unit_test(test_parts_by_weight),
        cmocka_unit_test(test_parts_are_bounded),
        cmocka_unit_test(test_parts_beside_fixed),
        cmocka_unit_test(test_parts_beside_critical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pinned memory of several GPUs (engine/host.h): shared by need, and what was promised can be had.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/sums.h"
#include "daemon/core/table_write.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/state/state.h"

enum { GPUS = 3 };
#define SLAB GM_SLAB_BYTES
#define MIB (1ull << 20)

static struct gm_host memory;
static struct gm_engine engines[GPUS];
static struct gm_table tables[GPUS];
static struct gm_engine_config config;
static char why[256];
static uint64_t pinned[GPUS], used[GPUS]; /* of each pool */
static uint64_t paged;
static bool is_leaving[GPUS];
static unsigned calls[GPUS];

/* ---- what is around it ---- */

static uint32_t index_of(const struct gm_engine *engine)
{
    return (uint32_t)(engine - engines);
}

static uint32_t index_of_pool(const struct gm_hostpool *pool)
{
    uint32_t i = 0;
    while (&engines[i].pool != pool)
        i++;
    return i;
}

uint64_t gm_hostpool_pinned(const struct gm_hostpool *pool)
{
    return pinned[index_of_pool(pool)];
}

bool gm_hostpool_is_leaving(const struct gm_hostpool *pool)
{
    return is_leaving[index_of_pool(pool)];
}

uint64_t gm_engine_pinned_used(const struct gm_engine *engine)
{
    return used[index_of(engine)];
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores;
    return tier == GM_TIER_PAGED ? paged : 0;
}

void gm_engine_call(struct gm_engine *engine)
{
    calls[index_of(engine)]++;
}

/* ---- the world ---- */

static void begin(uint32_t n, uint64_t bytes, uint64_t below)
{
    memset(pinned, 0, sizeof pinned);
    memset(used, 0, sizeof used);
    memset(is_leaving, 0, sizeof is_leaving);
    memset(calls, 0, sizeof calls);
    config = (struct gm_engine_config){.pinned = bytes, .paged = below};
    assert_int_equal(gm_host_open(&memory, &config, n, why, sizeof why), 0);
    paged = config.paged;
    for (uint32_t i = 0; i < n; i++) {
        tables[i] = (struct gm_table){.budget = 4 * SLAB};
        memset(&engines[i], 0, sizeof engines[i]);
        engines[i].config = config;
        engines[i].config.index = i;
        engines[i].host = &memory;
        engines[i].table = &tables[i];
        gm_host_add(&memory, &engines[i]);
    }
}

/* Programs of GPU `i` have so many slabs beside what is on the GPU. False: there is no room. */
static bool need(uint32_t i, uint64_t slabs)
{
    const uint64_t all = gm_host_limit(&engines[i]) - memory.window + paged;
    if (slabs * SLAB > all)
        return false;
    tables[i].committed = tables[i].budget + slabs * SLAB;
    gm_host_promise(&engines[i]);
    return true;
}

/* The pool of GPU `i` has so many. */
static void has(uint32_t i, uint64_t bytes)
{
    pinned[i] = bytes;
    gm_host_promise(&engines[i]);
}

static uint64_t slabs_for(uint32_t i)
{
    return (gm_host_limit(&engines[i]) - memory.window) / SLAB;
}

/* ---- tests ---- */

/* Of 8 slabs beside the windows one GPU's programs need 6 and the other's 1: both fit. */
static void by_need(void **state)
{
    (void)state;
    begin(2, 12 * SLAB, 0);
    assert_int_equal(memory.window, 2 * SLAB);
    assert_int_equal(slabs_for(0), 8);
    assert_int_equal(gm_host_limit_alone(&engines[0]), 10 * SLAB);
    assert_true(need(0, 6));
    assert_true(need(1, 1));
    assert_int_equal(slabs_for(0), 7);
    assert_int_equal(slabs_for(1), 2);
    assert_false(need(1, 3));
    assert_true(need(1, 2));
    assert_false(need(0, 7));
    has(0, 8 * SLAB); /* what was promised can be had */
    has(1, 4 * SLAB);
    assert_int_equal(slabs_for(0), 6);
    assert_true(need(0, 0));
    assert_false(need(1, 3)); /* it is pinned there */
    has(0, 0);
    assert_true(need(1, 8));
    assert_int_equal(slabs_for(0), 0);
}

/* One GPU alone has it all, whatever it promises. */
static void of_one_gpu(void **state)
{
    (void)state;
    begin(1, 12 * SLAB + MIB, 0);
    assert_int_equal(gm_host_limit(&engines[0]), 12 * SLAB);
    assert_true(need(0, 10));
    has(0, 12 * SLAB);
    assert_int_equal(gm_host_limit(&engines[0]), 12 * SLAB);
    assert_int_equal(gm_host_limit_alone(&engines[0]), 12 * SLAB);
    gm_host_ask(&engines[0]);
    assert_false(gm_host_is_coming(&engines[0]));
    assert_int_equal(gm_host_may_keep(&engines[0]), UINT64_MAX);
}

/* What the tiers below hold is promised nothing of pinned memory; what is mapped is. */
static void tiers_below(void **state)
{
    (void)state;
    begin(2, 40 * SLAB, 16 * SLAB);
    assert_int_equal(paged, 8 * SLAB);
    assert_int_equal(memory.window, 7 * SLAB);
    assert_true(memory.has_lower && memory.reserve > 0);
    const uint64_t all = slabs_for(1);
    assert_int_equal(all, 26);
    assert_true(need(0, 8));
    assert_int_equal(slabs_for(1), all);
    assert_true(need(0, 9));
    assert_int_equal(slabs_for(1), all - 1);
    tables[0].beyond = 6 * SLAB;
    gm_host_promise(&engines[0]);
    assert_int_equal(slabs_for(1), all - 6 - GM_CAP_ROOM_LEFT / SLAB);
    begin(2, 14 * SLAB, 16 * SLAB);
    config = (struct gm_engine_config){.pinned = 14 * SLAB - 1, .paged = SLAB};
    assert_int_equal(gm_host_open(&memory, &config, 2, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "--pinned of 416 MiB is too little"));
    assert_non_null(strstr(why, "give it 448 MiB"));
}

/* A GPU whose budget fell is promised no more than there is: what others were promised stays. */
static void budget_falls(void **state)
{
    (void)state;
    begin(2, 12 * SLAB, 0);
    assert_true(need(0, 4));
    assert_true(need(1, 3));
    tables[0].budget = 0;
    gm_host_promise(&engines[0]);
    assert_int_equal(memory.promised[0], 7 * SLAB);
    assert_int_equal(slabs_for(1), 3);
    assert_true(need(1, 0));
    gm_host_promise(&engines[0]);
    assert_int_equal(memory.promised[0], 10 * SLAB);
}

/* A pool that has more than was promised is asked for the rest, once, and who waits hears of it. */
static void given_back(void **state)
{
    (void)state;
    begin(2, 12 * SLAB, 0);
    assert_true(need(0, 2));
    has(0, 9 * SLAB); /* shadows */
    used[0] = 2 * SLAB;
    assert_false(need(1, 4));
    assert_int_equal(gm_host_limit_soon(&engines[1]), 8 * SLAB);
    assert_int_equal(gm_host_limit_soon(&engines[0]), 10 * SLAB);
    calls[0] = 0;
    gm_host_ask(&engines[1]);
    assert_int_equal(calls[0], 1);
    assert_true(gm_host_is_asked(&engines[0]) && !gm_host_is_asked(&engines[1]));
    assert_true(gm_host_is_coming(&engines[1]));
    assert_int_equal(gm_host_may_keep(&engines[0]), 4 * SLAB);
    assert_int_equal(gm_host_may_keep(&engines[1]), UINT64_MAX);
    is_leaving[0] = true;
    calls[1] = 0;
    gm_host_heard(&engines[0]);
    assert_true(gm_host_is_coming(&engines[1]));
    assert_int_equal(gm_host_may_keep(&engines[0]), 4 * SLAB); /* as long as one waits */
    has(0, 6 * SLAB);
    assert_int_equal(calls[1], 1);
    is_leaving[0] = false;
    has(0, 4 * SLAB);
    assert_int_equal(calls[1], 2);
    assert_false(gm_host_is_coming(&engines[1]));
    assert_true(need(1, 4));
    gm_host_end_wait(&engines[1]);
    assert_int_equal(gm_host_may_keep(&engines[0]), UINT64_MAX);
}

/* It has nothing that can leave: who waits hears that, too. */
static void nothing_comes(void **state)
{
    (void)state;
    begin(2, 12 * SLAB, 0);
    has(0, 9 * SLAB);
    used[0] = 3 * SLAB; /* a page in each slab */
    gm_host_ask(&engines[1]);
    assert_true(gm_host_is_coming(&engines[1]));
    gm_host_promise(&engines[0]); /* its round begins */
    calls[1] = 0;
    gm_host_heard(&engines[0]);
    assert_int_equal(calls[1], 1);
    assert_false(gm_host_is_coming(&engines[1]));
    gm_host_promise(&engines[0]);
    assert_int_equal(calls[1], 1);
    engines[0].is_closing = true; /* it hears nothing */
    gm_host_ask(&engines[1]);
    assert_false(gm_host_is_coming(&engines[1]));
    gm_host_remove(&engines[0]);
    assert_int_equal(gm_host_limit(&engines[1]), 10 * SLAB);
}

/* Who waits on (--when-full wait) asks in each of its rounds. It is told at once that nothing
 * comes, and begins a round: neither may go on like that for ever. */
static void asks_once(void **state)
{
    unsigned rounds = 0;
    (void)state;
    begin(2, 12 * SLAB, 0);
    has(0, 9 * SLAB);
    used[0] = 3 * SLAB; /* a page in each slab */
    calls[0] = calls[1] = 0;
    for (gm_host_ask(&engines[1]); calls[0] > 0 && rounds < 100; rounds++) {
        calls[0] = 0;
        gm_host_promise(&engines[0]);
        gm_host_heard(&engines[0]);
        gm_host_ask(&engines[1]);
    }
    assert_int_equal(rounds, 1);
    has(0, 8 * SLAB); /* one is empty now: there may be more */
    gm_host_ask(&engines[1]);
    assert_true(gm_host_is_asked(&engines[0]));
    gm_host_heard(&engines[0]);
    tables[0].budget -= SLAB; /* its programs are promised another part */
    tables[0].committed = 5 * SLAB;
    gm_host_promise(&engines[0]);
    gm_host_ask(&engines[1]);
    assert_true(gm_host_is_asked(&engines[0]));
    gm_host_heard(&engines[0]);
    gm_host_end_wait(&engines[1]); /* who waits anew asks anew */
    gm_host_ask(&engines[1]);
    assert_true(gm_host_is_asked(&engines[0]));
}

static uint32_t random_state = 1;
static uint32_t chance(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

/* Whatever happens: what is pinned or promised is never too much, and all that was promised can be
 * pinned at any moment. */
static void never_too_much(void **state)
{
    unsigned grown = 0, refused = 0, bounded = 0;
    (void)state;
    for (int round = 0; round < 300; round++) {
        begin(GPUS, (6 + chance(40)) * SLAB, 0);
        for (int step = 0; step < 300; step++) {
            const uint32_t i = chance(GPUS);
            const uint64_t limit = gm_host_limit(&engines[i]);
            uint64_t sum = 0;
            switch (chance(5)) {
            case 0:
                grown += need(i, chance(12));
                break;
            case 1:
                tables[i].beyond = chance(2) ? gm_least(tables[i].committed, limit / 2) : 0;
                gm_host_promise(&engines[i]);
                break;
            case 2:
                tables[i].budget = chance(8) * SLAB;
                gm_host_promise(&engines[i]);
                bounded += memory.promised[i] == limit;
                break;
            case 3: /* the pool grows, without a round of its engine */
                pinned[i] += gm_least(chance(60) * GM_CHUNK_MIN, limit - pinned[i]);
                break;
            default:
                pinned[i] -= gm_least(chance(90) * GM_CHUNK_MIN, pinned[i]);
                break;
            }
            for (uint32_t k = 0; k < GPUS; k++) {
                sum += pinned[k] > memory.promised[k] ? pinned[k] : memory.promised[k];
                assert_true(memory.promised[k] <= gm_host_limit(&engines[k]));
                assert_true(pinned[k] <= gm_host_limit(&engines[k]));
                refused += gm_host_limit(&engines[k]) < memory.pinned;
                assert_int_equal(gm_host_limit(&engines[k]) % SLAB, 0);
            }
            assert_true(sum <= memory.pinned);
        }
    }
    assert_true(grown > 1000 && refused > 1000 && bounded > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_need),     cmocka_unit_test(of_one_gpu),
        cmocka_unit_test(tiers_below), cmocka_unit_test(budget_falls),
        cmocka_unit_test(given_back),  cmocka_unit_test(nothing_comes),
        cmocka_unit_test(asks_once),   cmocka_unit_test(never_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

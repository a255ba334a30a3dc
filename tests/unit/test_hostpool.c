/*
 * daemon/hostpool, taking and growing: the cap holds exactly, whatever was freed fits again however
 * fragmented, chains cover exactly what was asked for, a refusal leaves what there is and can be
 * tried again. test_hostpool_units.c has the rest.
 */
#include "tests/unit/hostpool_world.h"

static void test_cap_is_exact(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 100 * MIB); /* three slabs of 32 MiB fit */
    assert_int_equal(gm_hostpool_cap(&f.pool), 96 * MIB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    grow(&f, 1ull << 40);
    assert_int_equal(gm_hostpool_size(&f.pool), 96 * MIB);
    uint32_t a = take(&f, 64 * MIB), b = take(&f, 32 * MIB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    assert_int_equal(gm_hostpool_used(&f.pool), 96 * MIB);
    gm_hostpool_free(&f.pool, b);
    gm_hostpool_free(&f.pool, a);
    assert_int_equal(gm_hostpool_used(&f.pool), 0);
    close_pool(&f);
}

static void test_fragments_still_fit(void **state)
{
    struct fixture f;
    uint32_t pages[64];
    (void)state;
    open_pool(&f, 128 * MIB);
    grow(&f, 128 * MIB);
    for (int i = 0; i < 64; i++)
        pages[i] = take(&f, 2 * MIB);
    for (int i = 0; i < 64; i += 2)
        gm_hostpool_free(&f.pool, pages[i]);
    uint32_t a = take(&f, 32 * MIB); /* no two free pages touch */
    take(&f, 32 * MIB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    gm_hostpool_free(&f.pool, a);
    take(&f, 16 * MIB);
    close_pool(&f);
}

/* Of slabs that are in use the one with most free pages. */
static void test_emptiest(void **state)
{
    struct fixture f;
    uint32_t pages[48];
    (void)state;
    open_pool(&f, 128 * MIB);
    grow(&f, 128 * MIB);
    assert_int_equal(gm_hostpool_emptiest(&f.pool), GM_NONE);
    for (int i = 0; i < 48; i++)
        pages[i] = take(&f, 2 * MIB);
    for (int i = 16; i < 48; i++)
        if (i % 16 < (i < 32 ? 5 : 4))
            gm_hostpool_free(&f.pool, pages[i]);
    assert_int_equal(gm_hostpool_emptiest(&f.pool), pages[31] / 16);
    for (int i = 21; i < 32; i++)
        gm_hostpool_free(&f.pool, pages[i]);
    assert_int_equal(gm_hostpool_emptiest(&f.pool), pages[47] / 16);
    close_pool(&f);
}

static void test_contiguous_when_it_can(void **state)
{
    struct fixture f;
    CUdeviceptr at;
    uint64_t bytes;
    (void)state;
    open_pool(&f, 64 * MIB);
    grow(&f, 64 * MIB);
    take(&f, 4 * MIB);
    uint32_t page = take(&f, 32 * MIB);
    gm_hostpool_piece(&f.pool, &page, &at, &bytes);
    assert_int_equal(bytes, 32 * MIB);
    assert_int_equal(page, GM_NONE);
    close_pool(&f);
}

static void test_refusal(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 320 * MIB);
    driver.fail_from[CREATE] = 4;
    grow(&f, 320 * MIB);
    assert_int_equal(gm_hostpool_size(&f.pool), 96 * MIB);
    assert_int_equal(f.pool.refusal, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(f.grown > 0);
    driver.fail_from[CREATE] = 0;
    grow(&f, 320 * MIB);
    assert_int_equal(gm_hostpool_size(&f.pool), 320 * MIB);
    assert_int_equal(f.pool.refusal, CUDA_SUCCESS);
    close_pool(&f);
}

/* Slabs that are not wanted any more leave, those with used pages once these are free. */
static void test_shrinks(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    uint32_t a = take(&f, 4 * SLAB), b = take(&f, 2 * MIB);
    grow(&f, SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB);
    gm_hostpool_free(&f.pool, a);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), SLAB);
    assert_int_equal(chain_bytes(&f, b), 2 * MIB); /* it is in the one that stays */
    grow(&f, 0);
    assert_int_equal(gm_hostpool_size(&f.pool), SLAB);
    gm_hostpool_free(&f.pool, b);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    grow(&f, 3 * SLAB);
    take(&f, 3 * SLAB);
    close_pool(&f);
}

/* What was about to leave and is wanted again stays; what the worker has is made anew. */
static void test_wanted_again(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 12 * SLAB);
    grow(&f, 12 * SLAB);
    const unsigned made = driver.calls[CREATE];
    gm_hostpool_want(&f.pool, 0); /* the worker takes a batch of them */
    gm_hostpool_want(&f.pool, 12 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 12 * SLAB);
    assert_int_equal(driver.calls[CREATE], made + GM_PIECES_A_BATCH);
    take(&f, 12 * SLAB);
    close_pool(&f);
}

/* A driver that refuses to release a slab is asked again when the owner asks again. Other workers
 * may have released theirs meanwhile. */
static void test_release_is_tried_again(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 4 * SLAB);
    grow(&f, 4 * SLAB);
    fail_at(RELEASE, 1);
    grow(&f, 0);
    assert_in_range(gm_hostpool_size(&f.pool), SLAB, 4 * SLAB);
    grow(&f, 0);
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    close_pool(&f);
}

static uint64_t bound;
static uint64_t bound_of(const void *arg)
{
    (void)arg;
    return bound;
}

/* The owner bounds the cap, and that may change at any moment. */
static void test_bound(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 8 * SLAB);
    gm_hostpool_bound(&f.pool, bound_of);
    bound = 3 * SLAB;
    assert_int_equal(gm_hostpool_cap(&f.pool), 3 * SLAB);
    grow(&f, 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 3 * SLAB);
    bound = 5 * SLAB;
    grow(&f, 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB);
    bound = 7 * SLAB;
    gm_hostpool_want(&f.pool, 7 * SLAB);
    assert_int_equal(gm_hostpool_pinned(&f.pool), 7 * SLAB); /* two are being made */
    assert_true(gm_hostpool_is_leaving(&f.pool));
    run(&f);
    assert_false(gm_hostpool_is_leaving(&f.pool));
    bound = 100 * SLAB;
    assert_int_equal(gm_hostpool_cap(&f.pool), 8 * SLAB);
    grow(&f, 8 * SLAB);
    bound = 8 * SLAB;
    grow(&f, 2 * SLAB);
    bound = 2 * SLAB;
    grow(&f, 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 2 * SLAB);
    take(&f, 2 * SLAB);
    close_pool(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cap_is_exact), cmocka_unit_test(test_fragments_still_fit),
        cmocka_unit_test(test_emptiest),     cmocka_unit_test(test_contiguous_when_it_can),
        cmocka_unit_test(test_refusal),      cmocka_unit_test(test_shrinks),
        cmocka_unit_test(test_wanted_again), cmocka_unit_test(test_release_is_tried_again),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

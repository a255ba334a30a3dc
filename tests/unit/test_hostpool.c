/*
 * daemon/hostpool, taking and growing: the cap holds exactly, whatever was freed fits again however
 * fragmented, chains cover exactly what was asked for, a refusal leaves what there is and can be
 * tried again. test_hostpool_loans.c has the rest.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cap_is_exact),
        cmocka_unit_test(test_fragments_still_fit),
        cmocka_unit_test(test_contiguous_when_it_can),
        cmocka_unit_test(test_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

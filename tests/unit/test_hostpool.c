/*
 * daemon/hostpool over a fake driver: the cap holds exactly, whatever was freed fits again however
 * fragmented, chains cover exactly what was asked for, a refusal leaves what there is and can be
 * tried again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/core/table.h"
#include "daemon/hostpool.h"

#define MIB (1ull << 20)

static unsigned creates, fail_from, alive;

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)flags;
    assert_int_equal(size, GM_CHUNK_MAX);
    assert_int_equal(prop->location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    if (++creates >= fail_from)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alive++;
    *handle = creates;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    assert_int_not_equal(handle, 0);
    alive--;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr at, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)at, (void)size, (void)offset, (void)handle, (void)flags;
    return CUDA_SUCCESS;
}

static CUresult fake_range(CUdeviceptr at, size_t size)
{
    (void)at, (void)size;
    return CUDA_SUCCESS;
}

static CUresult fake_access(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    (void)at, (void)size, (void)desc;
    assert_int_equal(count, 2);
    return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *at, size_t size, size_t align, CUdeviceptr want,
                             unsigned long long flags)
{
    (void)size, (void)align, (void)want, (void)flags;
    *at = 1ull << 40;
    return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)attribute, (void)device;
    *value = 0;
    return CUDA_SUCCESS;
}

static const struct gm_cuda fake = {
    .cuMemCreate = fake_create,
    .cuMemRelease = fake_release,
    .cuMemMap = fake_map,
    .cuMemUnmap = fake_range,
    .cuMemAddressFree = fake_range,
    .cuMemSetAccess = fake_access,
    .cuMemAddressReserve = fake_reserve,
    .cuCtxSetCurrent = fake_current,
    .cuDeviceGetAttribute = fake_attribute,
};

struct fixture {
    uv_loop_t loop;
    struct gm_hostpool pool;
    unsigned grown;
};

static void on_grown(void *arg)
{
    ((struct fixture *)arg)->grown++;
}

static void open_pool(struct fixture *fixture, uint64_t cap)
{
    char why[128];
    creates = alive = 0;
    fail_from = UINT32_MAX;
    memset(fixture, 0, sizeof *fixture);
    uv_loop_init(&fixture->loop);
    assert_int_equal(gm_hostpool_open(&fixture->pool, &fixture->loop, &fake, NULL, 0, cap, on_grown,
                                      fixture, why, sizeof why),
                     0);
}

static void close_pool(struct fixture *fixture)
{
    gm_hostpool_close(&fixture->pool);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->loop), 0);
    assert_int_equal(alive, 0);
}

static uint64_t chain_bytes(struct fixture *fixture, uint32_t page)
{
    uint64_t sum = 0, bytes;
    CUdeviceptr at;
    while (page != GM_NONE) {
        gm_hostpool_piece(&fixture->pool, &page, &at, &bytes);
        assert_true(at >= fixture->pool.base);
        assert_true(bytes <= GM_CHUNK_MAX);
        sum += bytes;
    }
    return sum;
}

static void test_cap_is_exact(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 100 * MIB); /* three slabs of 32 MiB fit */
    assert_int_equal(gm_hostpool_cap(&f.pool), 96 * MIB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    gm_hostpool_want(&f.pool, 1ull << 40);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_int_equal(gm_hostpool_size(&f.pool), 96 * MIB);
    assert_int_equal(alive, 3);
    uint32_t a = gm_hostpool_take(&f.pool, 64 * MIB), b = gm_hostpool_take(&f.pool, 32 * MIB);
    assert_int_equal(chain_bytes(&f, a), 64 * MIB);
    assert_int_equal(chain_bytes(&f, b), 32 * MIB);
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
    gm_hostpool_want(&f.pool, 128 * MIB);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 64; i++) {
        pages[i] = gm_hostpool_take(&f.pool, 2 * MIB);
        assert_int_not_equal(pages[i], GM_NONE);
    }
    for (int i = 0; i < 64; i += 2)
        gm_hostpool_free(&f.pool, pages[i]);
    uint32_t a = gm_hostpool_take(&f.pool, 32 * MIB); /* no two free pages touch */
    assert_int_equal(chain_bytes(&f, a), 32 * MIB);
    uint32_t b = gm_hostpool_take(&f.pool, 32 * MIB);
    assert_int_equal(chain_bytes(&f, b), 32 * MIB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    gm_hostpool_free(&f.pool, a);
    a = gm_hostpool_take(&f.pool, 16 * MIB);
    assert_int_equal(chain_bytes(&f, a), 16 * MIB);
    close_pool(&f);
}

static void test_contiguous_when_it_can(void **state)
{
    struct fixture f;
    CUdeviceptr at;
    uint64_t bytes;
    (void)state;
    open_pool(&f, 64 * MIB);
    gm_hostpool_want(&f.pool, 64 * MIB);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    gm_hostpool_take(&f.pool, 4 * MIB);
    uint32_t page = gm_hostpool_take(&f.pool, 32 * MIB);
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
    fail_from = 4;
    gm_hostpool_want(&f.pool, 320 * MIB);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_int_equal(gm_hostpool_size(&f.pool), 96 * MIB);
    assert_int_equal(f.pool.refusal, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(f.grown > 0);
    fail_from = UINT32_MAX;
    gm_hostpool_want(&f.pool, 320 * MIB);
    uv_run(&f.loop, UV_RUN_DEFAULT);
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

/*
 * shim/entry/arguments.h: what every copy and set of hooks.def marks and counts, by the types of
 * its arguments. The test plays the wrappers, the driver, which knows whose memory an address is,
 * and the daemon that looks at the words.
 */
#include "shim/entry/arguments.h"
#include "tests/unit/windows_world.h"

/* As a wrapper does before the real call. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_COPY(kind)                                                                             \
    (static __attribute__((unused)) void copy_##symbol params{GM_COPY_TOUCHES(args)})
#include "shim/driver/hooks.def"
#undef GM_HOOK

#define HOST ((void *)(uintptr_t)(0x5500ull << 32)) /* not pinned: the driver does not know it */

static int setup(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    begin();
    if (gm_allocs_find(BASE, &alloc) == GM_ALLOC_UNKNOWN)
        make(BASE, 64 * MIB, GM_ALLOC_CHUNKS);
    return 0;
}

/* Page i of the memory, in pages of 2 MiB. */
static uint64_t page(uint64_t i)
{
    return BASE + i * GM_CHUNK_MIN;
}

/* What was marked since: of pages 0 to 7, and of no other. `bytes` crossed the link. */
static void expect(const uint32_t counts[8], uint64_t bytes)
{
    uint32_t found[8] = {0};
    const uint32_t n = take();
    for (uint32_t i = 0; i < n; i++) {
        assert_in_range(got[i].va, BASE, page(7));
        found[(got[i].va - BASE) / GM_CHUNK_MIN] = got[i].count;
    }
    assert_memory_equal(found, counts, sizeof found);
    expect_crossed(bytes, 0);
    assert_int_equal(unseen(), 0);
}

/* To and from the host: the call says so, or the driver does. Nothing is marked. */
static void test_host(void **state)
{
    (void)state;
    copy_cuMemcpyHtoD_v2(page(0), HOST, 100);
    copy_cuMemcpyDtoHAsync_v2(HOST, page(0), 100, NULL);
    copy_cuMemcpyHtoA_v2(NULL, 5, HOST, 100);
    assert_int_equal(asked_pointers, 0);
    copy_cuMemcpyHtoD_v2(SMALL, HOST, 100);
    copy_cuMemcpy(page(0), PINNED, 100);
    copy_cuMemcpyAsync((CUdeviceptr)(uintptr_t)HOST, page(0), 100, NULL);
    copy_cuMemcpy(8, page(0), 100);
    copy_cuMemcpyDtoD_v2(page(0), PINNED, 100);
    copy_cuMemsetD32_v2(PINNED, 0, 25);
    assert_false(has_worked());
    expect((uint32_t[8]){0}, 900);
    assert_int_equal(asked_pointers, 3); /* once for a place */
}

/* On the device, whoever has the memory there: what is gpumux's is marked, nothing crosses. */
static void test_device(void **state)
{
    (void)state;
    copy_cuMemcpyDtoD_v2(page(0), page(2), 2 * GM_CHUNK_MIN);
    assert_true(has_worked());
    expect((uint32_t[8]){1, 1, 1, 1}, 0);
    assert_int_equal(asked_pointers, 0);
    copy_cuMemcpyDtoD_v2(page(0), SMALL, 100);
    copy_cuMemcpyDtoDAsync_v2(SMALL, page(1), 100, NULL);
    copy_cuMemcpy(SMALL, page(2), 100);
    copy_cuMemcpyPeerAsync(page(3), NULL, SMALL, NULL, 100, NULL);
    copy_cuMemcpyDtoD_v2(SMALL, SMALL + 100, 100);
    copy_cuMemsetD8_v2(SMALL, 0, 100);
    copy_cuMemcpyDtoA_v2(NULL, 5, page(4), 100);
    copy_cuMemcpyAtoA_v2(NULL, 5, NULL, 7, 100);
    copy_cuMemsetD8Async(page(5), 0, 100, NULL);
    expect((uint32_t[8]){1, 1, 1, 1, 1, 1}, 0);
    assert_int_equal(asked_pointers, 1);
}

/* Managed memory is on either side: such a copy counts for both. So does one of an address that
 * nobody may ask about any more. */
static void test_perhaps(void **state)
{
    (void)state;
    copy_cuMemcpyDtoD_v2(page(0), MANAGED, 100);
    copy_cuMemcpy(MANAGED, page(1), 100);
    copy_cuMemcpyHtoD_v2(MANAGED, HOST, 100);
    expect((uint32_t[8]){1, 1}, 300);
    gm_real.cuPointerGetAttributes = NULL;
    copy_cuMemcpyDtoD_v2(page(0), SMALL, 100);
    expect((uint32_t[8]){1}, 100);
}

/* Rectangles, boxes, and lists. */
static void test_structs(void **state)
{
    const CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = SMALL,
                                .srcPitch = 100,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = page(1),
                                .dstPitch = GM_CHUNK_MIN,
                                .WidthInBytes = 100,
                                .Height = 2};
    const CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = MANAGED,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = page(5),
                                .WidthInBytes = 100,
                                .Height = 1,
                                .Depth = 1};
    CUdeviceptr to[] = {page(0), SMALL, page(4), page(6)};
    CUdeviceptr from[] = {SMALL, page(1), PINNED, MANAGED};
    size_t bytes[] = {1, 10, 100, 1000};
    (void)state;
    copy_cuMemcpy2D_v2(&flat);
    copy_cuMemcpy2DUnaligned_v2(&flat);
    expect((uint32_t[8]){0, 2, 2}, 0);
    copy_cuMemcpy3DAsync_v2(&deep, NULL);
    expect((uint32_t[8]){0, 0, 0, 0, 0, 1}, 100);
    copy_cuMemcpyBatchAsync_v2(to, from, bytes, 4, NULL, NULL, 0, NULL);
    expect((uint32_t[8]){1, 1, 0, 0, 0, 0, 1}, 1100);
}

/* Pitches and heights that say nothing: rows without gaps, as the driver takes them. */
static void test_pitches(void **state)
{
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = page(0),
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = page(4),
                          .WidthInBytes = GM_CHUNK_MIN,
                          .Height = 3};
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = page(0),
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = page(6),
                          .dstPitch = 1024,
                          .dstHeight = 1,
                          .WidthInBytes = 1024,
                          .Height = GM_CHUNK_MIN / 1024,
                          .Depth = 2};
    (void)state;
    copy_cuMemcpy2D_v2(&flat);
    expect((uint32_t[8]){1, 1, 1, 0, 1, 1, 1}, 0);
    flat.srcY = 1;
    copy_cuMemcpy2D_v2(&flat);
    expect((uint32_t[8]){0, 1, 1, 1, 1, 1, 1}, 0);
    deep.dstHeight = 0;
    copy_cuMemcpy3D_v2(&deep);
    expect((uint32_t[8]){0, 1, 1, 0, 0, 0, 1, 1}, 0);

    copy_cuMemsetD2D8_v2(page(0), 0, 0, 3 * GM_CHUNK_MIN, 1);
    expect((uint32_t[8]){1, 1, 1}, 0);
    copy_cuMemsetD2D32_v2(page(0), 0, 0, GM_CHUNK_MIN / 4, 2);
    expect((uint32_t[8]){1, 1}, 0);
    copy_cuMemsetD2D16Async(page(1), 3 * GM_CHUNK_MIN, 0, GM_CHUNK_MIN / 2 + 1, 2, NULL);
    expect((uint32_t[8]){0, 1, 1, 1, 1, 1}, 0);
    copy_cuMemsetD2D32_v2(page(0), 3 * GM_CHUNK_MIN, 0, 1, 2); /* not to the end of the pitch */
    expect((uint32_t[8]){1, 1, 1, 1}, 0);
    copy_cuMemsetD2D32_v2(page(0), GM_CHUNK_MIN, 0, 0, 2);
    copy_cuMemsetD2D32_v2(page(0), GM_CHUNK_MIN, 0, 1, 0);
    expect((uint32_t[8]){0}, 0);
}

/* What is not read: batches of boxes, launches of the old forms. Their flags are no addresses. */
static void test_unread(void **state)
{
    CUDA_MEMCPY3D_BATCH_OP op = {.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                 .src.op.ptr.ptr = page(0)};
    (void)state;
    copy_cuMemcpy3DBatchAsync_v2(1, &op, 0, NULL);
    assert_true(has_worked());
    assert_int_equal(unseen(), 1);
    copy_cuMemcpy3DBatchAsync(1, &op, NULL, 0, NULL);
    assert_int_equal(unseen(), 1);
    copy_cuLaunchGrid(NULL, 1, 1);
    assert_int_equal(unseen(), 1);
    copy_cuMemBatchDecompressAsync(NULL, 1, 0, NULL, NULL);
    assert_int_equal(unseen(), 1);
    expect((uint32_t[8]){0}, 0);
    assert_int_equal(asked_pointers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_host, setup),    cmocka_unit_test_setup(test_device, setup),
        cmocka_unit_test_setup(test_perhaps, setup), cmocka_unit_test_setup(test_structs, setup),
        cmocka_unit_test_setup(test_unread, setup),  cmocka_unit_test_setup(test_pitches, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

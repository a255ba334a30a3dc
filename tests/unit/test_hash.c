/*
 * daemon/memory/hash: the kernel, as simcuda runs it, against a reference that is written another
 * way; every byte counts; zero is seen; numbers and order; and a driver that refuses it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/memory/hash.h"
#include "daemon/memory/hash_ptx.h"
#include "tests/unit/hash_reference.h"

#define MIB (1ull << 20)
#define BYTES (2 * MIB)

static struct gm_cuda cuda;
static CUcontext context;
static uv_loop_t loop;
static unsigned wakes;

static void on_done(void *arg)
{
    (void)arg;
    wakes++;
}

static int set_up(void **state)
{
    char why[256];
    CUdevice device;
    (void)state;
    if (gm_cuda_open(&cuda, why, sizeof why) != 0)
        return -1;
    uv_loop_init(&loop);
    return cuda.cuInit(0) == CUDA_SUCCESS && cuda.cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                   cuda.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
                   cuda.cuCtxSetCurrent(context) == CUDA_SUCCESS
               ? 0
               : -1;
}

static struct gm_hasher *open_hasher(void)
{
    struct gm_hasher *hasher;
    char why[256] = "";
    const int error =
        gm_hasher_open(&hasher, &loop, &cuda, context, on_done, NULL, why, sizeof why);
    if (error)
        print_error("%s\n", why);
    assert_int_equal(error, 0);
    return hasher;
}

static void close_hasher(struct gm_hasher *hasher)
{
    gm_hasher_close(hasher);
    uv_run(&loop, UV_RUN_DEFAULT);
}

static unsigned char *memory(uint64_t bytes)
{
    void *p;
    assert_int_equal(cuda.cuMemHostAlloc(&p, bytes, 0), CUDA_SUCCESS);
    memset(p, 0, bytes);
    return p;
}

static void fill(unsigned char *p, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t z = (seed + i) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        memcpy(p + i, &z, 8);
    }
}

static void wait_for(struct gm_hasher *hasher, uint64_t number)
{
    while (gm_hasher_done(hasher) < number)
        uv_run(&loop, UV_RUN_ONCE);
}

static struct gm_hashed hash(struct gm_hasher *hasher, const void *p, uint64_t bytes)
{
    struct gm_hashed hashed;
    const uint64_t n = gm_hasher_submit(hasher, (CUdeviceptr)(uintptr_t)p, bytes);
    wait_for(hasher, n);
    assert_int_equal(gm_hasher_result(hasher, n, &hashed), CUDA_SUCCESS);
    return hashed;
}

static bool is_same(const struct gm_hashed *a, const struct gm_hashed *b)
{
    return memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

/* Launched by hand, so that the key is known. */
static void test_reference(void **state)
{
    struct gm_hash_launch launch = {.results = 0};
    uint64_t tiles[GM_HASH_LANES][GM_HASH_TILES], expected[GM_HASH_LANES];
    struct gm_hash_tile *results;
    struct gm_hashed got;
    CUmodule module;
    CUfunction function;
    void *params[] = {&launch};
    unsigned char *data = memory(BYTES + GM_HASH_TILE);
    (void)state;

    results = (struct gm_hash_tile *)memory(2 * GM_HASH_TILES * sizeof *results);
    assert_int_equal(gm_hash_draw(&launch.key, tiles), 0);
    launch.results = (uint64_t)(uintptr_t)results;
    launch.jobs[0] = (struct gm_hash_job){(uint64_t)(uintptr_t)data, BYTES / GM_HASH_TILE, 0};
    launch.jobs[1] = (struct gm_hash_job){(uint64_t)(uintptr_t)(data + BYTES), 1, GM_HASH_TILES};
    fill(data, BYTES, 7);
    memset(data + BYTES, 0xff, GM_HASH_TILE); /* the largest words */
    assert_int_equal(cuda.cuModuleLoadData(&module, gm_hash_ptx), CUDA_SUCCESS);
    assert_int_equal(cuda.cuModuleGetFunction(&function, module, GM_HASH_KERNEL), CUDA_SUCCESS);
    for (int round = 0; round < 3; round++) {
        if (round == 1) /* the largest keys that are never drawn, too */
            for (int lane = 0; lane < GM_HASH_LANES; lane++)
                for (int i = 0; i < GM_HASH_LEVELS; i++)
                    launch.key.tree[lane][i] = launch.key.fold[lane][i] = GM_HASH_PRIME - 1;
        if (round == 2)
            memset(launch.key.nh, 0, sizeof launch.key.nh);
        assert_int_equal(cuda.cuLaunchKernel(function, BYTES / GM_HASH_TILE, 2, 1, GM_HASH_THREADS,
                                             1, 1, 0, NULL, params, NULL),
                         CUDA_SUCCESS);
        assert_int_equal(cuda.cuStreamSynchronize(NULL), CUDA_SUCCESS);
        gm_hash_finish(tiles, results, BYTES / GM_HASH_TILE, &got);
        reference_hash(&launch.key, tiles, data, BYTES, expected);
        assert_memory_equal(got.hash, expected, sizeof expected);
        assert_false(got.is_zero);
        gm_hash_finish(tiles, results + GM_HASH_TILES, 1, &got);
        reference_hash(&launch.key, tiles, data + BYTES, GM_HASH_TILE, expected);
        assert_memory_equal(got.hash, expected, sizeof expected);
    }
    cuda.cuModuleUnload(module);
    cuda.cuMemFreeHost(results);
    cuda.cuMemFreeHost(data);
}

static void test_keys(void **state)
{
    static struct gm_hash_key one, other;
    static uint64_t tiles[2][GM_HASH_LANES][GM_HASH_TILES];
    (void)state;
    assert_int_equal(gm_hash_draw(&one, tiles[0]), 0);
    assert_int_equal(gm_hash_draw(&other, tiles[1]), 0);
    assert_memory_not_equal(&one, &other, sizeof one);
    assert_memory_not_equal(tiles[0], tiles[1], sizeof tiles[0]);
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        for (int i = 0; i < GM_HASH_TILES; i++)
            assert_true(tiles[0][lane][i] < GM_HASH_PRIME);
        for (int i = 0; i < GM_HASH_LEVELS; i++)
            assert_true(one.tree[lane][i] < GM_HASH_PRIME && one.fold[lane][i] < GM_HASH_PRIME);
    }
}

/* One byte, one bit of it, in every string, vector and tile. */
static void test_every_byte_counts(void **state)
{
    struct gm_hasher *hasher = open_hasher();
    unsigned char *data = memory(BYTES);
    (void)state;
    fill(data, BYTES, 1);
    const struct gm_hashed first = hash(hasher, data, BYTES);
    struct gm_hashed again = hash(hasher, data, BYTES);
    assert_true(is_same(&first, &again));
    for (uint64_t i = 0; i < 150; i++) {
        const uint64_t at = i == 0 ? 0 : i == 1 ? BYTES - 1 : i * 7919 * 1031 % BYTES;
        data[at] ^= (unsigned char)(1u << i % 8);
        again = hash(hasher, data, BYTES);
        assert_false(is_same(&first, &again));
        data[at] ^= (unsigned char)(1u << i % 8);
    }
    /* exchanged: vectors of a thread, strings of a tile, tiles */
    static const uint64_t far[] = {4, 16, 4096, GM_HASH_TILE};
    for (unsigned i = 0; i < sizeof far / sizeof *far; i++) {
        unsigned char kept[4];
        memcpy(kept, data, 4);
        memcpy(data, data + far[i], 4);
        memcpy(data + far[i], kept, 4);
        again = hash(hasher, data, BYTES);
        assert_false(is_same(&first, &again));
        memcpy(data + far[i], data, 4);
        memcpy(data, kept, 4);
    }
    again = hash(hasher, data, BYTES);
    assert_true(is_same(&first, &again));
    cuda.cuMemFreeHost(data);
    close_hasher(hasher);
}

static void test_zero(void **state)
{
    struct gm_hasher *hasher = open_hasher();
    unsigned char *data = memory(BYTES);
    (void)state;
    assert_true(hash(hasher, data, BYTES).is_zero);
    for (uint64_t i = 0; i < 64; i++) {
        const uint64_t at = i == 0 ? 0 : i == 1 ? BYTES - 1 : i * 104729 * 17 % BYTES;
        data[at] = 1;
        assert_false(hash(hasher, data, BYTES).is_zero);
        data[at] = 0;
    }
    assert_true(hash(hasher, data, BYTES).is_zero);
    cuda.cuMemFreeHost(data);
    close_hasher(hasher);
}

/* As many as there is room for, of several sizes: each has its own result, in order. */
static void test_many(void **state)
{
    struct gm_hasher *hasher = open_hasher();
    unsigned char *data = memory(4 * BYTES);
    struct gm_hashed expected[4], got;
    uint64_t bytes = 0;
    (void)state;
    for (int i = 0; i < 4; i++)
        fill(data + (uint64_t)i * GM_HASH_TILE, 4 * BYTES - (uint64_t)i * GM_HASH_TILE,
             (uint64_t)i);
    for (uint64_t i = 0; i < 4; i++)
        expected[i] = hash(hasher, data + i * GM_HASH_TILE, (i + 1) * GM_HASH_TILE);
    const uint64_t before = gm_hasher_bytes(hasher);
    for (int round = 0; round < 3; round++) {
        const uint64_t from = gm_hasher_done(hasher) + 1, room = gm_hasher_room(hasher);
        assert_int_equal(room, GM_HASH_DEPTH - 1);
        for (uint64_t i = 0; i < room; i++) {
            assert_int_equal(gm_hasher_submit(hasher,
                                              (CUdeviceptr)(uintptr_t)data + i % 4 * GM_HASH_TILE,
                                              (i % 4 + 1) * GM_HASH_TILE),
                             from + i);
            bytes += (i % 4 + 1) * GM_HASH_TILE;
        }
        assert_int_equal(gm_hasher_room(hasher), 0);
        wait_for(hasher, from + room - 1);
        for (uint64_t i = 0; i < room; i++) {
            assert_int_equal(gm_hasher_result(hasher, from + i, &got), CUDA_SUCCESS);
            assert_true(is_same(&got, &expected[i % 4]));
        }
    }
    assert_int_equal(gm_hasher_bytes(hasher) - before, bytes);
    assert_true(gm_hasher_ns(hasher) > 0);
    cuda.cuMemFreeHost(data);
    close_hasher(hasher);
}

/* ---- a driver that refuses ---- */

static CUresult refusal;

static CUresult refuse_module(CUmodule *module, const void *image)
{
    (void)module;
    (void)image;
    return refusal;
}

static CUresult refuse_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,
                              void **params, void **extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    (void)stream, (void)params, (void)extra;
    return refusal; /* success: the kernel does nothing */
}

static void expect_refusal(const struct gm_cuda *with, const char *word)
{
    struct gm_hasher *hasher;
    char why[256] = "";
    assert_true(gm_hasher_open(&hasher, &loop, with, context, on_done, NULL, why, sizeof why) < 0);
    assert_non_null(strstr(why, word));
    uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_refused_at_start(void **state)
{
    struct gm_cuda other = cuda;
    (void)state;
    refusal = CUDA_ERROR_NO_BINARY_FOR_GPU;
    other.cuModuleLoadData = refuse_module;
    expect_refusal(&other, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    other = cuda;
    other.cuLaunchKernel = refuse_launch;
    expect_refusal(&other, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    refusal = CUDA_SUCCESS;
    expect_refusal(&other, "wrong results");
}

static void test_refused_later(void **state)
{
    static struct gm_cuda other;
    struct gm_hasher *hasher;
    struct gm_hashed got;
    char why[256];
    unsigned char *data = memory(BYTES);
    (void)state;
    other = cuda;
    assert_int_equal(
        gm_hasher_open(&hasher, &loop, &other, context, on_done, NULL, why, sizeof why), 0);
    refusal = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    other.cuLaunchKernel = refuse_launch;
    const uint64_t n = gm_hasher_submit(hasher, (CUdeviceptr)(uintptr_t)data, BYTES);
    wait_for(hasher, n);
    assert_int_equal(gm_hasher_result(hasher, n, &got), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    other.cuLaunchKernel = cuda.cuLaunchKernel;
    assert_true(hash(hasher, data, BYTES).is_zero);
    /* where nothing is, no kernel goes, and those before and behind it have theirs */
    const uint64_t before = gm_hasher_submit(hasher, (CUdeviceptr)(uintptr_t)data, BYTES);
    const uint64_t nowhere = gm_hasher_submit(hasher, 0, BYTES);
    assert_int_equal(nowhere, before + 1);
    wait_for(hasher, gm_hasher_submit(hasher, (CUdeviceptr)(uintptr_t)data, BYTES));
    assert_int_equal(gm_hasher_result(hasher, before, &got), CUDA_SUCCESS);
    assert_int_equal(gm_hasher_result(hasher, nowhere, &got), CUDA_ERROR_NOT_MAPPED);
    assert_int_equal(gm_hasher_result(hasher, nowhere + 1, &got), CUDA_SUCCESS);
    wait_for(hasher, gm_hasher_submit(hasher, 0, BYTES));
    cuda.cuMemFreeHost(data);
    close_hasher(hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_refused_at_start),
        cmocka_unit_test(test_refused_later),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

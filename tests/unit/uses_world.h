/*
 * What test_uses.c and test_replays.c share: the driver that knows the parameters of kernels, and
 * memory that launches may point into.
 */
#ifndef GM_TESTS_USES_WORLD_H
#define GM_TESTS_USES_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "shim/gate/hot.h"
#include "shim/observe/uses.h"
#include "shim/tables/accounts.h"
#include "shim/tables/allocs.h"
#include "shim/tables/layouts.h"

#define MIB (1ull << 20)
#define BASE (0x7f00ull << 32)

struct gm_real gm_real;
struct gm_hot gm_hot;

void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    (void)gpu, (void)bytes, (void)is_on;
    fail(); /* no handles of the real driver here */
}

/* A kernel of this driver. A CUkernel is one that cuFuncGetParamInfo does not know. */
struct kernel {
    bool is_library;
    size_t n;
    struct {
        size_t offset, bytes;
    } param[8];
};

static unsigned asked_kernel, asked; /* calls of the driver */

static CUresult info_of(const struct kernel *kernel, size_t index, size_t *offset, size_t *bytes)
{
    if (index >= kernel->n)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel->param[index].offset;
    *bytes = kernel->param[index].bytes;
    return CUDA_SUCCESS;
}

static CUresult drv_func_info(CUfunction f, size_t index, size_t *offset, size_t *bytes)
{
    const struct kernel *kernel = (const void *)f;
    asked++;
    return kernel->is_library ? CUDA_ERROR_INVALID_HANDLE : info_of(kernel, index, offset, bytes);
}

static CUresult drv_kernel_info(CUkernel k, size_t index, size_t *offset, size_t *bytes)
{
    const struct kernel *kernel = (const void *)k;
    asked_kernel++;
    assert_true(kernel->is_library); /* a real driver may crash on a CUfunction */
    return info_of(kernel, index, offset, bytes);
}

static struct gm_use_entry got[GM_USES_MAX];

/* Returns how many of `got` were counted since. */
static uint32_t take(void)
{
    uint32_t n = gm_uses_take(got);
    for (uint32_t i = 1; i < n; i++)
        assert_true(got[i - 1].va < got[i].va);
    return n;
}

static void make(uint64_t va, uint64_t bytes, enum gm_alloc_kind kind)
{
    struct gm_alloc alloc = {
        .va = va, .bytes = bytes, .span = gm_chunk_round(bytes), .gpu = 0, .kind = kind};
    assert_int_equal(gm_allocs_insert(&alloc), 0);
}

/* No counts and no layouts are left from the test before. */
static void begin(void)
{
    gm_real.cuFuncGetParamInfo = drv_func_info;
    gm_real.cuKernelGetParamInfo = drv_kernel_info;
    asked_kernel = asked = 0;
    gm_layouts_drop();
    while (take() > 0)
        continue;
}

#endif

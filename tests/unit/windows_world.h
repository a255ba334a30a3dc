/*
 * What test_windows.c and test_replays.c share: the driver that knows the parameters of kernels,
 * memory that launches may point into, and the daemon that reads what is marked.
 */
#ifndef GM_TESTS_WINDOWS_WORLD_H
#define GM_TESTS_WINDOWS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "common/windows.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"
#include "shim/observe/windows.h"
#include "shim/tables/allocs.h"
#include "shim/tables/layouts.h"

#define MIB (1ull << 20)
#define BASE (0x7f00ull << 32)

struct gm_real gm_real;
struct gm_hot gm_hot;

static struct gm_ctl ctl;
static struct gm_stat stat_area;
static _Atomic uint64_t *words;

struct gm_stat *gm_gate_stat(void)
{
    return &stat_area;
}

/* Whose work may last is known from here on; the drainer is elsewhere. */
void gm_drain_follow(uint32_t window)
{
    atomic_store(&stat_area.lasts_from, window);
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

/* What the driver says of addresses that are not gpumux's: pinned memory, managed memory, its own
 * on the device; and of the rest nothing. */
#define PINNED (0x7e00ull << 32)
#define MANAGED (0x7d00ull << 32)
#define SMALL (0x7b00ull << 32)
#define NOBODYS (0x7c00ull << 32)
static unsigned asked_pointers;

static CUresult drv_attributes(unsigned int n, CUpointer_attribute *which, void **values,
                               CUdeviceptr at)
{
    const uint64_t range = at & ~(uint64_t)UINT32_MAX;
    asked_pointers++;
    assert_int_equal(n, 2);
    assert_int_equal(which[0], CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    assert_int_equal(which[1], CU_POINTER_ATTRIBUTE_IS_MANAGED);
    *(CUmemorytype *)values[0] = range == PINNED                      ? CU_MEMORYTYPE_HOST
                                 : range == MANAGED || range == SMALL ? CU_MEMORYTYPE_DEVICE
                                                                      : 0;
    *(unsigned int *)values[1] = range == MANAGED;
    return range == NOBODYS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* What was touched. */
#define PLACES 8192u
static struct got {
    uint64_t va;
    uint32_t count, order;
} got[PLACES];

/* End the window. Returns how many of `got` were touched in it: of BASE, and of what lies 256 and
 * 512 GiB behind it. */
static uint32_t take(void)
{
    const uint32_t window = atomic_load(&ctl.window);
    uint32_t n = 0;
    for (uint64_t range = 0; range < 3; range++)
        for (uint64_t i = 0; i < PLACES; i++) {
            const uint64_t va = BASE + (range << 38) + i * GM_CHUNK_MIN;
            const struct gm_touch touch = gm_touch_unpack(atomic_load(&words[gm_window_place(va)]));
            if (touch.window != (window & GM_WINDOW_MASK))
                continue;
            assert_true(n < PLACES && touch.count > 0);
            got[n++] = (struct got){.va = va, .count = touch.count, .order = touch.order};
        }
    atomic_store(&ctl.window, gm_window_after(window));
    return n;
}

/* How often the program said since that nobody knows what it touches. */
static uint64_t unseen(void)
{
    return atomic_exchange(&stat_area.unseen, 0);
}

/* ... whether it submitted work in this window, */
static inline bool has_worked(void)
{
    return atomic_load(&stat_area.works_in) == atomic_load(&ctl.window);
}

/* ... and what it moves over the link by itself. */
static void expect_crossed(uint64_t bytes, uint64_t launches)
{
    assert_int_equal(atomic_exchange(&stat_area.link_bytes, 0), bytes);
    assert_int_equal(atomic_exchange(&stat_area.link_launches, 0), launches);
}

static void make(uint64_t va, uint64_t bytes, enum gm_alloc_kind kind)
{
    struct gm_alloc alloc = {
        .va = va, .bytes = bytes, .span = gm_chunk_round(bytes), .gpu = 0, .kind = kind};
    assert_int_equal(gm_allocs_insert(&alloc), 0);
}

/* No marks and no layouts are left from the test before. */
static void begin(void)
{
    if (words == NULL) {
        words = mmap(NULL, GM_WINDOW_PLACES * sizeof *words, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(words != MAP_FAILED);
        atomic_store(&gm_hot.page, &ctl);
        atomic_store(&ctl.window, 1);
    }
    gm_real.cuFuncGetParamInfo = drv_func_info;
    gm_real.cuKernelGetParamInfo = drv_kernel_info;
    gm_real.cuPointerGetAttributes = drv_attributes;
    asked_pointers = 0;
    asked_kernel = asked = 0;
    gm_layouts_drop();
    gm_windows_mark(true, words);
    take();
    unseen();
    atomic_store(&stat_area.link_bytes, 0);
    atomic_store(&stat_area.link_launches, 0);
}

#endif

/*
 * Open addressing: a page is in one of GM_PROBES slots from its hash on. The thread that finds a
 * slot empty writes the page. A report clears it if the page was not used since the last report. A
 * count that comes at that moment may be lost or go to another page: rare, and one of many.
 */
#include "shim/observe/uses.h"

#include <string.h>

#include "common/chunk.h"
#include "shim/gate/hot.h"
#include "shim/tables/allocs.h"
#include "shim/tables/layouts.h"
#include "shim/tables/pages.h"
#include "shim/tables/vmm.h"

#define GM_PROBES 8u

struct gm_use {
    _Atomic uint64_t page; /* va >> GM_CHUNK_SHIFT; 0: empty */
    _Atomic uint32_t count;
};

_Atomic bool gm_uses_is_on;
static struct gm_use gm_uses[GM_USES_MAX];

/* Writes only words that change: every launch reads them. */
void gm_uses_count(bool is_on)
{
    if (atomic_load_explicit(&gm_uses_is_on, memory_order_relaxed) != is_on)
        atomic_store_explicit(&gm_uses_is_on, is_on, memory_order_relaxed);
#define GM_USES_LAUNCH(symbol)                                                                     \
    {                                                                                              \
        __typeof__(gm_real.symbol) gm_usual = is_on ? NULL : gm_real.symbol;                       \
        if (__atomic_load_n(&gm_hot.symbol, __ATOMIC_RELAXED) != gm_usual)                         \
            __atomic_store_n(&gm_hot.symbol, gm_usual, __ATOMIC_RELAXED);                          \
    }
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(GM_USES_LAUNCH(symbol))
#include "shim/driver/hooks.def"
#undef GM_HOOK
}

/* ---- counting ---- */

static void gm_uses_add(uint64_t va)
{
    uint64_t page = va >> GM_CHUNK_SHIFT;
    uint64_t at = page * 0x9e3779b97f4a7c15ull >> 32;
    for (uint32_t i = 0; i < GM_PROBES; i++) {
        struct gm_use *use = &gm_uses[(at + i) % GM_USES_MAX];
        uint64_t there = atomic_load_explicit(&use->page, memory_order_relaxed);
        if (there == 0 && atomic_compare_exchange_strong_explicit(
                              &use->page, &there, page, memory_order_relaxed, memory_order_relaxed))
            there = page;
        if (there == page) {
            atomic_fetch_add_explicit(&use->count, 1, memory_order_relaxed);
            return;
        }
    }
}

/* For a launch, `found` is known to the compiler: no call. */
#define GM_LOOK static inline __attribute__((always_inline)) void

static void gm_uses_found(void *unused, uint64_t va)
{
    (void)unused;
    gm_uses_add(va);
}

/* The words in `bytes` of arguments at `from`, the first of them at from + skip. */
GM_LOOK gm_look_in(const void *from, size_t skip, size_t bytes, gm_use_found *found, void *arg)
{
    const unsigned char *at = from;
    for (size_t i = skip; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        if (gm_pages_have(word))
            found(arg, word);
    }
}

typedef CUresult gm_param_info(void *f, size_t index, size_t *offset, size_t *bytes);

static CUresult gm_uses_function_info(void *f, size_t index, size_t *offset, size_t *bytes)
{
    return gm_real.cuFuncGetParamInfo((CUfunction)f, index, offset, bytes);
}

static CUresult gm_uses_kernel_info(void *f, size_t index, size_t *offset, size_t *bytes)
{
    return gm_real.cuKernelGetParamInfo((CUkernel)f, index, offset, bytes);
}

/* Only the driver knows how many parameters there are, and their sizes. False: it does not say. */
static bool gm_uses_ask(CUfunction f, struct gm_layout *layout)
{
    gm_param_info *info = gm_uses_function_info;
    layout->n = 0;
    for (uint32_t i = 0; gm_real.cuFuncGetParamInfo != NULL && i < GM_LAYOUT_PARAMS; i++) {
        size_t offset = 0, bytes = 0;
        CUresult result = info(f, i, &offset, &bytes);
        if (i == 0 && result == CUDA_ERROR_INVALID_HANDLE && gm_real.cuKernelGetParamInfo != NULL) {
            info = gm_uses_kernel_info;
            result = info(f, i, &offset, &bytes);
        }
        if (result != CUDA_SUCCESS)
            return result == CUDA_ERROR_INVALID_VALUE; /* that was all of them */
        /* Words are where the kernel finds them at a multiple of 8. */
        const uint32_t skip = (uint32_t)(8 - offset % 8) % 8;
        if (bytes < skip + 8)
            continue;
        if (bytes >= GM_LAYOUT_BYTES)
            return false;
        if (layout->n == GM_LAYOUT_PARTS)
            return true;
        layout->part[layout->n++] = gm_layout_part(i, (uint32_t)bytes, skip);
    }
    return false;
}

GM_LOOK gm_look_in_params(CUfunction f, void **params, gm_use_found *found, void *arg)
{
    struct gm_layout layout;
    if (!gm_layouts_find(f, &layout)) {
        const uint32_t generation = gm_layouts_generation();
        if (gm_uses_ask(f, &layout))
            gm_layouts_keep(f, generation, &layout);
    }
    for (uint32_t i = 0; i < layout.n; i++) {
        const uint32_t part = layout.part[i], param = gm_layout_param(part);
        if (params[param] != NULL)
            gm_look_in(params[param], gm_layout_skip(part), gm_layout_bytes(part), found, arg);
    }
}

/* All parameters in one buffer, laid out as for the kernel. */
GM_LOOK gm_look_in_extra(void **extra, gm_use_found *found, void *arg)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL)
            bytes = *(const size_t *)extra[i + 1];
        else
            return; /* unknown */
    }
    if (buffer != NULL && bytes <= GM_LAYOUT_BYTES)
        gm_look_in(buffer, 0, bytes, found, arg);
}

GM_LOOK gm_look(CUfunction f, void **params, void **extra, gm_use_found *found, void *arg)
{
    if (params != NULL)
        gm_look_in_params(f, params, found, arg);
    else if (extra != NULL)
        gm_look_in_extra(extra, found, arg);
}

void gm_uses_look(CUfunction f, void **params, void **extra, gm_use_found *found, void *arg)
{
    gm_look(f, params, extra, found, arg);
}

void gm_uses_count_at(uint64_t va)
{
    gm_uses_add(va);
}

static void gm_uses_of(CUfunction f, void **params, void **extra)
{
    gm_look(f, params, extra, gm_uses_found, NULL);
}

/* ---- the launches ---- */

#define GM_USES_OF_KERNEL(symbol)                                                                  \
    void gm_uses_of_##symbol(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,      \
                             unsigned int bx, unsigned int by, unsigned int bz,                    \
                             unsigned int shared, CUstream stream, void **params, void **extra)    \
    {                                                                                              \
        (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;    \
        gm_uses_of(f, params, extra);                                                              \
    }
GM_USES_OF_KERNEL(cuLaunchKernel)
GM_USES_OF_KERNEL(cuLaunchKernel_ptsz)

#define GM_USES_OF_EX(symbol)                                                                      \
    void gm_uses_of_##symbol(const CUlaunchConfig *config, CUfunction f, void **params,            \
                             void **extra)                                                         \
    {                                                                                              \
        (void)config;                                                                              \
        gm_uses_of(f, params, extra);                                                              \
    }
GM_USES_OF_EX(cuLaunchKernelEx)
GM_USES_OF_EX(cuLaunchKernelEx_ptsz)

#define GM_USES_OF_COOPERATIVE(symbol)                                                             \
    void gm_uses_of_##symbol(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,      \
                             unsigned int bx, unsigned int by, unsigned int bz,                    \
                             unsigned int shared, CUstream stream, void **params)                  \
    {                                                                                              \
        (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;    \
        gm_uses_of(f, params, NULL);                                                               \
    }
GM_USES_OF_COOPERATIVE(cuLaunchCooperativeKernel)
GM_USES_OF_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)

void gm_uses_of_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int n,
                                                     unsigned int flags)
{
    (void)flags;
    for (unsigned int i = 0; list != NULL && i < n; i++)
        gm_uses_of(list[i].function, list[i].kernelParams, NULL);
}

/* ---- copies and sets ---- */

bool gm_uses_is_away(uint64_t va)
{
    return !gm_pages_have(va);
}

void gm_uses_of_none(const void *size)
{
    (void)size;
}

void gm_uses_of_address(const void *address)
{
    const uint64_t va = (uint64_t)(uintptr_t)address;
    if (gm_pages_have(va))
        gm_uses_add(va);
}

/* One side of a copy: false, it is host memory or another's. An array is neither: 0. */
static bool gm_uses_side(CUmemorytype type, CUdeviceptr device, const void *host, uint64_t *va)
{
    *va = 0;
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
        *va = device;
    else if (type == CU_MEMORYTYPE_HOST)
        *va = (uint64_t)(uintptr_t)host;
    else
        return true;
    return !gm_uses_is_away(*va);
}

#define GM_LOOK_IN_COPY(copy, found, arg)                                                          \
    do {                                                                                           \
        uint64_t src, dst;                                                                         \
        if ((copy) == NULL ||                                                                      \
            !gm_uses_side((copy)->srcMemoryType, (copy)->srcDevice, (copy)->srcHost, &src) ||      \
            !gm_uses_side((copy)->dstMemoryType, (copy)->dstDevice, (copy)->dstHost, &dst))        \
            break;                                                                                 \
        if (src != 0)                                                                              \
            found(arg, src);                                                                       \
        if (dst != 0)                                                                              \
            found(arg, dst);                                                                       \
    } while (0)

void gm_uses_look_in_copy(const CUDA_MEMCPY3D *copy, gm_use_found *found, void *arg)
{
    GM_LOOK_IN_COPY(copy, found, arg);
}

#define GM_USES_OF_COPY(name, type)                                                                \
    void gm_uses_of_copy_##name(const void *copy)                                                  \
    {                                                                                              \
        const type *at = copy;                                                                     \
        GM_LOOK_IN_COPY(at, gm_uses_found, NULL);                                                  \
    }
GM_USES_OF_COPY(2d, CUDA_MEMCPY2D)
GM_USES_OF_COPY(3d, CUDA_MEMCPY3D)
GM_USES_OF_COPY(peer, CUDA_MEMCPY3D_PEER)

/* ---- reporting ---- */

/* Insert, or add to the entry of the same `va`. */
static uint32_t gm_uses_insert(struct gm_use_entry *entries, uint32_t n, uint64_t va,
                               uint32_t count)
{
    uint32_t at = n;
    while (at > 0 && entries[at - 1].va > va)
        at--;
    if (at > 0 && entries[at - 1].va == va) {
        uint64_t sum = (uint64_t)entries[at - 1].count + count;
        entries[at - 1].count = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
        return n;
    }
    memmove(&entries[at + 1], &entries[at], (n - at) * sizeof(*entries));
    entries[at] = (struct gm_use_entry){.va = va, .count = count};
    return n + 1;
}

uint32_t gm_uses_take(struct gm_use_entry *entries)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < GM_USES_MAX; i++) {
        struct gm_use *use = &gm_uses[i];
        uint64_t page = atomic_load_explicit(&use->page, memory_order_relaxed);
        uint64_t va = page << GM_CHUNK_SHIFT;
        struct gm_alloc alloc;
        if (page == 0)
            continue;
        uint32_t count = atomic_exchange_explicit(&use->count, 0, memory_order_relaxed);
        bool is_chunk =
            gm_allocs_find(va, &alloc) != GM_ALLOC_UNKNOWN && gm_alloc_is_backed(alloc.kind);
        struct gm_vmm_place place;
        uint64_t at = va; /* for the daemon: in a view, the address in the home */
        if (!is_chunk && gm_vmm_find(va, &place) && !place.is_pinned) {
            is_chunk = true;
            at = place.home;
        }
        if (count > 0 && is_chunk)
            n = gm_uses_insert(entries, n, at, count);
        else
            atomic_store_explicit(&use->page, 0, memory_order_relaxed);
    }
    return n;
}

/*
 * The table of address ranges, linear device memory, host memory, and what can be asked about a
 * pointer.
 *
 * The table is one sorted array of disjoint ranges of four kinds (sim.h); the va lock guards it.
 */
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ull
#define GUARD PAGE           /* behind every linear allocation */
#define PITCH_ALIGNMENT 512u /* of cuMemAllocPitch */
#define SIZE_LIMIT (1ull << 46)
#define RETIRED_MAX 64 /* freed areas whose addresses are not used again yet */

pthread_mutex_t sim_va_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_range *ranges;
static size_t n_ranges, room;
static _Atomic uint64_t last_number;

/* ---- the table ---- */

size_t sim_range_index(uint64_t address)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].start + ranges[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_range *sim_range_at(size_t index)
{
    return index < n_ranges ? &ranges[index] : NULL;
}

struct sim_range *sim_range_find(uint64_t address)
{
    struct sim_range *r = sim_range_at(sim_range_index(address));
    return r != NULL && r->start <= address ? r : NULL;
}

bool sim_range_covers(uint64_t address, uint64_t bytes)
{
    bool is_covered = address + bytes >= address;
    uint64_t start = 0, size = 0;
    if (is_covered)
        sim_reservation(address, &start, &size);
    if (size > 0 && bytes <= start + size - address)
        return true; /* mapped or not: who uses it when it is not dies */
    pthread_mutex_lock(&sim_va_lock);
    for (size_t i = sim_range_index(address); is_covered && bytes > 0; i++) {
        const struct sim_range *r = sim_range_at(i);
        is_covered = r != NULL && r->start <= address;
        if (!is_covered)
            break;
        const uint64_t here = r->start + r->size - address;
        bytes -= bytes < here ? bytes : here;
        address += here;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return is_covered;
}

bool sim_range_insert(const struct sim_range *range)
{
    const size_t index = sim_range_index(range->start);
    if (index < n_ranges && ranges[index].start < range->start + range->size)
        return false;
    if (n_ranges == room) {
        room = room == 0 ? 64 : room * 2;
        ranges = sim_grow(ranges, room * sizeof *ranges);
    }
    memmove(&ranges[index + 1], &ranges[index], (n_ranges - index) * sizeof *ranges);
    ranges[index] = *range;
    n_ranges++;
    return true;
}

void sim_range_remove(size_t index, size_t count)
{
    if (count == 0) /* of a table that may not be there yet */
        return;
    memmove(&ranges[index], &ranges[index + count], (n_ranges - index - count) * sizeof *ranges);
    n_ranges -= count;
}

uint64_t sim_range_number(void)
{
    return atomic_fetch_add(&last_number, 1) + 1;
}

/* ---- linear memory ---- */

/* Memory of a device, with a range for it that has only its kind and its owner yet. */
static CUresult make_linear(struct sim_range *range, int device, size_t bytes)
{
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t size = (bytes + PAGE - 1) & ~(PAGE - 1);
    const CUresult result = sim_memory_take(device, size);
    if (result != CUDA_SUCCESS)
        return result;
    char *p =
        mmap(NULL, size + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, size, PROT_READ | PROT_WRITE) != 0) {
        if (p != MAP_FAILED)
            munmap(p, size + GUARD);
        sim_memory_give(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->start = (uint64_t)(uintptr_t)p;
    range->size = bytes;
    range->device = device;
    range->counted_device = device;
    range->counted = size;
    range->id = sim_range_number();
    pthread_mutex_lock(&sim_va_lock);
    sim_range_insert(range);
    pthread_mutex_unlock(&sim_va_lock);
    return CUDA_SUCCESS;
}

static CUresult alloc_linear(struct sim_ctx *ctx, CUdeviceptr *dptr, size_t bytes)
{
    struct sim_range range = {.kind = SIM_RANGE_LINEAR, .ctx = ctx};
    const CUresult result = make_linear(&range, ctx->device, bytes);
    if (result == CUDA_SUCCESS)
        *dptr = range.start;
    return result;
}

CUresult sim_pool_memory_new(struct sim_range *range, int device, size_t bytes)
{
    range->kind = SIM_RANGE_POOL;
    return make_linear(range, device, bytes);
}

/*
 * Give up an area. Its pages go at once, its addresses only RETIRED_MAX areas later: until then
 * nothing else is put there, and a late access dies as it should.
 */
static void retire(void *p, size_t size)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        void *p;
        size_t size;
    } retired[RETIRED_MAX];
    static unsigned next;
    if (mmap(p, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED) {
        munmap(p, size);
        return;
    }
    pthread_mutex_lock(&lock);
    if (retired[next].p != NULL)
        munmap(retired[next].p, retired[next].size);
    retired[next].p = p;
    retired[next].size = size;
    next = (next + 1) % RETIRED_MAX;
    pthread_mutex_unlock(&lock);
}

/* Give up the memory behind a range that is out of the table. */
static void release_range(const struct sim_range *r)
{
    void *p = (void *)(uintptr_t)r->start;
    if (r->kind == SIM_RANGE_LINEAR || r->kind == SIM_RANGE_POOL || r->kind == SIM_RANGE_GLOBAL) {
        if (r->is_exported)
            sim_ipc_forget(r);
        retire(p, r->counted + GUARD);
        sim_memory_give(r->counted_device, r->counted);
    } else if (r->kind == SIM_RANGE_MANAGED) {
        sim_managed_free(r);
    } else if (r->kind == SIM_RANGE_HOST) {
        retire(p, (r->size + PAGE - 1) & ~(PAGE - 1));
    } else if (r->kind == SIM_RANGE_OPENED) {
        munmap(p, (r->size + PAGE - 1) & ~(PAGE - 1));
    }
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    SIM_ENTER(cuMemAlloc);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS && dptr == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? alloc_linear(ctx, dptr, bytesize) : result;
}
SIM_ENTRY(cuMemAlloc_v2);

/* Of the time when a device pointer had 32 bits: there is no memory below 4 GiB. */
SIM_API CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    SIM_ENTER(cuMemAlloc);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    return dptr == NULL || bytesize == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}
SIM_ENTRY(cuMemAlloc);

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                                    unsigned int element)
{
    SIM_ENTER(cuMemAllocPitch);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == NULL || pitch == NULL || (element != 4 && element != 8 && element != 16) ||
        width == 0 || height == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    const size_t row = (width + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1);
    size_t bytes;
    if (row < width || __builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = alloc_linear(ctx, dptr, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}
SIM_ENTRY(cuMemAllocPitch_v2);

/* Take the range of this kind that starts at `start` out of the table. */
static bool take_range(uint64_t start, enum sim_range_kind kind, struct sim_range *range)
{
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *found = sim_range_find(start);
    const bool is_found = found != NULL && found->start == start && found->kind == kind;
    if (is_found) {
        *range = *found;
        sim_range_remove((size_t)(found - ranges), 1);
    }
    pthread_mutex_unlock(&sim_va_lock);
    return is_found;
}

static struct sim_ctx *owner_of(uint64_t start, enum sim_range_kind kind)
{
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *found = sim_range_find(start);
    struct sim_ctx *ctx =
        found != NULL && found->start == start && found->kind == kind ? found->ctx : NULL;
    pthread_mutex_unlock(&sim_va_lock);
    return ctx;
}

CUresult sim_global_new(struct sim_ctx *ctx, uint64_t bytes, CUdeviceptr *at)
{
    struct sim_range range = {.kind = SIM_RANGE_GLOBAL, .ctx = ctx};
    const CUresult result = make_linear(&range, ctx->device, bytes);
    if (result == CUDA_SUCCESS)
        *at = range.start;
    return result;
}

void sim_global_free(CUdeviceptr at)
{
    struct sim_range range;
    if (at != 0 && take_range(at, SIM_RANGE_GLOBAL, &range))
        release_range(&range);
}

/* Needs no context, but none that is lost. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    SIM_ENTER(cuMemFree);
    struct sim_ctx *ctx;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS || dptr == 0)
        return result;
    result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CONTEXT)
        return result;
    struct sim_range range;
    if (!sim_pool_begin_free(dptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == SIM_RANGE_POOL) { /* waits for nothing */
        sim_pool_note_free(&range);
        sim_pool_run_free(dptr);
        return CUDA_SUCCESS;
    }
    sim_ctx_wait(range.ctx);
    sim_pool_run_free(dptr);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemFree_v2);

void sim_memory_free_context(struct sim_ctx *ctx)
{
    sim_array_free_context(ctx);
    for (;;) {
        struct sim_range range;
        bool is_found = false;
        pthread_mutex_lock(&sim_va_lock);
        for (size_t i = 0; i < n_ranges && !is_found; i++) {
            if (ranges[i].ctx == ctx) {
                is_found = true;
                range = ranges[i];
                sim_range_remove(i, 1);
            }
        }
        pthread_mutex_unlock(&sim_va_lock);
        if (!is_found)
            return;
        release_range(&range);
    }
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    SIM_ENTER(cuMemGetInfo);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t has_free, has_total;
    sim_memory_info(ctx->device, &has_free, &has_total);
    if (free_bytes != NULL)
        *free_bytes = has_free;
    if (total != NULL)
        *total = has_total;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemGetInfo_v2);

/* ---- host memory ---- */

static CUresult alloc_host(void **pp, size_t bytes, unsigned flags)
{
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pp == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == 0) {
        *pp = NULL;
        return CUDA_SUCCESS;
    }
    if (bytes > SIZE_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *p = mmap(NULL, (bytes + PAGE - 1) & ~(PAGE - 1), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct sim_range range = {.start = (uint64_t)(uintptr_t)p,
                                    .size = bytes,
                                    .kind = SIM_RANGE_HOST,
                                    .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP,
                                    .device = -1,
                                    .id = sim_range_number(),
                                    .ctx = ctx};
    pthread_mutex_lock(&sim_va_lock);
    sim_range_insert(&range);
    pthread_mutex_unlock(&sim_va_lock);
    *pp = p;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
{
    SIM_ENTER(cuMemHostAlloc);
    return alloc_host(pp, bytesize, flags);
}
SIM_ENTRY(cuMemHostAlloc);

SIM_API CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    SIM_ENTER(cuMemAllocHost);
    return alloc_host(pp, bytesize, 0);
}
SIM_ENTRY(cuMemAllocHost_v2);

SIM_API CUresult cuMemFreeHost(void *p)
{
    SIM_ENTER(cuMemFreeHost);
    struct sim_ctx *ctx;
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS || p == NULL)
        return result;
    result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_ctx *owner = owner_of((uint64_t)(uintptr_t)p, SIM_RANGE_HOST);
    if (owner == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ctx_wait(owner);
    struct sim_range range;
    if (!take_range((uint64_t)(uintptr_t)p, SIM_RANGE_HOST, &range))
        return CUDA_ERROR_INVALID_VALUE;
    release_range(&range);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemFreeHost);

bool sim_pool_memory_take(uint64_t start, struct sim_range *range)
{
    if (!take_range(start, SIM_RANGE_POOL, range) && !take_range(start, SIM_RANGE_LINEAR, range))
        return false;
    release_range(range);
    return true;
}

/* A copy of the host range that holds `p`. */
static bool find_host(const void *p, struct sim_range *range)
{
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *found = sim_range_find((uint64_t)(uintptr_t)p);
    const bool is_host =
        found != NULL && (found->kind == SIM_RANGE_HOST || found->kind == SIM_RANGE_REGISTERED);
    if (is_host)
        *range = *found;
    pthread_mutex_unlock(&sim_va_lock);
    return is_host;
}

/* Is every page of this range mapped in the process? */
static bool is_all_mapped(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(PAGE - 1);
    const uint64_t length = (start + size - first + PAGE - 1) & ~(PAGE - 1);
    return msync((void *)(uintptr_t)first, length, MS_ASYNC) == 0;
}

SIM_API CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
{
    SIM_ENTER(cuMemHostRegister);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    const uint64_t start = (uint64_t)(uintptr_t)p;
    if (p == NULL || bytesize == 0 || bytesize > SIZE_LIMIT || (flags & ~known) != 0 ||
        !is_all_mapped(start, bytesize))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_range range = {.start = start,
                                    .size = bytesize,
                                    .kind = SIM_RANGE_REGISTERED,
                                    .flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP,
                                    .device = -1,
                                    .id = sim_range_number(),
                                    .ctx = ctx};
    pthread_mutex_lock(&sim_va_lock);
    const bool is_new = sim_range_insert(&range);
    pthread_mutex_unlock(&sim_va_lock);
    return is_new ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
SIM_ENTRY(cuMemHostRegister_v2);

SIM_API CUresult cuMemHostUnregister(void *p)
{
    SIM_ENTER(cuMemHostUnregister);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_ctx *owner = owner_of((uint64_t)(uintptr_t)p, SIM_RANGE_REGISTERED);
    struct sim_range range;
    if (owner == NULL)
        return find_host(p, &range) ? CUDA_ERROR_INVALID_VALUE
                                    : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    sim_ctx_wait(owner);
    return take_range((uint64_t)(uintptr_t)p, SIM_RANGE_REGISTERED, &range)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
SIM_ENTRY(cuMemHostUnregister);

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *p, unsigned int flags)
{
    SIM_ENTER(cuMemHostGetDevicePointer);
    struct sim_ctx *ctx;
    struct sim_range range;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == NULL || flags != 0 || !find_host(p, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *dptr = (uint64_t)(uintptr_t)p;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemHostGetDevicePointer_v2);

SIM_API CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    SIM_ENTER(cuMemHostGetFlags);
    struct sim_range range;
    if (flags == NULL || !find_host(p, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range.flags;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemHostGetFlags);

/* ---- questions about a pointer ---- */

static bool find_range(CUdeviceptr ptr, struct sim_range *range)
{
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *found = sim_range_find(ptr);
    if (found != NULL)
        *range = *found;
    pthread_mutex_unlock(&sim_va_lock);
    return found != NULL;
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    SIM_ENTER(cuMemGetAddressRange);
    struct sim_ctx *ctx;
    struct sim_range range;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (!find_range(dptr, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = range.start;
    if (size != NULL)
        *size = range.size;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemGetAddressRange_v2);

/* Write a value of a type; through memcpy, since callers' storage is what it is. */
#define PUT(type, value)                                                                           \
    do {                                                                                           \
        const type put_ = (value);                                                                 \
        memcpy(data, &put_, sizeof put_);                                                          \
    } while (0)

static bool has_device_access(const struct sim_range *r)
{
    unsigned access = 0;
    for (int i = 0; i < SIM_DEVICES_MAX; i++)
        access |= r->access[i];
    return access != 0;
}

/* The range of a mapping is its reservation. */
static CUresult put_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                              const struct sim_range *r)
{
    const bool is_mapped = r->kind == SIM_RANGE_MAPPED;
    uint64_t whole_start = r->start, whole_size = r->size;
    if (is_mapped)
        sim_reservation(r->start, &whole_start, &whole_size);
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        PUT(CUcontext, (CUcontext)(void *)r->ctx);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        PUT(unsigned, r->device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (is_mapped && !has_device_access(r))
            return CUDA_ERROR_INVALID_VALUE;
        PUT(CUdeviceptr, ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if ((r->device >= 0 && r->kind != SIM_RANGE_MANAGED) ||
            (is_mapped && r->access[SIM_DEVICES_MAX] == 0))
            return CUDA_ERROR_INVALID_VALUE;
        PUT(void *, (void *)(uintptr_t)ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        PUT(unsigned, r->is_sync_memops);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        PUT(unsigned, r->kind == SIM_RANGE_MANAGED);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        PUT(unsigned, 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        PUT(unsigned, r->kind == SIM_RANGE_LINEAR);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: /* a thing of the past */
        if (r->kind != SIM_RANGE_LINEAR)
            return CUDA_ERROR_NOT_SUPPORTED;
        memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        PUT(unsigned long long, r->id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        PUT(unsigned long long, is_mapped ? sim_handle_id(r->handle) : r->id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        PUT(int, r->ctx != NULL ? r->ctx->device : r->device >= 0 ? r->device : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(unsigned, r->kind == SIM_RANGE_LINEAR);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        PUT(CUdeviceptr, whole_start);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        PUT(size_t, whole_size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        PUT(CUdeviceptr, r->start);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        PUT(size_t, r->size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        PUT(unsigned, 1);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(unsigned long long, is_mapped ? sim_handle_types(r->handle) : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        PUT(unsigned, is_mapped ? r->access[r->device < 0 ? 0 : r->device]
                                : (unsigned)CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        PUT(CUmemoryPool, r->kind == SIM_RANGE_POOL ? sim_pool_handle(r->pool) : NULL);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Bytes that an attribute takes. */
static size_t attribute_size(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    default:
        return 4;
    }
}

SIM_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttribute);
    struct sim_range range;
    if (data == NULL || !find_range(ptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return put_attribute(data, attribute, ptr, &range);
}
SIM_ENTRY(cuPointerGetAttribute);

/* Unlike the single form it answers for pointers it does not know: with zeros, and device -2. */
SIM_API CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttributes);
    if (n == 0 || attributes == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range range;
    const bool is_known = find_range(ptr, &range);
    for (unsigned i = 0; i < n; i++) {
        if (is_known && put_attribute(data[i], attributes[i], ptr, &range) == CUDA_SUCCESS)
            continue;
        memset(data[i], 0, attribute_size(attributes[i]));
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            memcpy(data[i], &(const int){-2}, sizeof(int));
    }
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuPointerGetAttributes);

SIM_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                       CUdeviceptr ptr)
{
    SIM_ENTER_UNSAFE(cuPointerSetAttribute);
    unsigned is_on;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&is_on, value, sizeof is_on);
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *found = sim_range_find(ptr);
    const CUresult result = found == NULL                     ? CUDA_ERROR_INVALID_VALUE
                            : found->kind == SIM_RANGE_MAPPED ? CUDA_ERROR_NOT_SUPPORTED
                                                              : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        found->is_sync_memops = is_on != 0;
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuPointerSetAttribute);

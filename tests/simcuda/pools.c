/*
 * Memory pools and stream-ordered allocation. Every allocation is memory of its own, made at the
 * call and given up when the stream comes to the free: a pool keeps nothing. Pool objects are never
 * freed, so that a handle to one that was destroyed can be told from a live one.
 *
 * In a stream that captures, an allocation is the graph's: its memory is made at once and stays
 * until it is freed outside of the graph; the graph's own frees and allocations do nothing when it
 * runs.
 */
#include "tests/simcuda/sim.h"

#include <string.h>

#define POOL_MAGIC 0x4c4f4f50u
#define POOL_STEP (32ull << 20) /* what a pool has at most is whole steps */

struct sim_pool {
    uint32_t magic;
    int device;
    bool is_default;
    bool is_destroyed;
    CUmemPoolProps props;
    int flags[3]; /* CU_MEMPOOL_ATTR_REUSE_*, from the first */
    uint64_t threshold;
    uint64_t used, used_high, reserved, reserved_high;
    uint8_t access[SIM_DEVICES_MAX];
    struct sim_pool *next;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct sim_pool *pools;
static struct sim_pool *defaults[SIM_DEVICES_MAX], *currents[SIM_DEVICES_MAX];

/* ---- pools ---- */

CUmemoryPool sim_pool_handle(struct sim_pool *pool)
{
    return (CUmemoryPool)(void *)pool;
}

static struct sim_pool *new_pool(int device)
{
    struct sim_pool *pool = sim_alloc(sizeof *pool);
    pool->magic = POOL_MAGIC;
    pool->device = device;
    for (int i = 0; i < 3; i++)
        pool->flags[i] = 1;
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->next = pools;
    pools = pool;
    return pool;
}

/* Under the lock. */
static struct sim_pool *default_pool(int device)
{
    if (defaults[device] == NULL) {
        defaults[device] = new_pool(device);
        defaults[device]->is_default = true;
        currents[device] = defaults[device];
    }
    return defaults[device];
}

/* Under the lock. NULL: not a pool. */
static struct sim_pool *find_pool(CUmemoryPool handle)
{
    for (struct sim_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (sim_pool_handle(pool) == handle)
            return pool->is_destroyed ? NULL : pool;
    }
    return NULL;
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice device, bool is_default)
{
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools_lock);
    struct sim_pool *found = default_pool(device);
    if (!is_default)
        found = currents[device];
    pthread_mutex_unlock(&pools_lock);
    *pool = sim_pool_handle(found);
    return CUDA_SUCCESS;
}

static CUresult set_pool(CUdevice device, CUmemoryPool handle)
{
    CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&pools_lock);
    default_pool(device);
    struct sim_pool *pool = find_pool(handle);
    if (pool == NULL || pool->device != device)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        currents[device] = pool;
    pthread_mutex_unlock(&pools_lock);
    return result;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    return get_pool(pool, device, true);
}
SIM_ENTRY(cuDeviceGetDefaultMemPool);

SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    return get_pool(pool, device, false);
}
SIM_ENTRY(cuDeviceGetMemPool);

SIM_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_ENTER_UNSAFE(cuDeviceSetMemPool);
    return set_pool(device, pool);
}
SIM_ENTRY(cuDeviceSetMemPool);

static bool is_device_place(const CUmemLocation *location, CUmemAllocationType type)
{
    return location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                        CUmemAllocationType type)
{
    SIM_ENTER(cuMemGetDefaultMemPool);
    return is_device_place(location, type) ? get_pool(pool, location->id, true)
                                           : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemGetDefaultMemPool);

SIM_API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                 CUmemAllocationType type)
{
    SIM_ENTER(cuMemGetMemPool);
    return is_device_place(location, type) ? get_pool(pool, location->id, false)
                                           : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemGetMemPool);

SIM_API CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                 CUmemoryPool pool)
{
    SIM_ENTER(cuMemSetMemPool);
    return is_device_place(location, type) ? set_pool(location->id, pool)
                                           : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemSetMemPool);

SIM_API CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
    SIM_ENTER_UNSAFE(cuMemPoolCreate);
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (handle == NULL || props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        ((unsigned)props->handleTypes & ~known) != 0 || props->usage != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; /* pools of the host */
    if (sim_device_check(props->location.id) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools_lock);
    struct sim_pool *pool = new_pool(props->location.id);
    pool->props = *props;
    pthread_mutex_unlock(&pools_lock);
    *handle = sim_pool_handle(pool);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemPoolCreate);

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    SIM_ENTER_UNSAFE(cuMemPoolDestroy);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pools_lock);
    struct sim_pool *pool = find_pool(handle);
    if (pool == NULL || pool->is_default) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        pool->is_destroyed = true;
        if (currents[pool->device] == pool)
            currents[pool->device] = defaults[pool->device];
    }
    pthread_mutex_unlock(&pools_lock);
    return result;
}
SIM_ENTRY(cuMemPoolDestroy);

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    SIM_ENTER_UNSAFE(cuMemPoolTrimTo);
    (void)keep; /* nothing is kept */
    pthread_mutex_lock(&pools_lock);
    const bool is_pool = find_pool(handle) != NULL;
    pthread_mutex_unlock(&pools_lock);
    return is_pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemPoolTrimTo);

/* Under the lock. NULL: not a number of bytes. */
static uint64_t *number_of(struct sim_pool *pool, CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static int *flag_of(struct sim_pool *pool, CUmemPool_attribute attribute)
{
    const int index = (int)attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
    return index >= 0 && index < 3 ? &pool->flags[index] : NULL;
}

static CUresult get_attribute(struct sim_pool *pool, CUmemPool_attribute attribute, void *value)
{
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (flag_of(pool, attribute) != NULL)
        memcpy(value, flag_of(pool, attribute), sizeof(int));
    else if (number_of(pool, attribute) != NULL)
        memcpy(value, number_of(pool, attribute), sizeof(uint64_t));
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct sim_pool *pool, CUmemPool_attribute attribute,
                              const void *value)
{
    uint64_t number;
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (flag_of(pool, attribute) != NULL) {
        memcpy(flag_of(pool, attribute), value, sizeof(int));
        return CUDA_SUCCESS;
    }
    memcpy(&number, value, sizeof number);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->threshold = number;
        return CUDA_SUCCESS;
    }
    if (number != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void *value)
{
    SIM_ENTER_UNSAFE(cuMemPoolGetAttribute);
    pthread_mutex_lock(&pools_lock);
    const CUresult result = get_attribute(find_pool(handle), attribute, value);
    pthread_mutex_unlock(&pools_lock);
    return result;
}
SIM_ENTRY(cuMemPoolGetAttribute);

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void *value)
{
    SIM_ENTER_UNSAFE(cuMemPoolSetAttribute);
    pthread_mutex_lock(&pools_lock);
    const CUresult result = set_attribute(find_pool(handle), attribute, value);
    pthread_mutex_unlock(&pools_lock);
    return result;
}
SIM_ENTRY(cuMemPoolSetAttribute);

/* Under the lock. */
static CUresult set_access(struct sim_pool *pool, const CUmemAccessDesc *map, size_t count)
{
    if (pool == NULL || (map == NULL && count > 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            sim_device_check(map[i].location.id) != CUDA_SUCCESS ||
            (map[i].location.id == pool->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE))
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        pool->access[map[i].location.id] = (uint8_t)map[i].flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    SIM_ENTER_UNSAFE(cuMemPoolSetAccess);
    pthread_mutex_lock(&pools_lock);
    const CUresult result = set_access(find_pool(handle), map, count);
    pthread_mutex_unlock(&pools_lock);
    return result;
}
SIM_ENTRY(cuMemPoolSetAccess);

SIM_API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                    CUmemLocation *location)
{
    SIM_ENTER(cuMemPoolGetAccess);
    if (flags == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        sim_device_check(location->id) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools_lock);
    const struct sim_pool *pool = find_pool(handle);
    const unsigned access = pool != NULL ? pool->access[location->id] : 0;
    pthread_mutex_unlock(&pools_lock);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = (CUmemAccess_flags)access;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemPoolGetAccess);

/* ---- memory ---- */

static uint64_t used_by(const struct sim_range *range)
{
    return range->is_graph ? 0 : range->size;
}

/* What a pool has at most, 0: no limit. */
static uint64_t most_of(const struct sim_pool *pool)
{
    return (pool->props.maxSize + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
}

/* False: the pool may not have more. */
static bool note_new(const struct sim_range *range)
{
    struct sim_pool *pool = range->pool;
    pthread_mutex_lock(&pools_lock);
    const uint64_t most = most_of(pool);
    const bool fits = most == 0 || pool->reserved + range->counted <= most;
    pool->used += used_by(range);
    pool->reserved += range->is_graph ? 0 : range->counted;
    if (fits && pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (fits && pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    pthread_mutex_unlock(&pools_lock);
    return fits;
}

void sim_pool_note_free(const struct sim_range *range)
{
    pthread_mutex_lock(&pools_lock);
    range->pool->used -= used_by(range);
    pthread_mutex_unlock(&pools_lock);
}

static void note_release(const struct sim_range *range)
{
    pthread_mutex_lock(&pools_lock);
    range->pool->reserved -= range->is_graph ? 0 : range->counted;
    pthread_mutex_unlock(&pools_lock);
}

static CUresult alloc_from(CUdeviceptr *dptr, size_t bytes, struct sim_pool *pool,
                           struct sim_stream *stream)
{
    struct sim_range range = {.pool = pool, .is_graph = sim_is_capturing(stream)};
    struct sim_range taken;
    CUresult result = range.is_graph ? CUDA_SUCCESS : sim_capture_unsafe(); /* beside others */
    if (result == CUDA_SUCCESS && dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && bytes == 0) { /* nothing, at address 0, which may be freed */
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = sim_pool_memory_new(&range, pool->device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (!note_new(&range))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = sim_submit(stream, sim_op_new(SIM_OP_EMPTY), NULL);
    if (result == CUDA_SUCCESS) {
        *dptr = range.start;
    } else if (sim_pool_memory_take(range.start, &taken)) {
        sim_pool_note_free(&taken);
        note_release(&taken);
    }
    return result;
}

/* A forked child is told that it has memory, and that it gave it back: the driver does not look
 * whose it is. Where it needs more for that it is the parent's that is spoilt. */
static CUresult alloc_forked(CUdeviceptr *dptr)
{
    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr = 1ull << 40;
    return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, CUstream handle, enum sim_mode mode)
{
    if (sim_is_forked())
        return alloc_forked(dptr);
    SIM_ENTER(cuMemAllocAsync);
    struct sim_stream *stream;
    const CUresult result = sim_stream_get(handle, mode, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&pools_lock);
    default_pool(stream->ctx->device);
    struct sim_pool *pool = currents[stream->ctx->device];
    pthread_mutex_unlock(&pools_lock);
    return alloc_from(dptr, bytes, pool, stream);
}
SIM_TWO(cuMemAllocAsync, cuMemAllocAsync_ptsz,
        (CUdeviceptr * dptr, size_t bytesize, CUstream stream),
        alloc_async(dptr, bytesize, stream, mode));

static CUresult alloc_from_pool(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle,
                                CUstream stream_handle, enum sim_mode mode)
{
    if (sim_is_forked())
        return alloc_forked(dptr);
    SIM_ENTER(cuMemAllocFromPoolAsync);
    struct sim_stream *stream;
    const CUresult result = sim_stream_get(stream_handle, mode, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&pools_lock);
    struct sim_pool *pool = find_pool(handle);
    pthread_mutex_unlock(&pools_lock);
    return pool != NULL ? alloc_from(dptr, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}
SIM_TWO(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
        (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream stream),
        alloc_from_pool(dptr, bytesize, pool, stream, mode));

void sim_pool_run_free(uint64_t address)
{
    struct sim_range range;
    if (sim_pool_memory_take(address, &range) && range.kind == SIM_RANGE_POOL)
        note_release(&range);
}

bool sim_pool_begin_free(CUdeviceptr dptr, struct sim_range *range)
{
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *found = sim_range_find(dptr);
    const bool is_good = found != NULL && found->start == dptr && !found->is_leaving &&
                         (found->kind == SIM_RANGE_POOL || found->kind == SIM_RANGE_LINEAR ||
                          found->kind == SIM_RANGE_MANAGED);
    if (is_good) {
        found->is_leaving = true;
        *range = *found;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return is_good;
}

/* In a capture only the graph's own memory may be freed, and it stays: the graph may run again. */
static CUresult free_captured(CUdeviceptr dptr, struct sim_stream *stream)
{
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *found = sim_range_find(dptr);
    const bool is_good = found != NULL && found->start == dptr && found->is_graph;
    pthread_mutex_unlock(&sim_va_lock);
    return is_good ? sim_submit(stream, sim_op_new(SIM_OP_EMPTY), NULL) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr dptr, CUstream handle, enum sim_mode mode)
{
    if (sim_is_forked())
        return CUDA_SUCCESS;
    SIM_ENTER(cuMemFreeAsync);
    struct sim_stream *stream;
    struct sim_range range;
    CUresult result = sim_stream_get(handle, mode, &stream);
    if (result == CUDA_SUCCESS && sim_is_capturing(stream))
        return dptr == 0 ? CUDA_SUCCESS : free_captured(dptr, stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS || dptr == 0)
        return result;
    if (!sim_pool_begin_free(dptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.kind == SIM_RANGE_POOL)
        sim_pool_note_free(&range);
    struct sim_op *op = sim_op_new(SIM_OP_FREE);
    op->u.freed = dptr;
    return sim_submit(stream, op, NULL);
}
SIM_TWO(cuMemFreeAsync, cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream stream),
        free_async(dptr, stream, mode));

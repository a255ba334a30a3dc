/*
 * Managed memory: memory of the process, which every processor may touch at any time. Where its
 * pages are is not imitated but told: each block of 2 MiB has the place that it was prefetched to
 * last, which cuMemRangeGetAttribute answers with. A prefetch takes its turn in the stream and does
 * nothing there. Advice is kept for a whole range.
 */
#include "tests/simcuda/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ull
#define BLOCK (2ull << 20)
#define SIZE_LIMIT (1ull << 46)
#define NOWHERE CU_DEVICE_INVALID /* not prefetched yet, or not all to one place */

struct sim_managed {
    int preferred;
    bool is_read_mostly;
    size_t n;
    int place[]; /* of each block */
};

static size_t blocks_of(uint64_t bytes)
{
    return (size_t)((bytes + BLOCK - 1) / BLOCK);
}

SIM_API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    SIM_ENTER(cuMemAllocManaged);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == NULL || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (bytesize > SIZE_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t size = (bytesize + PAGE - 1) & ~(PAGE - 1);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t n = blocks_of(bytesize);
    struct sim_managed *managed = sim_alloc(sizeof *managed + n * sizeof managed->place[0]);
    managed->preferred = NOWHERE;
    managed->n = n;
    for (size_t i = 0; i < n; i++)
        managed->place[i] = NOWHERE;
    const struct sim_range range = {.start = (uint64_t)(uintptr_t)p,
                                    .size = bytesize,
                                    .kind = SIM_RANGE_MANAGED,
                                    .flags = flags,
                                    .device = ctx->device,
                                    .id = sim_range_number(),
                                    .ctx = ctx,
                                    .managed = managed};
    pthread_mutex_lock(&sim_va_lock);
    sim_range_insert(&range);
    pthread_mutex_unlock(&sim_va_lock);
    *dptr = range.start;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemAllocManaged);

void sim_managed_free(const struct sim_range *range)
{
    munmap((void *)(uintptr_t)range->start, (range->size + PAGE - 1) & ~(PAGE - 1));
    free(range->managed);
}

/* The managed range that holds all of [start, start + bytes), with the va lock held; or NULL. */
static struct sim_range *find_managed(uint64_t start, uint64_t bytes)
{
    struct sim_range *r = sim_range_find(start);
    return r != NULL && r->kind == SIM_RANGE_MANAGED && bytes > 0 &&
                   bytes <= r->size - (start - r->start)
               ? r
               : NULL;
}

/* ---- prefetch ---- */

static CUresult prefetch(CUdeviceptr start, size_t bytes, int place, CUstream stream,
                         enum sim_mode mode)
{
    struct sim_stream *s;
    if (place != CU_DEVICE_CPU && sim_device_check(place) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    const CUresult result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *r = find_managed(start, bytes);
    if (r != NULL) {
        const uint64_t end = start + bytes - r->start;
        for (uint64_t i = (start - r->start) / BLOCK; i * BLOCK < end; i++)
            r->managed->place[i] = place;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return r != NULL ? sim_submit(s, sim_op_new(SIM_OP_EMPTY), NULL) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult prefetch_1(CUdeviceptr start, size_t bytes, CUdevice device, CUstream stream,
                           enum sim_mode mode)
{
    SIM_ENTER(cuMemPrefetchAsync);
    return prefetch(start, bytes, device, stream, mode);
}
SIM_TWO(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
        (CUdeviceptr start, size_t bytes, CUdevice device, CUstream stream),
        prefetch_1(start, bytes, device, stream, mode));

/* CU_DEVICE_CPU, a device, or NOWHERE: no such place. */
static int place_of(CUmemLocation location)
{
    switch ((int)location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CU_DEVICE_CPU;
    default:
        return NOWHERE;
    }
}

static CUresult prefetch_2(CUdeviceptr start, size_t bytes, CUmemLocation location,
                           unsigned int flags, CUstream stream, enum sim_mode mode)
{
    SIM_ENTER(cuMemPrefetchAsync);
    if (flags != 0 || place_of(location) == NOWHERE)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(start, bytes, place_of(location), stream, mode);
}
SIM_TWO(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
        (CUdeviceptr start, size_t bytes, CUmemLocation location, unsigned int flags,
         CUstream stream),
        prefetch_2(start, bytes, location, flags, stream, mode));

/* ---- advice ---- */

static CUresult advise(CUdeviceptr start, size_t bytes, CUmem_advise advice, int place)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *r = find_managed(start, bytes);
    if (r == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
        goto unlock;
    }
    switch ((int)advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        r->managed->is_read_mostly = true;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        r->managed->is_read_mostly = false;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        r->managed->preferred = place;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        r->managed->preferred = NOWHERE;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
unlock:
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}

SIM_API CUresult cuMemAdvise(CUdeviceptr start, size_t bytes, CUmem_advise advice, CUdevice device)
{
    SIM_ENTER(cuMemAdvise);
    if (device != CU_DEVICE_CPU && sim_device_check(device) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    return advise(start, bytes, advice, device);
}
SIM_ENTRY(cuMemAdvise);

SIM_API CUresult cuMemAdvise_v2(CUdeviceptr start, size_t bytes, CUmem_advise advice,
                                CUmemLocation location)
{
    SIM_ENTER(cuMemAdvise);
    const int place = place_of(location);
    if (place == NOWHERE || (place >= 0 && sim_device_check(place) != CUDA_SUCCESS))
        return CUDA_ERROR_INVALID_VALUE;
    return advise(start, bytes, advice, place);
}
SIM_ENTRY(cuMemAdvise_v2);

/* ---- questions ---- */

static int last_place(const struct sim_range *r, uint64_t start, uint64_t bytes)
{
    const uint64_t end = start + bytes - r->start;
    const uint64_t first = (start - r->start) / BLOCK;
    for (uint64_t i = first; i * BLOCK < end; i++)
        if (r->managed->place[i] != r->managed->place[first])
            return NOWHERE;
    return r->managed->place[first];
}

SIM_API CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
                                        CUdeviceptr start, size_t bytes)
{
    SIM_ENTER(cuMemRangeGetAttribute);
    CUresult result = CUDA_SUCCESS;
    int value = 0;
    if (data == NULL || size != sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *r = find_managed(start, bytes);
    if (r == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
        value = r->managed->is_read_mostly;
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)
        value = r->managed->preferred;
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
        value = last_place(r, start, bytes);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_va_lock);
    if (result == CUDA_SUCCESS)
        memcpy(data, &value, sizeof value);
    return result;
}
SIM_ENTRY(cuMemRangeGetAttribute);

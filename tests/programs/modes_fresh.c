/*
 * gm_worker's modes fresh and handles: memory that the program has not written reads as zero. All
 * of it is allocated before any is looked at, since what a program gives back it may get again as
 * it was. Then it is filled, so that what the next program gets has been written. See worker.h.
 */
#include "tests/programs/worker.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t count_nonzero(const struct gm_worker *worker, const struct gm_buffer *buffer)
{
    uint64_t *words = malloc(buffer->bytes), wrong = 0;
    if (words == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemcpyDtoH, words, buffer->at, buffer->bytes);
    for (uint64_t i = 0; i < buffer->bytes / 8; i++)
        wrong += words[i] != 0;
    free(words);
    return wrong;
}

static void look_and_fill(struct gm_worker *worker, struct gm_buffer *buffers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        worker->mismatches += count_nonzero(worker, &buffers[i]);
    if (worker->mismatches != 0)
        gm_fail(worker, "%llu words of new memory are not zero",
                (unsigned long long)worker->mismatches);
    for (uint32_t i = 0; i < n; i++) {
        buffers[i].seed = gm_mix(worker->seed, i);
        gm_buffer_fill(worker, &buffers[i], NULL);
    }
    GM_CU(worker, cuCtxSynchronize);
    gm_say_ready(worker);
    for (uint32_t i = 0; i < n; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    worker->done = 1;
}

void gm_mode_fresh(struct gm_worker *worker)
{
    struct gm_buffer *buffers = calloc(worker->allocs, sizeof(*buffers));
    if (buffers == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i < worker->allocs; i++) {
        buffers[i].bytes = worker->bytes / worker->allocs & ~7ull;
        GM_CU(worker, cuMemAlloc, &buffers[i].at, buffers[i].bytes);
    }
    look_and_fill(worker, buffers, worker->allocs);
    gm_buffers_free(worker, buffers);
}

static CUmemGenericAllocationHandle make(const struct gm_worker *worker, struct gm_buffer *buffer,
                                         CUmemLocation location)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    GM_CU(worker, cuMemCreate, &handle, buffer->bytes, &prop, 0);
    GM_CU(worker, cuMemAddressReserve, &buffer->at, buffer->bytes, 0, 0, 0);
    GM_CU(worker, cuMemMap, buffer->at, buffer->bytes, 0, handle, 0);
    GM_CU(worker, cuMemSetAccess, buffer->at, buffer->bytes, &access, 1);
    return handle;
}

/* Every other handle is on the host, on the device's own node, if there are such handles. */
void gm_mode_handles(struct gm_worker *worker)
{
    struct gm_buffer *buffers = calloc(worker->allocs, sizeof(*buffers));
    CUmemGenericAllocationHandle *handles = calloc(worker->allocs, sizeof(*handles));
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device};
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    int has_host = 0;
    if (buffers == NULL || handles == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuDeviceGetAttribute, &has_host,
          CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, worker->device);
    GM_CU(worker, cuDeviceGetAttribute, &host.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, worker->device);
    if (host.id < 0)
        host.id = 0;
    for (uint32_t i = 0; i < worker->allocs; i++) {
        buffers[i].bytes = worker->bytes / worker->allocs & ~((2ull << 20) - 1);
        handles[i] = make(worker, &buffers[i], has_host && i % 2 == 1 ? host : here);
    }
    look_and_fill(worker, buffers, worker->allocs);
    for (uint32_t i = 0; i < worker->allocs; i++) {
        GM_CU(worker, cuMemUnmap, buffers[i].at, buffers[i].bytes);
        GM_CU(worker, cuMemRelease, handles[i]);
        GM_CU(worker, cuMemAddressFree, buffers[i].at, buffers[i].bytes);
    }
    free(handles);
    free(buffers);
}

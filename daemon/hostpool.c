#include "daemon/hostpool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/chunk.h"
#include "daemon/core/table.h"

#define SLAB_BYTES GM_SLAB_BYTES
#define SLABS_A_BATCH                                                                              \
    8u /* slabs that the worker makes before it reports: some 60 to 120 ms of pinning */

static CUresult make_slab(struct gm_hostpool *pool, uint32_t index)
{
    const struct gm_cuda *cuda = pool->cuda;
    CUdeviceptr at = pool->base + index * SLAB_BYTES;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = pool->node},
    };
    CUmemAccessDesc access[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CUmemGenericAllocationHandle handle;
    CUresult result = cuda->cuMemCreate(&handle, SLAB_BYTES, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemMap(at, SLAB_BYTES, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        cuda->cuMemRelease(handle);
        return result;
    }
    result = cuda->cuMemSetAccess(at, SLAB_BYTES, access, 2);
    if (result != CUDA_SUCCESS) {
        cuda->cuMemUnmap(at, SLAB_BYTES);
        cuda->cuMemRelease(handle);
        return result;
    }
    pool->handles[index] = handle;
    return CUDA_SUCCESS;
}

/* Worker thread. The loop thread leaves wanted, made and outcome alone while is_working, and
 * changes no slabs. */
static void work_make(uv_work_t *work)
{
    struct gm_hostpool *pool = work->data;
    CUresult result = pool->cuda->cuCtxSetCurrent(pool->context);
    pool->made = 0;
    while (result == CUDA_SUCCESS && pool->made < SLABS_A_BATCH &&
           pool->slabs + pool->made < pool->wanted) {
        result = make_slab(pool, pool->slabs + pool->made);
        if (result == CUDA_SUCCESS)
            pool->made++;
    }
    pool->outcome = result;
}

static void start_work(struct gm_hostpool *pool);

static void work_done(uv_work_t *work, int status)
{
    struct gm_hostpool *pool = work->data;
    pool->is_working = false;
    if (status != 0)
        pool->made = 0;
    else
        pool->refusal = pool->outcome;
    gm_pages_add(&pool->pages, pool->made * GM_SLAB_PAGES);
    pool->slabs += pool->made;
    pool->made = 0;
    if (pool->is_closing)
        return;
    if (pool->refusal == CUDA_SUCCESS)
        start_work(pool);
    pool->on_grown(pool->arg);
}

static void start_work(struct gm_hostpool *pool)
{
    if (pool->is_working || pool->is_closing || pool->slabs >= pool->asked)
        return;
    pool->wanted = pool->asked;
    pool->work.data = pool;
    pool->is_working = uv_queue_work(pool->loop, &pool->work, work_make, work_done) == 0;
}

int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size)
{
    int node = -1;
    uint64_t slabs = cap / SLAB_BYTES;

    if (slabs > UINT32_MAX / GM_SLAB_PAGES)
        slabs = UINT32_MAX / GM_SLAB_PAGES;
    *pool = (struct gm_hostpool){.cuda = cuda,
                                 .context = context,
                                 .device = device,
                                 .loop = loop,
                                 .on_grown = on_grown,
                                 .arg = arg,
                                 .max_slabs = (uint32_t)slabs,
                                 .all_slabs = (uint32_t)slabs};
    if (cuda->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) !=
            CUDA_SUCCESS ||
        node < 0)
        node = 0;
    pool->node = node;
    if (pool->max_slabs == 0)
        return 0;
    pool->handles = calloc(pool->max_slabs, sizeof *pool->handles);
    if (!pool->handles || gm_pages_open(&pool->pages, pool->max_slabs * SLAB_BYTES) != 0) {
        snprintf(why, why_size, "out of memory for the pinned tier's tables");
        goto fail;
    }
    CUresult result =
        cuda->cuMemAddressReserve(&pool->base, pool->max_slabs * SLAB_BYTES, SLAB_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "cannot reserve addresses for the pinned tier (%s): lower --pinned",
                 gm_cuda_text(cuda, result));
        goto fail;
    }
    return 0;

fail:
    free(pool->handles);
    gm_pages_close(&pool->pages);
    *pool = (struct gm_hostpool){0};
    return -ENOMEM;
}

void gm_hostpool_close(struct gm_hostpool *pool)
{
    pool->is_closing = true;
    while (pool->is_working)
        uv_run(pool->loop, UV_RUN_ONCE);
    for (uint32_t i = 0; i < pool->slabs; i++) {
        pool->cuda->cuMemUnmap(pool->base + i * SLAB_BYTES, SLAB_BYTES);
        pool->cuda->cuMemRelease(pool->handles[i]);
    }
    if (pool->base)
        pool->cuda->cuMemAddressFree(pool->base, pool->all_slabs * SLAB_BYTES);
    free(pool->handles);
    gm_pages_close(&pool->pages);
    *pool = (struct gm_hostpool){.is_closing = true};
}

void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes)
{
    uint64_t slabs = (bytes + SLAB_BYTES - 1) / SLAB_BYTES;
    if (slabs > pool->max_slabs)
        slabs = pool->max_slabs;
    if (slabs > pool->asked)
        pool->asked = (uint32_t)slabs;
    start_work(pool);
}

uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes)
{
    return gm_pages_take(&pool->pages, bytes);
}

void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page)
{
    gm_pages_free(&pool->pages, page);
}

void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes)
{
    *address = pool->base + (uint64_t)*page * GM_CHUNK_MIN;
    *bytes = (uint64_t)gm_pages_run(&pool->pages, page, GM_SLAB_PAGES) * GM_CHUNK_MIN;
}

void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page)
{
    return (void *)(uintptr_t)(pool->base + (uint64_t)page * GM_CHUNK_MIN);
}

static void set_lent(struct gm_hostpool *pool, uint64_t bytes)
{
    uint64_t slabs = (bytes + SLAB_BYTES - 1) / SLAB_BYTES;
    pool->lent = bytes;
    pool->max_slabs = pool->all_slabs - (uint32_t)slabs;
    if (pool->asked > pool->max_slabs)
        pool->asked = pool->max_slabs;
}

bool gm_hostpool_lend(struct gm_hostpool *pool, uint64_t bytes)
{
    uint32_t pinned = pool->is_working ? pool->wanted : pool->slabs;
    uint64_t left = (uint64_t)(pool->all_slabs - pinned) * SLAB_BYTES;
    if (pool->lent > left || bytes > left - pool->lent)
        return false;
    set_lent(pool, pool->lent + bytes);
    return true;
}

void gm_hostpool_unlend(struct gm_hostpool *pool, uint64_t bytes)
{
    set_lent(pool, pool->lent - bytes);
}

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool)
{
    return pool->max_slabs * SLAB_BYTES;
}

uint64_t gm_hostpool_size(const struct gm_hostpool *pool)
{
    return pool->slabs * SLAB_BYTES;
}

uint64_t gm_hostpool_used(const struct gm_hostpool *pool)
{
    return (uint64_t)(pool->pages.pages - pool->pages.free_pages) * GM_CHUNK_MIN;
}

#include "daemon/memory/hostpool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/chunk.h"

#define SLAB_BYTES GM_SLAB_BYTES

/* ---- the worker ---- */

/* The address range of all slabs, without memory behind it. 0: refused. */
static CUdeviceptr reserve_plain(uint64_t bytes)
{
    void *base = mmap(NULL, bytes + SLAB_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    /* The ends stay mapped: they cost nothing but addresses. */
    return ((CUdeviceptr)(uintptr_t)base + SLAB_BYTES - 1) & ~(SLAB_BYTES - 1);
}

/* Slabs of a pool with is_registered: is_held says that there is memory, is_mapped that it is
 * registered. */
static CUresult release_registered(struct gm_hostpool *pool, struct gm_pinned_slab *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (slab->is_mapped)
        result = pool->cuda->cuMemHostUnregister(at);
    if (result != CUDA_SUCCESS)
        return result;
    slab->is_mapped = false;
    if (slab->is_held &&
        mmap(at, SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    slab->is_held = false;
    return CUDA_SUCCESS;
}

static CUresult make_registered(struct gm_hostpool *pool, struct gm_pinned_slab *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (!slab->is_held && mmap(at, SLAB_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    slab->is_held = true;
    if (!slab->is_mapped)
        result = pool->cuda->cuMemHostRegister_v2(at, SLAB_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    slab->is_mapped = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        release_registered(pool, slab, at);
    return result;
}

/* Release a slab as far as the driver lets it. is_mapped and is_held say what is left. */
static CUresult release_slab(struct gm_hostpool *pool, uint32_t index)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered)
        return release_registered(pool, slab, (void *)(pool->base + index * SLAB_BYTES));
    if (slab->is_mapped)
        result = pool->cuda->cuMemUnmap(pool->base + index * SLAB_BYTES, SLAB_BYTES);
    if (result != CUDA_SUCCESS)
        return result;
    slab->is_mapped = false;
    if (slab->is_held)
        result = pool->cuda->cuMemRelease(slab->handle);
    if (result == CUDA_SUCCESS)
        slab->is_held = false;
    return result;
}

/* Pin and map a slab. One that is stuck gets only what it lacks. */
static CUresult make_slab(struct gm_hostpool *pool, uint32_t index)
{
    const struct gm_cuda *cuda = pool->cuda;
    struct gm_pinned_slab *slab = &pool->slabs[index];
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
    CUresult result = CUDA_SUCCESS;

    if (pool->is_registered)
        return make_registered(pool, slab, (void *)at);
    if (!slab->is_held)
        result = cuda->cuMemCreate(&slab->handle, SLAB_BYTES, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    slab->is_held = true;
    if (!slab->is_mapped)
        result = cuda->cuMemMap(at, SLAB_BYTES, 0, slab->handle, 0);
    if (result == CUDA_SUCCESS) {
        slab->is_mapped = true;
        result = cuda->cuMemSetAccess(at, SLAB_BYTES, access, 2);
    }
    if (result != CUDA_SUCCESS)
        release_slab(pool, index);
    return result;
}

static void work_slabs(uv_work_t *work)
{
    struct gm_hostpool *pool = work->data;
    CUresult result = pool->cuda->cuCtxSetCurrent(pool->context);
    while (result == CUDA_SUCCESS && pool->job.done < pool->job.n) {
        uint32_t index = pool->job.slabs[pool->job.done];
        result = pool->job.is_release ? release_slab(pool, index) : make_slab(pool, index);
        if (result == CUDA_SUCCESS)
            pool->job.done++;
    }
    pool->job.outcome = result;
}

/* ---- the loop's side ---- */

/* The one setter of slab states. Only slabs that are THERE have pages. */
static void set_slab(struct gm_hostpool *pool, uint32_t index, enum gm_slab_state state)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    if (slab->state == GM_SLAB_THERE)
        gm_pages_remove_slab(&pool->pages, index);
    pool->count[slab->state]--;
    slab->state = (uint8_t)state;
    pool->count[state]++;
    if (state == GM_SLAB_THERE)
        gm_pages_add_slab(&pool->pages, index);
}

/* Slabs that count against the cap: they are pinned or may be at any moment. */
static uint32_t pinned_slabs(const struct gm_hostpool *pool)
{
    return pool->all_slabs - pool->count[GM_SLAB_ABSENT];
}

static void work_done(uv_work_t *work, int status);

static void add_to_job(struct gm_hostpool *pool, uint32_t index, enum gm_slab_state state)
{
    set_slab(pool, index, state);
    pool->job.slabs[pool->job.n++] = index;
}

static void start_job(struct gm_hostpool *pool, bool is_release)
{
    if (pool->job.n == 0)
        return;
    pool->job.is_release = is_release;
    pool->job.done = 0;
    pool->work.data = pool;
    pool->is_working = true; /* queueing fails only without a function */
    uv_queue_work(pool->loop, &pool->work, work_slabs, work_done);
}

/* How many slabs should be THERE. */
static uint32_t wanted_slabs(const struct gm_hostpool *pool)
{
    return pool->asked < pool->max_slabs ? pool->asked : pool->max_slabs;
}

/* Free slabs beyond what is wanted begin to leave, the last one first. If slabs are wanted again,
 * those that the worker has not released stay. */
static void fit(struct gm_hostpool *pool)
{
    const uint32_t wanted = wanted_slabs(pool);
    for (uint32_t i = 0; pool->count[GM_SLAB_LEAVING] > 0 && pool->count[GM_SLAB_THERE] < wanted;
         i++)
        if (pool->slabs[i].state == GM_SLAB_LEAVING)
            set_slab(pool, i, GM_SLAB_THERE);
    for (uint32_t i = pool->all_slabs;
         pool->pages.free_slabs > 0 && pool->count[GM_SLAB_THERE] > wanted; i--)
        if (pool->slabs[i - 1].state == GM_SLAB_THERE && gm_slab_is_free(&pool->pages, i - 1))
            set_slab(pool, i - 1, GM_SLAB_LEAVING);
}

/* Let the worker release slabs until no more are pinned than wanted. */
static void start_release(struct gm_hostpool *pool)
{
    if (pool->is_working || pool->is_closing || pool->stuck != CUDA_SUCCESS)
        return;
    pool->job.n = 0;
    for (uint32_t i = 0; i < pool->all_slabs && pool->job.n < GM_SLABS_A_BATCH &&
                         pinned_slabs(pool) - pool->job.n > wanted_slabs(pool);
         i++)
        if (pool->slabs[i].state == GM_SLAB_LEAVING || pool->slabs[i].state == GM_SLAB_STUCK)
            add_to_job(pool, i, GM_SLAB_RELEASING);
    start_job(pool, true);
}

/* Let the worker make slabs that are wanted and fit under the cap. A STUCK slab counts already. */
static void start_growth(struct gm_hostpool *pool)
{
    const uint32_t limit = wanted_slabs(pool);
    if (pool->is_working || pool->is_closing || pool->is_refused)
        return;
    pool->job.n = 0;
    for (uint32_t i = 0; i < pool->all_slabs && pool->job.n < GM_SLABS_A_BATCH &&
                         pool->count[GM_SLAB_THERE] + pool->count[GM_SLAB_MAKING] < limit;
         i++) {
        enum gm_slab_state state = (enum gm_slab_state)pool->slabs[i].state;
        if (state == GM_SLAB_STUCK || (state == GM_SLAB_ABSENT && pinned_slabs(pool) < limit))
            add_to_job(pool, i, GM_SLAB_MAKING);
    }
    start_job(pool, false);
}

/* Bring the pool nearer to what is wanted. Releasing comes first: it makes room under the cap. */
static void settle(struct gm_hostpool *pool)
{
    fit(pool);
    start_release(pool);
    start_growth(pool);
}

/* A slab comes back from the worker. */
static void take_over(struct gm_hostpool *pool, uint32_t index, bool is_made, bool has_room)
{
    if (!is_made)
        set_slab(pool, index, pool->slabs[index].is_held ? GM_SLAB_STUCK : GM_SLAB_ABSENT);
    else
        set_slab(pool, index, has_room ? GM_SLAB_THERE : GM_SLAB_LEAVING);
}

static void work_done(uv_work_t *work, int status)
{
    struct gm_hostpool *pool = work->data;
    /* A loan that began meanwhile may have left room for fewer than the job made. */
    uint32_t room = pool->max_slabs - pool->count[GM_SLAB_THERE];
    (void)status; /* nobody cancels it */
    pool->is_working = false;
    for (uint32_t i = pool->job.n; i-- > 0;) /* backwards: the first is the first to be taken */
        take_over(pool, pool->job.slabs[i], !pool->job.is_release && i < pool->job.done, i < room);
    if (pool->job.is_release) {
        pool->stuck = pool->job.outcome;
    } else {
        pool->refusal = pool->job.outcome;
        pool->is_refused = pool->refusal != CUDA_SUCCESS;
    }
    settle(pool);
    if (!pool->is_closing)
        pool->on_grown(pool->arg);
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
    int has_handles = 1; /* old drivers do not know the attribute: try */
    if (cuda->cuDeviceGetAttribute(
            &has_handles, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            device) == CUDA_SUCCESS)
        pool->is_registered = has_handles == 0;
    pool->count[GM_SLAB_ABSENT] = pool->all_slabs;
    if (pool->max_slabs == 0)
        return 0;
    pool->slabs = calloc(pool->max_slabs, sizeof *pool->slabs);
    if (!pool->slabs || gm_pages_open(&pool->pages, pool->max_slabs * SLAB_BYTES) != 0) {
        snprintf(why, why_size, "out of memory for the pinned tier's tables");
        goto fail;
    }
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered) {
        pool->base = reserve_plain(pool->max_slabs * SLAB_BYTES);
        result = pool->base != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        result =
            cuda->cuMemAddressReserve(&pool->base, pool->max_slabs * SLAB_BYTES, SLAB_BYTES, 0, 0);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "cannot reserve addresses for the pinned tier (%s): lower --pinned",
                 gm_cuda_text(cuda, result));
        goto fail;
    }
    return 0;

fail:
    free(pool->slabs);
    gm_pages_close(&pool->pages);
    *pool = (struct gm_hostpool){0};
    return -ENOMEM;
}

void gm_hostpool_close(struct gm_hostpool *pool)
{
    pool->is_closing = true;
    while (pool->is_working)
        uv_run(pool->loop, UV_RUN_ONCE);
    for (uint32_t i = 0; i < pool->all_slabs; i++)
        release_slab(pool, i);
    if (pool->base && pool->is_registered)
        munmap((void *)pool->base, pool->all_slabs * SLAB_BYTES);
    else if (pool->base)
        pool->cuda->cuMemAddressFree(pool->base, pool->all_slabs * SLAB_BYTES);
    free(pool->slabs);
    gm_pages_close(&pool->pages);
    *pool = (struct gm_hostpool){.is_closing = true};
}

void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes)
{
    uint64_t slabs = (bytes + SLAB_BYTES - 1) / SLAB_BYTES;
    if (slabs > pool->all_slabs)
        slabs = pool->all_slabs;
    pool->asked = (uint32_t)slabs;
    pool->is_refused = false;
    pool->stuck = CUDA_SUCCESS;
    settle(pool);
}

uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes)
{
    return gm_pages_take(&pool->pages, bytes);
}

void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page)
{
    gm_pages_free(&pool->pages, page);
    if (pool->count[GM_SLAB_THERE] > wanted_slabs(pool) && pool->pages.free_slabs > 0)
        settle(pool);
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

/* ---- loans ---- */

/* Whole slabs that fit under the cap beside `lent` bytes. */
static uint32_t slabs_beside(const struct gm_hostpool *pool, uint64_t lent)
{
    return pool->all_slabs - (uint32_t)((lent + SLAB_BYTES - 1) / SLAB_BYTES);
}

bool gm_hostpool_lend(struct gm_hostpool *pool, uint64_t bytes)
{
    uint32_t used = pool->count[GM_SLAB_THERE] - pool->pages.free_slabs;
    if (bytes > pool->all_slabs * SLAB_BYTES - pool->lent ||
        slabs_beside(pool, pool->lent + bytes) < used)
        return false;
    pool->lent += bytes;
    pool->max_slabs = slabs_beside(pool, pool->lent);
    pool->stuck = CUDA_SUCCESS;
    fit(pool);
    return true;
}

void gm_hostpool_unlend(struct gm_hostpool *pool, uint64_t bytes)
{
    pool->lent -= bytes;
    pool->max_slabs = slabs_beside(pool, pool->lent);
    settle(pool);
}

CUresult gm_hostpool_clear(struct gm_hostpool *pool)
{
    if (pinned_slabs(pool) <= pool->max_slabs)
        return CUDA_SUCCESS;
    start_release(pool);
    return pool->is_working ? CUDA_ERROR_NOT_READY : pool->stuck;
}

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool)
{
    return pool->max_slabs * SLAB_BYTES;
}

uint64_t gm_hostpool_size(const struct gm_hostpool *pool)
{
    return (pinned_slabs(pool) - pool->count[GM_SLAB_MAKING]) * SLAB_BYTES;
}

uint64_t gm_hostpool_used(const struct gm_hostpool *pool)
{
    return (uint64_t)(pool->pages.pages - pool->pages.free_pages) * GM_CHUNK_MIN;
}

uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool)
{
    return (pool->count[GM_SLAB_LEAVING] + pool->count[GM_SLAB_RELEASING]) * SLAB_BYTES;
}

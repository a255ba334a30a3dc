#include "daemon/memory/hostpool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/chunk.h"

#define SLAB_BYTES GM_SLAB_BYTES
#define WHOLE (GM_CHUNK_CLASSES - 1u) /* the class of a slab that is one unit */

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

/* Slabs of a pool with is_registered: `held` says that there is memory, `mapped` that it is
 * registered. */
static CUresult release_registered(struct gm_hostpool *pool, struct gm_pinned_slab *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (slab->mapped)
        result = pool->cuda->cuMemHostUnregister(at);
    if (result != CUDA_SUCCESS)
        return result;
    slab->mapped = 0;
    if (slab->held &&
        mmap(at, SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    slab->held = 0;
    return CUDA_SUCCESS;
}

static CUresult make_registered(struct gm_hostpool *pool, struct gm_pinned_slab *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (!slab->held && mmap(at, SLAB_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    slab->held = 1;
    if (!slab->mapped)
        result = pool->cuda->cuMemHostRegister_v2(at, SLAB_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    slab->mapped = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        release_registered(pool, slab, at);
    return result;
}

static uint64_t unit_bytes(const struct gm_pinned_slab *slab)
{
    return gm_class_bytes(slab->class);
}

static CUmemGenericAllocationHandle *handles_of(struct gm_pinned_slab *slab)
{
    return slab->handles ? slab->handles : &slab->handle;
}

/* Release a slab as far as the driver lets it. `mapped` and `held` say what is left. */
static CUresult release_slab(struct gm_hostpool *pool, uint32_t index)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    const CUdeviceptr at = pool->base + index * SLAB_BYTES;
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered)
        return release_registered(pool, slab, (void *)at);
    if (slab->mapped > 0)
        result = pool->cuda->cuMemUnmap(at, slab->mapped * unit_bytes(slab));
    if (result != CUDA_SUCCESS)
        return result;
    slab->mapped = 0;
    while (result == CUDA_SUCCESS && slab->held > 0) {
        result = pool->cuda->cuMemRelease(handles_of(slab)[slab->held - 1]);
        if (result == CUDA_SUCCESS)
            slab->held--;
    }
    return result;
}

/* Pin and map a slab. One that is stuck gets only what it lacks. */
static CUresult make_slab(struct gm_hostpool *pool, uint32_t index)
{
    const struct gm_cuda *cuda = pool->cuda;
    struct gm_pinned_slab *slab = &pool->slabs[index];
    const CUdeviceptr at = pool->base + index * SLAB_BYTES;
    const uint64_t bytes = unit_bytes(slab), units = SLAB_BYTES / bytes;
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
    while (result == CUDA_SUCCESS && slab->held < units) {
        result = cuda->cuMemCreate(&handles_of(slab)[slab->held], bytes, &prop, 0);
        if (result == CUDA_SUCCESS)
            slab->held++;
    }
    while (result == CUDA_SUCCESS && slab->mapped < units) {
        result =
            cuda->cuMemMap(at + slab->mapped * bytes, bytes, 0, handles_of(slab)[slab->mapped], 0);
        if (result == CUDA_SUCCESS)
            slab->mapped++;
    }
    if (result == CUDA_SUCCESS)
        result = cuda->cuMemSetAccess(at, SLAB_BYTES, access, 2);
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

static unsigned units_of(const struct gm_pinned_slab *slab)
{
    return GM_SLAB_PAGES >> slab->class;
}

/* All of its units are idle. */
static bool is_idle(const struct gm_pinned_slab *slab)
{
    return slab->state == GM_SLAB_THERE && slab->owner != GM_NONE &&
           slab->free_units == (1u << units_of(slab)) - 1;
}

/* The slab is nobody's any more: its pages are free, and it must be destroyed. */
static void disown(struct gm_hostpool *pool, uint32_t index)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    for (uint32_t unit = 0; unit < units_of(slab); unit++)
        gm_pages_free(&pool->pages, index * GM_SLAB_PAGES + (unit << slab->class));
    pool->idle -= SLAB_BYTES;
    pool->idle_slabs--;
    slab->owner = GM_NONE;
    slab->free_units = 0;
}

/* The slab, all of whose pages are free, consists of units of `owner`. All are idle. */
static void own(struct gm_hostpool *pool, uint32_t index, uint32_t owner)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    for (uint32_t unit = 0; unit < units_of(slab); unit++)
        gm_pages_take_run(&pool->pages, index, unit << slab->class, 1u << slab->class);
    pool->idle += SLAB_BYTES;
    pool->idle_slabs++;
    slab->owner = owner;
    slab->free_units = (uint16_t)((1u << units_of(slab)) - 1);
}

/* The one setter of slab states. Only slabs that are THERE have pages. */
static void set_slab(struct gm_hostpool *pool, uint32_t index, enum gm_slab_state state)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    if (slab->state == GM_SLAB_THERE) {
        if (slab->owner != GM_NONE)
            disown(pool, index);
        gm_pages_remove_slab(&pool->pages, index);
    }
    pool->count[slab->state]--;
    slab->state = (uint8_t)state;
    pool->count[state]++;
    if (state == GM_SLAB_ABSENT) {
        slab->class = WHOLE;
        slab->is_used_up = false;
        free(slab->handles);
        slab->handles = NULL;
    }
    if (state == GM_SLAB_THERE)
        gm_pages_add_slab(&pool->pages, index);
}

/* Slabs that count against the cap: they are pinned or may be at any moment. */
static uint32_t pinned_slabs(const struct gm_hostpool *pool)
{
    return pool->max_slabs - pool->count[GM_SLAB_ABSENT];
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

/* Nobody uses anything of it. */
static bool is_free(const struct gm_hostpool *pool, uint32_t index)
{
    const struct gm_pinned_slab *slab = &pool->slabs[index];
    if (index == pool->fresh)
        return false;
    return is_idle(slab) || (slab->state == GM_SLAB_THERE && slab->owner == GM_NONE &&
                             gm_slab_is_free(&pool->pages, index));
}

/* The slab begins to leave. One that is used up, as it had an owner, is destroyed in any case. */
static void leave(struct gm_hostpool *pool, uint32_t index, bool is_used_up)
{
    is_used_up = is_used_up || pool->slabs[index].owner != GM_NONE;
    set_slab(pool, index, GM_SLAB_LEAVING);
    pool->slabs[index].is_used_up = is_used_up;
    pool->used_up += is_used_up;
}

/* Free slabs beyond what is wanted begin to leave, the last one first. If slabs are wanted again,
 * those that the worker has not released stay. */
static void fit(struct gm_hostpool *pool)
{
    const uint32_t wanted = wanted_slabs(pool);
    for (uint32_t i = 0; i < pool->max_slabs && pool->count[GM_SLAB_LEAVING] > pool->used_up &&
                         pool->count[GM_SLAB_THERE] < wanted;
         i++)
        if (pool->slabs[i].state == GM_SLAB_LEAVING && !pool->slabs[i].is_used_up)
            set_slab(pool, i, GM_SLAB_THERE);
    for (uint32_t i = pool->max_slabs; pool->pages.free_slabs + pool->idle_slabs > 0 &&
                                       pool->count[GM_SLAB_THERE] > wanted && i > 0;
         i--)
        if (is_free(pool, i - 1))
            leave(pool, i - 1, false);
}

/* A slab of smaller units is wanted, and the cap leaves no room for it: a free one must go. */
static void make_room_for_cut(struct gm_hostpool *pool)
{
    if (!pool->is_cut_wanted || pinned_slabs(pool) < pool->max_slabs ||
        pool->count[GM_SLAB_LEAVING] + pool->count[GM_SLAB_RELEASING] > 0)
        return;
    for (uint32_t i = pool->max_slabs; i > 0; i--)
        if (is_free(pool, i - 1)) {
            leave(pool, i - 1, true);
            return;
        }
    pool->is_cut_wanted = false; /* who wants it asks again */
}

/* Let the worker release slabs until no more are pinned than wanted, and those that had an owner;
 * one of these that is stuck is in the way of others until the driver releases it.
 */
static void start_release(struct gm_hostpool *pool)
{
    if (pool->is_working || pool->is_closing || pool->stuck != CUDA_SUCCESS)
        return;
    pool->job.n = 0;
    for (uint32_t i = 0; i < pool->max_slabs && pool->job.n < GM_SLABS_A_BATCH &&
                         (pinned_slabs(pool) - pool->job.n > wanted_slabs(pool) ||
                          pool->used_up > 0 || pool->count[GM_SLAB_STUCK] > 0);
         i++) {
        struct gm_pinned_slab *slab = &pool->slabs[i];
        const bool is_over = pinned_slabs(pool) - pool->job.n > wanted_slabs(pool);
        if ((slab->state == GM_SLAB_LEAVING || slab->state == GM_SLAB_STUCK) &&
            (is_over || slab->is_used_up)) {
            pool->used_up -= slab->state == GM_SLAB_LEAVING && slab->is_used_up;
            add_to_job(pool, i, GM_SLAB_RELEASING);
        }
    }
    start_job(pool, true);
}

/* Let the worker make the slab of smaller units that is wanted. False: not now. */
static bool start_cut(struct gm_hostpool *pool)
{
    if (!pool->is_cut_wanted || pinned_slabs(pool) >= pool->max_slabs)
        return false;
    for (uint32_t i = 0; i < pool->max_slabs; i++) {
        struct gm_pinned_slab *slab = &pool->slabs[i];
        if (slab->state != GM_SLAB_ABSENT)
            continue;
        pool->is_cut_wanted = false;
        slab->handles = calloc(GM_SLAB_PAGES >> pool->cut_class, sizeof *slab->handles);
        if (!slab->handles)
            return false;
        slab->class = pool->cut_class;
        slab->owner = pool->cut_owner;
        add_to_job(pool, i, GM_SLAB_MAKING);
        start_job(pool, false);
        return true;
    }
    return false;
}

/* Let the worker make slabs that are wanted and fit under the cap. A STUCK slab counts already. */
static void start_growth(struct gm_hostpool *pool)
{
    const uint32_t limit = wanted_slabs(pool);
    if (pool->is_working || pool->is_closing || pool->is_refused)
        return;
    pool->job.n = 0;
    if (start_cut(pool))
        return;
    for (uint32_t i = 0; i < pool->max_slabs && pool->job.n < GM_SLABS_A_BATCH &&
                         pool->count[GM_SLAB_THERE] + pool->count[GM_SLAB_MAKING] < limit;
         i++) {
        enum gm_slab_state state = (enum gm_slab_state)pool->slabs[i].state;
        if ((state == GM_SLAB_STUCK && pool->slabs[i].class == WHOLE &&
             !pool->slabs[i].is_used_up) ||
            (state == GM_SLAB_ABSENT && pinned_slabs(pool) < limit))
            add_to_job(pool, i, GM_SLAB_MAKING);
    }
    start_job(pool, false);
}

/* Bring the pool nearer to what is wanted. Releasing comes first: it makes room under the cap. */
static void settle(struct gm_hostpool *pool)
{
    fit(pool);
    make_room_for_cut(pool);
    start_release(pool);
    start_growth(pool);
}

/* A slab comes back from the worker. */
static void take_over(struct gm_hostpool *pool, uint32_t index, bool is_made)
{
    struct gm_pinned_slab *slab = &pool->slabs[index];
    const uint32_t owner = slab->owner;
    slab->owner = GM_NONE;
    /* Smaller units that were not made whole serve nobody. */
    slab->is_used_up = slab->is_used_up || (!is_made && slab->class != WHOLE);
    if (is_made)
        set_slab(pool, index, GM_SLAB_THERE);
    else
        set_slab(pool, index, slab->held > 0 ? GM_SLAB_STUCK : GM_SLAB_ABSENT);
    if (!is_made || owner == GM_NONE)
        return;
    own(pool, index, owner);
    pool->fresh = index;
}

static void work_done(uv_work_t *work, int status)
{
    struct gm_hostpool *pool = work->data;
    (void)status; /* nobody cancels it */
    pool->is_working = false;
    for (uint32_t i = pool->job.n; i-- > 0;) /* backwards: the first is the first to be taken */
        take_over(pool, pool->job.slabs[i], !pool->job.is_release && i < pool->job.done);
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
                                 .fresh = GM_NONE,
                                 .max_slabs = (uint32_t)slabs};
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
    pool->count[GM_SLAB_ABSENT] = pool->max_slabs;
    if (pool->max_slabs == 0)
        return 0;
    pool->slabs = calloc(pool->max_slabs, sizeof *pool->slabs);
    if (!pool->slabs || gm_pages_open(&pool->pages, pool->max_slabs * SLAB_BYTES) != 0) {
        snprintf(why, why_size, "out of memory for the pinned tier's tables");
        goto fail;
    }
    for (uint32_t i = 0; i < pool->max_slabs; i++)
        pool->slabs[i] = (struct gm_pinned_slab){.class = WHOLE, .owner = GM_NONE};
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
    for (uint32_t i = 0; i < pool->max_slabs; i++)
        release_slab(pool, i);
    for (uint32_t i = 0; pool->slabs && i < pool->max_slabs; i++)
        free(pool->slabs[i].handles);
    if (pool->base && pool->is_registered)
        munmap((void *)pool->base, pool->max_slabs * SLAB_BYTES);
    else if (pool->base)
        pool->cuda->cuMemAddressFree(pool->base, pool->max_slabs * SLAB_BYTES);
    free(pool->slabs);
    gm_pages_close(&pool->pages);
    *pool = (struct gm_hostpool){.is_closing = true};
}

void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes)
{
    uint64_t slabs = (bytes + SLAB_BYTES - 1) / SLAB_BYTES;
    if (slabs > pool->max_slabs)
        slabs = pool->max_slabs;
    pool->asked = (uint32_t)slabs;
    pool->is_refused = false;
    pool->fresh = GM_NONE;
    pool->stuck = CUDA_SUCCESS;
    settle(pool);
}

/* What is idle goes, so that others can have the room. */
static void drop_idle(struct gm_hostpool *pool)
{
    for (uint32_t i = 0; i < pool->max_slabs && pool->idle_slabs > 0; i++)
        if (is_idle(&pool->slabs[i]) && i != pool->fresh)
            leave(pool, i, false);
    settle(pool);
}

uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes)
{
    const uint32_t page = gm_pages_take(&pool->pages, bytes);
    if (page == GM_NONE && pool->idle_slabs > 0)
        drop_idle(pool);
    return page;
}

void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_pinned_slab *slab = page != GM_NONE ? &pool->slabs[page / GM_SLAB_PAGES] : NULL;
    if (slab && slab->owner != GM_NONE) {
        slab->free_units =
            (uint16_t)(slab->free_units | 1u << (page % GM_SLAB_PAGES >> slab->class));
        pool->idle += unit_bytes(slab);
        pool->idle_slabs += is_idle(slab);
    } else {
        gm_pages_free(&pool->pages, page);
    }
    if (pool->count[GM_SLAB_THERE] > wanted_slabs(pool) &&
        pool->pages.free_slabs + pool->idle_slabs > 0)
        settle(pool);
}

/* ---- units ---- */

static uint32_t take_idle(struct gm_hostpool *pool, unsigned class, uint32_t owner)
{
    for (uint32_t i = 0; pool->idle > 0 && i < pool->max_slabs; i++) {
        struct gm_pinned_slab *slab = &pool->slabs[i];
        if (slab->state != GM_SLAB_THERE || slab->owner != owner || slab->class != class ||
            slab->free_units == 0)
            continue;
        const unsigned unit = (unsigned)__builtin_ctz(slab->free_units);
        pool->idle_slabs -= is_idle(slab);
        pool->idle -= unit_bytes(slab);
        pool->fresh = GM_NONE;
        slab->free_units = (uint16_t)(slab->free_units & ~(1u << unit));
        return i * GM_SLAB_PAGES + (unit << class);
    }
    return GM_NONE;
}

uint32_t gm_hostpool_take_idle(struct gm_hostpool *pool, uint32_t owner)
{
    return take_idle(pool, WHOLE, owner);
}

uint32_t gm_hostpool_take_unit(struct gm_hostpool *pool, unsigned class, uint32_t owner)
{
    uint32_t page = GM_NONE;
    if (pool->is_registered)
        return GM_NONE;
    page = take_idle(pool, class, owner);
    if (page != GM_NONE)
        return page;
    if (class == WHOLE) {
        if (pool->pages.free_slabs > 0)
            return gm_pages_take(&pool->pages, SLAB_BYTES);
        if (pool->idle_slabs > 0)
            drop_idle(pool);
        return GM_NONE;
    }
    if (!pool->is_cut_wanted) {
        pool->is_cut_wanted = true;
        pool->cut_class = (uint8_t) class;
        pool->cut_owner = owner;
    }
    settle(pool);
    return GM_NONE;
}

bool gm_hostpool_is_unit(const struct gm_hostpool *pool, uint32_t page, unsigned class)
{
    uint32_t end = page;
    return page != GM_NONE && !pool->is_registered &&
           pool->slabs[page / GM_SLAB_PAGES].class == class &&
           gm_pages_run(&pool->pages, &end, 1u << class) == 1u << class && end == GM_NONE;
}

CUmemGenericAllocationHandle gm_hostpool_unit_handle(struct gm_hostpool *pool, uint32_t page,
                                                     uint32_t owner)
{
    struct gm_pinned_slab *slab = &pool->slabs[page / GM_SLAB_PAGES];
    slab->owner = owner;
    return handles_of(slab)[page % GM_SLAB_PAGES >> slab->class];
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
    return (uint64_t)(pool->pages.pages - pool->pages.free_pages) * GM_CHUNK_MIN - pool->idle;
}

uint64_t gm_hostpool_held_back(const struct gm_hostpool *pool)
{
    return pool->idle - pool->idle_slabs * SLAB_BYTES;
}

uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool)
{
    return (pool->count[GM_SLAB_LEAVING] + pool->count[GM_SLAB_RELEASING]) * SLAB_BYTES;
}

#include "shim/memory/pools.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/map/access.h"
#include "shim/memory/release.h"

static struct gm_pool *gm_pool_list; /* with the heap's lock */
_Atomic bool gm_pools_has_excess;
_Atomic uint64_t gm_pools_n_gone;
/* With the lock: threads that give memory back now, and how often one has ended. */
static uint64_t gm_pools_n_leaving, gm_pools_n_left;
static pthread_cond_t gm_pools_left = PTHREAD_COND_INITIALIZER;

/* ---- pools ---- */

/* With the lock. */
static struct gm_pool *gm_pool_of(CUmemoryPool handle)
{
    struct gm_pool *pool = gm_pool_list;
    while (pool != NULL && (handle == NULL || pool->handle != handle))
        pool = pool->next;
    return pool;
}

static bool gm_pool_flag(CUmemoryPool handle, CUmemPool_attribute attribute)
{
    int flag = 1;
    return gm_real.cuMemPoolGetAttribute(handle, attribute, &flag) != CUDA_SUCCESS || flag != 0;
}

/* A pool's limit from its maxSize, in whole regions as with the driver. 0: no limit. */
static uint64_t gm_pool_most(uint64_t max_size)
{
    const uint64_t beyond = max_size % GM_POOL_REGION;
    const uint64_t more = beyond == 0 ? 0 : GM_POOL_REGION - beyond;
    return max_size > UINT64_MAX - more ? UINT64_MAX : max_size + more;
}

static void gm_pool_new(CUmemoryPool handle, CUdevice device, uint64_t most, bool is_the_drivers)
{
    struct gm_pool *pool = calloc(1, sizeof(*pool));
    cuuint64_t threshold = 0;
    if (pool == NULL)
        return;
    if (gm_real.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) !=
        CUDA_SUCCESS)
        threshold = 0;
    pool->handle = handle;
    pool->device = device;
    pool->gpu = gm_gpu_of(device);
    pool->most = gm_pool_most(most);
    pool->is_the_drivers = is_the_drivers;
    pool->threshold = threshold;
    pool->is_opportunistic = gm_pool_flag(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
    pool->has_dependencies =
        gm_pool_flag(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
    gm_lock(&gm_heap_lock);
    bool is_new = gm_pool_of(handle) == NULL;
    if (is_new) {
        pool->next = gm_pool_list;
        gm_pool_list = pool;
    }
    gm_unlock(&gm_heap_lock);
    if (!is_new)
        free(pool);
}

void gm_pools_add(CUmemoryPool handle, const CUmemPoolProps *props)
{
    const CUstreamCaptureMode mode = gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    bool is_shared = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->usage != 0;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
        props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && gm_gpu_of(props->location.id) >= 0)
        gm_pool_new(handle, props->location.id, props->maxSize, is_shared);
    gm_real_mode(mode);
}

/* The program did not make the default pools. Relaxed mode, because a query of a pool's attributes
 * would end a capture of this thread. */
static void gm_pool_learn(CUmemoryPool handle)
{
    const CUstreamCaptureMode mode = gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    for (uint32_t gpu = 0; gpu < gm_gpu_count(); gpu++) {
        CUmemoryPool known = NULL;
        CUdevice device = gm_gpu_device(gpu);
        if (device >= 0 && gm_real.cuDeviceGetDefaultMemPool(&known, device) == CUDA_SUCCESS &&
            known == handle)
            gm_pool_new(handle, device, 0, false);
    }
    gm_real_mode(mode);
}

struct gm_pool *gm_pool_enter(CUmemoryPool handle)
{
    struct gm_pool *pool = NULL;
    for (int attempt = 0; pool == NULL && attempt < 2; attempt++) {
        if (attempt > 0)
            gm_pool_learn(handle);
        gm_lock(&gm_heap_lock);
        pool = gm_pool_of(handle);
        if (pool != NULL)
            pool->users++;
        gm_unlock(&gm_heap_lock);
    }
    return pool;
}

/* With the lock: whether it holds free memory above its threshold. */
static bool gm_pool_is_in_excess(const struct gm_pool *pool)
{
    return pool->arena.idle > 0 && (pool->handle == NULL || pool->arena.reserved > pool->threshold);
}

void gm_pool_note_excess(const struct gm_pool *pool)
{
    if (gm_pool_is_in_excess(pool))
        atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

void gm_pool_leave(struct gm_pool *pool)
{
    gm_lock(&gm_heap_lock);
    pool->users--;
    gm_unlock(&gm_heap_lock);
}

/* With the lock: free destroyed pools without memory. */
static void gm_pools_sweep(void)
{
    for (struct gm_pool **place = &gm_pool_list; *place != NULL;) {
        struct gm_pool *pool = *place;
        if (pool->handle != NULL || pool->users > 0 || pool->arena.regions != NULL) {
            place = &pool->next;
            continue;
        }
        *place = pool->next;
        free(pool);
    }
}

/* ---- giving back ---- */

bool gm_region_release(uint64_t va)
{
    struct gm_alloc alloc;
    return gm_allocs_take(va, &alloc) == GM_ALLOC_BASE && gm_release(&alloc) == CUDA_SUCCESS;
}

static void gm_pools_end_leaving(bool is_gone)
{
    gm_lock(&gm_heap_lock);
    if (is_gone)
        atomic_fetch_add(&gm_pools_n_gone, 1);
    gm_pools_n_leaving--;
    gm_pools_n_left++;
    pthread_cond_broadcast(&gm_pools_left);
    gm_unlock(&gm_heap_lock);
}

bool gm_pools_are_leaving(void)
{
    return gm_pools_n_leaving > 0;
}

/* Wait for the threads that give memory back now. */
static void gm_pools_await_others(void)
{
    gm_lock(&gm_heap_lock);
    const uint64_t until = gm_pools_n_left + gm_pools_n_leaving;
    while (gm_pools_n_leaving > 0 && gm_pools_n_left < until)
        gm_lock_wait(&gm_pools_left, &gm_heap_lock);
    gm_unlock(&gm_heap_lock);
}

/* Give back free regions: of each pool at most the bytes that `may` returns. */
static bool gm_pools_release(uint64_t (*may)(const struct gm_pool *pool, const void *which),
                             const void *which)
{
    bool is_any = false;
    for (;;) {
        uint64_t va = 0, bytes = 0;
        bool is_one = false;
        gm_lock(&gm_heap_lock);
        for (struct gm_pool *pool = gm_pool_list; pool != NULL && !is_one; pool = pool->next)
            is_one = gm_arena_remove(&gm_heap, &pool->arena, may(pool, which), &va, &bytes);
        if (is_one)
            gm_pools_n_leaving++;
        else
            gm_pools_sweep();
        gm_unlock(&gm_heap_lock);
        if (!is_one)
            return is_any;
        const bool is_gone = gm_region_release(va);
        gm_pools_end_leaving(is_gone);
        is_any |= is_gone;
    }
}

/* Release the chunks whose stream-ordered free is over. */
static void gm_pools_release_late(void)
{
    if (!gm_freed_are(GM_FREED_STREAM))
        return;
    gm_lock(&gm_heap_lock);
    gm_pools_n_leaving++;
    gm_unlock(&gm_heap_lock);
    gm_pools_end_leaving(gm_release_freed(GM_FREED_STREAM));
    if (gm_freed_are(GM_FREED_STREAM))
        atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

static uint64_t gm_pool_all_on(const struct gm_pool *pool, const void *gpu)
{
    return pool->gpu == *(const int *)gpu || pool->handle == NULL ? UINT64_MAX : 0;
}

bool gm_pools_give_back(int gpu, uint64_t gone)
{
    gm_marks_reap();
    gm_pools_release_late();
    gm_pools_release(gm_pool_all_on, &gpu);
    gm_pools_await_others();
    return gm_pools_gone() != gone;
}

/* The driver, too, gives back until it holds no more than the threshold, a whole region for the
 * last byte. */
static uint64_t gm_pool_excess(const struct gm_pool *pool, const void *unused)
{
    (void)unused;
    if (!gm_pool_is_in_excess(pool))
        return 0;
    if (pool->handle == NULL)
        return UINT64_MAX;
    const uint64_t excess = pool->arena.reserved - pool->threshold;
    const uint64_t least = gm_arena_least(&pool->arena);
    return excess > least ? excess : least;
}

/* Not called from a handler, so it must itself prevent that the thread is cancelled while it waits
 * for the daemon. */
void gm_pools_give_back_excess(void)
{
    int cancel;
    if (!gm_is_live() || gm_gate_captures() > 0)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    /* memory that becomes free from now on counts for the next time */
    atomic_store_explicit(&gm_pools_has_excess, false, memory_order_relaxed);
    gm_marks_reap();
    gm_pools_release_late();
    gm_pools_release(gm_pool_excess, NULL);
    gm_lock(&gm_heap_lock);
    if (gm_heap.queues != NULL) /* pending blocks may make more regions free */
        for (struct gm_pool *pool = gm_pool_list; pool != NULL; pool = pool->next)
            gm_pool_note_excess(pool);
    gm_unlock(&gm_heap_lock);
    pthread_setcancelstate(cancel, NULL);
}

struct gm_pool_trim {
    CUmemoryPool handle;
    uint64_t keep;
};

static uint64_t gm_pool_trimmed(const struct gm_pool *pool, const void *which)
{
    const struct gm_pool_trim *trim = which;
    return pool->handle == trim->handle && pool->arena.reserved > trim->keep
               ? pool->arena.reserved - trim->keep
               : 0;
}

void gm_pools_trim(CUmemoryPool handle, size_t keep)
{
    const struct gm_pool_trim trim = {.handle = handle, .keep = keep};
    gm_marks_reap();
    gm_pools_release(gm_pool_trimmed, &trim);
}

/* ---- the objects ---- */

struct gm_pool *gm_pools_forget(CUmemoryPool handle)
{
    gm_lock(&gm_heap_lock);
    struct gm_pool *pool = gm_pool_of(handle);
    if (pool != NULL) {
        pool->handle = NULL;
        pool->users++;
    }
    gm_unlock(&gm_heap_lock);
    return pool;
}

void gm_pools_end(struct gm_pool *pool, CUmemoryPool handle, bool is_destroyed)
{
    if (pool == NULL)
        return;
    gm_lock(&gm_heap_lock);
    if (!is_destroyed)
        pool->handle = handle;
    pool->users--;
    gm_unlock(&gm_heap_lock);
    if (!is_destroyed)
        return;
    gm_marks_reap();
    gm_pools_release(gm_pool_excess, NULL);
    gm_lock(&gm_heap_lock);
    gm_pools_sweep();
    gm_unlock(&gm_heap_lock);
    /* a later synchronizing call gives the rest back */
    atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

void gm_pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    cuuint64_t bytes = 0;
    gm_lock(&gm_heap_lock);
    const struct gm_pool *pool = gm_pool_of(handle);
    if (pool != NULL && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        bytes = pool->arena.reserved;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        bytes = pool->reserved_high;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        bytes = pool->used;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        bytes = pool->used_high;
    gm_unlock(&gm_heap_lock);
    if (bytes != 0)
        *(cuuint64_t *)value += bytes;
}

void gm_pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    gm_lock(&gm_heap_lock);
    struct gm_pool *pool = gm_pool_of(handle);
    if (pool == NULL) {
        gm_unlock(&gm_heap_lock);
        return;
    }
    if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)
        pool->is_opportunistic = *(const int *)value != 0;
    else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        pool->has_dependencies = *(const int *)value != 0;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(const cuuint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->arena.reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    gm_pool_note_excess(pool);
    gm_unlock(&gm_heap_lock);
}

/* Whether this access opens the pool to another device. */
static bool gm_pool_is_opened(const struct gm_pool *pool, const CUmemAccessDesc *access)
{
    return access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
           (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            access->location.id != pool->device);
}

void gm_pools_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int gpu = -1;
        gm_lock(&gm_heap_lock);
        struct gm_pool *pool = gm_pool_of(handle);
        if (pool != NULL && gm_pool_is_opened(pool, &map[i])) {
            pool->is_the_drivers = true;
            gpu = pool->gpu;
        }
        gm_unlock(&gm_heap_lock);
        if (gpu >= 0 && map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            gm_access_open_for_good((uint32_t)gpu, map[i].location.id);
    }
}

bool gm_pools_find(uint64_t va, uint64_t *base, uint64_t *bytes, CUmemoryPool *pool)
{
    gm_lock(&gm_heap_lock);
    const struct gm_block *block = gm_heap_find(&gm_heap, va);
    bool is_live = block != NULL && block->state == GM_BLOCK_LIVE && va - block->va < block->asked;
    if (is_live && base != NULL)
        *base = block->va;
    if (is_live && bytes != NULL)
        *bytes = block->asked;
    if (is_live && pool != NULL)
        *pool = gm_pool_of_block(block)->handle;
    gm_unlock(&gm_heap_lock);
    return is_live;
}

#include "shim/memory/pools.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/gate/permits.h"
#include "shim/link/link.h"
#include "shim/map/access.h"
#include "shim/memory/freed.h"
#include "shim/memory/obtain.h"
#include "shim/memory/release.h"
#include "shim/memory/sharing.h"

struct gm_pool {
    struct gm_arena arena;
    CUmemoryPool handle; /* NULL: destroyed; freed with its last block */
    CUdevice device;
    int gpu;
    unsigned users;     /* threads that allocate from it now */
    uint64_t most;      /* bytes that it may reserve; 0: no limit */
    uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
    uint64_t used;      /* bytes of live blocks, as the program asked for them */
    uint64_t reserved_high, used_high;
    _Atomic bool is_opportunistic, has_dependencies; /* the attributes */
    _Atomic bool is_the_drivers; /* the driver allocates; noted for its device */
    struct gm_pool *next;
};

static struct gm_pool *pool_of_block(const struct gm_block *block)
{
    return (struct gm_pool *)(void *)block->region->arena; /* its first member */
}

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

/* The pool; it is not freed before pool_leave. NULL: the driver serves it. */
static struct gm_pool *pool_enter(CUmemoryPool handle)
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

/* With the lock: memory became free. The next synchronizing call gives back what exceeds. */
static void pool_note_excess(const struct gm_pool *pool)
{
    if (gm_pool_is_in_excess(pool))
        atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

static void pool_leave(struct gm_pool *pool)
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

static bool region_release(uint64_t va)
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

/* With the lock: whether another thread gives memory back to the daemon now. */
static bool pools_are_leaving(void)
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
        const bool is_gone = region_release(va);
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
            pool_note_excess(pool);
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
    pool_note_excess(pool);
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
        *pool = pool_of_block(block)->handle;
    gm_unlock(&gm_heap_lock);
    return is_live;
}

/* ---- allocating from them ---- */

/*
 * Allocates from memory pools (pools.h) and frees. The steps of an allocation, until one succeeds:
 *
 *   1 a block that is clean, or was freed in the same stream
 *   2 the same after asking which frees in other streams are over (REUSE_ALLOW_OPPORTUNISTIC;
 *     without it only before memory is out)
 *   3 a new region: GM_POOL_REGION bytes, which is what the driver takes (CUDA 13.0, H200), or more
 *     for a large block; where the budget is small, room for some such blocks and no more
 *   4 the same after free regions of all pools on that GPU went back to the daemon
 *   5 blocks freed in other streams, after making the allocating stream wait for them
 *     (REUSE_ALLOW_INTERNAL_DEPENDENCIES; like the driver, only when memory is out)
 *   6 2 to 4 again for up to GM_POOL_PATIENCE_MS, while frees are under way
 *   7 CUDA_ERROR_OUT_OF_MEMORY
 *
 * REUSE_FOLLOW_EVENT_DEPENDENCIES is not used: it needs knowledge of the program's events.
 *
 * A free in a capturing stream goes to the driver. It allows only the memory of graphs there, so
 * it fails and the block stays live.
 *
 * Owns nothing. Callers: handlers; any thread, only when live. No lock is held across a driver
 * call or a request to the daemon.
 */

#define GM_POOL_MARKS 16 /* streams that one allocation is made to wait for, at most */

/* With the lock. */
static CUdeviceptr gm_pool_hand_out(struct gm_pool *pool, struct gm_block *block, uint64_t asked)
{
    block->asked = asked;
    pool->used += asked;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    return block->va;
}

struct gm_want {
    struct gm_pool *pool;
    const struct gm_stream *stream;
    uint64_t asked, bytes; /* bytes: whole grains */
    CUdeviceptr at;        /* the result */
};

static bool gm_want_fit(struct gm_want *want)
{
    gm_lock(&gm_heap_lock);
    struct gm_block *block =
        gm_arena_fit(&gm_heap, &want->pool->arena, want->bytes, want->stream->number);
    if (block != NULL)
        want->at = gm_pool_hand_out(want->pool, block, want->asked);
    gm_unlock(&gm_heap_lock);
    return block != NULL;
}

/* The size of a new region: at least `least` bytes. Where the budget is small, as many blocks of
 * `block` bytes as fit into a part of it, and nothing beyond them. */
static uint64_t gm_pool_region(const struct gm_pool *pool, uint64_t block, uint64_t least)
{
    const uint64_t share = gm_link_budget((uint32_t)pool->gpu) / 16 / GM_CHUNK_MIN * GM_CHUNK_MIN;
    const uint64_t bytes =
        share < GM_POOL_REGION ? gm_chunk_round(share / block * block) : GM_POOL_REGION;
    return bytes > least ? bytes : least;
}

/* Add a region and take the block from it, at once. NOT_SUPPORTED: the driver shall allocate. */
static CUresult gm_want_region(struct gm_want *want)
{
    struct gm_pool *pool = want->pool;
    CUdeviceptr va = 0;
    if (!gm_link_has_daemon())
        return CUDA_ERROR_NOT_SUPPORTED;
    const uint64_t least = gm_chunk_round(want->bytes);
    uint64_t bytes = gm_pool_region(pool, want->bytes, least);
    gm_lock(&gm_heap_lock);
    uint64_t room = pool->most == 0                     ? UINT64_MAX
                    : pool->most > pool->arena.reserved ? pool->most - pool->arena.reserved
                                                        : 0;
    gm_unlock(&gm_heap_lock);
    if (least < want->bytes || least > room)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes > room)
        bytes = least;

    const struct gm_alloc where = {.device = pool->device, .gpu = pool->gpu};
    CUresult result = gm_obtain(where, GM_ALLOC_ARENA, bytes, &va);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && bytes > least) {
        bytes = least;
        result = gm_obtain(where, GM_ALLOC_ARENA, bytes, &va);
    }
    if (result != CUDA_SUCCESS)
        return result;

    struct gm_block *block = NULL;
    gm_lock(&gm_heap_lock);
    bool is_added = gm_arena_add(&gm_heap, &pool->arena, va, bytes) == 0;
    if (is_added)
        block = gm_arena_fit(&gm_heap, &pool->arena, want->bytes, want->stream->number);
    if (block != NULL)
        want->at = gm_pool_hand_out(pool, block, want->asked);
    if (pool->arena.reserved > pool->reserved_high)
        pool->reserved_high = pool->arena.reserved;
    gm_unlock(&gm_heap_lock);
    if (!is_added)
        region_release(va);
    return block != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Make the stream wait for frees in other streams, and take their blocks. */
static bool gm_want_dependent(struct gm_want *want)
{
    struct gm_mark *marks[GM_POOL_MARKS], *over = NULL;
    struct gm_block *block = NULL;
    gm_lock(&gm_heap_lock);
    int n =
        gm_arena_run(&want->pool->arena, want->bytes, want->stream->number, marks, GM_POOL_MARKS);
    gm_unlock(&gm_heap_lock);
    if (n < 0)
        return false;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = gm_mark_await(want->stream, marks[i]);
    if (result == CUDA_SUCCESS)
        result = gm_mark_record(want->stream, &over);
    gm_lock(&gm_heap_lock);
    if (result == CUDA_SUCCESS) {
        block = gm_arena_fit_run(&gm_heap, &want->pool->arena, want->bytes, want->stream->number,
                                 marks, n, over);
        gm_mark_unref(&gm_heap, over);
    }
    if (block != NULL)
        want->at = gm_pool_hand_out(want->pool, block, want->asked);
    for (int i = 0; i < n; i++)
        gm_mark_unref(&gm_heap, marks[i]);
    gm_unlock(&gm_heap_lock);
    return block != NULL;
}

static bool gm_pools_are_freeing(void)
{
    gm_lock(&gm_heap_lock);
    bool is_leaving = pools_are_leaving();
    gm_unlock(&gm_heap_lock);
    return is_leaving || gm_freed_are(GM_FREED_STREAM) || gm_marks_are_pending();
}

/* Steps 4 to 7. `gone`: gm_pools_gone before the daemon refused. */
static CUresult gm_want_hard(struct gm_want *want, uint64_t gone)
{
    const struct timespec pause = {.tv_nsec = (long)GM_MS};
    uint64_t until = gm_now() + GM_POOL_PATIENCE_MS * GM_MS;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (bool is_first = true;; is_first = false) {
        gm_marks_reap();
        if (gm_want_fit(want))
            return CUDA_SUCCESS;
        if (gm_pools_give_back(want->pool->gpu, gone)) {
            gone = gm_pools_gone();
            result = gm_want_region(want);
            if (result != CUDA_ERROR_OUT_OF_MEMORY)
                return result;
        }
        if (is_first && want->pool->has_dependencies && gm_want_dependent(want))
            return CUDA_SUCCESS;
        if (!gm_pools_are_freeing() || gm_now() >= until)
            return CUDA_ERROR_OUT_OF_MEMORY;
        nanosleep(&pause, NULL);
    }
}

static CUresult gm_want_serve(struct gm_want *want)
{
    if (gm_want_fit(want))
        return CUDA_SUCCESS;
    if (want->pool->is_opportunistic && gm_marks_reap() && gm_want_fit(want))
        return CUDA_SUCCESS;
    const uint64_t gone = gm_pools_gone();
    CUresult result = gm_want_region(want);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? gm_want_hard(want, gone) : result;
}

bool gm_pools_alloc(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream,
                    struct gm_alloc *place, CUresult *result)
{
    struct gm_stream look;
    *place = (struct gm_alloc){.gpu = -1};
    if (dptr == NULL || bytes == 0 || gm_block_round(bytes) == 0 ||
        gm_stream_look(stream, &look) != CUDA_SUCCESS || look.is_capturing ||
        (handle == NULL && gm_real.cuDeviceGetMemPool(&handle, look.device) != CUDA_SUCCESS))
        return false;
    *result = gm_permits_unsafe();
    if (*result != CUDA_SUCCESS)
        return true;
    struct gm_pool *pool = pool_enter(handle);
    if (pool == NULL)
        return false;
    *place = (struct gm_alloc){.device = pool->device, .gpu = pool->gpu};
    struct gm_want want = {
        .pool = pool, .stream = &look, .asked = bytes, .bytes = gm_block_round(bytes)};
    *result = pool->is_the_drivers || gm_sharing_is_real() ? CUDA_ERROR_NOT_SUPPORTED
                                                           : gm_want_serve(&want);
    if (*result == CUDA_SUCCESS)
        *dptr = want.at;
    pool_leave(pool);
    return *result != CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- freeing ---- */

enum gm_freeing { GM_FREE_ELSEWHERE, GM_FREE_WRONG, GM_FREE_BEGUN };

/* BEGUN: only this thread can free the block now. */
static enum gm_freeing gm_block_begin_free(CUdeviceptr dptr, struct gm_block **block)
{
    gm_lock(&gm_heap_lock);
    struct gm_block *found = gm_heap_find(&gm_heap, dptr);
    bool is_good =
        found != NULL && found->va == dptr && found->state == GM_BLOCK_LIVE && !found->is_leaving;
    if (is_good)
        found->is_leaving = true;
    gm_unlock(&gm_heap_lock);
    *block = found;
    return is_good ? GM_FREE_BEGUN : found != NULL ? GM_FREE_WRONG : GM_FREE_ELSEWHERE;
}

static void gm_block_end_free(struct gm_block *block, struct gm_mark *mark)
{
    struct gm_pool *pool = pool_of_block(block);
    gm_lock(&gm_heap_lock);
    pool->used -= block->asked;
    gm_heap_free(&gm_heap, block, mark);
    gm_mark_unref(&gm_heap, mark);
    pool_note_excess(pool);
    gm_unlock(&gm_heap_lock);
}

static void gm_block_undo_free(struct gm_block *block)
{
    gm_lock(&gm_heap_lock);
    block->is_leaving = false;
    gm_unlock(&gm_heap_lock);
}

/* Chunks of cuMemAlloc: out of the map at once, released later. */
static CUresult gm_chunks_free_async(const struct gm_alloc *alloc, const struct gm_stream *stream)
{
    struct gm_alloc taken;
    struct gm_mark *mark = NULL;
    CUresult result = gm_mark_record(stream, &mark);
    if (result != CUDA_SUCCESS)
        return result;
    if (gm_allocs_take(alloc->va, &taken) != GM_ALLOC_BASE) {
        result = CUDA_ERROR_INVALID_VALUE; /* another thread freed it first */
    } else if (!gm_freed_await(&taken, GM_FREED_STREAM, mark)) {
        gm_allocs_insert(&taken); /* no memory to free it later: it stays allocated */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
    else
        gm_mark_release(mark);
    return result;
}

bool gm_pools_free_async(CUdeviceptr dptr, CUstream handle, CUresult *result)
{
    struct gm_block *block = NULL;
    struct gm_stream stream;
    struct gm_alloc alloc = {0};
    struct gm_mark *mark = NULL;
    enum gm_freeing freeing = gm_block_begin_free(dptr, &block);
    if (freeing == GM_FREE_ELSEWHERE) {
        enum gm_alloc_find found = gm_allocs_find(dptr, &alloc);
        if (found == GM_ALLOC_UNKNOWN || alloc.kind != GM_ALLOC_CHUNKS)
            return false;
        freeing = found == GM_ALLOC_BASE ? GM_FREE_ELSEWHERE : GM_FREE_WRONG;
    }
    *result = CUDA_ERROR_INVALID_VALUE;
    if (freeing == GM_FREE_WRONG)
        return true;
    *result = gm_stream_look(handle, &stream);
    if (*result == CUDA_SUCCESS && stream.is_capturing) {
        if (freeing == GM_FREE_BEGUN)
            gm_block_undo_free(block);
        return false;
    }
    if (freeing == GM_FREE_ELSEWHERE) {
        if (*result == CUDA_SUCCESS)
            *result = gm_chunks_free_async(&alloc, &stream);
        return true;
    }
    if (*result == CUDA_SUCCESS)
        *result = gm_mark_record(&stream, &mark);
    if (*result == CUDA_SUCCESS)
        gm_block_end_free(block, mark);
    else
        gm_block_undo_free(block);
    return true;
}

bool gm_pools_free(CUdeviceptr dptr, CUresult *result)
{
    struct gm_block *block;
    enum gm_freeing freeing = gm_block_begin_free(dptr, &block);
    *result = freeing == GM_FREE_WRONG ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (freeing == GM_FREE_BEGUN)
        gm_block_end_free(block, NULL);
    return freeing != GM_FREE_ELSEWHERE;
}

/* Memory pools. See pools.h. */
#include "shim/pools.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/accounts.h"
#include "shim/boot.h"
#include "shim/gate.h"
#include "shim/link.h"
#include "shim/marks.h"
#include "shim/obtain.h"
#include "shim/release.h"

#define GM_POOL_MARKS 16 /* streams that one allocation is made to wait for, at most */

struct gm_pool {
    struct gm_arena arena;
    CUmemoryPool handle; /* NULL: destroyed; it goes when its last block is free */
    CUdevice device;
    int gpu;
    unsigned users;     /* threads that allocate from it now */
    uint64_t most;      /* bytes that it may reserve; 0: any */
    uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
    uint64_t reserved_high, used_high;
    _Atomic bool is_opportunistic, has_dependencies; /* the attributes */
    _Atomic bool is_the_drivers; /* which allocates; here it is only known where */
    struct gm_pool *next;
};

/* Chunks of cuMemAlloc that were freed in a stream: released when it has come there. */
struct gm_pool_later {
    struct gm_alloc alloc;
    struct gm_mark *mark;
    bool is_passed;
    struct gm_pool_later *next;
};

static struct gm_pool *gm_pool_list;       /* with the heap's lock */
static struct gm_pool_later *gm_pool_late; /* so is this */
_Atomic bool gm_pools_has_excess;

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
    pool->gpu = gm_boot_gpu(device);
    pool->most = most;
    pool->is_the_drivers = is_the_drivers;
    pool->threshold = threshold;
    pool->is_opportunistic = gm_pool_flag(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
    pool->has_dependencies =
        gm_pool_flag(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
    gm_heap_lock();
    bool is_new = gm_pool_of(handle) == NULL;
    if (is_new) {
        pool->next = gm_pool_list;
        gm_pool_list = pool;
    }
    gm_heap_unlock();
    if (!is_new)
        free(pool);
}

void gm_pools_add(CUmemoryPool handle, const CUmemPoolProps *props)
{
    bool is_shared = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->usage != 0;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
        props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && gm_boot_gpu(props->location.id) >= 0)
        gm_pool_new(handle, props->location.id, props->maxSize, is_shared);
}

/* The default pools are not made by the program. */
static void gm_pool_learn(CUmemoryPool handle)
{
    for (uint32_t gpu = 0; gpu < gm_boot_gpus(); gpu++) {
        CUmemoryPool known = NULL;
        CUdevice device = gm_boot_device(gpu);
        if (device >= 0 && gm_real.cuDeviceGetDefaultMemPool(&known, device) == CUDA_SUCCESS &&
            known == handle)
            gm_pool_new(handle, device, 0, false);
    }
}

/* The pool, kept from going until gm_pool_leave. NULL: it is the driver's. */
static struct gm_pool *gm_pool_enter(CUmemoryPool handle)
{
    struct gm_pool *pool = NULL;
    for (int attempt = 0; pool == NULL && attempt < 2; attempt++) {
        if (attempt > 0)
            gm_pool_learn(handle);
        gm_heap_lock();
        pool = gm_pool_of(handle);
        if (pool != NULL)
            pool->users++;
        gm_heap_unlock();
    }
    return pool;
}

/* With the lock: whether it holds more than it should. */
static bool gm_pool_is_in_excess(const struct gm_pool *pool)
{
    return pool->arena.idle > 0 && (pool->handle == NULL || pool->arena.reserved > pool->threshold);
}

static void gm_pool_note_excess(const struct gm_pool *pool)
{
    if (gm_pool_is_in_excess(pool))
        atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

static void gm_pool_leave(struct gm_pool *pool)
{
    gm_heap_lock();
    pool->users--;
    gm_heap_unlock();
}

/* With the lock: those that were destroyed and have nothing left. */
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

static bool gm_region_release(uint64_t va)
{
    struct gm_alloc alloc;
    return gm_allocs_take(va, &alloc) == GM_ALLOC_BASE && gm_release(&alloc) == CUDA_SUCCESS;
}

/* Give back the free regions that `may` allows, so many bytes of a pool at most. */
static bool gm_pools_release(uint64_t (*may)(const struct gm_pool *pool, const void *which),
                             const void *which)
{
    bool is_any = false;
    for (;;) {
        uint64_t va = 0, bytes = 0;
        bool is_one = false;
        gm_heap_lock();
        for (struct gm_pool *pool = gm_pool_list; pool != NULL && !is_one; pool = pool->next)
            is_one = gm_arena_remove(&gm_heap, &pool->arena, may(pool, which), &va, &bytes);
        if (!is_one)
            gm_pools_sweep();
        gm_heap_unlock();
        if (!is_one)
            return is_any;
        is_any |= gm_region_release(va);
    }
}

/* Release the chunks whose free in a stream is over. */
static bool gm_pools_release_late(void)
{
    struct gm_pool_later *list, *left = NULL, **end = &left;
    bool is_any = false;
    gm_heap_lock();
    list = gm_pool_late;
    gm_pool_late = NULL;
    gm_heap_unlock();
    while (list != NULL) {
        struct gm_pool_later *later = list;
        list = later->next;
        if (!gm_mark_ask(later->mark)) {
            *end = later;
            end = &later->next;
            continue;
        }
        gm_release(&later->alloc);
        gm_heap_lock();
        gm_mark_unref(&gm_heap, later->mark);
        gm_heap_unlock();
        free(later);
        is_any = true;
    }
    *end = NULL;
    if (left == NULL)
        return is_any;
    gm_heap_lock();
    *end = gm_pool_late;
    gm_pool_late = left;
    gm_heap_unlock();
    atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
    return is_any;
}

static uint64_t gm_pool_all_on(const struct gm_pool *pool, const void *gpu)
{
    return pool->gpu == *(const int *)gpu || pool->handle == NULL ? UINT64_MAX : 0;
}

bool gm_pools_give_back(int gpu)
{
    gm_marks_reap();
    bool is_any = gm_pools_release_late();
    return gm_pools_release(gm_pool_all_on, &gpu) || is_any;
}

static uint64_t gm_pool_excess(const struct gm_pool *pool, const void *unused)
{
    (void)unused;
    return !gm_pool_is_in_excess(pool) ? 0
           : pool->handle == NULL      ? UINT64_MAX
                                       : pool->arena.reserved - pool->threshold;
}

void gm_pools_give_back_excess(void)
{
    if (!gm_is_live() || gm_gate_captures() > 0)
        return;
    /* what is noted from now on counts for the next time */
    atomic_store_explicit(&gm_pools_has_excess, false, memory_order_relaxed);
    gm_marks_reap();
    gm_pools_release_late();
    gm_pools_release(gm_pool_excess, NULL);
    gm_heap_lock();
    if (gm_heap.queues != NULL) /* more of it may be free when that is over */
        for (struct gm_pool *pool = gm_pool_list; pool != NULL; pool = pool->next)
            gm_pool_note_excess(pool);
    gm_heap_unlock();
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

/* ---- allocating ---- */

/* With the lock: the block is the program's. */
static CUdeviceptr gm_pool_hand_out(struct gm_pool *pool, struct gm_block *block, uint64_t asked)
{
    block->asked = asked;
    if (pool->arena.used > pool->used_high)
        pool->used_high = pool->arena.used;
    return block->va;
}

struct gm_want {
    struct gm_pool *pool;
    const struct gm_stream *stream;
    uint64_t asked, bytes; /* bytes: whole grains */
    CUdeviceptr at;        /* the answer */
};

static bool gm_want_fit(struct gm_want *want)
{
    gm_heap_lock();
    struct gm_block *block =
        gm_arena_fit(&gm_heap, &want->pool->arena, want->bytes, want->stream->number);
    if (block != NULL)
        want->at = gm_pool_hand_out(want->pool, block, want->asked);
    gm_heap_unlock();
    return block != NULL;
}

/* How large a new region shall be: `least` bytes, or more. */
static uint64_t gm_pool_region(const struct gm_pool *pool, uint64_t least)
{
    uint64_t share = gm_link_budget((uint32_t)pool->gpu) / 16 / GM_CHUNK_MIN * GM_CHUNK_MIN;
    uint64_t bytes = share < GM_POOL_REGION ? share : GM_POOL_REGION;
    return bytes > least ? bytes : least;
}

/* A region, and the block out of it before anybody else comes. NOT_SUPPORTED: the driver shall. */
static CUresult gm_want_region(struct gm_want *want)
{
    struct gm_pool *pool = want->pool;
    CUdeviceptr va = 0;
    if (!gm_link_is_up())
        return CUDA_ERROR_NOT_SUPPORTED;
    const uint64_t least = gm_chunk_round(want->bytes);
    uint64_t bytes = gm_pool_region(pool, least);
    gm_heap_lock();
    uint64_t room = pool->most == 0                     ? UINT64_MAX
                    : pool->most > pool->arena.reserved ? pool->most - pool->arena.reserved
                                                        : 0;
    gm_heap_unlock();
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
    gm_heap_lock();
    bool is_added = gm_arena_add(&gm_heap, &pool->arena, va, bytes) == 0;
    if (is_added)
        block = gm_arena_fit(&gm_heap, &pool->arena, want->bytes, want->stream->number);
    if (block != NULL)
        want->at = gm_pool_hand_out(pool, block, want->asked);
    if (pool->arena.reserved > pool->reserved_high)
        pool->reserved_high = pool->arena.reserved;
    gm_heap_unlock();
    if (!is_added)
        gm_region_release(va);
    return block != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Blocks that other streams freed: make this one wait for them. */
static bool gm_want_dependent(struct gm_want *want)
{
    struct gm_mark *marks[GM_POOL_MARKS], *over = NULL;
    struct gm_block *block = NULL;
    gm_heap_lock();
    int n =
        gm_arena_run(&want->pool->arena, want->bytes, want->stream->number, marks, GM_POOL_MARKS);
    gm_heap_unlock();
    if (n < 0)
        return false;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = gm_mark_await(want->stream, marks[i]);
    if (result == CUDA_SUCCESS)
        result = gm_mark_record(want->stream, &over);
    gm_heap_lock();
    if (result == CUDA_SUCCESS) {
        block = gm_arena_fit_run(&gm_heap, &want->pool->arena, want->bytes, want->stream->number,
                                 marks, n, over);
        gm_mark_unref(&gm_heap, over);
    }
    if (block != NULL)
        want->at = gm_pool_hand_out(want->pool, block, want->asked);
    for (int i = 0; i < n; i++)
        gm_mark_unref(&gm_heap, marks[i]);
    gm_heap_unlock();
    return block != NULL;
}

static bool gm_pools_are_freeing(void)
{
    gm_heap_lock();
    bool is_late = gm_pool_late != NULL;
    gm_heap_unlock();
    return is_late || gm_marks_are_pending();
}

/* What the daemon cannot give: steps 4 to 7. */
static CUresult gm_want_hard(struct gm_want *want)
{
    const struct timespec pause = {.tv_nsec = (long)GM_MS};
    uint64_t until = gm_now() + GM_POOL_PATIENCE_MS * GM_MS;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (bool is_first = true;; is_first = false) {
        gm_marks_reap();
        if (gm_want_fit(want))
            return CUDA_SUCCESS;
        if (gm_pools_give_back(want->pool->gpu)) {
            result = gm_want_region(want);
            if (result != CUDA_ERROR_OUT_OF_MEMORY)
                return result;
        }
        if (is_first && want->pool->has_dependencies && gm_want_dependent(want))
            return CUDA_SUCCESS;
        if (!gm_pools_are_freeing() || gm_now() >= until)
            return CUDA_ERROR_OUT_OF_MEMORY;
        struct gm_slot *slot = gm_sync_enter();
        nanosleep(&pause, NULL);
        gm_sync_leave(slot);
    }
}

static CUresult gm_want_serve(struct gm_want *want)
{
    if (gm_want_fit(want))
        return CUDA_SUCCESS;
    if (want->pool->is_opportunistic && gm_marks_reap() && gm_want_fit(want))
        return CUDA_SUCCESS;
    CUresult result = gm_want_region(want);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? gm_want_hard(want) : result;
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
    struct gm_pool *pool = gm_pool_enter(handle);
    if (pool == NULL)
        return false;
    *place = (struct gm_alloc){.device = pool->device, .gpu = pool->gpu};
    struct gm_want want = {
        .pool = pool, .stream = &look, .asked = bytes, .bytes = gm_block_round(bytes)};
    *result = pool->is_the_drivers ? CUDA_ERROR_NOT_SUPPORTED : gm_want_serve(&want);
    if (*result == CUDA_SUCCESS)
        *dptr = want.at;
    gm_pool_leave(pool);
    return *result != CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- freeing ---- */

enum gm_freeing { GM_FREE_ELSEWHERE, GM_FREE_WRONG, GM_FREE_BEGUN };

/* Nobody else can free the block once it is begun. */
static enum gm_freeing gm_block_begin_free(CUdeviceptr dptr, struct gm_block **block)
{
    gm_heap_lock();
    struct gm_block *found = gm_heap_find(&gm_heap, dptr);
    bool is_good =
        found != NULL && found->va == dptr && found->state == GM_BLOCK_LIVE && !found->is_leaving;
    if (is_good)
        found->is_leaving = true;
    gm_heap_unlock();
    *block = found;
    return is_good ? GM_FREE_BEGUN : found != NULL ? GM_FREE_WRONG : GM_FREE_ELSEWHERE;
}

static void gm_block_end_free(struct gm_block *block, struct gm_mark *mark)
{
    struct gm_pool *pool = (struct gm_pool *)(void *)block->region->arena; /* its first member */
    gm_heap_lock();
    gm_heap_free(&gm_heap, block, mark);
    gm_mark_unref(&gm_heap, mark);
    gm_pool_note_excess(pool);
    gm_heap_unlock();
}

static void gm_block_undo_free(struct gm_block *block)
{
    gm_heap_lock();
    block->is_leaving = false;
    gm_heap_unlock();
}

/* Chunks of cuMemAlloc. They are the program's no more at once, and released later. */
static CUresult gm_chunks_free_async(const struct gm_alloc *alloc, const struct gm_stream *stream)
{
    struct gm_pool_later *later = calloc(1, sizeof(*later));
    struct gm_alloc taken;
    if (later == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = gm_mark_record(stream, &later->mark);
    if (result != CUDA_SUCCESS) {
        free(later);
        return result;
    }
    bool is_ours = gm_allocs_take(alloc->va, &taken) == GM_ALLOC_BASE;
    gm_heap_lock();
    if (is_ours) {
        later->alloc = taken;
        later->next = gm_pool_late;
        gm_pool_late = later;
    } else {
        gm_mark_unref(&gm_heap, later->mark);
    }
    gm_heap_unlock();
    if (!is_ours) {
        free(later);
        return CUDA_ERROR_INVALID_VALUE; /* two threads free it; the other was first */
    }
    atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
    return CUDA_SUCCESS;
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

bool gm_pools_find(uint64_t va, uint64_t *base, uint64_t *bytes, CUmemoryPool *pool)
{
    gm_heap_lock();
    const struct gm_block *block = gm_heap_find(&gm_heap, va);
    bool is_live = block != NULL && block->state == GM_BLOCK_LIVE && va - block->va < block->asked;
    if (is_live && base != NULL)
        *base = block->va;
    if (is_live && bytes != NULL)
        *bytes = block->asked;
    if (is_live && pool != NULL)
        *pool = ((const struct gm_pool *)(const void *)block->region->arena)->handle;
    gm_heap_unlock();
    return is_live;
}

/* ---- the objects ---- */

struct gm_pool *gm_pools_forget(CUmemoryPool handle)
{
    gm_heap_lock();
    struct gm_pool *pool = gm_pool_of(handle);
    if (pool != NULL) {
        pool->handle = NULL;
        pool->users++;
    }
    gm_heap_unlock();
    return pool;
}

void gm_pools_end(struct gm_pool *pool, CUmemoryPool handle, bool is_destroyed)
{
    if (pool == NULL)
        return;
    gm_heap_lock();
    if (!is_destroyed)
        pool->handle = handle;
    pool->users--;
    gm_heap_unlock();
    if (!is_destroyed)
        return;
    gm_marks_reap();
    gm_pools_release(gm_pool_excess, NULL);
    gm_heap_lock();
    gm_pools_sweep();
    gm_heap_unlock();
    /* what is left goes after a later synchronization */
    atomic_store_explicit(&gm_pools_has_excess, true, memory_order_relaxed);
}

void gm_pools_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    cuuint64_t bytes = 0;
    gm_heap_lock();
    const struct gm_pool *pool = gm_pool_of(handle);
    if (pool != NULL && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        bytes = pool->arena.reserved;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        bytes = pool->reserved_high;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        bytes = pool->arena.used;
    else if (pool != NULL && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        bytes = pool->used_high;
    gm_heap_unlock();
    if (bytes != 0)
        *(cuuint64_t *)value += bytes;
}

void gm_pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    gm_heap_lock();
    struct gm_pool *pool = gm_pool_of(handle);
    if (pool == NULL) {
        gm_heap_unlock();
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
        pool->used_high = pool->arena.used;
    gm_pool_note_excess(pool);
    gm_heap_unlock();
}

void gm_pools_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    gm_heap_lock();
    struct gm_pool *pool = gm_pool_of(handle);
    for (size_t i = 0; pool != NULL && i < count; i++)
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
             map[i].location.id != pool->device))
            pool->is_the_drivers = true;
    gm_heap_unlock();
}

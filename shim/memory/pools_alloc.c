#include "shim/gate/permits.h"
#include "shim/memory/pools_alloc.h"

#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/freed.h"
#include "shim/memory/obtain.h"
#include "shim/memory/pools.h"
#include "shim/memory/sharing.h"

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
        gm_region_release(va);
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
    bool is_leaving = gm_pools_are_leaving();
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
    struct gm_pool *pool = gm_pool_enter(handle);
    if (pool == NULL)
        return false;
    *place = (struct gm_alloc){.device = pool->device, .gpu = pool->gpu};
    struct gm_want want = {
        .pool = pool, .stream = &look, .asked = bytes, .bytes = gm_block_round(bytes)};
    *result = pool->is_the_drivers || gm_sharing_is_real() ? CUDA_ERROR_NOT_SUPPORTED
                                                           : gm_want_serve(&want);
    if (*result == CUDA_SUCCESS)
        *dptr = want.at;
    gm_pool_leave(pool);
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
    struct gm_pool *pool = gm_pool_of_block(block);
    gm_lock(&gm_heap_lock);
    pool->used -= block->asked;
    gm_heap_free(&gm_heap, block, mark);
    gm_mark_unref(&gm_heap, mark);
    gm_pool_note_excess(pool);
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

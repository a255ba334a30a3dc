/*
 * The handlers of linear allocation. Allocations of GM_SMALL_MAX bytes or more on a managed GPU are
 * chunks in a reserved range. The driver makes the rest, which is counted for cuMemGetInfo and the
 * daemon.
 */
#include "common/chunk.h"
#include "shim/gate/boot.h"
#include "shim/gate/contexts.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/memory/ahead.h"
#include "shim/memory/chunks.h"
#include "shim/memory/freed.h"
#include "shim/memory/notes.h"
#include "shim/memory/obtain.h"
#include "shim/memory/pools.h"
#include "shim/memory/release.h"
#include "shim/memory/sharing.h"
#include "shim/tables/accounts.h"
#include "shim/tables/allocs.h"

#define GM_PITCH 512ull /* the driver rounds the rows of cuMemAllocPitch to it */

/* Back `bytes` with chunks (gm_obtain). Before memory is out, pools give back their free memory. */
static CUresult gm_allocate(struct gm_alloc alloc, uint64_t bytes, CUdeviceptr *va)
{
    GM_REFUSE(gm_permits_unsafe());
    const uint64_t gone = gm_pools_gone();
    CUresult result = gm_obtain(alloc, GM_ALLOC_CHUNKS, bytes, va);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && gm_pools_give_back(alloc.gpu, gone))
        result = gm_obtain(alloc, GM_ALLOC_CHUNKS, bytes, va);
    return result;
}

/* Whether gpumux backs `bytes` at `where`. */
static bool gm_is_ours(const struct gm_alloc *where, uint64_t bytes)
{
    return bytes >= GM_SMALL_MAX && where->gpu >= 0 && gm_link_has_daemon() &&
           !gm_sharing_is_real();
}

CUresult gm_on_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct gm_alloc where;
    if (!gm_is_live())
        return gm_real.cuMemAlloc_v2(dptr, bytesize);
    gm_free_deferred();
    if (dptr == NULL || bytesize == 0 || !gm_where(&where))
        return gm_real.cuMemAlloc_v2(dptr, bytesize);

    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (gm_is_ours(&where, bytesize))
        result = gm_allocate(where, bytesize, dptr);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return gm_tell_allocated(result);
    result = gm_real.cuMemAlloc_v2(dptr, bytesize);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, bytesize);
    return gm_tell_driver_allocated(result, bytesize);
}

CUresult gm_on_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                  size_t Height, unsigned int ElementSizeBytes)
{
    struct gm_alloc where;
    uint64_t pitch, bytes;
    bool is_legal = dptr != NULL && pPitch != NULL && WidthInBytes > 0 && Height > 0 &&
                    (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);

    if (!gm_is_live() || !is_legal || !gm_where(&where))
        return gm_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    gm_free_deferred();

    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    pitch = (WidthInBytes + GM_PITCH - 1) & ~(GM_PITCH - 1);
    /* Sizes that overflow are left to the driver: it answers INVALID_VALUE, not OUT_OF_MEMORY. */
    if (pitch >= WidthInBytes && !__builtin_mul_overflow(pitch, Height, &bytes) &&
        gm_is_ours(&where, bytes))
        result = gm_allocate(where, bytes, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return gm_tell_allocated(result);
    result = gm_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, *pPitch * Height);
    return gm_tell_driver_allocated(result, pitch * Height);
}

/* Neither the program nor the GPU uses it any more. */
static CUresult gm_let_go(const struct gm_alloc *alloc)
{
    const bool is_kept = gm_freed_put(alloc);
    if (alloc->kind == GM_ALLOC_CHUNKS)
        gm_ahead_note_free(alloc->gpu, alloc->span);
    return is_kept ? CUDA_SUCCESS : gm_release(alloc);
}

CUresult gm_on_cuMemFree_v2(CUdeviceptr dptr)
{
    struct gm_alloc alloc;
    CUresult result;
    if (!gm_is_live())
        return gm_real.cuMemFree_v2(dptr);
    GM_REFUSE(gm_permits_unsafe());
    gm_free_deferred();
    if (gm_pools_free(dptr, &result))
        return result;

    enum gm_alloc_find found = gm_allocs_find(dptr, &alloc);
    if (found == GM_ALLOC_INSIDE && alloc.kind != GM_ALLOC_REAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == GM_ALLOC_BASE && (alloc.kind == GM_ALLOC_VIEW || alloc.kind == GM_ALLOC_HANDLE))
        return CUDA_ERROR_INVALID_VALUE; /* cuMemUnmap is for mappings */
    if (found != GM_ALLOC_UNKNOWN && alloc.kind == GM_ALLOC_ARENA)
        return CUDA_ERROR_INVALID_VALUE; /* a region that is being given back */
    if (found != GM_ALLOC_BASE)
        return gm_real.cuMemFree_v2(dptr);
    if (alloc.kind == GM_ALLOC_IMPORT)
        return CUDA_ERROR_INVALID_VALUE; /* cuIpcCloseMemHandle is for imports */
    if (gm_allocs_take(dptr, &alloc) != GM_ALLOC_BASE)
        return CUDA_ERROR_INVALID_VALUE; /* another thread freed it first */

    if (alloc.kind == GM_ALLOC_REAL) {
        result = gm_real.cuMemFree_v2(dptr);
        if (result == CUDA_SUCCESS || gm_allocs_insert(&alloc) != 0)
            gm_forget_real(&alloc);
        return result;
    }
    if (!gm_synchronize(alloc.context, &result)) {
        if (gm_freed_await(&alloc, GM_FREED_CAPTURE, NULL))
            return CUDA_SUCCESS;
        gm_allocs_insert(&alloc); /* no memory to defer it: it stays allocated */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_DEINITIALIZED)
        return result; /* the process exits */
    if (result != CUDA_SUCCESS && !gm_contexts_is_over(result)) {
        gm_allocs_insert(&alloc); /* work may be using it: it stays */
        return result;
    }
    if (result == CUDA_SUCCESS)
        return gm_let_go(&alloc);
    /* Like the driver, report the error of earlier work and free the memory. */
    gm_release(&alloc);
    return result;
}

/*
 * The handlers of linear allocation and of what programs ask about memory.
 *
 * Allocations of GM_SMALL_MAX bytes or more on a managed GPU are chunks behind a reserved range;
 * the rest is the real driver's and is counted, so that cuMemGetInfo and the daemon know of it.
 */
#include <errno.h>

#include "common/chunk.h"
#include "shim/accounts.h"
#include "shim/allocs.h"
#include "shim/boot.h"
#include "shim/contexts.h"
#include "shim/handlers.h"
#include "shim/link.h"
#include "shim/release.h"
#include "shim/sharing.h"

#define GM_PITCH 512ull /* what the driver rounds the rows of cuMemAllocPitch to */

/*
 * Back `bytes` with chunks. CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY and other errors are the answer;
 * CUDA_ERROR_NOT_SUPPORTED means that the real driver shall try.
 *
 * During a capture of this thread the real cuMemAlloc fails, unless the thread is in relaxed mode;
 * this one succeeds, because reserving and mapping are not stream operations. Nothing here
 * synchronizes.
 */
static CUresult gm_allocate(struct gm_alloc alloc, uint64_t bytes, CUdeviceptr *va)
{
    if (bytes > UINT64_MAX - GM_CHUNK_MIN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alloc.bytes = bytes;
    alloc.span = gm_chunk_round(bytes);
    alloc.kind = GM_ALLOC_CHUNKS;

    CUdeviceptr range;
    if (gm_real.cuMemAddressReserve(&range, alloc.span, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    alloc.va = range;
    int result = gm_link_alloc(alloc.va, alloc.span, (uint32_t)alloc.gpu);
    if (result == -ENOTCONN)
        goto lost;
    if (result != 0) {
        gm_real.cuMemAddressFree(alloc.va, alloc.span);
        return (CUresult)result;
    }
    if (gm_allocs_insert(&alloc) != 0) {
        gm_release(&alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /*
     * The link thread decides from the map whether the program is whole when the daemon is lost. If
     * that came before the insertion, this memory was not asked about: do without it.
     */
    if (!gm_link_is_up() && gm_allocs_take(alloc.va, &alloc) == GM_ALLOC_BASE)
        goto lost;
    *va = alloc.va;
    return CUDA_SUCCESS;

lost:
    gm_release(&alloc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Whether `bytes` at `where` are gpumux's to back. */
static bool gm_is_ours(const struct gm_alloc *where, uint64_t bytes)
{
    return bytes >= GM_SMALL_MAX && where->gpu >= 0 && gm_link_is_up() && !gm_sharing_is_real();
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
        return result;
    result = gm_real.cuMemAlloc_v2(dptr, bytesize);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, bytesize);
    return result;
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
    if (WidthInBytes > UINT64_MAX - (GM_PITCH - 1) ||
        __builtin_mul_overflow((WidthInBytes + GM_PITCH - 1) & ~(GM_PITCH - 1), Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;

    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    pitch = bytes / Height;
    if (gm_is_ours(&where, bytes))
        result = gm_allocate(where, bytes, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    result = gm_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, *pPitch * Height);
    return result;
}

CUresult gm_on_cuMemFree_v2(CUdeviceptr dptr)
{
    struct gm_alloc alloc;
    CUresult result;
    if (!gm_is_live())
        return gm_real.cuMemFree_v2(dptr);
    gm_free_deferred();

    enum gm_alloc_find found = gm_allocs_find(dptr, &alloc);
    if (found == GM_ALLOC_INSIDE && alloc.kind != GM_ALLOC_REAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (found != GM_ALLOC_BASE)
        return gm_real.cuMemFree_v2(dptr);
    if (alloc.kind == GM_ALLOC_IMPORT)
        return CUDA_ERROR_INVALID_VALUE; /* another program's: it is closed, not freed */
    if (gm_allocs_take(dptr, &alloc) != GM_ALLOC_BASE)
        return CUDA_ERROR_INVALID_VALUE; /* two threads free it; the other was first */

    if (alloc.kind == GM_ALLOC_REAL) {
        result = gm_real.cuMemFree_v2(dptr);
        if (result == CUDA_SUCCESS || gm_allocs_insert(&alloc) != 0)
            gm_forget_real(&alloc);
        return result;
    }
    if (!gm_synchronize(alloc.context, &result)) {
        if (gm_defer(&alloc))
            return CUDA_SUCCESS;
        gm_allocs_insert(&alloc); /* no memory to put it off: it stays allocated */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_DEINITIALIZED)
        return result; /* the process exits, and everything returns with it */
    if (result != CUDA_SUCCESS && !gm_contexts_is_over(result)) {
        gm_allocs_insert(&alloc); /* work may be using it: it stays */
        return result;
    }
    CUresult released = gm_release(&alloc);
    /* Like the driver's, this free reports the error of earlier work; the memory is gone anyway. */
    return result != CUDA_SUCCESS ? result : released;
}

CUresult gm_on_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct gm_alloc where;
    if (!gm_is_live() || !gm_link_is_up() || !gm_where(&where) || where.gpu < 0)
        return gm_real.cuMemGetInfo_v2(free, total);
    uint64_t budget = gm_link_budget((uint32_t)where.gpu);
    uint64_t used = gm_allocs_used((uint32_t)where.gpu);
    if (free != NULL)
        *free = used < budget ? budget - used : 0;
    if (total != NULL)
        *total = budget;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct gm_alloc alloc;
    if (!gm_is_live() || gm_allocs_find(dptr, &alloc) == GM_ALLOC_UNKNOWN ||
        alloc.kind != GM_ALLOC_CHUNKS)
        return gm_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
    if (pbase != NULL)
        *pbase = alloc.va;
    if (psize != NULL)
        *psize = alloc.bytes;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    if (bytes == NULL || !gm_is_live() || !gm_link_is_up() || gm_boot_gpu(dev) < 0)
        return gm_real.cuDeviceTotalMem_v2(bytes, dev);
    *bytes = gm_link_budget((uint32_t)gm_boot_gpu(dev));
    return CUDA_SUCCESS;
}

#include "shim/obtain.h"

#include <errno.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/link.h"
#include "shim/release.h"
#include "shim/spares.h"

int gm_obtain_chunks(uint64_t va, uint64_t bytes, int32_t gpu)
{
    const uint64_t use = gm_allocs_used((uint32_t)gpu) + bytes;
    const uint64_t budget = gm_link_budget((uint32_t)gpu);
    uint64_t most = gm_spares_most(gpu, use, gm_now());
    most = most < budget ? most : budget;
    for (unsigned n = GM_SPARES_MAX; /* others may put more meanwhile */
         n > 0 && gm_spares_bytes(gpu) + use > most && gm_spares_shrink(gpu); n--)
        continue;
    if (use + gm_spares_bytes(gpu) > budget)
        gm_spares_gone(true);
    const uint64_t gone = gm_spares_gone(false);
    int result = gm_link_alloc(va, bytes, (uint32_t)gpu);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    gm_spares_release(gpu, UINT64_MAX);
    /* Also if the drainer released one meanwhile: perhaps the daemon heard of it too late. */
    return gm_spares_gone(true) != gone ? gm_link_alloc(va, bytes, (uint32_t)gpu) : result;
}

/* A reserved range with chunks of alloc->span bytes. -EOPNOTSUPP: the driver reserves none. */
static int gm_obtain_range(struct gm_alloc *alloc)
{
    CUdeviceptr range;
    if (alloc->kind == GM_ALLOC_CHUNKS && gm_spares_take(alloc->gpu, alloc->span, &alloc->va)) {
        gm_spares_most(alloc->gpu, gm_allocs_used((uint32_t)alloc->gpu) + alloc->span, gm_now());
        return 0;
    }
    if (gm_real.cuMemAddressReserve(&range, alloc->span, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS)
        return -EOPNOTSUPP;
    alloc->va = range;
    int result = gm_obtain_chunks(range, alloc->span, alloc->gpu);
    if (result > 0)
        gm_real.cuMemAddressFree(range, alloc->span);
    return result;
}

CUresult gm_obtain(struct gm_alloc alloc, enum gm_alloc_kind kind, uint64_t bytes, CUdeviceptr *va)
{
    if (bytes > UINT64_MAX - GM_CHUNK_MIN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alloc.bytes = bytes;
    alloc.span = gm_chunk_round(bytes);
    alloc.kind = kind;

    const int result = gm_obtain_range(&alloc);
    if (result == -EOPNOTSUPP)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (result == -ENOTCONN)
        goto lost;
    if (result != 0)
        return (CUresult)result;
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

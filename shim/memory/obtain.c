#include "shim/memory/obtain.h"

#include <errno.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/link/link.h"
#include "shim/memory/ahead.h"
#include "shim/memory/release.h"
#include "shim/memory/freed.h"

int gm_obtain_chunks(uint64_t va, uint64_t bytes, int32_t gpu)
{
    const struct gm_freed_sums sums = gm_freed_sums(gpu, 0);
    const uint64_t use = gm_allocs_used((uint32_t)gpu) + sums.ready_bytes + bytes;
    const uint32_t answers = gm_ahead_answers();
    if (sums.coming_bytes > 0 && use + sums.coming_bytes > gm_link_budget((uint32_t)gpu))
        gm_ahead_settle();
    int result = gm_link_alloc(va, bytes, (uint32_t)gpu);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    /* The daemon takes spares back before it refuses. What came ahead meanwhile was none yet. */
    gm_ahead_settle();
    return sums.coming > 0 || gm_ahead_answers() != answers
               ? gm_link_alloc(va, bytes, (uint32_t)gpu)
               : result;
}

/* A reserved range with chunks of alloc->span bytes. -EOPNOTSUPP: the driver reserves none. */
static int gm_obtain_range(struct gm_alloc *alloc)
{
    CUdeviceptr range;
    if (alloc->kind == GM_ALLOC_CHUNKS && gm_freed_take(alloc->gpu, alloc->span, &alloc->va)) {
        gm_ahead_note(alloc->gpu, alloc->span, true, gm_now());
        return 0;
    }
    if (gm_real.cuMemAddressReserve(&range, alloc->span, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS)
        return -EOPNOTSUPP;
    alloc->va = range;
    int result = gm_obtain_chunks(range, alloc->span, alloc->gpu);
    if (result > 0)
        gm_real.cuMemAddressFree(range, alloc->span);
    if (result == 0 && alloc->kind == GM_ALLOC_CHUNKS)
        gm_ahead_note(alloc->gpu, alloc->span, false, gm_now());
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
    if (result < 0)
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
    if (!gm_link_has_daemon() && gm_allocs_take(alloc.va, &alloc) == GM_ALLOC_BASE)
        goto lost;
    *va = alloc.va;
    return CUDA_SUCCESS;

lost:
    gm_release(&alloc);
    return result == -ETIMEDOUT ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
}

#include "shim/obtain.h"

#include <errno.h>

#include "common/chunk.h"
#include "shim/link.h"
#include "shim/release.h"

CUresult gm_obtain(struct gm_alloc alloc, enum gm_alloc_kind kind, uint64_t bytes, CUdeviceptr *va)
{
    if (bytes > UINT64_MAX - GM_CHUNK_MIN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alloc.bytes = bytes;
    alloc.span = gm_chunk_round(bytes);
    alloc.kind = kind;

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

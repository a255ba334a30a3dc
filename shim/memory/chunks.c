#include "shim/memory/chunks.h"

#include "shim/link/link.h"

CUresult gm_release_chunks(const struct gm_alloc *alloc)
{
    return (CUresult)gm_link_free(alloc->va, alloc->span);
}

void gm_release_range(const struct gm_alloc *alloc, CUresult result)
{
    if (result == CUDA_SUCCESS) /* else something of it is still mapped: it cannot be used again */
        gm_real.cuMemAddressFree(alloc->va, alloc->span);
}

#include "shim/memory/chunks.h"

#include "shim/gate/gate.h"
#include "shim/link/link.h"

bool gm_synchronize(CUcontext context, CUresult *result)
{
    CUcontext current = NULL;
    if (!gm_gate_sync_begin())
        return false;
    if (gm_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
        *result = gm_real.cuCtxSynchronize();
    } else {
        *result = gm_real.cuCtxPushCurrent_v2(context);
        if (*result == CUDA_SUCCESS) {
            *result = gm_real.cuCtxSynchronize();
            gm_real.cuCtxPopCurrent_v2(&current);
        }
    }
    gm_gate_sync_end();
    return true;
}

CUresult gm_release_chunks(const struct gm_alloc *alloc)
{
    return (CUresult)gm_link_free(alloc->va, alloc->span);
}

void gm_release_range(const struct gm_alloc *alloc, CUresult result)
{
    if (result == CUDA_SUCCESS) /* else something of it is still mapped: it cannot be used again */
        gm_real.cuMemAddressFree(alloc->va, alloc->span);
}

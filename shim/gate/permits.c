#include "shim/gate/permits.h"

#include "shim/driver/real.h"
#include "shim/gate/gate.h"

CUresult gm_permits(void)
{
    CUcontext current;
    return gm_real.cuCtxGetCurrent(&current) == CUDA_ERROR_NOT_PERMITTED ? CUDA_ERROR_NOT_PERMITTED
                                                                         : CUDA_SUCCESS;
}

/* Without a capture the answer is the same, and the other question is cheaper. */
CUresult gm_permits_unsafe(void)
{
    if (gm_gate_captures() == 0)
        return gm_permits();
    const CUresult result = gm_real.cuMemFree_v2(0);
    return result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               ? result
               : CUDA_SUCCESS;
}

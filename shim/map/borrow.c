#include "shim/map/borrow.h"

#include "shim/driver/devices.h"
#include "shim/driver/real.h"

bool gm_borrow(struct gm_borrowed *borrowed, uint32_t gpu)
{
    CUcontext context;
    CUdevice device = gm_gpu_device(gpu);
    if (borrowed->is_on || device < 0)
        return false;
    if (gm_real.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return false;
    if (gm_real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        gm_real.cuDevicePrimaryCtxRelease_v2(device);
        return false;
    }
    borrowed->is_on = true;
    borrowed->device = device;
    return true;
}

void gm_give_back(struct gm_borrowed *borrowed)
{
    CUcontext context;
    if (!borrowed->is_on)
        return;
    gm_real.cuCtxPopCurrent_v2(&context);
    gm_real.cuDevicePrimaryCtxRelease_v2(borrowed->device);
    borrowed->is_on = false;
}

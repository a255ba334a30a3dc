/* The handlers of peer access between contexts (map/peers.h). */
#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/handlers/handlers.h"
#include "shim/map/access.h"
#include "shim/map/peers.h"

/* The device of `context`, or -1. */
static CUdevice gm_context_device(CUcontext context)
{
    CUdevice device = -1;
    CUcontext popped;
    if (gm_real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return -1;
    if (gm_real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = -1;
    gm_real.cuCtxPopCurrent_v2(&popped);
    return device;
}

/* The device that gets access, and the GPU whose memory it is. False: not a pair of ours. */
static bool gm_peer_pair(CUcontext peer, int *gpu, CUdevice *device)
{
    CUdevice of = gm_context_device(peer);
    *gpu = gm_gpu_of(of);
    return *gpu >= 0 && gm_real.cuCtxGetDevice(device) == CUDA_SUCCESS && *device >= 0 &&
           *device < GM_PEERS_DEVICES && *device != of;
}

CUresult gm_on_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    int gpu;
    CUdevice device;
    CUresult result = gm_real.cuCtxEnablePeerAccess(peerContext, Flags);
    if (result != CUDA_SUCCESS || !gm_is_live() || !gm_peer_pair(peerContext, &gpu, &device))
        return result;
    result = gm_access_open((uint32_t)gpu, device);
    if (result != CUDA_SUCCESS)
        gm_real.cuCtxDisablePeerAccess(peerContext);
    return result;
}

CUresult gm_on_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    int gpu;
    CUdevice device;
    CUresult result = gm_real.cuCtxDisablePeerAccess(peerContext);
    if (result == CUDA_SUCCESS && gm_is_live() && gm_peer_pair(peerContext, &gpu, &device))
        gm_access_shut((uint32_t)gpu, device);
    return result;
}

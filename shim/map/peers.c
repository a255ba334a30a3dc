/* Peer access. See peers.h. */
#include "shim/map/peers.h"

#include <stdatomic.h>

#include "common/shm.h"
#include "shim/entry/boot.h"
#include "shim/driver/devices.h"
#include "shim/handlers/handlers.h"
#include "shim/map/mapper.h"
#include "shim/link/work.h"

#define GM_DEVICES 64

static _Atomic uint32_t gm_peer_count[GM_GPUS_MAX][GM_DEVICES];

size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n)
{
    for (int device = 0; device < GM_DEVICES && n <= GM_PEERS_MAX; device++)
        if (atomic_load_explicit(&gm_peer_count[gpu][device], memory_order_relaxed) > 0)
            desc[n++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
    return n;
}

bool gm_peers_has(uint32_t gpu, CUdevice device)
{
    return gpu < GM_GPUS_MAX && device >= 0 && device < GM_DEVICES &&
           atomic_load_explicit(&gm_peer_count[gpu][device], memory_order_relaxed) > 0;
}

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

/* Who asks, and for the memory of which GPU; false: nothing of gpumux's is concerned. */
static bool gm_peer_pair(CUcontext peer, int *gpu, CUdevice *device)
{
    CUdevice of = gm_context_device(peer);
    *gpu = gm_gpu_of(of);
    return *gpu >= 0 && gm_real.cuCtxGetDevice(device) == CUDA_SUCCESS && *device >= 0 &&
           *device < GM_DEVICES && *device != of;
}

struct gm_peer_change {
    uint32_t gpu;
    CUdevice device;
};

/* On the link thread: what is mapped gets the access that the count says now. */
static CUresult gm_peer_apply(void *argument)
{
    const struct gm_peer_change *change = argument;
    bool is_open = atomic_load(&gm_peer_count[change->gpu][change->device]) > 0;
    return gm_mapper_allow(change->gpu, change->device, is_open);
}

/* One context more; true: the first of its device. */
static bool gm_peer_count_up(int gpu, CUdevice device)
{
    return atomic_fetch_add(&gm_peer_count[gpu][device], 1) == 0;
}

/* One less; true: it was the last. */
static bool gm_peer_count_down(int gpu, CUdevice device)
{
    uint32_t count = atomic_load(&gm_peer_count[gpu][device]);
    while (count > 0 &&
           !atomic_compare_exchange_weak(&gm_peer_count[gpu][device], &count, count - 1))
        continue;
    return count == 1;
}

void gm_peers_open(uint32_t gpu, CUdevice device)
{
    static _Atomic bool is_open[GM_GPUS_MAX][GM_DEVICES];
    struct gm_peer_change change = {.gpu = gpu, .device = device};
    if (gpu >= GM_GPUS_MAX || device < 0 || device >= GM_DEVICES ||
        atomic_exchange(&is_open[gpu][device], true))
        return;
    if (!gm_peer_count_up((int)gpu, device) || gm_work_run(gm_peer_apply, &change) == CUDA_SUCCESS)
        return;
    /* What cannot be opened now could not be mapped like that later either. */
    gm_peer_count_down((int)gpu, device);
    atomic_store(&is_open[gpu][device], false);
    gm_work_run(gm_peer_apply, &change);
}

CUresult gm_on_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    int gpu;
    CUdevice device;
    CUresult result = gm_real.cuCtxEnablePeerAccess(peerContext, Flags);
    if (result != CUDA_SUCCESS || !gm_is_live() || !gm_peer_pair(peerContext, &gpu, &device) ||
        !gm_peer_count_up(gpu, device))
        return result;
    struct gm_peer_change change = {.gpu = (uint32_t)gpu, .device = device};
    result = gm_work_run(gm_peer_apply, &change);
    if (result == CUDA_SUCCESS)
        return result;
    gm_peer_count_down(gpu, device);
    gm_work_run(gm_peer_apply, &change);
    gm_real.cuCtxDisablePeerAccess(peerContext);
    return result;
}

CUresult gm_on_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    int gpu;
    CUdevice device;
    CUresult result = gm_real.cuCtxDisablePeerAccess(peerContext);
    if (result != CUDA_SUCCESS || !gm_is_live() || !gm_peer_pair(peerContext, &gpu, &device) ||
        !gm_peer_count_down(gpu, device))
        return result;
    struct gm_peer_change change = {.gpu = (uint32_t)gpu, .device = device};
    gm_work_run(gm_peer_apply, &change); /* memory that stays open does no harm */
    return result;
}

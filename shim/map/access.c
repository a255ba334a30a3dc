#include "shim/map/access.h"

#include <stdatomic.h>

#include "common/shm.h"
#include "shim/link/work.h"
#include "shim/map/mapper.h"
#include "shim/map/peers.h"

struct gm_peer_change {
    uint32_t gpu;
    CUdevice device;
};

/* Link thread: mapped memory gets the access that the count says now. */
static CUresult gm_peer_apply(void *argument)
{
    const struct gm_peer_change *change = argument;
    return gm_mapper_allow(change->gpu, change->device, gm_peers_has(change->gpu, change->device));
}

CUresult gm_access_open(uint32_t gpu, CUdevice device)
{
    struct gm_peer_change change = {.gpu = gpu, .device = device};
    if (!gm_peers_count_up(gpu, device))
        return CUDA_SUCCESS;
    const CUresult result = gm_work_run(gm_peer_apply, &change);
    if (result == CUDA_SUCCESS)
        return result;
    /* Later mappings with this access would fail too. */
    gm_peers_count_down(gpu, device);
    gm_work_run(gm_peer_apply, &change);
    return result;
}

void gm_access_shut(uint32_t gpu, CUdevice device)
{
    struct gm_peer_change change = {.gpu = gpu, .device = device};
    if (gm_peers_count_down(gpu, device))
        gm_work_run(gm_peer_apply, &change); /* memory that stays open does no harm */
}

void gm_access_open_for_good(uint32_t gpu, CUdevice device)
{
    static _Atomic bool is_open[GM_GPUS_MAX][GM_PEERS_DEVICES];
    if (gpu >= GM_GPUS_MAX || device < 0 || device >= GM_PEERS_DEVICES ||
        atomic_exchange(&is_open[gpu][device], true))
        return;
    if (gm_access_open(gpu, device) != CUDA_SUCCESS)
        atomic_store(&is_open[gpu][device], false);
}

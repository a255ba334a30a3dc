#include "shim/map/peers.h"

#include <stdatomic.h>

#include "common/shm.h"

static _Atomic uint32_t gm_peer_count[GM_GPUS_MAX][GM_PEERS_DEVICES];

size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n)
{
    for (int device = 0; device < GM_PEERS_DEVICES && n <= GM_PEERS_MAX; device++)
        if (atomic_load_explicit(&gm_peer_count[gpu][device], memory_order_relaxed) > 0)
            desc[n++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
    return n;
}

bool gm_peers_has(uint32_t gpu, CUdevice device)
{
    return gpu < GM_GPUS_MAX && device >= 0 && device < GM_PEERS_DEVICES &&
           atomic_load_explicit(&gm_peer_count[gpu][device], memory_order_relaxed) > 0;
}

bool gm_peers_count_up(uint32_t gpu, CUdevice device)
{
    return atomic_fetch_add(&gm_peer_count[gpu][device], 1) == 0;
}

bool gm_peers_count_down(uint32_t gpu, CUdevice device)
{
    uint32_t count = atomic_load(&gm_peer_count[gpu][device]);
    while (count > 0 &&
           !atomic_compare_exchange_weak(&gm_peer_count[gpu][device], &count, count - 1))
        continue;
    return count == 1;
}

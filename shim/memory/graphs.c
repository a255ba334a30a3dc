/* The handlers that make graphs executable, and what the driver keeps for those. See graphs.h. */
#include "shim/memory/graphs.h"

#include <stdatomic.h>
#include <stdint.h>

#include "shim/tables/accounts.h"
#include "shim/entry/boot.h"
#include "shim/driver/devices.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"

static _Atomic uint64_t gm_graphs_devices; /* those with graphs, a bit each */

bool gm_graphs_exist(void)
{
    return atomic_load_explicit(&gm_graphs_devices, memory_order_relaxed) != 0;
}

static void gm_graphs_note(CUresult result)
{
    CUdevice device;
    if (result == CUDA_SUCCESS && gm_real.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 &&
        device < 64)
        atomic_fetch_or_explicit(&gm_graphs_devices, 1ull << device, memory_order_relaxed);
}

static uint64_t gm_graphs_reserved(CUdevice device)
{
    cuuint64_t bytes = 0;
    if (gm_real.cuDeviceGetGraphMemAttribute == NULL ||
        gm_real.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                             &bytes) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

bool gm_graphs_sample(void)
{
    uint64_t devices = atomic_load(&gm_graphs_devices);
    bool has_some = false;
    for (CUdevice device = 0; devices != 0; device++, devices >>= 1) {
        if ((devices & 1) == 0)
            continue;
        uint64_t bytes = gm_graphs_reserved(device);
        int gpu = gm_gpu_of(device);
        if (gpu >= 0)
            gm_account_set(GM_ACCOUNT_GRAPHS, gpu, bytes);
        has_some = has_some || bytes > 0;
    }
    return has_some;
}

void gm_graphs_trim(void)
{
    uint64_t devices = atomic_load(&gm_graphs_devices);
    if (!gm_graphs_sample() || gm_real.cuDeviceGraphMemTrim == NULL)
        return;
    if (!gm_gate_sync_begin())
        return; /* a capture is open; what a trim does to it is not known */
    for (CUdevice device = 0; devices != 0; device++, devices >>= 1)
        if ((devices & 1) != 0)
            gm_real.cuDeviceGraphMemTrim(device);
    gm_gate_sync_end();
    gm_graphs_sample();
}

#define GM_ON_INSTANTIATE(symbol, params, args)                                                    \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        struct gm_slot *slot = gm_gate_enter();                                                    \
        if (slot == NULL)                                                                          \
            return gm_gate_refusal();                                                              \
        CUresult result = gm_real.symbol args;                                                     \
        gm_gate_leave(slot);                                                                       \
        if (gm_is_live())                                                                          \
            gm_graphs_note(result);                                                                \
        return result;                                                                             \
    }
GM_ON_INSTANTIATE(cuGraphInstantiate,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                   char *logBuffer, size_t bufferSize),
                  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
GM_ON_INSTANTIATE(cuGraphInstantiate_v2,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                   char *logBuffer, size_t bufferSize),
                  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
GM_ON_INSTANTIATE(cuGraphInstantiateWithFlags,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
                  (phGraphExec, hGraph, flags))
GM_ON_INSTANTIATE(cuGraphInstantiateWithParams,
                  (CUgraphExec * phGraphExec, CUgraph hGraph,
                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
                  (phGraphExec, hGraph, instantiateParams))
GM_ON_INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
                  (CUgraphExec * phGraphExec, CUgraph hGraph,
                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
                  (phGraphExec, hGraph, instantiateParams))

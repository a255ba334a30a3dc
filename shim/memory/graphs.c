#include "shim/memory/graphs.h"

#include <stdatomic.h>
#include <stdint.h>

#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/tables/accounts.h"

static _Atomic uint64_t gm_graphs_devices; /* with graphs, a bit each */

bool gm_graphs_exist(void)
{
    return atomic_load_explicit(&gm_graphs_devices, memory_order_relaxed) != 0;
}

static void gm_graphs_note_device(CUdevice device)
{
    const uint64_t bit = 1ull << device;
    if ((atomic_fetch_or_explicit(&gm_graphs_devices, bit, memory_order_relaxed) & bit) == 0)
        gm_drain_watch();
}

void gm_graphs_note(void)
{
    CUdevice device;
    if (gm_real.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 && device < 64)
        gm_graphs_note_device(device);
}

static bool gm_graphs_reserved(CUdevice device, cuuint64_t *bytes)
{
    return gm_real.cuDeviceGetGraphMemAttribute != NULL &&
           gm_real.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                bytes) == CUDA_SUCCESS;
}

bool gm_graphs_sample(void)
{
    uint64_t devices = atomic_load(&gm_graphs_devices);
    bool has_some = false;
    for (CUdevice device = 0; devices != 0; device++, devices >>= 1) {
        cuuint64_t bytes = 0;
        if ((devices & 1) == 0 || !gm_graphs_reserved(device, &bytes))
            continue;
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
        return; /* a trim could invalidate an open capture */
    for (CUdevice device = 0; devices != 0; device++, devices >>= 1)
        if ((devices & 1) != 0)
            gm_real.cuDeviceGraphMemTrim(device);
    gm_gate_sync_end();
    gm_graphs_sample();
}

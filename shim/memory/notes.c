#include "shim/memory/notes.h"

#include "shim/driver/devices.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/memory/managed.h"
#include "shim/tables/accounts.h"

bool gm_where(struct gm_alloc *alloc)
{
    CUdevice device;
    CUcontext context;
    if (gm_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        gm_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return false;
    const bool is_primary = !gm_contexts_has(context);
    if (is_primary && gm_contexts_primary_is_over(device))
        return false;
    *alloc = (struct gm_alloc){
        .context = context,
        .device = device,
        .gpu = gm_gpu_of(device),
        .is_primary = is_primary,
    };
    return true;
}

void gm_forget_real(const struct gm_alloc *alloc)
{
    if (gm_managed_remove(alloc->id))
        atomic_fetch_sub(&gm_gate_stat()->managed_bytes, alloc->bytes);
    else
        gm_count_real(alloc->bytes, false);
}

/* Insert it into the map. An old entry at this address was freed in a way that is not hooked. */
static bool gm_note(struct gm_alloc *alloc, CUdeviceptr va, uint64_t bytes)
{
    struct gm_alloc stale;
    alloc->va = va;
    alloc->bytes = bytes;
    alloc->span = bytes;
    alloc->kind = GM_ALLOC_REAL;
    if (gm_allocs_find(va, &stale) == GM_ALLOC_BASE && stale.kind == GM_ALLOC_REAL &&
        gm_allocs_take(va, &stale) == GM_ALLOC_BASE)
        gm_forget_real(&stale);
    return gm_allocs_insert(alloc) == 0;
}

void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes)
{
    if (gm_note(&alloc, va, bytes))
        gm_count_real(bytes, true);
}

void gm_note_managed(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes)
{
    alloc.gpu = -1; /* not taken from free memory */
    if (!gm_note(&alloc, va, bytes) || gm_allocs_find(va, &alloc) != GM_ALLOC_BASE)
        return;
    if (gm_managed_add(&alloc))
        atomic_fetch_add(&gm_gate_stat()->managed_bytes, bytes);
    else
        gm_allocs_take(va, &alloc);
}

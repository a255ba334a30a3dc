#include "shim/accounts.h"

#include "common/chunk.h"
#include "shim/boot.h"
#include "shim/contexts.h"
#include "shim/gate.h"

bool gm_where(struct gm_alloc *alloc)
{
    CUdevice device;
    CUcontext context;
    if (gm_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        gm_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return false;
    *alloc = (struct gm_alloc){
        .context = context,
        .device = device,
        .gpu = gm_boot_gpu(device),
        .is_primary = !gm_contexts_has(context),
    };
    return true;
}

static _Atomic uint64_t *gm_account_of(uint64_t bytes)
{
    struct gm_stat *stat = gm_gate_stat();
    return bytes < GM_SMALL_MAX ? &stat->small_bytes : &stat->real_bytes;
}

void gm_forget_real(const struct gm_alloc *alloc)
{
    atomic_fetch_sub(gm_account_of(alloc->bytes), alloc->bytes);
}

void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes)
{
    struct gm_alloc stale;
    alloc.va = va;
    alloc.bytes = bytes;
    alloc.span = bytes;
    alloc.kind = GM_ALLOC_REAL;
    /* Same address, still noted: the driver freed it by a way that is not hooked. */
    if (gm_allocs_find(va, &stale) == GM_ALLOC_BASE && stale.kind == GM_ALLOC_REAL &&
        gm_allocs_take(va, &stale) == GM_ALLOC_BASE)
        gm_forget_real(&stale);
    if (gm_allocs_insert(&alloc) == 0)
        atomic_fetch_add(gm_account_of(bytes), bytes);
}

void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    if (gpu < 0)
        return;
    gm_allocs_charge((uint32_t)gpu, is_on ? (int64_t)bytes : -(int64_t)bytes);
    if (is_on)
        atomic_fetch_add(gm_account_of(bytes), bytes);
    else
        atomic_fetch_sub(gm_account_of(bytes), bytes);
}

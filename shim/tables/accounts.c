#include "shim/tables/accounts.h"

#include "common/chunk.h"
#include "shim/gate/contexts.h"
#include "shim/driver/devices.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/managed.h"
#include "shim/memory/spares.h"

/* By kind and GPU, what is not in the allocation map. The last column: of no managed GPU. */
static _Atomic uint64_t gm_account_bytes[GM_ACCOUNTS][GM_GPUS_MAX + 1];

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

static _Atomic uint64_t *gm_account_of(uint64_t bytes)
{
    struct gm_stat *stat = gm_gate_stat();
    return bytes < GM_SMALL_MAX ? &stat->small_bytes : &stat->real_bytes;
}

void gm_forget_real(const struct gm_alloc *alloc)
{
    if (gm_managed_remove(alloc->id))
        atomic_fetch_sub(&gm_gate_stat()->managed_bytes, alloc->bytes);
    else
        atomic_fetch_sub(gm_account_of(alloc->bytes), alloc->bytes);
}

/* Put it into the map, in place of one that the driver freed by a way that is not hooked: at the
 * same address and still noted. */
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
        atomic_fetch_add(gm_account_of(bytes), bytes);
}

CUresult gm_tell_allocated(CUresult result, uint64_t bytes)
{
    struct gm_stat *stat = gm_gate_stat();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_store(&stat->refused_bytes, bytes);
        atomic_fetch_add(&stat->refused, 1);
    }
    return result;
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

void gm_note_managed(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes)
{
    alloc.gpu = -1; /* taken from nobody's free memory */
    if (!gm_note(&alloc, va, bytes) || gm_allocs_find(va, &alloc) != GM_ALLOC_BASE)
        return;
    if (gm_managed_add(&alloc))
        atomic_fetch_add(&gm_gate_stat()->managed_bytes, bytes);
    else
        gm_allocs_take(va, &alloc);
}

static _Atomic uint64_t *gm_account_word(enum gm_account kind)
{
    struct gm_stat *stat = gm_gate_stat();
    return kind == GM_ACCOUNT_ARRAYS ? &stat->array_bytes : &stat->graph_bytes;
}

static _Atomic uint64_t *gm_account_at(enum gm_account kind, int gpu)
{
    return &gm_account_bytes[kind][gpu >= 0 && gpu < (int)GM_GPUS_MAX ? gpu : (int)GM_GPUS_MAX];
}

void gm_account_add(enum gm_account kind, int gpu, uint64_t bytes)
{
    atomic_fetch_add(gm_account_at(kind, gpu), bytes);
    atomic_fetch_add(gm_account_word(kind), bytes);
}

void gm_account_sub(enum gm_account kind, int gpu, uint64_t bytes)
{
    atomic_fetch_sub(gm_account_at(kind, gpu), bytes);
    atomic_fetch_sub(gm_account_word(kind), bytes);
}

void gm_account_set(enum gm_account kind, int gpu, uint64_t bytes)
{
    uint64_t before = atomic_exchange(gm_account_at(kind, gpu), bytes);
    atomic_fetch_add(gm_account_word(kind), bytes - before); /* modulo 2^64 */
}

bool gm_budget_left(int gpu, uint64_t *left, uint64_t *budget)
{
    if (gpu < 0 || gpu >= (int)GM_GPUS_MAX || !gm_link_is_up())
        return false;
    uint64_t used = gm_allocs_used((uint32_t)gpu);
    for (int kind = 0; kind < GM_ACCOUNTS; kind++)
        used += atomic_load_explicit(&gm_account_bytes[kind][gpu], memory_order_relaxed);
    *budget = gm_link_budget((uint32_t)gpu);
    *left = used < *budget ? *budget - used : 0;
    return true;
}

bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total)
{
    uint64_t left;
    if (!gm_budget_left(gpu, &left, total))
        return false;
    /* The daemon counts spares and what comes ahead as this program's. The program gets them first.
     */
    const struct gm_spares_ahead ahead = gm_spares_ahead(gpu, 0);
    const uint64_t room =
        gm_link_room((uint32_t)gpu) + gm_spares_bytes(gpu) + ahead.bytes - ahead.bytes_here;
    *free_bytes = left < room ? left : room;
    return true;
}

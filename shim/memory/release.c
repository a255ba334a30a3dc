#include "shim/memory/release.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "shim/tables/accounts.h"
#include "shim/tables/arrays.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/sharing.h"

struct gm_deferred {
    struct gm_alloc alloc;
    struct gm_deferred *next;
};
static struct gm_deferred *_Atomic gm_deferred_list;

bool gm_synchronize(CUcontext context, CUresult *result)
{
    CUcontext current = NULL;
    if (!gm_gate_sync_begin())
        return false;
    struct gm_slot *slot = gm_sync_enter();
    if (gm_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
        *result = gm_real.cuCtxSynchronize();
    } else {
        *result = gm_real.cuCtxPushCurrent_v2(context);
        if (*result == CUDA_SUCCESS) {
            *result = gm_real.cuCtxSynchronize();
            gm_real.cuCtxPopCurrent_v2(&current);
        }
    }
    gm_sync_leave(slot);
    gm_gate_sync_end();
    return true;
}

CUresult gm_release_chunks(const struct gm_alloc *alloc)
{
    return (CUresult)gm_link_free(alloc->va, alloc->span);
}

void gm_release_range(const struct gm_alloc *alloc, CUresult result)
{
    if (result == CUDA_SUCCESS) /* else something of it is still mapped: it cannot be used again */
        gm_real.cuMemAddressFree(alloc->va, alloc->span);
}

CUresult gm_release(const struct gm_alloc *alloc)
{
    if (alloc->kind == GM_ALLOC_IMPORT)
        return gm_sharing_release(alloc);
    CUresult result = gm_release_chunks(alloc);
    gm_release_range(alloc, result);
    return result;
}

static void gm_deferred_push(struct gm_deferred *deferred)
{
    deferred->next = atomic_load(&gm_deferred_list);
    while (!atomic_compare_exchange_weak(&gm_deferred_list, &deferred->next, deferred))
        continue;
}

bool gm_defer(const struct gm_alloc *alloc)
{
    struct gm_deferred *deferred = malloc(sizeof(*deferred));
    if (deferred == NULL)
        return false;
    deferred->alloc = *alloc;
    gm_deferred_push(deferred);
    return true;
}

/* Whether the work of `context` has ended. */
static bool gm_has_ended(CUcontext context)
{
    CUresult result;
    return gm_contexts_is_gone(context) ||
           (gm_synchronize(context, &result) &&
            (result == CUDA_SUCCESS || gm_contexts_is_over(result)));
}

void gm_free_deferred(void)
{
    if (atomic_load_explicit(&gm_deferred_list, memory_order_relaxed) == NULL ||
        gm_gate_captures() > 0)
        return;
    struct gm_deferred *list = atomic_exchange(&gm_deferred_list, NULL);
    while (list != NULL) {
        struct gm_deferred *deferred = list;
        list = deferred->next;
        if (gm_has_ended(deferred->alloc.context)) {
            gm_release(&deferred->alloc);
            free(deferred);
        } else {
            gm_deferred_push(deferred);
        }
    }
}

CUresult gm_release_handles(struct gm_vmm_handle *handle)
{
    CUresult result = CUDA_SUCCESS;
    for (struct gm_vmm_handle *next; handle != NULL; handle = next) {
        const uint64_t home = handle->home, bytes = handle->bytes;
        struct gm_alloc alloc;
        CUresult one;
        next = handle->next;
        if (handle->real != 0) {
            gm_charge_real(handle->gpu, bytes, false);
            one = gm_real.cuMemRelease(handle->real);
        } else {
            gm_allocs_take(home, &alloc);
            one = (CUresult)gm_link_free(home, bytes);
        }
        result = result == CUDA_SUCCESS ? one : result;
        if (one != CUDA_SUCCESS)
            continue; /* something of it is still mapped: the home cannot be used again */
        gm_vmm_bury(handle);
        gm_real.cuMemAddressFree(home, bytes);
    }
    return result;
}

void gm_release_all_of(CUcontext context, CUdevice device)
{
    struct gm_alloc alloc;
    gm_arrays_forget(context, device);
    while (gm_allocs_take_of(context, device, &alloc)) {
        if (alloc.kind == GM_ALLOC_REAL)
            gm_forget_real(&alloc);
        else
            gm_release(&alloc);
    }
}

#include "shim/memory/release.h"

#include <stdlib.h>

#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/chunks.h"
#include "shim/memory/deferred.h"
#include "shim/memory/notes.h"
#include "shim/memory/sharing.h"
#include "shim/tables/accounts.h"
#include "shim/tables/arrays.h"

CUresult gm_release(const struct gm_alloc *alloc)
{
    if (alloc->kind == GM_ALLOC_IMPORT)
        return gm_sharing_release(alloc);
    CUresult result = gm_release_chunks(alloc);
    gm_release_range(alloc, result);
    return result;
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
    struct gm_deferred *list = gm_gate_captures() > 0 ? NULL : gm_deferred_take();
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
            continue; /* still mapped: the home cannot be used again */
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

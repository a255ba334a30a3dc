#include "shim/memory/release.h"

#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/chunks.h"
#include "shim/memory/marks.h"
#include "shim/memory/notes.h"
#include "shim/memory/sharing.h"
#include "shim/tables/accounts.h"
#include "shim/tables/arrays.h"

CUresult gm_release(const struct gm_alloc *alloc)
{
    if (alloc->kind == GM_ALLOC_IMPORT)
        return gm_sharing_release(alloc);
    const CUresult result = gm_release_chunks(alloc);
    gm_release_range(alloc, result);
    return result == GM_LINK_LATER ? CUDA_SUCCESS : result;
}

/* Whether the GPU does not use it any more. */
static bool gm_is_over(const struct gm_freed *freed)
{
    const CUcontext context = freed->alloc.context;
    CUresult result;
    if (freed->why == GM_FREED_STREAM)
        return gm_mark_ask(freed->mark);
    return gm_contexts_is_gone(context) ||
           (gm_synchronize(context, &result) &&
            (result == CUDA_SUCCESS || gm_contexts_is_over(result)));
}

bool gm_release_freed(enum gm_freed_why why)
{
    struct gm_freed *freed = NULL;
    bool is_over = false, is_any = false;
    while ((freed = gm_freed_next(why, freed, is_over)) != NULL) {
        is_over = gm_is_over(freed);
        if (!is_over)
            continue;
        gm_release(&freed->alloc);
        gm_mark_release(freed->mark);
        is_any = true;
    }
    return is_any;
}

void gm_free_deferred(void)
{
    if (gm_freed_are(GM_FREED_CAPTURE) && gm_gate_captures() == 0)
        gm_release_freed(GM_FREED_CAPTURE);
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
        if (one == GM_LINK_LATER)
            continue;
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

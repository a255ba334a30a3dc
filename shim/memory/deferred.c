#include "shim/memory/deferred.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "shim/gate/gate.h"

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

void gm_deferred_push(struct gm_deferred *deferred)
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

struct gm_deferred *gm_deferred_take(void)
{
    if (atomic_load_explicit(&gm_deferred_list, memory_order_relaxed) == NULL)
        return NULL;
    return atomic_exchange(&gm_deferred_list, NULL);
}

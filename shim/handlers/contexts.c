/* The handlers that make and destroy contexts. They list contexts for the drainer, and free the
 * memory that was made in a context when it ends. */
#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/captures.h"
#include "shim/gate/contexts.h"
#include "shim/gate/drain.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/memory/ahead.h"
#include "shim/memory/marks.h"
#include "shim/memory/release.h"
#include "shim/memory/freed.h"
#include "shim/observe/usage.h"
#include "shim/tables/layouts.h"

/* The program has a context on `device`. */
static void gm_enter(CUdevice device)
{
    const int gpu = gm_gpu_of(device);
    gm_link_enter(gpu);
    if (gm_usage_begin(gpu))
        gm_drain_watch();
}

static CUresult gm_note_context(CUresult result, const CUcontext *context, CUdevice device)
{
    if (result != CUDA_SUCCESS) {
        gm_contexts_release();
        return result;
    }
    gm_contexts_add(*context);
    gm_enter(device);
    return result;
}

/* Boots first: a program's first context is often its first effect on the device. */
#define GM_ON_CTX_CREATE(symbol, params, args)                                                     \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        bool is_live = gm_is_live();                                                               \
        if (is_live && !gm_contexts_reserve())                                                     \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        CUresult result = gm_real.symbol args;                                                     \
        return is_live ? gm_note_context(result, pctx, dev) : result;                              \
    }
GM_ON_CTX_CREATE(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev),
                 (pctx, flags, dev))
GM_ON_CTX_CREATE(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev),
                 (pctx, flags, dev))
GM_ON_CTX_CREATE(cuCtxCreate_v3,
                 (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams,
                  unsigned int flags, CUdevice dev),
                 (pctx, paramsArray, numParams, flags, dev))
GM_ON_CTX_CREATE(cuCtxCreate_v4,
                 (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                  CUdevice dev),
                 (pctx, ctxCreateParams, flags, dev))

/*
 * The real call comes first: it ends the context's work. Chunks are VMM memory and outlive the
 * context (cuda.h, cuCtxDestroy); they are released afterwards. The driver is not asked about a
 * context that is already destroyed: its answer depends on what now lies in that freed memory.
 */
static CUresult gm_destroy_context(CUcontext context, CUresult (*destroy)(CUcontext))
{
    if (!gm_is_live() || context == NULL)
        return destroy(context);
    if (gm_contexts_is_gone(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    bool was_known = gm_contexts_remove(context);
    if (was_known)
        gm_contexts_note_gone(context);
    gm_marks_leave_context(context, -1);
    gm_layouts_drop(); /* its modules end with it */
    CUresult result = destroy(context);
    gm_marks_left_context(context, -1, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS && was_known)
        gm_contexts_add(context);
    if (was_known)
        gm_contexts_removed();
    if (result != CUDA_SUCCESS)
        return result;
    if (gm_captures_forget(context, -1))
        gm_free_deferred();
    if (was_known) {
        gm_contexts_release();
        gm_release_all_of(context, -1);
        gm_ahead_settle();
        gm_freed_release(-1);
    }
    return result;
}

CUresult gm_on_cuCtxDestroy(CUcontext ctx)
{
    return gm_destroy_context(ctx, gm_real.cuCtxDestroy);
}

CUresult gm_on_cuCtxDestroy_v2(CUcontext ctx)
{
    return gm_destroy_context(ctx, gm_real.cuCtxDestroy_v2);
}

CUresult gm_on_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    bool is_live = gm_is_live();
    CUresult result = gm_real.cuDevicePrimaryCtxRetain(pctx, dev);
    if (is_live && result == CUDA_SUCCESS) {
        gm_contexts_note_primary(dev, true);
        gm_enter(dev);
    }
    return result;
}

/* Release or reset. The driver says whether it was the last reference. Counting could be wrong, and
 * free memory in use: libraries retain primary contexts in ways that are not hooked, too. */
static CUresult gm_leave_primary(CUdevice device, CUresult (*leave)(CUdevice), bool is_reset)
{
    unsigned flags;
    int is_active = 1;

    if (!gm_is_live())
        return leave(device);
    gm_contexts_lock_primary(device);
    gm_marks_leave_context(NULL, device);
    gm_layouts_drop();
    CUresult result = leave(device);
    if (result == CUDA_SUCCESS &&
        gm_real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS)
        is_active = 1;
    gm_contexts_unlock_primary(device);
    gm_marks_left_context(NULL, device, result == CUDA_SUCCESS && (is_active == 0 || is_reset));
    if (result != CUDA_SUCCESS)
        return result;
    if (is_active == 0)
        gm_contexts_note_primary(device, false);
    if (is_active == 0 || is_reset) {
        if (gm_captures_forget(NULL, device))
            gm_free_deferred();
        gm_release_all_of(NULL, device);
        gm_ahead_settle();
        gm_freed_release(gm_gpu_of(device));
    }
    return result;
}

CUresult gm_on_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return gm_leave_primary(dev, gm_real.cuDevicePrimaryCtxRelease, false);
}

CUresult gm_on_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return gm_leave_primary(dev, gm_real.cuDevicePrimaryCtxRelease_v2, false);
}

CUresult gm_on_cuDevicePrimaryCtxReset(CUdevice dev)
{
    return gm_leave_primary(dev, gm_real.cuDevicePrimaryCtxReset, true);
}

CUresult gm_on_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return gm_leave_primary(dev, gm_real.cuDevicePrimaryCtxReset_v2, true);
}

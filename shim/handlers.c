/*
 * The handlers: what happens instead of, or around, a driver call of a HANDLE row (hooks.def).
 *
 * The real function of the row is resolved when a handler runs (wrap.c). A handler of a program
 * that is not live does the real call and nothing else: no lock, no count. No lock is held across a
 * driver call or a request to the daemon.
 *
 * Allocations of GM_SMALL_MAX bytes or more on a managed GPU are chunks behind a reserved range;
 * the rest is the real driver's and is counted, so that cuMemGetInfo and the daemon know of it.
 */
#include "shim/handlers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/chunk.h"
#include "shim/allocs.h"
#include "shim/boot.h"
#include "shim/contexts.h"
#include "shim/gate.h"
#include "shim/link.h"

#define GM_PITCH 512ull    /* what the driver rounds the rows of cuMemAllocPitch to */
#define GM_CAPTURE_LIST 64 /* open captures that are known by their stream */

static bool gm_is_live(void)
{
    return gm_boot() == GM_BOOT_LIVE;
}

/* ---- accounts of what the real driver made ---- */

static _Atomic uint64_t *gm_account_of(uint64_t bytes)
{
    struct gm_stat *stat = gm_gate_stat();
    return bytes < GM_SMALL_MAX ? &stat->small_bytes : &stat->real_bytes;
}

static void gm_forget_real(const struct gm_alloc *alloc)
{
    atomic_fetch_sub(gm_account_of(alloc->bytes), alloc->bytes);
}

/* Note what the real driver made at `va`. Without memory for the note it goes uncounted. */
static void gm_note_real(struct gm_alloc alloc, CUdeviceptr va, uint64_t bytes)
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

/* ---- implicit synchronization ---- */

/*
 * cuMemFree waits for the GPU, and so must we, because unmapping does not. What cannot be
 * synchronized now, because a capture is open (gm_gate_sync_begin), is freed when the last capture
 * ends.
 */
struct gm_deferred {
    struct gm_alloc alloc;
    struct gm_deferred *next;
};
static struct gm_deferred *_Atomic gm_deferred_list;

/* Wait for the work of `context`. False: not now, a capture is open. *result: what the context
 * says. */
static bool gm_synchronize(CUcontext context, CUresult *result)
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

/* ---- giving chunks back ---- */

/* The GPU is done with *alloc, which is out of the map. */
static CUresult gm_release(const struct gm_alloc *alloc)
{
    int result = gm_link_free(alloc->va, alloc->span);
    if (result != 0)
        return (CUresult)result; /* something of it is still mapped: the range cannot be reused */
    gm_real.cuMemAddressFree(alloc->va, alloc->span);
    return CUDA_SUCCESS;
}

static bool gm_defer(const struct gm_alloc *alloc)
{
    struct gm_deferred *deferred = malloc(sizeof(*deferred));
    if (deferred == NULL)
        return false;
    deferred->alloc = *alloc;
    deferred->next = atomic_load(&gm_deferred_list);
    while (!atomic_compare_exchange_weak(&gm_deferred_list, &deferred->next, deferred))
        continue;
    return true;
}

/* Free what was put off, if that is possible now. */
static void gm_free_deferred(void)
{
    if (atomic_load_explicit(&gm_deferred_list, memory_order_relaxed) == NULL ||
        gm_gate_captures() > 0)
        return;
    struct gm_deferred *list = atomic_exchange(&gm_deferred_list, NULL);
    while (list != NULL) {
        struct gm_deferred *next = list->next;
        CUresult result;
        if (gm_synchronize(list->alloc.context, &result) &&
            (result == CUDA_SUCCESS || gm_contexts_is_over(result)))
            gm_release(&list->alloc);
        else
            gm_defer(&list->alloc);
        free(list);
        list = next;
    }
}

/* All that was made in `context`, or in the primary context of `device`, which was just destroyed.
 */
static void gm_release_all_of(CUcontext context, CUdevice device)
{
    struct gm_alloc alloc;
    while (gm_allocs_take_of(context, device, &alloc)) {
        if (alloc.kind == GM_ALLOC_REAL)
            gm_forget_real(&alloc);
        else
            gm_release(&alloc);
    }
}

/* ---- linear allocation ---- */

/* Where the calling thread allocates: device, GPU, context. False: it has no usable context. */
static bool gm_where(struct gm_alloc *alloc)
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

/*
 * Back `bytes` with chunks. CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY and other errors are the answer;
 * CUDA_ERROR_NOT_SUPPORTED means that the real driver shall try.
 *
 * During a capture of this thread the real cuMemAlloc fails, unless the thread is in relaxed mode;
 * this one succeeds, because reserving and mapping are not stream operations. Nothing here
 * synchronizes.
 */
static CUresult gm_allocate(struct gm_alloc alloc, uint64_t bytes, CUdeviceptr *va)
{
    if (bytes > UINT64_MAX - GM_CHUNK_MIN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alloc.bytes = bytes;
    alloc.span = gm_chunk_round(bytes);
    alloc.kind = GM_ALLOC_CHUNKS;

    CUdeviceptr range;
    if (gm_real.cuMemAddressReserve(&range, alloc.span, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    alloc.va = range;
    int result = gm_link_alloc(alloc.va, alloc.span, (uint32_t)alloc.gpu);
    if (result == -ENOTCONN)
        goto lost;
    if (result != 0) {
        gm_real.cuMemAddressFree(alloc.va, alloc.span);
        return (CUresult)result;
    }
    if (gm_allocs_insert(&alloc) != 0) {
        gm_release(&alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /*
     * The link thread decides from the map whether the program is whole when the daemon is lost. If
     * that came before the insertion, this memory was not asked about: do without it.
     */
    if (!gm_link_is_up() && gm_allocs_take(alloc.va, &alloc) == GM_ALLOC_BASE)
        goto lost;
    *va = alloc.va;
    return CUDA_SUCCESS;

lost:
    gm_release(&alloc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Whether `bytes` at `where` are gpumux's to back. */
static bool gm_is_ours(const struct gm_alloc *where, uint64_t bytes)
{
    return bytes >= GM_SMALL_MAX && where->gpu >= 0 && gm_link_is_up();
}

CUresult gm_on_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct gm_alloc where;
    if (!gm_is_live())
        return gm_real.cuMemAlloc_v2(dptr, bytesize);
    gm_free_deferred();
    if (dptr == NULL || bytesize == 0 || !gm_where(&where))
        return gm_real.cuMemAlloc_v2(dptr, bytesize);

    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (gm_is_ours(&where, bytesize))
        result = gm_allocate(where, bytesize, dptr);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    result = gm_real.cuMemAlloc_v2(dptr, bytesize);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, bytesize);
    return result;
}

CUresult gm_on_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                  size_t Height, unsigned int ElementSizeBytes)
{
    struct gm_alloc where;
    uint64_t pitch, bytes;
    bool is_legal = dptr != NULL && pPitch != NULL && WidthInBytes > 0 && Height > 0 &&
                    (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);

    if (!gm_is_live() || !is_legal || !gm_where(&where))
        return gm_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    gm_free_deferred();
    if (WidthInBytes > UINT64_MAX - (GM_PITCH - 1) ||
        __builtin_mul_overflow((WidthInBytes + GM_PITCH - 1) & ~(GM_PITCH - 1), Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;

    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    pitch = bytes / Height;
    if (gm_is_ours(&where, bytes))
        result = gm_allocate(where, bytes, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    result = gm_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    if (result == CUDA_SUCCESS)
        gm_note_real(where, *dptr, *pPitch * Height);
    return result;
}

CUresult gm_on_cuMemFree_v2(CUdeviceptr dptr)
{
    struct gm_alloc alloc;
    CUresult result;
    if (!gm_is_live())
        return gm_real.cuMemFree_v2(dptr);
    gm_free_deferred();

    enum gm_alloc_find found = gm_allocs_find(dptr, &alloc);
    if (found == GM_ALLOC_INSIDE && alloc.kind == GM_ALLOC_CHUNKS)
        return CUDA_ERROR_INVALID_VALUE;
    if (found != GM_ALLOC_BASE)
        return gm_real.cuMemFree_v2(dptr);
    if (gm_allocs_take(dptr, &alloc) != GM_ALLOC_BASE)
        return CUDA_ERROR_INVALID_VALUE; /* two threads free it; the other was first */

    if (alloc.kind == GM_ALLOC_REAL) {
        result = gm_real.cuMemFree_v2(dptr);
        if (result == CUDA_SUCCESS || gm_allocs_insert(&alloc) != 0)
            gm_forget_real(&alloc);
        return result;
    }
    if (!gm_synchronize(alloc.context, &result)) {
        if (gm_defer(&alloc))
            return CUDA_SUCCESS;
        gm_allocs_insert(&alloc); /* no memory to put it off: it stays allocated */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_DEINITIALIZED)
        return result; /* the process exits, and everything returns with it */
    if (result != CUDA_SUCCESS && !gm_contexts_is_over(result)) {
        gm_allocs_insert(&alloc); /* work may be using it: it stays */
        return result;
    }
    CUresult released = gm_release(&alloc);
    /* Like the driver's, this free reports the error of earlier work; the memory is gone anyway. */
    return result != CUDA_SUCCESS ? result : released;
}

CUresult gm_on_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct gm_alloc where;
    if (!gm_is_live() || !gm_link_is_up() || !gm_where(&where) || where.gpu < 0)
        return gm_real.cuMemGetInfo_v2(free, total);
    uint64_t budget = gm_link_budget((uint32_t)where.gpu);
    uint64_t used = gm_allocs_used((uint32_t)where.gpu);
    if (free != NULL)
        *free = used < budget ? budget - used : 0;
    if (total != NULL)
        *total = budget;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct gm_alloc alloc;
    if (!gm_is_live() || gm_allocs_find(dptr, &alloc) == GM_ALLOC_UNKNOWN ||
        alloc.kind != GM_ALLOC_CHUNKS)
        return gm_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
    if (pbase != NULL)
        *pbase = alloc.va;
    if (psize != NULL)
        *psize = alloc.bytes;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    if (bytes == NULL || !gm_is_live() || !gm_link_is_up() || gm_boot_gpu(dev) < 0)
        return gm_real.cuDeviceTotalMem_v2(bytes, dev);
    *bytes = gm_link_budget((uint32_t)gm_boot_gpu(dev));
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

static CUresult gm_note_context(CUresult result, const CUcontext *context)
{
    if (result == CUDA_SUCCESS)
        gm_contexts_add(*context);
    return result;
}

/* The call boots first: a context is the first thing that a program cannot take back. */
#define GM_ON_CTX_CREATE(symbol, params, args)                                                     \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        bool is_live = gm_is_live();                                                               \
        CUresult result = gm_real.symbol args;                                                     \
        return is_live ? gm_note_context(result, pctx) : result;                                   \
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

static void gm_forget_captures_of(CUcontext context);

/*
 * The memory of a context dies with it. The real call comes first: it ends the context's work, and
 * chunks, which are VMM memory, outlive it (cuda.h, cuCtxDestroy), so that they can be given back
 * then.
 */
static CUresult gm_destroy_context(CUcontext context, CUresult (*destroy)(CUcontext))
{
    if (!gm_is_live())
        return destroy(context);
    bool was_known = gm_contexts_remove(context);
    CUresult result = destroy(context);
    if (result != CUDA_SUCCESS) {
        if (was_known)
            gm_contexts_add(context);
        return result;
    }
    gm_forget_captures_of(context);
    if (was_known)
        gm_release_all_of(context, -1);
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
    if (is_live && result == CUDA_SUCCESS)
        gm_contexts_note_primary(dev, true);
    return result;
}

/*
 * Release or reset. Whether it was the last reference is asked afterwards, not counted: libraries
 * also retain the primary context by ways that are not hooked, and freeing memory in use is not an
 * option.
 */
static CUresult gm_leave_primary(CUdevice device, CUresult (*leave)(CUdevice), bool is_reset)
{
    unsigned flags;
    int is_active = 1;

    if (!gm_is_live())
        return leave(device);
    gm_contexts_lock_primary(device);
    CUresult result = leave(device);
    if (result == CUDA_SUCCESS &&
        gm_real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS)
        is_active = 1;
    gm_contexts_unlock_primary(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_active == 0)
        gm_contexts_note_primary(device, false);
    if (is_active == 0 || is_reset)
        gm_release_all_of(NULL, device);
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

/* ---- captures ---- */

/* The open captures, by stream: an end counts only for a capture that was counted. */
struct gm_capture {
    CUstream stream;
    CUcontext context;
};
static pthread_mutex_t gm_capture_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct gm_capture gm_capture_list[GM_CAPTURE_LIST];
static unsigned gm_capture_count;
static unsigned gm_capture_unlisted;

static void gm_note_capture(CUstream stream)
{
    CUcontext context = NULL;
    gm_real.cuCtxGetCurrent(&context);
    pthread_mutex_lock(&gm_capture_lock);
    if (gm_capture_count < GM_CAPTURE_LIST)
        gm_capture_list[gm_capture_count++] =
            (struct gm_capture){.stream = stream, .context = context};
    else
        gm_capture_unlisted++;
    pthread_mutex_unlock(&gm_capture_lock);
}

static bool gm_forget_capture(CUstream stream)
{
    bool is_known = false;
    pthread_mutex_lock(&gm_capture_lock);
    for (unsigned i = 0; i < gm_capture_count && !is_known; i++) {
        if (gm_capture_list[i].stream != stream)
            continue;
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        is_known = true;
    }
    if (!is_known && gm_capture_unlisted > 0) {
        gm_capture_unlisted--;
        is_known = true;
    }
    pthread_mutex_unlock(&gm_capture_lock);
    return is_known;
}

/* The context is destroyed, and with it the captures in its streams. */
static void gm_forget_captures_of(CUcontext context)
{
    unsigned ended = 0;
    pthread_mutex_lock(&gm_capture_lock);
    for (unsigned i = 0; i < gm_capture_count;) {
        if (gm_capture_list[i].context != context) {
            i++;
            continue;
        }
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        ended++;
    }
    pthread_mutex_unlock(&gm_capture_lock);
    while (ended-- > 0)
        gm_gate_capture_end();
}

/* A capture is counted before it begins, inside the gate: see gm_gate_scan. */
static struct gm_slot *gm_capture_enter(void)
{
    struct gm_slot *slot = gm_gate_enter();
    if (slot == NULL)
        return NULL;
    gm_gate_capture_begin();
    return slot;
}

static CUresult gm_capture_began(struct gm_slot *slot, CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS)
        gm_note_capture(stream);
    else
        gm_gate_capture_end();
    gm_gate_leave(slot);
    return result;
}

/*
 * The end of a capture is not gated: the gate lets callers pass while one is open, and it takes an
 * end to close it. An end that fails may or may not end the capture (a wrong thread does not), so
 * the stream is asked.
 */
static CUresult gm_capture_ended(CUstream stream, CUresult result)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS && gm_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return result;
    if (gm_forget_capture(stream) && gm_gate_capture_end() == 0)
        gm_free_deferred();
    return result;
}

/* The NULL stream of the per-thread variants, as the other variants call it. */
static CUstream gm_ptsz(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#define GM_ON_BEGIN_CAPTURE(symbol, stream, params, args)                                          \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        if (!gm_is_live())                                                                         \
            return gm_real.symbol args;                                                            \
        struct gm_slot *slot = gm_capture_enter();                                                 \
        if (slot == NULL)                                                                          \
            return gm_gate_refusal();                                                              \
        return gm_capture_began(slot, stream, gm_real.symbol args);                                \
    }
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture, hStream, (CUstream hStream), (hStream))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, gm_ptsz(hStream), (CUstream hStream), (hStream))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_v2, hStream, (CUstream hStream, CUstreamCaptureMode mode),
                    (hStream, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, gm_ptsz(hStream),
                    (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, hStream,
                    (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                     CUstreamCaptureMode mode),
                    (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, gm_ptsz(hStream),
                    (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                     CUstreamCaptureMode mode),
                    (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))

CUresult gm_on_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = gm_real.cuStreamEndCapture(hStream, phGraph);
    return gm_is_live() ? gm_capture_ended(hStream, result) : result;
}

CUresult gm_on_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = gm_real.cuStreamEndCapture_ptsz(hStream, phGraph);
    return gm_is_live() ? gm_capture_ended(gm_ptsz(hStream), result) : result;
}

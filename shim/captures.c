/* The handlers of stream capture. See captures.h. */
#include "shim/captures.h"

#include <pthread.h>

#include "shim/boot.h"
#include "shim/gate.h"
#include "shim/handlers.h"
#include "shim/release.h"

#define GM_CAPTURE_LIST 64 /* open captures that are known by their stream */

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

void gm_captures_forget(CUcontext context)
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

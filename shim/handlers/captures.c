/* The handlers of stream capture and of destroyed streams, which end theirs (gate/captures.h). */
#include "shim/gate/boot.h"
#include "shim/gate/captures.h"
#include "shim/gate/gate.h"
#include "shim/gate/streams.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/release.h"

/* Count the capture inside the gate, before it begins: see gm_gate_scan. */
static struct gm_slot *gm_capture_enter(void)
{
    struct gm_slot *slot = gm_gate_enter_whole();
    if (slot == NULL)
        return NULL;
    gm_gate_capture_begin();
    return slot;
}

static CUresult gm_capture_began(struct gm_slot *slot, const struct gm_capture *capture,
                                 CUresult result)
{
    if (result == CUDA_SUCCESS)
        gm_captures_note(capture);
    else
        gm_gate_capture_end();
    gm_gate_leave(slot);
    return result;
}

/*
 * The end of a capture is not gated: a drain waits for it. An end that fails may have ended the
 * capture or not (a wrong thread does not), so the driver is asked.
 */
static CUresult gm_capture_ended(CUstream stream, CUresult result)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS && gm_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return result;
    if (gm_captures_ended_in(stream) && gm_gate_capture_end() == 0)
        gm_free_deferred();
    return result;
}

/* A destroyed stream ends its capture. Take it off the list first, because another stream may get
 * the handle at once; uncount it last. */
static CUresult gm_destroy_stream(CUstream stream, CUresult (*destroy)(CUstream))
{
    struct gm_capture capture;
    if (!gm_is_live() || gm_gate_captures() == 0)
        return destroy(stream);
    bool is_capturing = gm_captures_take(stream, &capture);
    CUresult result = destroy(stream);
    if (!is_capturing)
        return result;
    if (result != CUDA_SUCCESS)
        gm_captures_put_back(&capture);
    else if (gm_gate_capture_end() == 0)
        gm_free_deferred();
    return result;
}

CUresult gm_on_cuStreamDestroy(CUstream hStream)
{
    return gm_destroy_stream(hStream, gm_real.cuStreamDestroy);
}

CUresult gm_on_cuStreamDestroy_v2(CUstream hStream)
{
    return gm_destroy_stream(hStream, gm_real.cuStreamDestroy_v2);
}

#define GM_ON_BEGIN_CAPTURE(symbol, stream, mode, params, args)                                    \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        if (!gm_is_live())                                                                         \
            return gm_real.symbol args;                                                            \
        const struct gm_capture capture = gm_capture_of(stream, mode);                             \
        struct gm_slot *slot = gm_capture_enter();                                                 \
        if (slot == NULL)                                                                          \
            return gm_gate_refusal();                                                              \
        return gm_capture_began(slot, &capture, gm_real.symbol args);                              \
    }
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture, hStream, CU_STREAM_CAPTURE_MODE_GLOBAL,
                    (CUstream hStream), (hStream))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, gm_stream_ptsz(hStream),
                    CU_STREAM_CAPTURE_MODE_GLOBAL, (CUstream hStream), (hStream))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_v2, hStream, mode,
                    (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, gm_stream_ptsz(hStream), mode,
                    (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, hStream, mode,
                    (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                     CUstreamCaptureMode mode),
                    (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
GM_ON_BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, gm_stream_ptsz(hStream), mode,
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
    return gm_is_live() ? gm_capture_ended(gm_stream_ptsz(hStream), result) : result;
}

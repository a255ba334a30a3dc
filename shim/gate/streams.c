#include "shim/gate/streams.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/locks.h"
#include "shim/driver/real.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"

/* The number of a context, to tell its default streams from those of others. A context that gets
 * the handle of a destroyed one gets its number too: nothing is pending there. */
static uint64_t gm_context_number(CUcontext context)
{
    static struct gm_lock lock = GM_LOCK_INITIALIZER(GM_LOCK_CONTEXT_NUMBERS);
    static CUcontext *contexts;
    static size_t n, room;
    size_t i = 0;
    gm_lock(&lock);
    while (i < n && contexts[i] != context)
        i++;
    if (i == n && n == room) {
        CUcontext *more = realloc(contexts, (room * 2 + 16) * sizeof(*more));
        if (more != NULL) {
            contexts = more;
            room = room * 2 + 16;
        }
    }
    if (i == n && n < room)
        contexts[n++] = context;
    bool is_known = i < n;
    gm_unlock(&lock);
    return is_known ? i + 1 : 0;
}

/* A number that no other stream has. Without cuStreamGetId (before CUDA 12.0) a user's stream gets
 * a new one each time. Then blocks are reused only once their mark was passed. */
static CUresult gm_stream_number(struct gm_stream *stream, bool is_default)
{
    static _Atomic uint64_t last_thread, last_unknown;
    static __thread uint64_t thread __attribute__((tls_model("initial-exec")));
    unsigned long long id;
    uint64_t context;

    if (is_default && (context = gm_context_number(stream->context)) != 0) {
        if (thread == 0)
            thread = atomic_fetch_add(&last_thread, 1) + 1;
        stream->number =
            1ull << 63 | context << 40 | (stream->handle == CU_STREAM_PER_THREAD ? thread : 0);
        return CUDA_SUCCESS;
    }
    if (!is_default && gm_real.cuStreamGetId != NULL) {
        CUresult result = gm_real.cuStreamGetId(stream->handle, &id);
        stream->number = (uint64_t)id + 1;
        return result;
    }
    stream->number = 1ull << 62 | (atomic_fetch_add(&last_unknown, 1) + 1);
    return CUDA_SUCCESS;
}

static CUresult gm_stream_device(struct gm_stream *stream)
{
    CUcontext current = NULL;
    CUresult result = gm_real.cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS || current == stream->context)
        return result == CUDA_SUCCESS ? gm_real.cuCtxGetDevice(&stream->device) : result;
    result = gm_real.cuCtxPushCurrent_v2(stream->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = gm_real.cuCtxGetDevice(&stream->device);
    gm_real.cuCtxPopCurrent_v2(&current);
    return result;
}

/* The rest, of a stream that does not capture. */
static CUresult gm_stream_ask(struct gm_stream *stream, bool is_default)
{
    const bool is_current = is_default || gm_real.cuStreamGetCtx == NULL; /* before CUDA 9.2 */
    CUresult result = is_current ? gm_real.cuCtxGetCurrent(&stream->context)
                                 : gm_real.cuStreamGetCtx(stream->handle, &stream->context);
    if (result == CUDA_SUCCESS && stream->context == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = gm_stream_device(stream);
    if (result == CUDA_SUCCESS)
        result = gm_stream_number(stream, is_default);
    stream->is_primary = !gm_contexts_has(stream->context);
    if (result == CUDA_SUCCESS && stream->is_primary && gm_contexts_primary_is_over(stream->device))
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return result;
}

CUresult gm_stream_look(CUstream handle, struct gm_stream *stream)
{
    bool is_default =
        handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    *stream = (struct gm_stream){.handle = handle};
    if (gm_gate_captures() == 0)
        return gm_stream_ask(stream, is_default);
    CUstreamCaptureMode mode = gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult result = gm_real.cuStreamIsCapturing(handle, &status);
    stream->is_capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (result == CUDA_SUCCESS && !stream->is_capturing)
        result = gm_stream_ask(stream, is_default);
    gm_real_mode(mode);
    return result;
}

/*
 * Streams as arguments of calls: context, device, whether it captures, and the number by which
 * arenas know it. Owns the numbers. Any thread. Calls the driver, the gate and contexts.
 */
#ifndef GM_SHIM_STREAMS_H
#define GM_SHIM_STREAMS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct gm_stream {
    CUstream handle; /* for calls without _ptsz: NULL is the legacy default stream */
    CUcontext context;
    CUdevice device;
    bool is_primary; /* the context is the device's primary one, or derived from it */
    bool is_capturing;
    uint64_t number; /* unique among streams, for arenas */
};

/* Ask the driver about a stream. An error is the driver's. For a capturing stream only handle and
 * is_capturing are set: other questions could end the capture. */
CUresult gm_stream_look(CUstream handle, struct gm_stream *stream);

/* The NULL stream of the per-thread forms of calls, as the other forms call it. */
static inline CUstream gm_stream_ptsz(CUstream handle)
{
    return handle == NULL ? CU_STREAM_PER_THREAD : handle;
}

#endif

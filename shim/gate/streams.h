/*
 * Streams as arguments of calls: which context and device one is of, whether it captures, and the
 * number that arenas know it by. Owns the numbers. Any thread.
 */
#ifndef GM_SHIM_STREAMS_H
#define GM_SHIM_STREAMS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* A stream as an argument of a call, and what it is. */
struct gm_stream {
    CUstream handle; /* for calls without _ptsz: NULL is the legacy default stream */
    CUcontext context;
    CUdevice device;
    bool is_primary; /* the context is the device's primary one, or derived from it */
    bool is_capturing;
    uint64_t number; /* that arenas know it by */
};

/* Look at it. An error is the driver's: the stream cannot be used, or not by us. Of a stream that
 * captures no more is asked, and told, than that it does: who knows what ends a capture. */
CUresult gm_stream_look(CUstream handle, struct gm_stream *stream);

/* The NULL stream of the per-thread forms of calls, as the other forms call it. */
static inline CUstream gm_stream_ptsz(CUstream handle)
{
    return handle == NULL ? CU_STREAM_PER_THREAD : handle;
}

#endif

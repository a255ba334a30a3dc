/*
 * The open stream captures, each known by its stream, so that an end counts only for a capture that
 * was counted. A capture also ends, uncounted then, with its stream, with its context, and with the
 * thread whose default stream it is in. While one is open the program is neither drained nor
 * synchronized (gate.h).
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include "shim/real.h"

/*
 * Exchange this thread's capture mode. In relaxed mode the driver allows what it takes for unsafe
 * in a thread that captures, and beside a capture of another thread in global mode (cuda.h,
 * cuThreadExchangeStreamCaptureMode); else it refuses, and ends the captures. So the shim's own
 * questions are asked in relaxed mode; what synchronizes a context ends its captures all the same
 * (gate.h).
 */
static inline CUstreamCaptureMode gm_captures_mode(CUstreamCaptureMode mode)
{
    gm_real.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

/*
 * `context` was destroyed, or, when it is NULL, the primary context of `device` was: and with it
 * the captures in its streams. Frees what was put off for them (release.h).
 */
void gm_captures_forget(CUcontext context, CUdevice device);

#endif

/*
 * The open stream captures, each known by its stream, so that an end counts only for a capture that
 * was counted. A capture also ends, uncounted then, with its stream, with its context, and with the
 * thread whose default stream it is in. While one is open the program is neither drained nor
 * synchronized (gate.h).
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include <cuda.h>

/*
 * `context` was destroyed, or, when it is NULL, the primary context of `device` was: and with it
 * the captures in its streams. Frees what was put off for them (release.h).
 */
void gm_captures_forget(CUcontext context, CUdevice device);

#endif

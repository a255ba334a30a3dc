/*
 * The open stream captures, each known by its stream, so that an end counts only for a capture that
 * was counted. While one is open the program is neither drained nor synchronized (gate.h).
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include <cuda.h>

/* The context was destroyed, and with it the captures in its streams. */
void gm_captures_forget(CUcontext context);

#endif

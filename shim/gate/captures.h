/*
 * The open stream captures, each known by its stream, so that an end counts only for a capture that
 * was counted. A capture also ends, uncounted then, with its stream, with its context, and with the
 * thread whose default stream it is in. Unless it is in relaxed mode, only the thread that began it
 * can end it (cuStreamEndCapture), so it is over when that thread has ended.
 *
 * While one is open the program is neither drained nor synchronized (gate.h): cuCtxSynchronize and
 * cuCtxRecordEvent spoil a capture in their context, in each mode and from each thread
 * (tests/simcuda/facts.txt). So a capture in relaxed mode that nobody ends holds its program for
 * good: some thread may yet end it. The status says why the program cannot be paused.
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include <cuda.h>

/*
 * `context` was destroyed, or, when it is NULL, the primary context of `device` was: and with it
 * the captures in its streams. Frees what was put off for them (release.h).
 */
void gm_captures_forget(CUcontext context, CUdevice device);

/*
 * Drainer only: count no more those that are over. One whose thread has ended is ended in the
 * driver too, which would go on to refuse synchronizing its context; of the others the driver is
 * asked.
 */
void gm_captures_settle(void);

#endif

/*
 * The open stream captures, listed by stream, so that an end is counted only if its begin was. A
 * capture also ends with its stream, with its context, and with the thread whose default stream it
 * is in. Unless its mode is relaxed, only the thread that began it can end it (cuStreamEndCapture),
 * so it is over when that thread ends.
 *
 * While a capture is open the program is not drained: cuCtxSynchronize and cuCtxRecordEvent
 * invalidate a capture in their context, in every mode and from every thread
 * (tests/simcuda/facts.txt). A relaxed capture that nobody ends therefore keeps its program running
 * for good: some thread may still end it. The status says why the program cannot be paused.
 *
 * Owns the list of open captures; the gate counts them. Callers: the handlers of captures and
 * contexts, and the drainer (settle). Calls the driver, boot, the gate, contexts and streams.
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include <cuda.h>
#include <stdbool.h>

/* An open capture. All threads name their per-thread default stream by the same handle, so there
 * the thread is part of the key. */
struct gm_capture {
    CUstream stream;
    const void *thread; /* for CU_STREAM_PER_THREAD; else NULL */
    const void *owner; /* the only thread that can end it; NULL: any thread, or that thread ended */
    bool is_left;      /* that thread ended */
    CUcontext context;
    CUdevice device;
    bool is_primary; /* in a primary context, or one derived from it */
};

/* The capture that is about to begin in `stream`. Call it before: a capturing stream cannot be
 * asked for its context, which need not be the current one. */
struct gm_capture gm_capture_of(CUstream stream, CUstreamCaptureMode mode);

/* It began. The caller has counted it (gm_gate_capture_begin). */
void gm_captures_note(const struct gm_capture *capture);

/* Take the capture in `stream` off the list; the drainer does not touch the stream any more. False:
 * it is not listed. put_back undoes it. */
bool gm_captures_take(CUstream stream, struct gm_capture *capture);
void gm_captures_put_back(const struct gm_capture *capture);

/* The capture in `stream` has ended. True: it was counted, so call gm_gate_capture_end. */
bool gm_captures_ended_in(CUstream stream);

/*
 * `context`, or if it is NULL the primary context of `device`, was destroyed with the captures in
 * its streams. True: none is open any more, so call gm_free_deferred.
 */
bool gm_captures_forget(CUcontext context, CUdevice device);

/*
 * Drainer only: remove captures that are over, as the driver says. End those whose thread ended:
 * until then the driver refuses to synchronize their context.
 */
void gm_captures_settle(void);

#endif

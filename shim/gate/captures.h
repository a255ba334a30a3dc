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
 *
 * Owns the list of open captures; the gate counts them. Callers: the handlers of captures and
 * contexts, and the drainer (settle). Calls the gate, contexts and streams.
 */
#ifndef GM_SHIM_CAPTURES_H
#define GM_SHIM_CAPTURES_H

#include <cuda.h>
#include <stdbool.h>

/* An open capture. The per-thread default stream has one handle and is another stream in each
 * thread, so there the thread is part of its name. */
struct gm_capture {
    CUstream stream;
    const void *thread; /* for CU_STREAM_PER_THREAD; else NULL */
    const void *owner; /* the thread that alone can end it; NULL: any thread can, or it has ended */
    bool is_left;      /* its owner has ended */
    CUcontext context;
    CUdevice device;
    bool is_primary; /* in a primary context, or one derived from it */
};

/* One that is about to begin: afterwards nothing is asked about its stream, whose context need not
 * be the current one. */
struct gm_capture gm_capture_of(CUstream stream, CUstreamCaptureMode mode);

/* It began. The caller counted it (gm_gate_capture_begin). */
void gm_captures_note(const struct gm_capture *capture);

/* Take the one in `stream` off the list. False: none is known. Afterwards the drainer asks nothing
 * about the stream. And put it back: there is room, unless others came in between. */
bool gm_captures_take(CUstream stream, struct gm_capture *capture);
void gm_captures_put_back(const struct gm_capture *capture);

/* The one in `stream` has ended. Whether it was counted: gm_gate_capture_end must follow then. */
bool gm_captures_ended_in(CUstream stream);

/*
 * `context` was destroyed, or, when it is NULL, the primary context of `device` was: and with it
 * the captures in its streams. True: so the last open one ended, and what was put off can be freed
 * (gm_free_deferred).
 */
bool gm_captures_forget(CUcontext context, CUdevice device);

/*
 * Drainer only: count no more those that are over. One whose thread has ended is ended in the
 * driver too, which would go on to refuse synchronizing its context; of the others the driver is
 * asked.
 */
void gm_captures_settle(void);

#endif

/*
 * Marks of the stream-ordered allocator: points in streams (arena.h) with events that say when the
 * GPU has passed them, and the heap with its lock.
 *
 * An event belongs to the stream's context. When that ends, the work before the event is over, so
 * its mark is passed. Events are reused. While a context ends nobody uses its events: the thread
 * that ends it first waits for threads in driver calls with them.
 *
 * Owns the heap and the events. Any thread. Callers: pools, and the handlers of contexts.
 * Calls the gate.
 */
#ifndef GM_SHIM_MARKS_H
#define GM_SHIM_MARKS_H

#include "common/locks.h"
#include "shim/gate/streams.h"
#include "shim/tables/arena.h"

extern __attribute__((visibility("hidden"))) struct gm_heap gm_heap;
extern __attribute__((visibility("hidden"))) struct gm_lock gm_heap_lock;

/* A mark after all work that the stream has now: *mark, with a reference for the caller. Enters the
 * gate. Other results than CUDA_SUCCESS are the answer to the program. */
CUresult gm_mark_record(const struct gm_stream *stream, struct gm_mark **mark);

/* Make the stream wait for the mark. Enters the gate. */
CUresult gm_mark_await(const struct gm_stream *stream, struct gm_mark *mark);

/* Give a reference back. NULL: none. */
void gm_mark_release(struct gm_mark *mark);

/* Ask the driver whether the mark is passed, and if so tell the heap. */
bool gm_mark_ask(struct gm_mark *mark);

/* Ask about all marks that blocks are pending for. True: some were passed; their blocks are clean.
 */
bool gm_marks_reap(void);

/* Whether blocks are pending for anything. */
bool gm_marks_are_pending(void);

/* Before a context (`context`, or the primary one of `device` if that is NULL) is destroyed, and
 * after: `is_gone` if it was. */
void gm_marks_leave_context(CUcontext context, CUdevice device);
void gm_marks_left_context(CUcontext context, CUdevice device, bool is_gone);

#endif

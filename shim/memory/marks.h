/*
 * Marks of the stream-ordered allocator: places in streams (arena.h) with the events that say when
 * they are passed, and the heap and the lock that marks and blocks live under.
 *
 * An event is of the stream's context and dies with it; what was ahead of it is over then, so its
 * mark is passed. Events of marks that nobody needs are kept for the next ones. While a context is
 * about to end its events are let alone: who ends it waits for the threads that are asking.
 *
 * Owns the heap and the events. Any thread. Callers: pools, and the handlers of contexts.
 * Calls the gate.
 */
#ifndef GM_SHIM_MARKS_H
#define GM_SHIM_MARKS_H

#include <pthread.h>

#include "shim/gate/streams.h"
#include "shim/tables/arena.h"

extern __attribute__((visibility("hidden"))) struct gm_heap gm_heap;
void gm_heap_lock(void);
void gm_heap_unlock(void);
void gm_heap_wait(pthread_cond_t *changed); /* with the lock */

/* A mark behind all that the stream was given so far: *mark, with a reference for the caller.
 * Passes the gate. Other results than CUDA_SUCCESS are the answer to the program. */
CUresult gm_mark_record(const struct gm_stream *stream, struct gm_mark **mark);

/* Make the stream wait for the mark. Passes the gate. */
CUresult gm_mark_await(const struct gm_stream *stream, struct gm_mark *mark);

/* Ask the driver whether it is passed; and if so, tell the heap. */
bool gm_mark_ask(struct gm_mark *mark);

/* Ask about what blocks are pending for; what is passed is clean. True: something was. */
bool gm_marks_reap(void);

/* Whether blocks are pending for anything. */
bool gm_marks_are_pending(void);

/* Before a context (`context`, or the primary one of `device` if that is NULL) is ended, and after:
 * `is_gone` if it was. */
void gm_marks_leave_context(CUcontext context, CUdevice device);
void gm_marks_left_context(CUcontext context, CUdevice device, bool is_gone);

#endif

/*
 * The CUDA contexts that a drain synchronizes: those made by cuCtxCreate*, and the active primary
 * contexts of all devices that the program sees, because a kernel on an unmanaged device can reach
 * a managed GPU's memory (cuCtxEnablePeerAccess). The drainer walks over them in three ways:
 *
 *   synchronize   for a CLOSE, when nobody is inside the gate: cuCtxSynchronize returns as soon as
 *                 the work ends. In a context without CU_CTX_SCHED_BLOCKING_SYNC it keeps a core
 *                 busy until then; the drain deadline bounds that.
 *   finish        for a QUERY, while the program runs: it records an event behind all work of the
 *                 context and polls it, a millisecond later first, and every `late_ns` then. That
 *                 costs no core and can stop at any moment.
 *   follow        for a window: the same, but it never waits. The events stay in their contexts from
 *                 one look to the next, whatever the drainer does in between.
 *
 * Owns the list of contexts. Its lock is never held across a driver call. Instead the drainer marks
 * the context that it is in, and a thread that destroys that context waits until the drainer leaves
 * it: when the context's work ends, or at once if the drainer polls an event. The thread waits
 * GM_CONTEXT_PATIENCE_S at most, because the work may never end.
 *
 * Callers: the handlers of contexts (list), the drainer (walk), anybody who asks about a context.
 * Calls the driver and the gate.
 */
#ifndef GM_SHIM_CONTEXTS_H
#define GM_SHIM_CONTEXTS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GM_CONTEXT_PATIENCE_S 10

/*
 * Any thread. Reserve a place on the list before you create a context, because nobody drains a
 * context that is not listed. Then add the context, or release the place. False: no host memory;
 * create no context.
 */
bool gm_contexts_reserve(void);
void gm_contexts_add(CUcontext context);
void gm_contexts_release(void);

/*
 * remove, before the real destroy: take it off the list and wait for the drainer. True: it was
 * listed, and its place is reserved in case the destroy fails. Then call removed after the real
 * destroy: a walk of the drainer does not end before, for the context may still have work.
 */
bool gm_contexts_remove(CUcontext context);
void gm_contexts_removed(void);

/* Whether it is listed. If not, it is a primary context or derived from one. */
bool gm_contexts_has(CUcontext context);

/*
 * note_gone, before the real destroy: the driver may reuse the handle at once. is_gone: whether the
 * handle is one of the last GM_CONTEXTS_GONE destroyed and not reused since. Do not pass such a
 * handle to the driver: it points to freed memory.
 */
#define GM_CONTEXTS_GONE 64
void gm_contexts_note_gone(CUcontext context);
bool gm_contexts_is_gone(CUcontext context);

/*
 * Whether the primary context of `device` is inactive after it was active. It is still the current
 * context of its threads, but every call in it fails. One load unless it ever became inactive.
 */
bool gm_contexts_primary_is_over(CUdevice device);

/* Around a real release or reset of the device's primary context: keeps the drainer out of it. */
void gm_contexts_lock_primary(CUdevice device);
void gm_contexts_unlock_primary(CUdevice device);

/* The primary context of `device` is active, or inactive; gm_stat.contexts counts it. */
void gm_contexts_note_primary(CUdevice device, bool is_active);

/*
 * Whether a context that answers `result` can run nothing any more, and so is quiet: it is
 * destroyed or broken by an error of its work, or the driver shuts down. Other errors say nothing
 * about work.
 */
bool gm_contexts_is_over(CUresult result);

/*
 * Drainer only, when nobody is inside: synchronize all contexts. CUDA_SUCCESS: none has work.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture is open. Other errors are a context's answer.
 */
CUresult gm_contexts_synchronize(void);

/*
 * Drainer only: wait until the work ends that all contexts have now, and notice that within
 * `late_ns`. CUDA_SUCCESS: it has ended. CUDA_ERROR_NOT_READY: stopped early, because `*stamp` is
 * not `seen` any more, it is the time `until`, or a context is about to be destroyed. Other errors
 * as above.
 *
 * Before CUDA 12.5 there is no cuCtxRecordEvent. Then this synchronizes one context after the
 * other: to stop takes until the work of one context ends, and a core may be busy.
 */
CUresult gm_contexts_finish(const _Atomic uint64_t *stamp, uint64_t seen, uint64_t late_ns,
                            uint64_t until);

/* Drainer only: whether a context had work, or may have had some, when gm_contexts_finish was
 * called last. */
bool gm_contexts_had_work(void);

/*
 * Drainer only: whether all work has ended that the contexts had when this was called with `window`
 * first. CUDA_ERROR_NOT_READY: not yet, ask again. CUDA_ERROR_NOT_SUPPORTED: this driver cannot
 * tell. The next window, another number, is asked about when this one needs no answer any more.
 */
CUresult gm_contexts_follow(uint32_t window);

/* Drainer only: call `visit` with each context current. A thread that destroys one waits for it. */
void gm_contexts_visit(void (*visit)(CUcontext context, uint64_t argument), uint64_t argument);

/* Any thread: the stamp changed. */
void gm_contexts_wake(void);

#endif

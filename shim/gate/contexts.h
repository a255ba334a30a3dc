/*
 * The CUDA contexts that a drain has to synchronize: those made by cuCtxCreate*, and the active
 * primary contexts of all devices that the program sees. A kernel on a device that gpumux does not
 * manage can reach a managed GPU's memory (cuCtxEnablePeerAccess). The drainer walks over them in
 * two ways:
 *
 *   synchronize   for a CLOSE, when nobody is inside the gate: cuCtxSynchronize. It returns as soon
 *                 as the work ends. In a context without CU_CTX_SCHED_BLOCKING_SYNC it keeps a core
 *                 busy until then; the drain deadline bounds that.
 *   finish        for a QUERY, while the program runs: it records an event behind all work of the
 *                 context and looks at it from time to time. That takes no core and can be given up
 *                 at any moment.
 *
 * Owns the list of contexts. The lock guards the list and is never held across a driver call.
 * Instead, the drainer marks the context that it is in, and a thread that destroys that context
 * waits for the drainer to leave it. The drainer leaves when the context's work ends, or at once if
 * it only waits for an event. A destroyer waits GM_CONTEXT_PATIENCE_S at most, so that a context
 * whose work never ends does not hold the program for ever.
 *
 * Callers: the handlers of contexts (list), the drainer (walk), whoever asks about a context. Calls
 * the gate.
 */
#ifndef GM_SHIM_CONTEXTS_H
#define GM_SHIM_CONTEXTS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GM_CONTEXT_PATIENCE_S 10

/*
 * Any thread. A context that is not on the list would be drained by nobody, so its place is there
 * before it is: reserve, and then either add the context that was created, or release. False: no
 * host memory, and nothing to release; create none.
 */
bool gm_contexts_reserve(void);
void gm_contexts_add(CUcontext context);
void gm_contexts_release(void);

/* Before the real destroy: take it off the list and wait for the drainer. Returns whether it was
 * on; then its place is reserved, in case it is not destroyed. */
bool gm_contexts_remove(CUcontext context);

/* Whether it is on the list. What is not is a primary context, or one derived from it. */
bool gm_contexts_has(CUcontext context);

/*
 * Remember that it is destroyed: before it is, for its handle may be another's at once. Whether it
 * was, and no other was added with that handle since: of the last GM_CONTEXTS_GONE. Such a handle
 * points to what the driver freed; it must not be asked.
 */
#define GM_CONTEXTS_GONE 64
void gm_contexts_note_gone(CUcontext context);
bool gm_contexts_is_gone(CUcontext context);

/*
 * Whether the primary context of `device` has ended, for good or for now. To the driver it is still
 * the current one of the threads that it was current to, but whatever it is asked to do it refuses.
 * One load unless it has ever ended.
 */
bool gm_contexts_primary_is_over(CUdevice device);

/* Around a real release or reset of the device's primary context: keeps the drainer out of it. */
void gm_contexts_lock_primary(CUdevice device);
void gm_contexts_unlock_primary(CUdevice device);

/* The primary context of `device` was seen active, or inactive: counted in gm_stat.contexts. */
void gm_contexts_note_primary(CUdevice device, bool is_active);

/*
 * Whether a context that answers `result` can run nothing: it is gone, broken for good by an
 * earlier error of its own work, or the driver is shutting down. What can run nothing is quiet. Any
 * other error says nothing about the work.
 */
bool gm_contexts_is_over(CUresult result);

/*
 * Drainer only, after nobody was inside: synchronize all. CUDA_SUCCESS when none has work left, or
 * can have. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when a capture is open, another error when a
 * context could not be asked.
 */
CUresult gm_contexts_synchronize(void);

/*
 * Drainer only, with the gate open: wait until the work ends that all contexts have now.
 * CUDA_SUCCESS: it has, or nothing can run any more. CUDA_ERROR_NOT_READY: given up, because
 * `*stamp` is not `seen` any more, or because a context is about to be destroyed. Other errors as
 * above.
 *
 * A driver without cuCtxRecordEvent (before CUDA 12.5) is synchronized instead, one context after
 * the other: then giving up waits for the work of one of them, and a core may be busy meanwhile.
 */
CUresult gm_contexts_finish(const _Atomic uint64_t *stamp, uint64_t seen);

/*
 * Drainer only: call `visit` in every context, which is current then and is not destroyed
 * meanwhile: who wants to destroy it waits for it to return.
 */
void gm_contexts_visit(void (*visit)(CUcontext context, uint64_t argument), uint64_t argument);

/* Any thread: the stamp was changed. */
void gm_contexts_wake(void);

#endif

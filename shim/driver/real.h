/*
 * The real driver: one typed pointer for every row of hooks.def and own.def.
 *
 * Invariant: a member is NULL or the address that libcuda.so.1 exports under that name, and then
 * never changes: the library stays open. Handlers and slow paths run when all members are filled; a
 * fast path needs only its own (entry/load.h). A member that the driver lacks stays NULL: check
 * before you use a call that not every driver has.
 *
 * entry/load.c alone writes it; every file of the shim reads it.
 */
#ifndef GM_SHIM_REAL_H
#define GM_SHIM_REAL_H

#ifndef __CUDA_API_VERSION_INTERNAL
#error "compile with -D__CUDA_API_VERSION_INTERNAL: without it cuda.h renames the driver's symbols"
#endif

#include <stdbool.h>

#include <cudaTypedefs.h>

/* The name of a row's typed pointer, by its stream mode. */
#define GM_PFN_ANY(type) type
#define GM_PFN_LEGACY(type) type
#define GM_PFN_PTDS(type) type##_ptds
#define GM_PFN_PTSZ(type) type##_ptsz

/* What follows in a row of the kind LAUNCH, COPY, REPLAY or HANDLE, and nothing in rows of other
 * kinds: GM_ONLY_LAUNCH(kind)(text). */
#define GM_ONLY_LAUNCH(kind) GM_LAUNCH_OF_##kind
#define GM_LAUNCH_OF_LAUNCH(...) __VA_ARGS__
#define GM_LAUNCH_OF_REPLAY(...)
#define GM_LAUNCH_OF_SUBMIT(...)
#define GM_LAUNCH_OF_COPY(...)
#define GM_LAUNCH_OF_SYNC(...)
#define GM_LAUNCH_OF_HANDLE(...)

#define GM_ONLY_COPY(kind) GM_COPY_OF_##kind
#define GM_COPY_OF_COPY(...) __VA_ARGS__
#define GM_COPY_OF_LAUNCH(...)
#define GM_COPY_OF_REPLAY(...)
#define GM_COPY_OF_SUBMIT(...)
#define GM_COPY_OF_SYNC(...)
#define GM_COPY_OF_HANDLE(...)

#define GM_ONLY_HANDLE(kind) GM_HANDLE_OF_##kind
#define GM_HANDLE_OF_HANDLE(...) __VA_ARGS__
#define GM_HANDLE_OF_SUBMIT(...)
#define GM_HANDLE_OF_COPY(...)
#define GM_HANDLE_OF_SYNC(...)
#define GM_HANDLE_OF_LAUNCH(...)
#define GM_HANDLE_OF_REPLAY(...)

#define GM_ONLY_REPLAY(kind) GM_REPLAY_OF_##kind
#define GM_REPLAY_OF_REPLAY(...) __VA_ARGS__
#define GM_REPLAY_OF_LAUNCH(...)
#define GM_REPLAY_OF_SUBMIT(...)
#define GM_REPLAY_OF_COPY(...)
#define GM_REPLAY_OF_SYNC(...)
#define GM_REPLAY_OF_HANDLE(...)

struct gm_real {
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_PFN_##mode(PFN_##api##_v##since) symbol;
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_OWN(api, symbol, since) PFN_##api##_v##since symbol;
#include "shim/driver/own.def"
#undef GM_OWN
};
extern struct gm_real gm_real;

/*
 * Store an address in a typed pointer that is still NULL. Only the first thread stores, so nothing
 * is written that another thread may be reading plainly. The thread sanitizer takes a failed
 * exchange for a write too, so the function that stores is marked GM_REAL_STORES.
 */
#define GM_REAL_STORE(pointer, address)                                                            \
    {                                                                                              \
        __typeof__(pointer) gm_none = NULL, gm_found = (__typeof__(pointer))(address);             \
        if (gm_found)                                                                              \
            __atomic_compare_exchange_n(&(pointer), &gm_none, gm_found, false, __ATOMIC_ACQ_REL,   \
                                        __ATOMIC_ACQUIRE);                                         \
    }
#define GM_REAL_STORES __attribute__((no_sanitize("thread")))

/*
 * Exchange this thread's capture mode. In the other modes the driver refuses calls that it takes
 * for unsafe beside a capture, and invalidates the capture (cuda.h,
 * cuThreadExchangeStreamCaptureMode). So the shim makes its own calls in relaxed mode.
 * Synchronizing a context invalidates its captures in every mode (gate.h).
 */
static inline CUstreamCaptureMode gm_real_mode(CUstreamCaptureMode mode)
{
    gm_real.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

#endif

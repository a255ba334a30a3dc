/*
 * Deferred frees. A free must wait for the GPU, because unmapping does not. While a capture is open
 * it cannot (gm_gate_sync_begin): the allocation goes on a list here, and gm_free_deferred
 * (release.h) frees it after the last capture.
 *
 * Owns the list. Callers: handlers, sharing, release; any thread; no lock. Calls the driver and the
 * gate.
 */
#ifndef GM_SHIM_DEFERRED_H
#define GM_SHIM_DEFERRED_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Wait for the work of `context`; *result is the driver's answer. False: a capture is open. */
bool gm_synchronize(CUcontext context, CUresult *result);

/* Free *alloc later. False: no host memory. */
bool gm_defer(const struct gm_alloc *alloc);

struct gm_deferred {
    struct gm_alloc alloc;
    struct gm_deferred *next;
};

/* Take the list, NULL if it is empty; and put an entry back. */
struct gm_deferred *gm_deferred_take(void);
void gm_deferred_push(struct gm_deferred *deferred);

#endif

/*
 * Giving memory back, of any kind: allocations, handles, all that was made in a context, and what
 * was put off (deferred.h).
 *
 * Owns nothing. Any thread; no lock is held across a driver call or a request to the daemon. Calls
 * the tables, notes, chunks and sharing. Callers: handlers, obtain, pools and pins.
 */
#ifndef GM_SHIM_RELEASE_H
#define GM_SHIM_RELEASE_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* The GPU is done with *alloc, which is out of the map: give its chunks and its range back. */
CUresult gm_release(const struct gm_alloc *alloc);

/* Free what was put off, if no capture is open and its context's work has ended. A quick look if
 * nothing was. */
void gm_free_deferred(void);

/* Nothing keeps the virtual handles of this list any more (vmm.h): give back what they had. Returns
 * the first failure. */
CUresult gm_release_handles(struct gm_vmm_handle *handle);

/* All that was made in `context`, or, when it is NULL, in the primary context of `device`, which
 * was just destroyed. */
void gm_release_all_of(CUcontext context, CUdevice device);

#endif

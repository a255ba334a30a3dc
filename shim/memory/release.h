/*
 * Giving chunks back. A real free waits for the GPU, and so must we, because unmapping does not.
 * What cannot be waited for now, because a capture is open (gm_gate_sync_begin), is put off until
 * the last capture ends.
 *
 * Any thread; no lock is held across a driver call or a request to the daemon.
 */
#ifndef GM_SHIM_RELEASE_H
#define GM_SHIM_RELEASE_H

#include "shim/tables/allocs.h"
#include "shim/driver/real.h"
#include "shim/tables/vmm.h"

/* Wait for the work of `context`. False: not now, a capture is open. *result: what the context
 * says. */
bool gm_synchronize(CUcontext context, CUresult *result);

/* The GPU is done with *alloc, which is out of the map: give its chunks and its range back. */
CUresult gm_release(const struct gm_alloc *alloc);

/* The same in two steps, for what is no import. Until the first one is over the driver finds memory
 * there; the second takes its result: after a failure the range is never used again. */
CUresult gm_release_chunks(const struct gm_alloc *alloc);
void gm_release_range(const struct gm_alloc *alloc, CUresult result);

/* Give *alloc back later. False: no memory to put it off. */
bool gm_defer(const struct gm_alloc *alloc);

/* Free what was put off, if that is possible now. A quick look if nothing was. */
void gm_free_deferred(void);

/* Nothing keeps the virtual handles of this list any more (vmm.h): give back what they had. Returns
 * the first failure. */
CUresult gm_release_handles(struct gm_vmm_handle *handle);

/* All that was made in `context`, or, when it is NULL, in the primary context of `device`, which
 * was just destroyed. */
void gm_release_all_of(CUcontext context, CUdevice device);

#endif

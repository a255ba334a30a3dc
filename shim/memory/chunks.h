/*
 * Giving the chunks of a range back: wait for the GPU, because unmapping does not; the chunks go to
 * the daemon, and then the range to the driver. release.h does the latter two for an allocation of
 * any kind; freed.h, whose ranges have to stay known in between, does them in two steps. Any
 * thread; waits for the daemon.
 */
#ifndef GM_SHIM_CHUNKS_H
#define GM_SHIM_CHUNKS_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Wait for the work of `context`; *result is the driver's answer. False: a capture is open. */
bool gm_synchronize(CUcontext context, CUresult *result);

/* Of what is no import. Until the first one is over the driver finds memory there; the second takes
 * its result: after a failure the range is never used again. */
CUresult gm_release_chunks(const struct gm_alloc *alloc);
void gm_release_range(const struct gm_alloc *alloc, CUresult result);

#endif

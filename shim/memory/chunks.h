/*
 * Giving the chunks of a range back to the daemon, and then the range to the driver. release.h does
 * both for an allocation of any kind; spares, which have to stay known in between, do it in two
 * steps. Any thread; waits for the daemon.
 */
#ifndef GM_SHIM_CHUNKS_H
#define GM_SHIM_CHUNKS_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Of what is no import. Until the first one is over the driver finds memory there; the second takes
 * its result: after a failure the range is never used again. */
CUresult gm_release_chunks(const struct gm_alloc *alloc);
void gm_release_range(const struct gm_alloc *alloc, CUresult result);

#endif

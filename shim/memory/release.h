/*
 * Gives memory of any kind back: allocations, handles, all memory of a context, and what waited for
 * the GPU (freed.h).
 *
 * Owns nothing. Callers: handlers, obtain, pools and pins; any thread. Calls the driver, the link,
 * the tables, contexts, notes, chunks, freed, marks and sharing. No lock is held across a driver
 * call or a request to the daemon.
 */
#ifndef GM_SHIM_RELEASE_H
#define GM_SHIM_RELEASE_H

#include "shim/driver/real.h"
#include "shim/memory/freed.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* Give the chunks and the range of *alloc back. It is out of the map and the GPU does not use it.
 */
CUresult gm_release(const struct gm_alloc *alloc);

/* Release what waits for that reason and need not any more. True: there was something. */
bool gm_release_freed(enum gm_freed_why why);

/* Frees that waited for the end of captures, if none is open. One load if there are none. */
void gm_free_deferred(void);

/* Give back the memory of the dead virtual handles of this list (vmm.h). Returns the first failure.
 */
CUresult gm_release_handles(struct gm_vmm_handle *handle);

/* Give back all memory made in `context`, or if that is NULL in the primary context of `device`,
 * which was just destroyed. */
void gm_release_all_of(CUcontext context, CUdevice device);

#endif

/*
 * Memory of other programs that this one has open (cuIpcOpenMemHandle): each once, at one address,
 * until it is closed as often as it was opened.
 *
 *   (absent) --first open--> OPENING --mapped--> OPEN
 *   OPEN --last close--> SHUTTING --gm_sharing_release--> (absent)
 *
 * While a capture is open a last close makes it DEFERRED (freed.h); another open makes it OPEN
 * again. A thread that finds OPENING or SHUTTING waits until that is over. The lock is never held
 * across a driver call or a request to the daemon.
 *
 * Owns that list. Callers: handlers and release, any thread. Calls the driver, the link,
 * allocations, contexts, chunks and freed.
 *
 * Environment, read once at boot:
 *   GPUMUX_SHARING=broker   the default: the daemon shares memory between programs
 *   GPUMUX_SHARING=real     the driver makes this program's memory: it never moves, and the driver
 *                           shares it, also with programs without gpumux
 */
#ifndef GM_SHIM_SHARING_H
#define GM_SHIM_SHARING_H

#include <stdbool.h>

#include "common/share.h"
#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Boot only, after the log is open. */
void gm_sharing_init(void);

/* Whether the driver makes all memory of this program. */
bool gm_sharing_is_real(void);

/* Open the memory `name` in the context of `where` (gm_where). *va: its address. Errors of the
 * driver or the daemon. */
CUresult gm_sharing_open(const struct gm_share_name *name, struct gm_alloc where, CUdeviceptr *va);

/* Close it once. CUDA_ERROR_INVALID_VALUE: nothing is open at `va`. */
CUresult gm_sharing_close(CUdeviceptr va);

/* Unmap *alloc (GM_ALLOC_IMPORT). It is out of the map and the GPU does not use it. */
CUresult gm_sharing_release(const struct gm_alloc *alloc);

#endif

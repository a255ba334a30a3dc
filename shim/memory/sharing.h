/*
 * Memory that this program has open of others (cuIpcOpenMemHandle): each once, at one address, for
 * as long as it was opened more often than closed.
 *
 *   (absent) --begin--> OPENING --end--> OPEN
 *   OPEN --the last close--> SHUTTING --gm_sharing_release--> (absent)
 *
 * What cannot be closed yet because a capture is open is DEFERRED until that ends (deferred.h), and
 * OPEN again if it is opened before. Who meets one that is OPENING or SHUTTING waits until that is
 * over. The list's lock is never held across a driver call or a request to the daemon; the
 * allocation map's comes after it.
 *
 * Environment, read once at boot:
 *   GPUMUX_SHARING=broker   the default: the daemon passes memory on between programs
 *   GPUMUX_SHARING=real     this program's allocations are the driver's: they never move, and the
 *                           driver shares them, also with programs outside of gpumux
 */
#ifndef GM_SHIM_SHARING_H
#define GM_SHIM_SHARING_H

#include <stdbool.h>

#include "common/share.h"
#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Boot only, after the log is open. */
void gm_sharing_init(void);

/* Whether the driver shall make all memory of this program. */
bool gm_sharing_is_real(void);

/*
 * Open the named memory in the place that *where tells (gm_where). *va is its first address. The
 * driver's errors, and the daemon's.
 */
CUresult gm_sharing_open(const struct gm_share_name *name, struct gm_alloc where, CUdeviceptr *va);

/* Close it once. CUDA_ERROR_INVALID_VALUE: nothing was opened at `va`. */
CUresult gm_sharing_close(CUdeviceptr va);

/* The GPU is done with *alloc (GM_ALLOC_IMPORT), which is out of the map: unmap it. */
CUresult gm_sharing_release(const struct gm_alloc *alloc);

#endif

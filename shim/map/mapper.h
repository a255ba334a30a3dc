/*
 * The mapper: imports the daemon's frames and maps them where the daemon says.
 *
 * A frame is imported once, from the fd that comes with it, and stays cached under its id until the
 * daemon drops it (imports.h). The daemon gives each frame one address. The whole frame is mapped
 * there; if the address is in the home of one of the program's own handles (tables/vmm.h), it is
 * mapped at every view of that handle (views.h).
 *
 * Results are CUresults. CUDA_ERROR_DEINITIALIZED, which threads get while a process exits, counts
 * as success for unmap and release: the driver has freed everything.
 *
 * Link thread only, in the daemon's order, without a lock. Fills the cache of imports. Calls the
 * driver, imports, views and peers, and looks allocations up.
 */
#ifndef GM_SHIM_MAPPER_H
#define GM_SHIM_MAPPER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

/*
 * Map every entry, with access for its GPU and its peers. All or nothing: on failure nothing of the
 * batch stays mapped, and its new frames are not cached (the daemon sends their fds again). Closes
 * the fds in every case.
 */
CUresult gm_mapper_map(const struct gm_map_entry *entry, uint32_t count, const int *fds, int n_fds);

/* Unmap every span, each of one mapped chunk. Returns the first failure, but does the rest too. */
CUresult gm_mapper_unmap(const struct gm_span_entry *entry, uint32_t count);

/* Release cached frames. Skips frames that are not cached. INVALID_VALUE: a frame is still mapped.
 */
CUresult gm_mapper_drop(const struct gm_frame_entry *entry, uint32_t count);

/* Open, or close, all memory of `gpu` to a device, but not the program's own mappings. Returns the
 * first failure, but does the rest too. */
CUresult gm_mapper_allow(uint32_t gpu, CUdevice device, bool is_open);

/* Whether every chunk of [va, va + bytes) is mapped. */
bool gm_mapper_covers(uint64_t va, uint64_t bytes);

/* Whether all memory of the program is mapped. */
bool gm_mapper_has_all(void);

/* After the daemon is lost: unmap and release everything in [va, va + bytes). */
CUresult gm_mapper_release(uint64_t va, uint64_t bytes);

/* After the daemon is lost with a part of the program's memory: unmap and release the rest. */
void gm_mapper_forget(void);

#endif

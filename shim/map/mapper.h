/*
 * The mapper: imports the daemon's frames and maps them where the daemon says.
 *
 * A frame is imported once, from the fd that comes with it, and stays cached under its id until the
 * daemon drops it (imports.h). A frame has one address, which the daemon gave it. It is mapped
 * there as a whole; or, if the address is in the home of one of the program's own handles
 * (tables/vmm.h), at every view of that handle (views.h).
 *
 * A result is 0 or the CUresult that failed. CUDA_ERROR_DEINITIALIZED, which other threads get
 * while a process exits, counts as success when giving back: the driver has given everything back
 * already.
 *
 * Owns whether the driver shuts down, and fills the cache of imports. Link thread only, which is
 * why it needs no lock and why the daemon's order is the order. Calls imports, views and peers.
 */
#ifndef GM_SHIM_MAPPER_H
#define GM_SHIM_MAPPER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

/*
 * Map every entry, with access for its GPU. All or nothing: on failure nothing of this batch stays
 * mapped, and frames that came with it are not cached (the daemon sends their fds again). The
 * `n_fds` fds are closed in every case.
 */
CUresult gm_mapper_map(const struct gm_map_entry *entry, uint32_t count, const int *fds, int n_fds);

/* Unmap every span, each one a mapped chunk. Goes on after a failure and returns the first. */
CUresult gm_mapper_unmap(const struct gm_span_entry *entry, uint32_t count);

/* Release cached frames. One that is not cached is fine; one that is mapped is kept: INVALID_VALUE.
 */
CUresult gm_mapper_drop(const struct gm_frame_entry *entry, uint32_t count);

/* Open what is mapped of `gpu`, but the program's own mappings, to another device, or close it.
 * Goes on after a failure and returns the first. */
CUresult gm_mapper_allow(uint32_t gpu, CUdevice device, bool is_open);

/* Whether every chunk of [va, va + bytes) is mapped. */
bool gm_mapper_covers(uint64_t va, uint64_t bytes);

/* Whether all that the program has is mapped. */
bool gm_mapper_has_all(void);

/* Unmap and release whatever is mapped in [va, va + bytes): the daemon is lost. */
CUresult gm_mapper_release(uint64_t va, uint64_t bytes);

#endif

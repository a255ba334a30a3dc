/*
 * The mapper: imports the daemon's frames and maps them where the daemon says.
 *
 * A frame is imported once, from the fd that comes with it, and stays cached under its id until the
 * daemon drops it. The daemon gives each frame one address. The whole frame is mapped
 * there; if the address is in the home of one of the program's own handles (tables/vmm.h), it is
 * mapped at every view of that handle.
 *
 * Results are CUresults. CUDA_ERROR_DEINITIALIZED, which threads get while a process exits, counts
 * as success for unmap and release: the driver has freed everything.
 *
 * Link thread only, in the daemon's order, without a lock. Fills the cache of imports. Calls the
 * driver, imports, views and peers, and looks allocations up.
 */
#ifndef GM_SHIM_MAP_MAPPER_H
#define GM_SHIM_MAP_MAPPER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire.h"
#include "shim/map/borrow.h"
#include "shim/tables/vmm.h"

struct gm_import {
    uint32_t frame;
    uint32_t gpu;
    uint64_t bytes;
    uint64_t va; /* where it is mapped (if in a home, vmm.h, at the views); 0: nowhere */
    CUmemGenericAllocationHandle handle;
    uint32_t next_frame; /* the index by frame; the free list */
    uint32_t next_va;    /* the index by address */
};

/* All imports, as gm_greet_list (greet.h) lists them. */
uint32_t gm_import_list(uint32_t *cursor, struct gm_holds_entry *entries, uint32_t most);

/* The frame of the chunk at `va`. False: the daemon has not mapped that chunk. */
bool gm_import_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame);

/* How many there are, and how many of them are mapped. */
void gm_import_count(size_t *cached, size_t *mapped);

/* Set the access of every view as the program did. */
CUresult gm_views_allow(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                        struct gm_borrowed *borrowed);

/* Map those chunks of a handle that have a frame at one of its views, without access. */
CUresult gm_views_fill(const struct gm_vmm_view *view);

/* The access that the program set: fills `desc`, GM_VMM_DEVICES at most, and returns the count. */
size_t gm_views_access(const struct gm_vmm_view *view, CUmemAccessDesc *desc);

/* A call of the program, for gm_work_run. Each returns the driver's result. */
struct gm_view_call {
    uint64_t va;
    uint64_t bytes;
    uint64_t value; /* map: the handle */
    uint64_t offset;
    const CUmemAccessDesc *desc; /* access: checked by the caller */
    size_t n_desc;
    struct gm_vmm_handle *dead; /* unmap: handles to release, by `next` */
};

/* cuMemMap of a virtual handle. */
CUresult gm_views_on_map(void *call);

/* cuMemUnmap of a range with views and perhaps other mappings, all of them inside the range. */
CUresult gm_views_on_unmap(void *call);

/* cuMemSetAccess of such a range without holes. */
CUresult gm_views_on_access(void *call);

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

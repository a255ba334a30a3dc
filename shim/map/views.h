/*
 * What the driver is told about the views: the places where the program mapped virtual handles
 * (tables/vmm.h).
 *
 * The mapper calls the first half when a frame comes to, or leaves, a chunk in a home. The
 * program's own calls are the second half: its threads hand them to the link thread (gm_work_run).
 * A part of the memory that is not mapped then is only noted; its access is set when it comes back.
 *
 * Owns nothing: the views are in the table. Link thread only, like the mapper. Calls the table and
 * imports, never the mapper.
 */
#ifndef GM_SHIM_VIEWS_H
#define GM_SHIM_VIEWS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/map/borrow.h"
#include "shim/tables/vmm.h"

/* Map the frame of the chunk at `va` of a home at every view. All or nothing. */
CUresult gm_views_map(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                      CUmemGenericAllocationHandle frame, struct gm_borrowed *borrowed);

/* Give every view the access of it that the program set. */
CUresult gm_views_allow(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                        struct gm_borrowed *borrowed);

/* Unmap the chunk at every view; goes on after a failure and returns the first. It may be called
 * again. */
CUresult gm_views_unmap(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                        struct gm_borrowed *borrowed);

/* Map, with no access, what is at hand of a handle's memory at one of its views. */
CUresult gm_views_fill(const struct gm_vmm_view *view);

/* What the program allowed there, as the driver takes it; `desc` has room for GM_VMM_DEVICES.
 * Returns how many. */
size_t gm_views_access(const struct gm_vmm_view *view, CUmemAccessDesc *desc);

/* A call of the program, for gm_work_run. Each returns what the driver would. */
struct gm_view_call {
    uint64_t va;
    uint64_t bytes;
    uint64_t value; /* map: which handle */
    uint64_t offset;
    const CUmemAccessDesc *desc; /* access: checked by the caller */
    size_t n_desc;
    struct gm_vmm_handle *dead; /* unmap: those that nothing keeps any more, by `next` */
};

/* cuMemMap of a virtual handle. */
CUresult gm_views_on_map(void *call);

/* cuMemUnmap of a range that has views and may have other mappings; none sticks out of it. */
CUresult gm_views_on_unmap(void *call);

/* cuMemSetAccess of such a range, which is full of whole mappings. */
CUresult gm_views_on_access(void *call);

#endif

/*
 * Maps and unmaps views: the places where the program mapped virtual handles (tables/vmm.h).
 *
 * The mapper calls the first half when a frame comes to a chunk in a home, or leaves it. The second
 * half are the program's calls, which its threads pass to the link thread (gm_work_run). For chunks
 * that are not mapped they change the table only; the mapper does the rest when the chunk returns.
 *
 * Owns nothing: the views are in the table. Link thread only. Calls the driver, the table,
 * allocations and imports, never the mapper.
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

/* Set the access of every view as the program did. */
CUresult gm_views_allow(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                        struct gm_borrowed *borrowed);

/* Unmap the chunk at every view. Returns the first failure, but does the rest too. Repeatable. */
CUresult gm_views_unmap(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
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

#endif

/*
 * What a pointer is, from the allocation map, whether its memory is mapped or not. The attributes
 * are those of a cuMemAlloc of that size, or of the program's own mapping, not of the mappings
 * behind it. Where that is not possible, the answer is the safe one:
 *
 *   IS_GPU_DIRECT_RDMA_CAPABLE  0: other devices must not keep addresses of memory that moves
 *   IS_HW_DECOMPRESS_CAPABLE    0: unlike cuMemAlloc's memory, chunks are not
 *   P2P_TOKENS                  0, like the driver: deprecated
 *   SYNC_MEMOPS                 stored and returned; copies within device memory do not become
 *                               synchronous. Not supported for the program's own mappings
 *
 * Owns nothing. Callers: handlers, any thread. Calls allocations, views and pools, not the driver.
 */
#ifndef GM_SHIM_QUERIES_H
#define GM_SHIM_QUERIES_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* The allocation that contains a pointer, as the program sees it. */
struct gm_place {
    struct gm_alloc alloc; /* the map's entry */
    uint64_t base;
    uint64_t bytes;
    uint64_t id;
    CUmemoryPool pool;        /* NULL: from no pool */
    bool is_mapped;           /* by the program itself (cuMemMap) */
    struct gm_vmm_place view; /* if is_mapped: reservation, access and handle */
};

/* Look up the allocation of a pointer. False: gpumux does not back it; ask the driver. */
bool gm_place_find(CUdeviceptr ptr, struct gm_place *place);

/* Whether gm_place_attribute() knows it: newer drivers have more attributes. */
bool gm_place_knows(CUpointer_attribute attribute);

/* Bytes of the value of a known attribute. */
size_t gm_place_attribute_size(CUpointer_attribute attribute);

/* Write the value of a known attribute for `ptr` in *place to `data` (not NULL) if the result is
 * CUDA_SUCCESS. `device`: the calling thread's; -1: none. */
CUresult gm_place_attribute(const struct gm_place *place, CUpointer_attribute attribute,
                            CUdeviceptr ptr, CUdevice device, void *data);

#endif

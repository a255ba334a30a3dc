/*
 * What a pointer is, answered from the allocation map, so that it does not matter whether its
 * memory is mapped. The attributes are those that the real driver gives to a cuMemAlloc of that
 * size, not those of the mappings behind it. For what the program mapped itself, they are those of
 * its own mapping. Where the two cannot agree, the answer is the one that keeps a program right:
 *
 *   IS_GPU_DIRECT_RDMA_CAPABLE  0: other devices must not keep the place of memory that moves
 *   IS_HW_DECOMPRESS_CAPABLE    0: cuMemAlloc's memory is, chunks are not made for it
 *   P2P_TOKENS                  0, as the driver has it: they are of the past
 *   SYNC_MEMOPS                 remembered and told; copies within device memory are not made
 *                               synchronous by it. Not supported for what the program mapped
 *
 * Owns nothing. Any thread; no driver call but for the current device, no lock but the map's.
 */
#ifndef GM_SHIM_QUERIES_H
#define GM_SHIM_QUERIES_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* The allocation that a pointer is of, as the program knows it. */
struct gm_place {
    struct gm_alloc alloc; /* the map's entry */
    uint64_t base;
    uint64_t bytes;
    uint64_t id;
    CUmemoryPool pool;        /* NULL: from no pool */
    bool is_mapped;           /* by the program itself, cuMemMap */
    struct gm_vmm_place view; /* if it is: the reservation, access and handle */
};

/* THE place where the allocation of a pointer is looked up. False: gpumux does not back it, ask the
 * driver. */
bool gm_place_find(CUdeviceptr ptr, struct gm_place *place);

/* Whether gm_place_attribute() has an answer: a newer driver may know more attributes. */
bool gm_place_knows(CUpointer_attribute attribute);

/* Bytes that the value of a known attribute takes. */
size_t gm_place_attribute_size(CUpointer_attribute attribute);

/*
 * The value of a known attribute for `ptr`, which lies in *place, to `data` (not NULL, and not
 * touched unless the result is CUDA_SUCCESS). `device` is the calling thread's, -1: none.
 */
CUresult gm_place_attribute(const struct gm_place *place, CUpointer_attribute attribute,
                            CUdeviceptr ptr, CUdevice device, void *data);

#endif

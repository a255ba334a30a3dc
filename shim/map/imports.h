/*
 * Imports: the daemon's frames that this program holds, each once, and where each is mapped. The
 * mapper fills and empties the cache; views and pins look up in it.
 *
 * Link thread only, so there is no lock. A pointer to an import is good until the next
 * gm_import_add.
 */
#ifndef GM_SHIM_IMPORTS_H
#define GM_SHIM_IMPORTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_import {
    uint32_t frame;
    uint32_t gpu;
    uint64_t bytes;
    uint64_t va; /* where it is mapped; in a home (vmm.h): at the views; 0: nowhere */
    CUmemGenericAllocationHandle handle;
    uint32_t next_frame; /* imports.c: chains of the two indices; this one also of the free ones */
    uint32_t next_va;
};

/* The import of `frame`; the one that is mapped at `va`. NULL: there is none. */
struct gm_import *gm_import_find(uint32_t frame);
struct gm_import *gm_import_at(uint64_t va);

/* The next one that is mapped, in no order; NULL: the first, and none any more. */
struct gm_import *gm_import_next(const struct gm_import *import);

/* A new one, mapped nowhere. False: no memory. */
bool gm_import_add(uint32_t frame, uint32_t gpu, uint64_t bytes,
                   CUmemGenericAllocationHandle handle);

/* Forget one that is mapped nowhere; the caller released its handle. */
void gm_import_remove(struct gm_import *import);

/* The driver mapped it at `va`, or unmapped it. */
void gm_import_set_mapped(struct gm_import *import, uint64_t va);
void gm_import_set_unmapped(struct gm_import *import);

/* The frame of the chunk at `va`, if it is at hand: mapped, or in the home of a handle (vmm.h). */
bool gm_import_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame);

/* How many there are, and how many of them are mapped. */
void gm_import_count(size_t *cached, size_t *mapped);

#endif

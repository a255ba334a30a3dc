/*
 * Imports: the daemon's frames that this program holds, each once, and where each is mapped. Owns
 * the cache. The mapper fills and empties it; views and pins look up. Link thread only, so without
 * a lock. Calls nobody. A pointer to an import is valid until the next gm_import_add.
 */
#ifndef GM_SHIM_IMPORTS_H
#define GM_SHIM_IMPORTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire.h"

struct gm_import {
    uint32_t frame;
    uint32_t gpu;
    uint64_t bytes;
    uint64_t va; /* where it is mapped (if in a home, vmm.h, at the views); 0: nowhere */
    CUmemGenericAllocationHandle handle;
    uint32_t next_frame; /* imports.c: the index by frame; the free list */
    uint32_t next_va;    /* the index by address */
};

/* The import of `frame`; the import mapped at `va`. NULL: none. */
struct gm_import *gm_import_find(uint32_t frame);
struct gm_import *gm_import_at(uint64_t va);

/* The mapped imports, in no order: the one after `import`, or the first for NULL. NULL: no more. */
struct gm_import *gm_import_next(const struct gm_import *import);

/* Add an import that is mapped nowhere. False: no memory. */
bool gm_import_add(uint32_t frame, uint32_t gpu, uint64_t bytes,
                   CUmemGenericAllocationHandle handle);

/* Remove an import that is mapped nowhere; the caller released its handle. */
void gm_import_remove(struct gm_import *import);

/* The driver mapped it at `va`, or unmapped it. */
void gm_import_set_mapped(struct gm_import *import, uint64_t va);
void gm_import_set_unmapped(struct gm_import *import);

/* All imports, as gm_greet_list (greet.h) lists them. */
uint32_t gm_import_list(uint32_t *cursor, struct gm_holds_entry *entries, uint32_t most);

/* The frame of the chunk at `va`. False: the daemon has not mapped that chunk. */
bool gm_import_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame);

/* How many there are, and how many of them are mapped. */
void gm_import_count(size_t *cached, size_t *mapped);

#endif

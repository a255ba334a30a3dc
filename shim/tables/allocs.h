/*
 * The allocation map: all allocations by address, those that gpumux backs and, for the accounts,
 * those that the real driver backs (GM_ALLOC_REAL). Without CUDA.
 *
 * Owns the map and the sum by GPU, and enters what is not real into the pages (pages.h), by which
 * others ask quickly whether an address is gpumux's. Any thread. Entries are copied in and out:
 * nobody has a pointer into the map. Calls nobody but the pages and the callback of gm_allocs_all.
 */
#ifndef GM_SHIM_ALLOCS_H
#define GM_SHIM_ALLOCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"

enum gm_alloc_kind {
    GM_ALLOC_CHUNKS, /* backed by the daemon's frames, in a range that the shim reserved */
    GM_ALLOC_REAL,   /* made by the real driver */
    GM_ALLOC_ARENA,  /* like CHUNKS; the stream-ordered allocator cuts it into blocks */
    GM_ALLOC_HANDLE, /* the home of a virtual handle (vmm.h): nothing is mapped there */
    GM_ALLOC_VIEW,   /* where the program mapped a virtual handle */
    GM_ALLOC_IMPORT, /* another program's chunks, opened by IPC */
    GM_ALLOC_KINDS
};

/* Whether the daemon's frames are mapped at the allocation's own address. */
static inline bool gm_alloc_is_backed(enum gm_alloc_kind kind)
{
    return kind == GM_ALLOC_CHUNKS || kind == GM_ALLOC_ARENA;
}

/* Whether it counts for this program: a view counts with its handle, an import with its owner. */
static inline bool gm_alloc_is_charged(enum gm_alloc_kind kind)
{
    return kind != GM_ALLOC_VIEW && kind != GM_ALLOC_IMPORT;
}

struct gm_alloc {
    uint64_t va;
    uint64_t bytes; /* as the program asked */
    uint64_t span;  /* whole chunks, or `bytes` if real */
    void *context;  /* the CUcontext that it was made in */
    int32_t device; /* CUDA device */
    int32_t gpu;    /* gpumux index, -1: not managed */
    uint64_t home;  /* VIEW: the address by which the daemon knows it; else 0: its own */
    enum gm_alloc_kind kind;
    bool is_primary;     /* made in the device's primary context, or one derived from it */
    bool is_sync_memops; /* set by cuPointerSetAttribute */
    bool is_shared;      /* other programs may have opened it */
    uint64_t id;         /* never reused in this process; 0: the map gives it one */
};

/* Ids begin here, above those of the real driver. */
#define GM_ALLOC_ID_MIN (1ull << 48)

enum gm_alloc_find {
    GM_ALLOC_UNKNOWN, /* in no allocation's `bytes` */
    GM_ALLOC_BASE,    /* the first address of an allocation */
    GM_ALLOC_INSIDE,  /* another address in its `bytes` */
};

/*
 * Insert *alloc; one that is not real has whole chunks. Real entries that it overlaps are stale
 * (freed in a way that is not hooked) and are removed. Returns 0, -ENOMEM, -EINVAL (no bytes, or
 * beyond the address space), or -EEXIST (overlaps an entry that is not real).
 */
int gm_allocs_insert(const struct gm_alloc *alloc);

/* Look up `va`; *alloc gets a copy unless unknown. */
enum gm_alloc_find gm_allocs_find(uint64_t va, struct gm_alloc *alloc);

/* Set is_sync_memops of the entry `id` that holds `va`. False: it is gone. */
bool gm_allocs_set_sync_memops(uint64_t va, uint64_t id, bool is_on);

/* Set is_shared of the entry `id` that starts at `va`. False: it is gone. */
bool gm_allocs_set_shared(uint64_t va, uint64_t id);

/* Take the allocation that starts at `va` out. Of several threads only one gets GM_ALLOC_BASE. */
enum gm_alloc_find gm_allocs_take(uint64_t va, struct gm_alloc *alloc);

/* Take one allocation made in `context` out; if that is NULL, in the primary context of `device`.
 * False: none is left. */
bool gm_allocs_take_of(const void *context, int32_t device, struct gm_alloc *alloc);

/* Whether `is_good` for every entry of `kind`. It is called with the lock. */
bool gm_allocs_all(enum gm_alloc_kind kind, bool (*is_good)(const struct gm_alloc *alloc));

/* The same for all kinds that are backed. */
bool gm_allocs_all_backed(bool (*is_good)(const struct gm_alloc *alloc));

/* The spans of all charged entries on `gpu` (below GM_GPUS_MAX), in bytes. */
uint64_t gm_allocs_used(uint32_t gpu);

/* Of these, what the daemon's frames back. */
uint64_t gm_allocs_in_frames(uint32_t gpu);

/* Add bytes without an address to the sum of `gpu`; may be negative. */
void gm_allocs_charge(uint32_t gpu, int64_t bytes);

/* How many entries there are. */
size_t gm_allocs_count(void);

#endif

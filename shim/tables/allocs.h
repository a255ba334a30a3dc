/*
 * The allocation map: which range of addresses belongs to which allocation. It holds what gpumux
 * backs and, for the accounts, what the real driver backs (GM_ALLOC_REAL). CUDA-free.
 *
 * Owns the map and the sum by GPU. Any thread; one lock, held for a walk of a tree and never across
 * anything else. Entries are copied in and out: nobody holds a pointer into the map. Calls nobody.
 */
#ifndef GM_SHIM_ALLOCS_H
#define GM_SHIM_ALLOCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"

enum gm_alloc_kind {
    GM_ALLOC_CHUNKS, /* backed by the daemon's frames, in a range that the shim reserved */
    GM_ALLOC_REAL,   /* made by the real driver */
    GM_ALLOC_ARENA,  /* like CHUNKS; the stream-ordered allocator cuts it into blocks */
    GM_ALLOC_HANDLE, /* chunks of a handle of the program's own VMM, under the name of a range that
                        the shim reserved and where nothing is mapped; its views are */
    GM_ALLOC_VIEW,   /* where the program mapped such a handle, in a range of its own */
    GM_ALLOC_IMPORT, /* another program's chunks, opened by IPC */
    GM_ALLOC_KINDS
};

/* Whether its range is backed by the daemon's frames at the allocation's own address. */
static inline bool gm_alloc_is_backed(enum gm_alloc_kind kind)
{
    return kind == GM_ALLOC_CHUNKS || kind == GM_ALLOC_ARENA;
}

/* Whether it counts as memory that this program took: a view's is counted with its handle, an
 * import's with its owner. */
static inline bool gm_alloc_is_charged(enum gm_alloc_kind kind)
{
    return kind != GM_ALLOC_VIEW && kind != GM_ALLOC_IMPORT;
}

struct gm_alloc {
    uint64_t va;
    uint64_t bytes; /* as the program asked */
    uint64_t span;  /* what it takes: whole chunks, or `bytes` if real */
    void *context;  /* the CUcontext it was made in */
    int32_t device; /* CUDA device */
    int32_t gpu;    /* gpumux index, -1: not managed */
    enum gm_alloc_kind kind;
    bool is_primary;     /* made in the device's primary context, or one derived from it */
    bool is_sync_memops; /* what cuPointerSetAttribute was told of it */
    bool is_shared;      /* other programs may open it, or may have */
    uint64_t id; /* this allocation's alone for the life of the process; 0: the map gives it one */
};

/* Ids begin here, above those that the real driver numbers its own allocations with. */
#define GM_ALLOC_ID_MIN (1ull << 48)

enum gm_alloc_find {
    GM_ALLOC_UNKNOWN, /* no allocation has this address */
    GM_ALLOC_BASE,    /* its first */
    GM_ALLOC_INSIDE,  /* one of its `bytes` (a byte of its last chunk that was not asked for is
                         unknown) */
};

/*
 * Put *alloc in. Real entries that it overlaps are stale (the driver freed them by another way) and
 * go. Returns 0, -ENOMEM, -EINVAL (no bytes, or beyond the address space), -EEXIST (overlaps what
 * gpumux backs).
 */
int gm_allocs_insert(const struct gm_alloc *alloc);

/* What `va` is; *alloc gets a copy unless unknown. */
enum gm_alloc_find gm_allocs_find(uint64_t va, struct gm_alloc *alloc);

/* Whether `va` may lie in what gpumux backs: a quick look without the lock, at the range that all
 * of it ever was in. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t gm_allocs_low, gm_allocs_high;
static inline bool gm_allocs_may_hold(uint64_t va)
{
    return va >= atomic_load_explicit(&gm_allocs_low, memory_order_relaxed) &&
           va < atomic_load_explicit(&gm_allocs_high, memory_order_relaxed);
}

/* Whether `va` lies in the span of an entry that is not real: the rest of its last chunk, which the
 * program did not ask for, included. */
bool gm_allocs_spans(uint64_t va);

/* Remember what cuPointerSetAttribute said of the entry that has id `id` and holds `va`. False: it
 * is gone. */
bool gm_allocs_set_sync_memops(uint64_t va, uint64_t id, bool is_on);

/* Remember that the entry that has id `id` and starts at `va` is shared. False: it is gone. */
bool gm_allocs_set_shared(uint64_t va, uint64_t id);

/* Take out the allocation that starts at `va`. Of several threads only one gets GM_ALLOC_BASE. */
enum gm_alloc_find gm_allocs_take(uint64_t va, struct gm_alloc *alloc);

/*
 * Take out one allocation that was made in `context`, or, when `context` is NULL, in the primary
 * context of `device`. False: there is none (left).
 */
bool gm_allocs_take_of(const void *context, int32_t device, struct gm_alloc *alloc);

/* Call `is_good` for every entry of `kind` until it says false; it must not call back. True: all
 * were. */
bool gm_allocs_all(enum gm_alloc_kind kind, bool (*is_good)(const struct gm_alloc *alloc));

/* The same for every entry whose kind is backed. */
bool gm_allocs_all_backed(bool (*is_good)(const struct gm_alloc *alloc));

/* Bytes (spans) of all charged entries on `gpu`, below GM_GPUS_MAX. */
uint64_t gm_allocs_used(uint32_t gpu);

/* Count `bytes` on `gpu` that have no address of their own; negative: no more. */
void gm_allocs_charge(uint32_t gpu, int64_t bytes);

/* How many entries there are. */
size_t gm_allocs_count(void);

#endif

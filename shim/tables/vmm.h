/*
 * The table of the program's own virtual memory management: what it reserved, which handles it has
 * and where it mapped them.
 *
 * The model
 * - A *virtual handle* stands for memory that gpumux backs with chunks. Its value is made here and
 *   is told from every value of the driver by its highest bits, which no address has. It has a
 *   *home*: a range that the shim reserved and under whose name the daemon knows the chunks.
 *   Nothing is ever mapped at the home.
 * - A *view* is where the program mapped a handle: whole, from offset 0, as the driver demands.
 *   The mapper maps what the daemon sends to a home at all of its views (views.h).
 * - A virtual handle lives as long as it has a reference (create, retain) or a view, as the
 *   driver's do. Then its chunks are given back.
 * - Handles and mappings of the real driver are noted beside them: to answer for ranges that hold
 *   both, to keep views and mappings out of each other's place while a view is swapped out and the
 *   driver sees none, and to count what cannot be swapped.
 *
 * Any thread. Views of virtual handles are made,
 * changed and taken by the link thread alone, which therefore may walk a handle's list of views
 * without the lock. A struct of a virtual handle is used again and never freed. Calls the accounts.
 */
#ifndef GM_SHIM_VMM_H
#define GM_SHIM_VMM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_VMM_DEVICES 64    /* devices that access can be set for */
#define GM_VMM_TAG 0x676dull /* the highest 16 bits of a virtual handle's value */

struct gm_vmm_view {
    uint64_t va;
    uint64_t bytes;
    struct gm_vmm_handle *handle;   /* NULL: a real one that nobody noted (an import) */
    uint8_t access[GM_VMM_DEVICES]; /* virtual: CUmemAccess_flags by device */
    struct gm_vmm_view *next;       /* virtual: among the views of its handle */
    struct gm_vmm_view **place;
};

struct gm_vmm_handle {
    uint64_t value;
    uint64_t home; /* 0: a handle of the real driver */
    uint64_t bytes;
    int32_t device;
    int32_t gpu; /* -1: real, and not counted */
    uint32_t refs;
    uint32_t n_views;
    uint64_t real; /* virtual, and pinned (pin.h): the driver's handle that it is now; else 0 */
    CUmemAllocationProp prop; /* virtual: as the program gave it */
    struct gm_vmm_view *views;
    struct gm_vmm_handle *next; /* of those that are free, or of a list of the dead */
    uint32_t slot;
    uint32_t generation;
};

/* Whether a value is, or was, a virtual handle's. The driver must never see such a value. */
static inline bool gm_vmm_is_virtual(uint64_t value)
{
    return value >> 48 == GM_VMM_TAG;
}

static inline bool gm_vmm_view_is_virtual(const struct gm_vmm_view *view)
{
    return view->handle != NULL && view->handle->home != 0;
}

/* ---- reservations ---- */

/* Note what the driver reserved. Without memory for the note, views cannot be made there. */
void gm_vmm_reserve(uint64_t start, uint64_t bytes);

/* Forget exactly this reservation. False: there is none. */
bool gm_vmm_unreserve(uint64_t start, uint64_t bytes);

/* ---- handles ---- */

/* A virtual handle with one reference. *made has home, bytes, device, gpu and prop, and gets the
 * rest in the table's own copy. NULL: no memory. */
struct gm_vmm_handle *gm_vmm_create(const struct gm_vmm_handle *made);

/* It was taken out of every other place: its value is unknown from now on, its struct free. */
void gm_vmm_bury(struct gm_vmm_handle *handle);

/* A copy of the virtual handle, if the program may use the value. */
bool gm_vmm_look(uint64_t value, struct gm_vmm_handle *handle);

/* Drop a reference. INVALID_VALUE: unknown, or it has none. *dead gets the handle if that was the
 * last thing that kept it: free its chunks, then bury it. NULL else. */
CUresult gm_vmm_release(uint64_t value, struct gm_vmm_handle **dead);

/* A reference more, for who works on it. NULL: unknown. */
struct gm_vmm_handle *gm_vmm_hold(uint64_t value);

/* Link thread: from now on it is the driver's `real`. */
void gm_vmm_pin(struct gm_vmm_handle *handle, uint64_t real);

/* A reference more to the handle that is mapped at `va`. False: no virtual one is. */
bool gm_vmm_retain(uint64_t va, uint64_t *value);

/* The virtual handle whose home holds `va`; NULL: none. */
struct gm_vmm_handle *gm_vmm_home(uint64_t va);

/* ---- mappings, virtual and real ---- */

/*
 * Link thread: a view of `value`, without access. NOT_SUPPORTED: not the whole handle.
 * INVALID_VALUE: an unknown handle, not reserved, or something is there. OUT_OF_MEMORY.
 */
CUresult gm_vmm_add_view(uint64_t value, uint64_t va, uint64_t bytes, uint64_t offset,
                         struct gm_vmm_view **view);

/* Link thread: set the access of the virtual views in [va, va + bytes) for a device. */
void gm_vmm_set_access(uint64_t va, uint64_t bytes, int device, unsigned flags);

/* What a mapping that was taken out leaves behind. */
struct gm_vmm_taken {
    struct gm_vmm_view view; /* a copy; `handle` only says whether it was virtual, by `home` */
    bool is_virtual;
    struct gm_vmm_handle *dead; /* virtual: nothing keeps this one any more */
};

/*
 * Take out the first mapping that begins in [va, va + bytes). False: none does. Those of virtual
 * handles: link thread only.
 */
bool gm_vmm_take(uint64_t va, uint64_t bytes, struct gm_vmm_taken *taken);

/* A copy of the first mapping that reaches into [va, va + bytes). False: none does. */
bool gm_vmm_next(uint64_t va, uint64_t bytes, struct gm_vmm_view *view);

/* Whether a virtual view reaches into [va, va + bytes). */
bool gm_vmm_has_views(uint64_t va, uint64_t bytes);

/* Whether no mapping sticks out of [va, va + bytes); `is_filled`: and there is no hole in it. */
bool gm_vmm_is_whole(uint64_t va, uint64_t bytes, bool is_filled);

/* ---- what the real driver made ---- */

/* Note a handle of `bytes` on the managed `gpu`: counted while it, or a mapping of it, lives. */
void gm_vmm_note_real(uint64_t value, uint64_t bytes, int32_t gpu);

/* Before and after the real call that retains or releases it; unknown values are fine. */
void gm_vmm_retain_real(uint64_t value);
void gm_vmm_release_real(uint64_t value);

/* Note a mapping, before the driver makes it. INVALID_VALUE: something is there. OUT_OF_MEMORY. */
CUresult gm_vmm_map_real(uint64_t value, uint64_t va, uint64_t bytes);

/* ---- queries ---- */

struct gm_vmm_place {
    uint64_t va; /* of the view */
    uint64_t bytes;
    uint64_t range; /* of the reservation around it */
    uint64_t range_bytes;
    uint64_t home;  /* of the byte that was asked for */
    uint64_t value; /* the handle's */
    int32_t device;
    int32_t gpu;
    unsigned access; /* CUmemAccess_flags of its own device */
    unsigned handle_types;
    bool is_pinned; /* the driver's own now: the daemon knows nothing of its home */
};

/* The view that holds `va`. False: there is no view of a virtual handle. */
bool gm_vmm_find(uint64_t va, struct gm_vmm_place *place);

/* CUmemAccess_flags of the view at `va` for a device. False: there is none. */
bool gm_vmm_get_access(uint64_t va, int device, unsigned long long *flags);

/* How many virtual handles, views of them, and notes of the real driver's handles and mappings. */
struct gm_vmm_counts {
    size_t handles, views, real_handles, real_mappings, reservations;
};
void gm_vmm_count(struct gm_vmm_counts *counts);

#endif

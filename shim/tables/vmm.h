/*
 * The table of the program's own virtual memory management: reservations, handles and mappings.
 *
 * The model
 * - A *virtual handle* stands for memory that gpumux backs with chunks. Its value is made here; its
 *   highest bits distinguish it from every value of the driver. It has a *home*: a reserved range
 * by which the daemon knows the chunks. Nothing is mapped there, except while a pin copies (pin.h).
 * - A *view* is where the program mapped a handle: whole, from offset 0, as the driver demands. The
 *   mapper maps the frames of a home at all of its views.
 * - Like the driver's, a virtual handle lives while it has a reference (create, retain) or a view.
 *   Then its chunks are given back.
 * - The table also has the handles and mappings of the real driver: to answer for ranges with both
 *   kinds, to keep mappings out of views that are swapped out, which the driver does not see, and
 * to count what cannot be swapped.
 *
 * Owns all of this. Any thread; only the link thread makes, changes and takes views of virtual
 * handles, so it may walk a handle's views without the lock. Structs of virtual handles are reused
 * and never freed. Calls the accounts.
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
    struct gm_vmm_handle *handle;   /* NULL: a real handle that is not noted (an import) */
    uint8_t access[GM_VMM_DEVICES]; /* virtual: CUmemAccess_flags by device */
    struct gm_vmm_view *next;       /* virtual: of its handle's views */
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
    bool was_mapped;          /* had a view: it may have been written. Link thread only */
    uint64_t real;            /* pinned (pin.h): the driver's handle; else 0 */
    CUmemAllocationProp prop; /* virtual: from the program */
    struct gm_vmm_view *views;
    struct gm_vmm_handle *next; /* free or dead ones */
    uint32_t slot;
    uint32_t generation;
};

/* Whether a value is, or was, a virtual handle. The driver must never see it. */
static inline bool gm_vmm_is_virtual(uint64_t value)
{
    return value >> 48 == GM_VMM_TAG;
}

static inline bool gm_vmm_view_is_virtual(const struct gm_vmm_view *view)
{
    return view->handle != NULL && view->handle->home != 0;
}

/* ---- reservations ---- */

/* Note a reservation of the driver. Without host memory for it, no view can be made there. */
void gm_vmm_reserve(uint64_t start, uint64_t bytes);

/* Forget exactly this reservation. False: there is none. */
bool gm_vmm_unreserve(uint64_t start, uint64_t bytes);

/* ---- handles ---- */

/* A new virtual handle with one reference, and home, bytes, device, gpu and prop of *made. NULL: no
 * memory. */
struct gm_vmm_handle *gm_vmm_create(const struct gm_vmm_handle *made);

/* Forget a dead handle and reuse its struct. */
void gm_vmm_bury(struct gm_vmm_handle *handle);

/* A copy of the virtual handle. False: unknown value. */
bool gm_vmm_look(uint64_t value, struct gm_vmm_handle *handle);

/* Drop a reference. INVALID_VALUE: unknown, or it has none. *dead: the handle if it is dead now
 * (free its chunks, then bury it); else NULL. */
CUresult gm_vmm_release(uint64_t value, struct gm_vmm_handle **dead);

/* Take a reference. NULL: unknown. */
struct gm_vmm_handle *gm_vmm_hold(uint64_t value);

/* Link thread: its memory is the driver's handle `real` from now on. */
void gm_vmm_pin(struct gm_vmm_handle *handle, uint64_t real);

/* Take a reference to the virtual handle mapped at `va`. False: none. */
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

/* A mapping that was taken out. */
struct gm_vmm_taken {
    struct gm_vmm_view view; /* a copy; do not follow its pointers */
    bool is_virtual;
    struct gm_vmm_handle *dead; /* its virtual handle, if that is dead now */
};

/* Take the first mapping that begins in [va, va + bytes) out. False: none. Link thread only if it
 * is a view of a virtual handle. */
bool gm_vmm_take(uint64_t va, uint64_t bytes, struct gm_vmm_taken *taken);

/* A copy of the first mapping that overlaps [va, va + bytes). False: none. */
bool gm_vmm_next(uint64_t va, uint64_t bytes, struct gm_vmm_view *view);

/* Whether a virtual view overlaps [va, va + bytes). */
bool gm_vmm_has_views(uint64_t va, uint64_t bytes);

/* Whether no mapping crosses the ends of [va, va + bytes); `is_filled`: and it has no hole. */
bool gm_vmm_is_whole(uint64_t va, uint64_t bytes, bool is_filled);

/* ---- what the real driver made ---- */

/* Note a handle of `bytes` on the managed `gpu`. It counts until it and its mappings are gone. */
void gm_vmm_note_real(uint64_t value, uint64_t bytes, int32_t gpu);

/* After the real retain; before the real release. Unknown values are ignored. */
void gm_vmm_retain_real(uint64_t value);
void gm_vmm_release_real(uint64_t value);

/* Note a mapping before the driver makes it. INVALID_VALUE: not free. OUT_OF_MEMORY. */
CUresult gm_vmm_map_real(uint64_t value, uint64_t va, uint64_t bytes);

/* ---- queries ---- */

struct gm_vmm_place {
    uint64_t va; /* of the view */
    uint64_t bytes;
    uint64_t range; /* of the reservation around it */
    uint64_t range_bytes;
    uint64_t home;  /* of the queried byte */
    uint64_t value; /* the handle's */
    int32_t device;
    int32_t gpu;
    unsigned access; /* CUmemAccess_flags of its device */
    unsigned handle_types;
    bool is_pinned; /* the driver's: the daemon does not know its home */
};

/* The virtual view that holds `va`. False: none. */
bool gm_vmm_find(uint64_t va, struct gm_vmm_place *place);

/* The CUmemAccess_flags of a device for the virtual view at `va`. False: no view. */
bool gm_vmm_get_access(uint64_t va, int device, unsigned long long *flags);

/* For tests. */
struct gm_vmm_counts {
    size_t handles, views, real_handles, real_mappings, reservations;
};
void gm_vmm_count(struct gm_vmm_counts *counts);

#endif

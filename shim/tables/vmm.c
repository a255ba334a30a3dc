/* Four sorted indices. Finding is O(log n). Inserting moves the entries above, which for tens of
 * thousands of mappings costs less than one driver call. */
#include "shim/tables/vmm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/locks.h"
#include "shim/tables/accounts.h"

struct gm_vmm_entry {
    uint64_t start;
    uint64_t bytes;
    void *item;
};

struct gm_vmm_index {
    struct gm_vmm_entry *entry;
    size_t n;
    size_t room;
};

static struct gm_lock gm_vmm_lock = GM_LOCK_INITIALIZER(GM_LOCK_VMM);
static struct gm_vmm_index gm_vmm_ranges;   /* reservations; no item */
static struct gm_vmm_index gm_vmm_mappings; /* struct gm_vmm_view, virtual and real */
static struct gm_vmm_index gm_vmm_homes;    /* struct gm_vmm_handle, virtual */
static struct gm_vmm_index gm_vmm_reals;    /* struct gm_vmm_handle, real, by value */

static struct gm_vmm_handle **gm_vmm_slots; /* virtual handles by the low bits of their value */
static uint32_t gm_vmm_n_slots, gm_vmm_slot_room;
static struct gm_vmm_handle *gm_vmm_free;
static size_t gm_vmm_n_handles, gm_vmm_n_views, gm_vmm_n_reals;

#define GM_VMM_SLOT_BITS 24

/* ---- an index ---- */

static uint64_t gm_entry_end(const struct gm_vmm_entry *entry)
{
    return entry->start + entry->bytes;
}

/* The first entry that ends above `at`. */
static size_t gm_index_above(const struct gm_vmm_index *index, uint64_t at)
{
    size_t low = 0, high = index->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gm_entry_end(&index->entry[middle]) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct gm_vmm_entry *gm_index_find(const struct gm_vmm_index *index, uint64_t at)
{
    size_t i = gm_index_above(index, at);
    return i < index->n && index->entry[i].start <= at ? &index->entry[i] : NULL;
}

/* The first entry that overlaps [start, start + bytes), or NULL. */
static struct gm_vmm_entry *gm_index_in(const struct gm_vmm_index *index, uint64_t start,
                                        uint64_t bytes)
{
    size_t i = gm_index_above(index, start);
    return i < index->n && index->entry[i].start < start + bytes ? &index->entry[i] : NULL;
}

static int gm_index_insert(struct gm_vmm_index *index, uint64_t start, uint64_t bytes, void *item)
{
    size_t i = gm_index_above(index, start);
    if (i < index->n && index->entry[i].start < start + bytes)
        return -EEXIST;
    if (index->n == index->room) {
        size_t room = index->room == 0 ? 64 : 2 * index->room;
        struct gm_vmm_entry *entry = realloc(index->entry, room * sizeof(*entry));
        if (entry == NULL)
            return -ENOMEM;
        index->entry = entry;
        index->room = room;
    }
    memmove(&index->entry[i + 1], &index->entry[i], (index->n - i) * sizeof(*index->entry));
    index->entry[i] = (struct gm_vmm_entry){.start = start, .bytes = bytes, .item = item};
    index->n++;
    return 0;
}

static void gm_index_remove(struct gm_vmm_index *index, struct gm_vmm_entry *entry)
{
    size_t i = (size_t)(entry - index->entry);
    index->n--;
    memmove(entry, entry + 1, (index->n - i) * sizeof(*entry));
}

/* ---- reservations ---- */

void gm_vmm_reserve(uint64_t start, uint64_t bytes)
{
    struct gm_vmm_entry *stale;
    gm_lock(&gm_vmm_lock);
    /* What it overlaps was freed in a way that is not hooked. */
    while ((stale = gm_index_in(&gm_vmm_ranges, start, bytes)) != NULL)
        gm_index_remove(&gm_vmm_ranges, stale);
    gm_index_insert(&gm_vmm_ranges, start, bytes, NULL);
    gm_unlock(&gm_vmm_lock);
}

bool gm_vmm_unreserve(uint64_t start, uint64_t bytes)
{
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_ranges, start);
    bool is_known = entry != NULL && entry->start == start && entry->bytes == bytes;
    if (is_known)
        gm_index_remove(&gm_vmm_ranges, entry);
    gm_unlock(&gm_vmm_lock);
    return is_known;
}

/* Whether all of the range is reserved. */
static bool gm_range_is_reserved(uint64_t start, uint64_t bytes)
{
    const uint64_t end = start + bytes;
    while (start < end) {
        const struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_ranges, start);
        if (entry == NULL)
            return false;
        start = gm_entry_end(entry);
    }
    return true;
}

/* ---- virtual handles ---- */

static struct gm_vmm_handle *gm_handle_new(void)
{
    struct gm_vmm_handle *handle = gm_vmm_free;
    if (handle != NULL) {
        gm_vmm_free = handle->next;
        return handle;
    }
    if (gm_vmm_n_slots == 1u << GM_VMM_SLOT_BITS)
        return NULL;
    if (gm_vmm_n_slots == gm_vmm_slot_room) {
        uint32_t room = gm_vmm_slot_room == 0 ? 64 : 2 * gm_vmm_slot_room;
        struct gm_vmm_handle **slots = realloc(gm_vmm_slots, room * sizeof(struct gm_vmm_handle *));
        if (slots == NULL)
            return NULL;
        gm_vmm_slots = slots;
        gm_vmm_slot_room = room;
    }
    handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        return NULL;
    handle->slot = gm_vmm_n_slots;
    gm_vmm_slots[gm_vmm_n_slots++] = handle;
    return handle;
}

static void gm_handle_free(struct gm_vmm_handle *handle)
{
    handle->value = 0;
    handle->next = gm_vmm_free;
    gm_vmm_free = handle;
}

/* The living virtual handle of a value, or NULL. Like the driver's, a handle without references
 * lives while it is mapped (tests/simcuda/facts.txt). */
static struct gm_vmm_handle *gm_handle_of(uint64_t value)
{
    uint32_t slot = (uint32_t)value & ((1u << GM_VMM_SLOT_BITS) - 1);
    if (!gm_vmm_is_virtual(value) || slot >= gm_vmm_n_slots)
        return NULL;
    struct gm_vmm_handle *handle = gm_vmm_slots[slot];
    return handle->value == value && (handle->refs > 0 || handle->n_views > 0) ? handle : NULL;
}

struct gm_vmm_handle *gm_vmm_create(const struct gm_vmm_handle *made)
{
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_handle *handle = gm_handle_new();
    if (handle != NULL && gm_index_insert(&gm_vmm_homes, made->home, made->bytes, handle) != 0) {
        gm_handle_free(handle);
        handle = NULL;
    }
    if (handle != NULL) {
        handle->generation = (handle->generation + 1) & ((1u << 24) - 1);
        handle->value =
            GM_VMM_TAG << 48 | (uint64_t)handle->generation << GM_VMM_SLOT_BITS | handle->slot;
        handle->home = made->home;
        handle->bytes = made->bytes;
        handle->device = made->device;
        handle->gpu = made->gpu;
        handle->prop = made->prop;
        handle->real = 0;
        handle->was_mapped = false;
        handle->next = NULL;
        handle->refs = 1;
        handle->n_views = 0;
        handle->views = NULL;
        gm_vmm_n_handles++;
    }
    gm_unlock(&gm_vmm_lock);
    return handle;
}

void gm_vmm_bury(struct gm_vmm_handle *handle)
{
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_entry *home = gm_index_find(&gm_vmm_homes, handle->home);
    if (home != NULL && home->item == handle)
        gm_index_remove(&gm_vmm_homes, home);
    gm_handle_free(handle);
    gm_vmm_n_handles--;
    gm_unlock(&gm_vmm_lock);
}

bool gm_vmm_look(uint64_t value, struct gm_vmm_handle *handle)
{
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_handle *found = gm_handle_of(value);
    if (found != NULL)
        *handle = *found;
    gm_unlock(&gm_vmm_lock);
    return found != NULL;
}

CUresult gm_vmm_release(uint64_t value, struct gm_vmm_handle **dead)
{
    *dead = NULL;
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_handle *handle = gm_handle_of(value);
    if (handle != NULL && handle->refs == 0)
        handle = NULL; /* only mapped */
    if (handle != NULL && --handle->refs == 0 && handle->n_views == 0)
        *dead = handle;
    gm_unlock(&gm_vmm_lock);
    return handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct gm_vmm_handle *gm_vmm_hold(uint64_t value)
{
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_handle *handle = gm_handle_of(value);
    if (handle != NULL)
        handle->refs++;
    gm_unlock(&gm_vmm_lock);
    return handle;
}

void gm_vmm_pin(struct gm_vmm_handle *handle, uint64_t real)
{
    gm_lock(&gm_vmm_lock);
    handle->real = real;
    gm_unlock(&gm_vmm_lock);
}

bool gm_vmm_retain(uint64_t va, uint64_t *value)
{
    bool is_virtual = false;
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_mappings, va);
    if (entry != NULL) {
        const struct gm_vmm_view *view = entry->item;
        is_virtual = gm_vmm_view_is_virtual(view);
        if (is_virtual) {
            view->handle->refs++;
            *value = view->handle->value;
        }
    }
    gm_unlock(&gm_vmm_lock);
    return is_virtual;
}

struct gm_vmm_handle *gm_vmm_home(uint64_t va)
{
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_homes, va);
    struct gm_vmm_handle *handle = entry != NULL ? entry->item : NULL;
    gm_unlock(&gm_vmm_lock);
    return handle;
}

/* ---- the real driver's handles ---- */

/* With the lock: the handle if it has no reference and no mapping; the caller frees it. */
static struct gm_vmm_handle *gm_real_if_unused(struct gm_vmm_handle *handle)
{
    if (handle->refs > 0 || handle->n_views > 0)
        return NULL;
    gm_vmm_n_reals--;
    return handle;
}

static void gm_real_free(struct gm_vmm_handle *handle)
{
    if (handle != NULL)
        gm_charge_real(handle->gpu, handle->bytes, false);
    free(handle);
}

void gm_vmm_note_real(uint64_t value, uint64_t bytes, int32_t gpu)
{
    struct gm_vmm_handle *handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        return; /* it goes uncounted */
    *handle = (struct gm_vmm_handle){.value = value, .bytes = bytes, .gpu = gpu, .refs = 1};
    gm_lock(&gm_vmm_lock);
    bool is_in = gm_index_insert(&gm_vmm_reals, value, 1, handle) == 0;
    gm_vmm_n_reals += is_in;
    gm_unlock(&gm_vmm_lock);
    if (is_in)
        gm_charge_real(gpu, bytes, true);
    else
        free(handle);
}

void gm_vmm_retain_real(uint64_t value)
{
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_reals, value);
    if (entry != NULL)
        ((struct gm_vmm_handle *)entry->item)->refs++;
    gm_unlock(&gm_vmm_lock);
}

void gm_vmm_release_real(uint64_t value)
{
    struct gm_vmm_handle *unused = NULL;
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_reals, value);
    if (entry != NULL) {
        struct gm_vmm_handle *handle = entry->item;
        handle->refs -= handle->refs > 0; /* 0: only mapped; the driver refuses */
        /* A mapping keeps it: a retain may bring it back with the same value. */
        unused = gm_real_if_unused(handle);
        if (unused != NULL)
            gm_index_remove(&gm_vmm_reals, entry);
    }
    gm_unlock(&gm_vmm_lock);
    gm_real_free(unused);
}

/* ---- mappings ---- */

/* With the lock. */
static CUresult gm_mapping_add(struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                               struct gm_vmm_view **made)
{
    struct gm_vmm_view *view = calloc(1, sizeof(*view));
    if (view == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *view = (struct gm_vmm_view){.va = va, .bytes = bytes, .handle = handle};
    int error = gm_index_insert(&gm_vmm_mappings, va, bytes, view);
    if (error != 0) {
        free(view);
        return error == -EEXIST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (handle != NULL)
        handle->n_views++;
    *made = view;
    return CUDA_SUCCESS;
}

CUresult gm_vmm_add_view(uint64_t value, uint64_t va, uint64_t bytes, uint64_t offset,
                         struct gm_vmm_view **view)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_handle *handle = gm_handle_of(value);
    if (handle != NULL && (bytes != handle->bytes || offset != 0))
        result = CUDA_ERROR_NOT_SUPPORTED; /* as on the driver */
    else if (handle != NULL && gm_range_is_reserved(va, bytes))
        result = gm_mapping_add(handle, va, bytes, view);
    if (result == CUDA_SUCCESS) {
        (*view)->next = handle->views;
        (*view)->place = &handle->views;
        if (handle->views != NULL)
            handle->views->place = &(*view)->next;
        handle->views = *view;
        handle->was_mapped = true;
        gm_vmm_n_views++;
    }
    gm_unlock(&gm_vmm_lock);
    return result;
}

CUresult gm_vmm_map_real(uint64_t value, uint64_t va, uint64_t bytes)
{
    struct gm_vmm_view *view;
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_reals, value);
    CUresult result = gm_mapping_add(entry != NULL ? entry->item : NULL, va, bytes, &view);
    gm_unlock(&gm_vmm_lock);
    return result;
}

bool gm_vmm_take(uint64_t va, uint64_t bytes, struct gm_vmm_taken *taken)
{
    struct gm_vmm_handle *unused = NULL;
    gm_lock(&gm_vmm_lock);
    struct gm_vmm_entry *entry = gm_index_in(&gm_vmm_mappings, va, bytes);
    if (entry == NULL || entry->start < va) {
        gm_unlock(&gm_vmm_lock);
        return false;
    }
    struct gm_vmm_view *view = entry->item;
    struct gm_vmm_handle *handle = view->handle;
    *taken = (struct gm_vmm_taken){.view = *view, .is_virtual = gm_vmm_view_is_virtual(view)};
    gm_index_remove(&gm_vmm_mappings, entry);
    if (handle != NULL)
        handle->n_views--;
    if (taken->is_virtual) {
        *view->place = view->next;
        if (view->next != NULL)
            view->next->place = view->place;
        gm_vmm_n_views--;
        taken->dead = handle->refs == 0 && handle->n_views == 0 ? handle : NULL;
    } else if (handle != NULL) {
        unused = gm_real_if_unused(handle);
        entry = unused != NULL ? gm_index_find(&gm_vmm_reals, unused->value) : NULL;
        if (entry != NULL && entry->item == unused)
            gm_index_remove(&gm_vmm_reals, entry);
    }
    gm_unlock(&gm_vmm_lock);
    free(view);
    gm_real_free(unused);
    return true;
}

void gm_vmm_set_access(uint64_t va, uint64_t bytes, int device, unsigned flags)
{
    if (device < 0 || device >= GM_VMM_DEVICES)
        return;
    gm_lock(&gm_vmm_lock);
    size_t i = gm_index_above(&gm_vmm_mappings, va);
    for (; i < gm_vmm_mappings.n && gm_vmm_mappings.entry[i].start < va + bytes; i++)
        ((struct gm_vmm_view *)gm_vmm_mappings.entry[i].item)->access[device] = (uint8_t)flags;
    gm_unlock(&gm_vmm_lock);
}

bool gm_vmm_next(uint64_t va, uint64_t bytes, struct gm_vmm_view *view)
{
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_entry *entry = gm_index_in(&gm_vmm_mappings, va, bytes);
    if (entry != NULL)
        *view = *(const struct gm_vmm_view *)entry->item;
    gm_unlock(&gm_vmm_lock);
    return entry != NULL;
}

bool gm_vmm_has_views(uint64_t va, uint64_t bytes)
{
    bool has = false;
    gm_lock(&gm_vmm_lock);
    size_t i = gm_vmm_n_views > 0 ? gm_index_above(&gm_vmm_mappings, va) : gm_vmm_mappings.n;
    for (; !has && i < gm_vmm_mappings.n && gm_vmm_mappings.entry[i].start < va + bytes; i++)
        has = gm_vmm_view_is_virtual(gm_vmm_mappings.entry[i].item);
    gm_unlock(&gm_vmm_lock);
    return has;
}

bool gm_vmm_is_whole(uint64_t va, uint64_t bytes, bool is_filled)
{
    const uint64_t end = va + bytes;
    uint64_t at = va; /* filled up to here */
    bool is_good = true;
    gm_lock(&gm_vmm_lock);
    size_t i = gm_index_above(&gm_vmm_mappings, va);
    for (; is_good && i < gm_vmm_mappings.n && gm_vmm_mappings.entry[i].start < end; i++) {
        const struct gm_vmm_entry *entry = &gm_vmm_mappings.entry[i];
        is_good =
            entry->start >= va && gm_entry_end(entry) <= end && (!is_filled || entry->start == at);
        at = gm_entry_end(entry);
    }
    gm_unlock(&gm_vmm_lock);
    return is_good && (!is_filled || at == end);
}

/* ---- queries ---- */

/* With the lock: the virtual view that holds `va`, or NULL. */
static const struct gm_vmm_view *gm_view_at(uint64_t va)
{
    const struct gm_vmm_entry *entry = gm_index_find(&gm_vmm_mappings, va);
    return entry != NULL && gm_vmm_view_is_virtual(entry->item) ? entry->item : NULL;
}

bool gm_vmm_find(uint64_t va, struct gm_vmm_place *place)
{
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_view *view = gm_view_at(va);
    if (view != NULL) {
        const struct gm_vmm_handle *handle = view->handle;
        const struct gm_vmm_entry *range = gm_index_find(&gm_vmm_ranges, va);
        *place = (struct gm_vmm_place){
            .va = view->va,
            .bytes = view->bytes,
            .range = range != NULL ? range->start : view->va,
            .range_bytes = range != NULL ? range->bytes : view->bytes,
            .home = handle->home + (va - view->va),
            .value = handle->value,
            .device = handle->device,
            .gpu = handle->gpu,
            .access = handle->device < GM_VMM_DEVICES ? view->access[handle->device] : 0,
            .handle_types = (unsigned)handle->prop.requestedHandleTypes,
            .is_pinned = handle->real != 0,
        };
    }
    gm_unlock(&gm_vmm_lock);
    return view != NULL;
}

bool gm_vmm_get_access(uint64_t va, int device, unsigned long long *flags)
{
    gm_lock(&gm_vmm_lock);
    const struct gm_vmm_view *view = gm_view_at(va);
    if (view != NULL)
        *flags = device >= 0 && device < GM_VMM_DEVICES ? view->access[device] : 0;
    gm_unlock(&gm_vmm_lock);
    return view != NULL;
}

void gm_vmm_count(struct gm_vmm_counts *counts)
{
    gm_lock(&gm_vmm_lock);
    *counts = (struct gm_vmm_counts){
        .handles = gm_vmm_n_handles,
        .views = gm_vmm_n_views,
        .real_handles = gm_vmm_n_reals,
        .real_mappings = gm_vmm_mappings.n - gm_vmm_n_views,
        .reservations = gm_vmm_ranges.n,
    };
    gm_unlock(&gm_vmm_lock);
}

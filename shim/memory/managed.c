#include "shim/memory/managed.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/locks.h"
#include "shim/driver/devices.h"
#include "shim/gate/gate.h"
#include "shim/memory/budget.h"

#define GM_MANAGED_PIECE (64ull << 20) /* one prefetch: 5 ms at 14 GB/s */
#define GM_MANAGED_NAP 200000          /* ns between polls of the stream */

struct gm_managed {
    struct gm_alloc alloc;
    uint64_t out;      /* so many of its first bytes are out */
    bool is_sent;      /* the last prefetch to the host was ours */
    bool is_at_device; /* preferred location: a device */
    bool is_read_mostly;
};

static struct gm_lock gm_managed_lock = GM_LOCK_INITIALIZER(GM_LOCK_MANAGED);
static struct gm_managed *gm_managed_list; /* by address */
static size_t gm_managed_count;
static size_t gm_managed_room;
static _Atomic bool gm_managed_has_any;
static _Atomic bool gm_managed_has_out;

/* The first entry that ends above `va`. */
static size_t gm_managed_index(uint64_t va)
{
    size_t low = 0, high = gm_managed_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct gm_alloc *alloc = &gm_managed_list[middle].alloc;
        if (alloc->va + alloc->bytes <= va)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool gm_managed_add(const struct gm_alloc *alloc)
{
    bool is_added = false;
    gm_lock(&gm_managed_lock);
    if (gm_managed_count == gm_managed_room) {
        size_t room = gm_managed_room == 0 ? 16 : 2 * gm_managed_room;
        struct gm_managed *list = realloc(gm_managed_list, room * sizeof(*list));
        if (list == NULL)
            goto unlock;
        gm_managed_list = list;
        gm_managed_room = room;
    }
    size_t at = gm_managed_index(alloc->va);
    memmove(&gm_managed_list[at + 1], &gm_managed_list[at],
            (gm_managed_count - at) * sizeof(*gm_managed_list));
    gm_managed_list[at] = (struct gm_managed){.alloc = *alloc};
    gm_managed_count++;
    atomic_store(&gm_managed_has_any, true);
    is_added = true;
unlock:
    gm_unlock(&gm_managed_lock);
    return is_added;
}

bool gm_managed_remove(uint64_t id)
{
    bool is_there = false;
    if (!gm_managed_exists())
        return false;
    gm_lock(&gm_managed_lock);
    for (size_t i = 0; i < gm_managed_count && !is_there; i++) {
        if (gm_managed_list[i].alloc.id != id)
            continue;
        is_there = true;
        gm_managed_count--;
        memmove(&gm_managed_list[i], &gm_managed_list[i + 1],
                (gm_managed_count - i) * sizeof(*gm_managed_list));
    }
    atomic_store(&gm_managed_has_any, gm_managed_count > 0);
    gm_unlock(&gm_managed_lock);
    return is_there;
}

void gm_managed_advise(uint64_t va, uint64_t bytes, CUmem_advise advice, bool is_device)
{
    gm_lock(&gm_managed_lock);
    for (size_t i = gm_managed_index(va); i < gm_managed_count; i++) {
        struct gm_managed *entry = &gm_managed_list[i];
        if (entry->alloc.va >= va && entry->alloc.va - va >= bytes)
            break;
        if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
            entry->is_at_device = is_device;
        else if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
            entry->is_at_device = false;
        else if (advice == CU_MEM_ADVISE_SET_READ_MOSTLY)
            entry->is_read_mostly = true;
        else if (advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY)
            entry->is_read_mostly = false;
    }
    gm_unlock(&gm_managed_lock);
}

bool gm_managed_exists(void)
{
    return atomic_load_explicit(&gm_managed_has_any, memory_order_relaxed);
}

bool gm_managed_is_out(void)
{
    return atomic_load_explicit(&gm_managed_has_out, memory_order_relaxed);
}

/* The first entry of `context` from the address *va on; sets *va to its end. */
static bool gm_managed_next(CUcontext context, uint64_t *va, struct gm_managed *entry)
{
    bool is_found = false;
    gm_lock(&gm_managed_lock);
    for (size_t i = gm_managed_index(*va); i < gm_managed_count && !is_found; i++) {
        if (gm_managed_list[i].alloc.context != context || gm_managed_list[i].alloc.va < *va)
            continue;
        *entry = gm_managed_list[i];
        *va = entry->alloc.va + entry->alloc.bytes;
        is_found = true;
    }
    gm_unlock(&gm_managed_lock);
    return is_found;
}

/* Store what was moved, if the entry still exists. */
static void gm_managed_note(const struct gm_managed *moved)
{
    bool has_out = false;
    gm_lock(&gm_managed_lock);
    for (size_t i = 0; i < gm_managed_count; i++) {
        if (gm_managed_list[i].alloc.id == moved->alloc.id) {
            gm_managed_list[i].out = moved->out;
            gm_managed_list[i].is_sent = moved->is_sent;
        }
        has_out = has_out || gm_managed_list[i].out > 0;
    }
    atomic_store(&gm_managed_has_out, has_out);
    gm_unlock(&gm_managed_lock);
}

/* ---- moving ---- */

static CUresult gm_managed_prefetch(uint64_t va, uint64_t bytes, CUdevice device, CUstream stream)
{
    CUmemLocation location = {
        .type = device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
        .id = device < 0 ? 0 : device,
    };
    if (gm_real.cuMemPrefetchAsync_v2 != NULL)
        return gm_real.cuMemPrefetchAsync_v2(va, bytes, location, 0, stream);
    if (gm_real.cuMemPrefetchAsync != NULL)
        return gm_real.cuMemPrefetchAsync(va, bytes, device < 0 ? CU_DEVICE_CPU : device, stream);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Whether the GPU is managed, host and device may access managed memory at the same time, and the
 * driver has the calls. */
static bool gm_managed_is_movable(CUdevice device)
{
    int is_concurrent = 0;
    return gm_gpu_of(device) >= 0 && gm_real.cuDeviceGetAttribute != NULL &&
           gm_real.cuMemRangeGetAttribute != NULL && gm_real.cuStreamCreate != NULL &&
           gm_real.cuStreamDestroy_v2 != NULL && gm_real.cuStreamQuery != NULL &&
           gm_real.cuDeviceGetAttribute(&is_concurrent,
                                        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                        device) == CUDA_SUCCESS &&
           is_concurrent != 0;
}

/* Whether the program itself prefetched it to the host last. */
static bool gm_managed_is_for_host(const struct gm_managed *entry)
{
    int last = CU_DEVICE_INVALID;
    return !entry->is_sent &&
           gm_real.cuMemRangeGetAttribute(&last, sizeof(last),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                          entry->alloc.va, entry->alloc.bytes) == CUDA_SUCCESS &&
           last == CU_DEVICE_CPU;
}

/* Wait for the stream. False: not done by the time `until`, or failed. */
static bool gm_managed_await(CUstream stream, uint64_t until)
{
    for (;;) {
        CUresult result = gm_real.cuStreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return result == CUDA_SUCCESS;
        if (gm_now() >= until)
            return false;
        struct timespec pause = {.tv_nsec = GM_MANAGED_NAP};
        nanosleep(&pause, NULL);
    }
}

/* Returns how many of its first bytes went out. */
static uint64_t gm_managed_send(const struct gm_managed *entry, CUstream stream, uint64_t until)
{
    uint64_t sent = 0;
    while (sent < entry->alloc.bytes && gm_now() < until) {
        uint64_t left = entry->alloc.bytes - sent;
        uint64_t piece = left < GM_MANAGED_PIECE ? left : GM_MANAGED_PIECE;
        if (gm_managed_prefetch(entry->alloc.va + sent, piece, -1, stream) != CUDA_SUCCESS)
            break;
        sent += piece; /* also if it is not done in time: it goes on */
        if (!gm_managed_await(stream, until))
            break;
    }
    return sent;
}

void gm_managed_out(CUcontext context, uint64_t until)
{
    struct gm_managed entry;
    CUstream stream;
    uint64_t va = 0;

    if (!gm_managed_next(context, &va, &entry) || !gm_managed_is_movable(entry.alloc.device) ||
        gm_real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return;
    for (va = 0; gm_managed_next(context, &va, &entry) && gm_now() < until;) {
        if (entry.is_at_device || entry.is_read_mostly || gm_managed_is_for_host(&entry))
            continue;
        entry.out = gm_managed_send(&entry, stream, until);
        entry.is_sent = entry.is_sent || entry.out > 0;
        gm_managed_note(&entry);
    }
    gm_real.cuStreamDestroy_v2(stream);
}

void gm_managed_in(CUcontext context)
{
    struct gm_managed entry;
    CUstream stream;
    uint64_t va = 0, room, total;

    if (!gm_managed_next(context, &va, &entry) ||
        !gm_budget_left(gm_gpu_of(entry.alloc.device), &room, &total) ||
        gm_real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return;
    for (va = 0; gm_managed_next(context, &va, &entry);) {
        uint64_t back = entry.out < room ? entry.out : room;
        if (entry.out == 0)
            continue;
        if (back > 0 &&
            gm_managed_prefetch(entry.alloc.va, back, entry.alloc.device, stream) == CUDA_SUCCESS) {
            room -= back;
            entry.is_sent = false;
        }
        entry.out = 0; /* the rest comes on demand */
        gm_managed_note(&entry);
    }
    gm_real.cuStreamDestroy_v2(stream);
}

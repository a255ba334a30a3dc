/*
 * The mapper: a cache of imports under two hash indices (by frame, by address), and the three
 * batches. Single-threaded by contract.
 */
#include "shim/map/mapper.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/shm.h"
#include "shim/driver/devices.h"
#include "shim/map/mapper_borrow.h"
#include "shim/map/peers.h"
#include "shim/driver/real.h"
#include "shim/map/views.h"
#include "shim/tables/vmm.h"

#define GM_IMPORT_NONE UINT32_MAX

struct gm_import {
    uint32_t frame;
    uint32_t gpu;
    uint64_t bytes;
    uint64_t va; /* where it is mapped; in a home (vmm.h): at the views; 0: nowhere */
    CUmemGenericAllocationHandle handle;
    uint32_t next_frame; /* chains of the two indices; next_frame also chains the free ones */
    uint32_t next_va;
};

/*
 * The driver shuts down, because the program ends: nothing can run any more, and every mapping and
 * handle is as good as gone. So each batch is done; the daemon, which then finds the program whole,
 * opens the gate for what it still calls, and the driver answers that.
 */
static bool gm_map_is_over;

static struct gm_import *gm_imports; /* `gm_import_room` of them; indices stay when it grows */
static uint32_t gm_import_room;      /* a power of two */
static uint32_t gm_import_free = GM_IMPORT_NONE;
static uint32_t *gm_by_frame; /* `gm_import_room` buckets each */
static uint32_t *gm_by_va;
static size_t gm_import_cached;
static size_t gm_import_mapped;

/* ---- the cache ---- */

static uint32_t gm_bucket_of_frame(uint32_t frame)
{
    return (frame * 2654435761u) & (gm_import_room - 1);
}

static uint32_t gm_bucket_of_va(uint64_t va)
{
    return (uint32_t)((va >> GM_CHUNK_SHIFT) * 2654435761u) & (gm_import_room - 1);
}

static struct gm_import *gm_import_find(uint32_t frame)
{
    if (gm_import_room == 0)
        return NULL;
    uint32_t i = gm_by_frame[gm_bucket_of_frame(frame)];
    while (i != GM_IMPORT_NONE && gm_imports[i].frame != frame)
        i = gm_imports[i].next_frame;
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

static struct gm_import *gm_import_at(uint64_t va)
{
    if (gm_import_room == 0)
        return NULL;
    uint32_t i = gm_by_va[gm_bucket_of_va(va)];
    while (i != GM_IMPORT_NONE && gm_imports[i].va != va)
        i = gm_imports[i].next_va;
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

static void gm_import_link_frame(uint32_t i)
{
    uint32_t *head = &gm_by_frame[gm_bucket_of_frame(gm_imports[i].frame)];
    gm_imports[i].next_frame = *head;
    *head = i;
}

static void gm_import_link_va(uint32_t i)
{
    uint32_t *head = &gm_by_va[gm_bucket_of_va(gm_imports[i].va)];
    gm_imports[i].next_va = *head;
    *head = i;
}

/* Twice the room. Everything is linked anew, because the buckets are as many as the imports. */
static bool gm_import_grow(void)
{
    uint32_t room = gm_import_room == 0 ? 64 : 2 * gm_import_room;
    struct gm_import *imports = calloc(room, sizeof(*imports));
    uint32_t *by_frame = malloc(room * sizeof(*by_frame));
    uint32_t *by_va = malloc(room * sizeof(*by_va));
    if (imports == NULL || by_frame == NULL || by_va == NULL || room == 0) {
        free(by_va);
        free(by_frame);
        free(imports);
        return false;
    }
    uint32_t used = gm_import_room;
    for (uint32_t i = 0; i < used; i++)
        imports[i] = gm_imports[i];
    for (uint32_t i = 0; i < room; i++)
        by_frame[i] = by_va[i] = GM_IMPORT_NONE;
    free(gm_imports);
    free(gm_by_frame);
    free(gm_by_va);
    gm_imports = imports;
    gm_by_frame = by_frame;
    gm_by_va = by_va;
    gm_import_room = room;
    /* It grows only when none is free: all of the old ones are in use. */
    for (uint32_t i = 0; i < used; i++) {
        gm_import_link_frame(i);
        if (gm_imports[i].va != 0)
            gm_import_link_va(i);
    }
    for (uint32_t i = room; i-- > used;) {
        gm_imports[i].next_frame = gm_import_free;
        gm_import_free = i;
    }
    return true;
}

static bool gm_import_add(uint32_t frame, uint32_t gpu, uint64_t bytes,
                          CUmemGenericAllocationHandle handle)
{
    if (gm_import_free == GM_IMPORT_NONE && !gm_import_grow())
        return false;
    uint32_t i = gm_import_free;
    gm_import_free = gm_imports[i].next_frame;
    gm_imports[i] = (struct gm_import){
        .frame = frame, .gpu = gpu, .bytes = bytes, .handle = handle, .next_va = GM_IMPORT_NONE};
    gm_import_link_frame(i);
    gm_import_cached++;
    return true;
}

/* Not mapped, and its handle was released by the caller. */
static void gm_import_remove(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_frame[gm_bucket_of_frame(import->frame)];
    while (*place != i)
        place = &gm_imports[*place].next_frame;
    *place = import->next_frame;
    import->next_frame = gm_import_free;
    gm_import_free = i;
    gm_import_cached--;
}

static void gm_import_set_mapped(struct gm_import *import, uint64_t va)
{
    import->va = va;
    gm_import_link_va((uint32_t)(import - gm_imports));
    gm_import_mapped++;
}

static void gm_import_set_unmapped(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_va[gm_bucket_of_va(import->va)];
    while (*place != i)
        place = &gm_imports[*place].next_va;
    *place = import->next_va;
    import->va = 0;
    gm_import_mapped--;
}

/* ---- a context, where the driver wants one ---- */

bool gm_borrow(struct gm_borrowed *borrowed, uint32_t gpu)
{
    CUcontext context;
    CUdevice device = gm_gpu_device(gpu);
    if (borrowed->is_on || device < 0)
        return false;
    if (gm_real.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return false;
    if (gm_real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        gm_real.cuDevicePrimaryCtxRelease_v2(device);
        return false;
    }
    borrowed->is_on = true;
    borrowed->device = device;
    return true;
}

void gm_give_back(struct gm_borrowed *borrowed)
{
    CUcontext context;
    if (!borrowed->is_on)
        return;
    gm_real.cuCtxPopCurrent_v2(&context);
    gm_real.cuDevicePrimaryCtxRelease_v2(borrowed->device);
    borrowed->is_on = false;
}

/* ---- pieces of a batch ---- */

/* `result`, or CUDA_SUCCESS once the driver shuts down. */
static CUresult gm_map_unless_over(CUresult result)
{
    if (result == CUDA_ERROR_DEINITIALIZED)
        gm_map_is_over = true;
    return gm_map_is_over ? CUDA_SUCCESS : result;
}

static CUresult gm_unmap_one(struct gm_import *import, struct gm_borrowed *borrowed)
{
    const struct gm_vmm_handle *home = gm_vmm_home(import->va);
    CUresult result = home != NULL ? gm_views_unmap(home, import->va, import->bytes, borrowed)
                                   : GM_WITH_CONTEXT(borrowed, import->gpu,
                                                     gm_real.cuMemUnmap(import->va, import->bytes));
    result = gm_map_unless_over(result);
    if (result == CUDA_SUCCESS)
        gm_import_set_unmapped(import);
    return result;
}

static CUresult gm_drop_one(struct gm_import *import, struct gm_borrowed *borrowed)
{
    if (import->va != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = GM_WITH_CONTEXT(borrowed, import->gpu, gm_real.cuMemRelease(import->handle));
    result = gm_map_unless_over(result);
    if (result == CUDA_SUCCESS)
        gm_import_remove(import);
    return result;
}

/* Import the frame of *entry from `fd`, which stays the caller's. */
static CUresult gm_import_one(const struct gm_map_entry *entry, int fd,
                              struct gm_borrowed *borrowed)
{
    CUmemGenericAllocationHandle handle;
    struct gm_import *old = gm_import_find(entry->frame);
    if (old != NULL) { /* the daemon believes that this one is not cached: take the new one */
        CUresult result = gm_drop_one(old, borrowed);
        if (result != CUDA_SUCCESS)
            return result;
    }
    CUresult result = GM_WITH_CONTEXT(
        borrowed, entry->gpu,
        gm_real.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (result != CUDA_SUCCESS)
        return result;
    if (!gm_import_add(entry->frame, entry->gpu, entry->bytes, handle)) {
        gm_real.cuMemRelease(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Whether the entry can be a chunk at all. */
static bool gm_map_entry_is_sane(const struct gm_map_entry *entry)
{
    bool is_class = (entry->bytes & (entry->bytes - 1)) == 0 && entry->bytes >= GM_CHUNK_MIN &&
                    entry->bytes <= GM_CHUNK_MAX;
    return is_class && entry->va != 0 && entry->va % GM_CHUNK_MIN == 0 &&
           gm_gpu_device(entry->gpu) >= 0;
}

static CUresult gm_map_one(const struct gm_map_entry *entry, struct gm_borrowed *borrowed)
{
    struct gm_import *import = gm_import_find(entry->frame);
    if (import == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (import->va != 0 || import->bytes != entry->bytes || gm_import_at(entry->va) != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct gm_vmm_handle *home = gm_vmm_home(entry->va);
    CUresult result =
        home != NULL
            ? gm_views_map(home, entry->va, entry->bytes, import->handle, borrowed)
            : GM_WITH_CONTEXT(borrowed, entry->gpu,
                              gm_real.cuMemMap(entry->va, entry->bytes, 0, import->handle, 0));
    if (result == CUDA_SUCCESS)
        gm_import_set_mapped(import, entry->va);
    return result;
}

/* One set-access for every run of entries that follow each other: it is what the calls cost. Where
 * the program mapped a handle itself, each of its places gets what it set there. */
static CUresult gm_set_access(const struct gm_map_entry *entry, uint32_t count,
                              struct gm_borrowed *borrowed)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t first = 0, next; first < count && result == CUDA_SUCCESS; first = next) {
        uint64_t end = entry[first].va + entry[first].bytes;
        const struct gm_vmm_handle *home = gm_vmm_home(entry[first].va);
        next = first + 1;
        if (home != NULL) {
            result = gm_views_allow(home, entry[first].va, entry[first].bytes, borrowed);
            continue;
        }
        for (; next < count && entry[next].va == end && entry[next].gpu == entry[first].gpu &&
               gm_vmm_home(end) == NULL;
             next++)
            end += entry[next].bytes;
        CUmemAccessDesc access[1 + GM_PEERS_MAX] = {{
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                         .id = gm_gpu_device(entry[first].gpu)},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }};
        size_t n = gm_peers_add(entry[first].gpu, access, 1);
        result = GM_WITH_CONTEXT(
            borrowed, entry[first].gpu,
            gm_real.cuMemSetAccess(entry[first].va, end - entry[first].va, access, n));
    }
    return result;
}

/* ---- batches ---- */

CUresult gm_mapper_map(const struct gm_map_entry *entry, uint32_t count, const int *fds, int n_fds)
{
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = CUDA_SUCCESS;
    int next_fd = 0;
    uint32_t imported = 0; /* entries whose frame is in the cache */
    uint32_t mapped = 0;   /* entries that are mapped */

    for (; imported < count && result == CUDA_SUCCESS; imported++) {
        const struct gm_map_entry *e = &entry[imported];
        bool has_fd = (e->flags & GM_MAP_HAS_FD) != 0;
        if (!gm_map_entry_is_sane(e) || (has_fd && next_fd >= n_fds)) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        if (has_fd)
            result = gm_import_one(e, fds[next_fd++], &borrowed);
        if (result != CUDA_SUCCESS)
            break;
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    if (result != CUDA_SUCCESS)
        goto drop_imported;

    for (; mapped < count; mapped++) {
        result = gm_map_one(&entry[mapped], &borrowed);
        if (result != CUDA_SUCCESS)
            goto unmap_mapped;
    }
    result = gm_set_access(entry, count, &borrowed);
    if (result != CUDA_SUCCESS)
        goto unmap_mapped;
    gm_give_back(&borrowed);
    return CUDA_SUCCESS;

unmap_mapped:
    while (mapped-- > 0)
        gm_unmap_one(gm_import_at(entry[mapped].va), &borrowed);
drop_imported:
    while (imported-- > 0) {
        struct gm_import *import = gm_import_find(entry[imported].frame);
        if ((entry[imported].flags & GM_MAP_HAS_FD) != 0 && import != NULL)
            gm_drop_one(import, &borrowed);
    }
    gm_give_back(&borrowed);
    return gm_map_unless_over(result);
}

CUresult gm_mapper_unmap(const struct gm_span_entry *entry, uint32_t count)
{
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < count; i++) {
        struct gm_import *import = entry[i].va == 0 ? NULL : gm_import_at(entry[i].va);
        CUresult one = import == NULL || import->bytes != entry[i].bytes
                           ? gm_map_unless_over(CUDA_ERROR_INVALID_VALUE)
                           : gm_unmap_one(import, &borrowed);
        result = result == CUDA_SUCCESS ? one : result;
    }
    gm_give_back(&borrowed);
    return result;
}

CUresult gm_mapper_drop(const struct gm_frame_entry *entry, uint32_t count)
{
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < count; i++) {
        struct gm_import *import = gm_import_find(entry[i].frame);
        CUresult one = import == NULL ? CUDA_SUCCESS : gm_drop_one(import, &borrowed);
        result = result == CUDA_SUCCESS ? one : result;
    }
    gm_give_back(&borrowed);
    return result;
}

CUresult gm_mapper_allow(uint32_t gpu, CUdevice device, bool is_open)
{
    struct gm_borrowed borrowed = {.is_on = false};
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = is_open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
    };
    CUresult result = CUDA_SUCCESS;
    for (uint32_t bucket = 0; bucket < gm_import_room; bucket++) {
        for (uint32_t i = gm_by_va[bucket]; i != GM_IMPORT_NONE; i = gm_imports[i].next_va) {
            const struct gm_import *import = &gm_imports[i];
            if (import->gpu != gpu || gm_vmm_home(import->va) != NULL)
                continue;
            CUresult one = GM_WITH_CONTEXT(
                &borrowed, gpu, gm_real.cuMemSetAccess(import->va, import->bytes, &access, 1));
            result = result == CUDA_SUCCESS ? one : result;
        }
    }
    gm_give_back(&borrowed);
    return result;
}

bool gm_mapper_covers(uint64_t va, uint64_t bytes)
{
    while (bytes >= GM_CHUNK_MIN) {
        uint64_t chunk = gm_class_bytes(gm_chunk_next(bytes));
        if (gm_import_at(va) == NULL)
            return false;
        va += chunk;
        bytes -= chunk;
    }
    return true;
}

bool gm_mapper_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame)
{
    const struct gm_import *import = gm_import_at(va);
    if (import != NULL)
        *frame = import->handle;
    return import != NULL;
}

CUresult gm_mapper_release(uint64_t va, uint64_t bytes)
{
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = CUDA_SUCCESS;
    while (bytes >= GM_CHUNK_MIN) {
        uint64_t chunk = gm_class_bytes(gm_chunk_next(bytes));
        struct gm_import *import = gm_import_at(va);
        CUresult one = import == NULL ? CUDA_SUCCESS : gm_unmap_one(import, &borrowed);
        if (import != NULL && one == CUDA_SUCCESS)
            one = gm_drop_one(import, &borrowed);
        result = result == CUDA_SUCCESS ? one : result;
        va += chunk;
        bytes -= chunk;
    }
    gm_give_back(&borrowed);
    return result;
}

void gm_mapper_count(size_t *cached, size_t *mapped)
{
    *cached = gm_import_cached;
    *mapped = gm_import_mapped;
}

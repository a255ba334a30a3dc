#include "shim/map/mapper.h"

#include <unistd.h>

#include "common/chunk.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/map/borrow.h"
#include "shim/map/imports.h"
#include "shim/map/peers.h"
#include "shim/map/views.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* The driver shuts down because the program ends. Then every batch succeeds at once: mappings and
 * handles are gone, and the daemon opens the gate for the program's last calls. */
static bool gm_map_is_over;

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
    if (old != NULL) { /* the daemon takes it for not cached */
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

/* Whether the entry can be a chunk. */
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

/* One set-access for each run of adjacent entries, because it is the expensive call. Views get the
 * access that the program set. */
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
    for (const struct gm_import *import = NULL; (import = gm_import_next(import)) != NULL;) {
        if (import->gpu != gpu || gm_vmm_home(import->va) != NULL)
            continue;
        CUresult one = GM_WITH_CONTEXT(
            &borrowed, gpu, gm_real.cuMemSetAccess(import->va, import->bytes, &access, 1));
        result = result == CUDA_SUCCESS ? one : result;
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

static bool gm_mapper_has(const struct gm_alloc *alloc)
{
    return gm_mapper_covers(alloc->va, alloc->span);
}

bool gm_mapper_has_all(void)
{
    return gm_allocs_all_backed(gm_mapper_has) && gm_allocs_all(GM_ALLOC_HANDLE, gm_mapper_has);
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

void gm_mapper_forget(void)
{
    struct gm_borrowed borrowed = {.is_on = false};
    for (struct gm_import *import = gm_import_next(NULL), *next; import != NULL; import = next) {
        next = gm_import_next(import);
        if (gm_unmap_one(import, &borrowed) == CUDA_SUCCESS)
            gm_drop_one(import, &borrowed);
    }
    gm_give_back(&borrowed);
}

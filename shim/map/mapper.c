#include "shim/map/mapper.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/chunk.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/map/borrow.h"
#include "shim/map/peers.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

static CUresult views_map(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                          CUmemGenericAllocationHandle frame, struct gm_borrowed *borrowed);
static CUresult views_unmap(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                            struct gm_borrowed *borrowed);

/* ---- imports ---- */

/* Two hash indices: by frame and by address. */

#define GM_IMPORT_NONE UINT32_MAX

static struct gm_import
    *gm_imports;                /* `gm_import_room` of them; an index stays valid when it grows */
static uint32_t gm_import_room; /* a power of two */
static uint32_t gm_import_free = GM_IMPORT_NONE;
static uint32_t *gm_by_frame; /* `gm_import_room` buckets each */
static uint32_t *gm_by_va;
static size_t gm_import_cached;
static size_t gm_import_mapped;

static uint32_t gm_bucket_of_frame(uint32_t frame)
{
    return (frame * 2654435761u) & (gm_import_room - 1);
}

static uint32_t gm_bucket_of_va(uint64_t va)
{
    return (uint32_t)((va >> GM_CHUNK_SHIFT) * 2654435761u) & (gm_import_room - 1);
}

/* The import of `frame`; the import mapped at `va`. NULL: none. */
static struct gm_import *import_find(uint32_t frame)
{
    if (gm_import_room == 0)
        return NULL;
    uint32_t i = gm_by_frame[gm_bucket_of_frame(frame)];
    while (i != GM_IMPORT_NONE && gm_imports[i].frame != frame)
        i = gm_imports[i].next_frame;
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

static struct gm_import *import_at(uint64_t va)
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

/* Double the room. There are as many buckets as imports, so all imports are linked again. */
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
    /* None was free: all old ones are in use. */
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

/* Add an import that is mapped nowhere. False: no memory. */
static bool import_add(uint32_t frame, uint32_t gpu, uint64_t bytes,
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

/* Remove an import that is mapped nowhere; the caller released its handle. */
static void import_remove(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_frame[gm_bucket_of_frame(import->frame)];
    while (*place != i)
        place = &gm_imports[*place].next_frame;
    *place = import->next_frame;
    import->bytes = 0; /* none */
    import->next_frame = gm_import_free;
    gm_import_free = i;
    gm_import_cached--;
}

/* The driver mapped it at `va`, or unmapped it. */
static void import_set_mapped(struct gm_import *import, uint64_t va)
{
    import->va = va;
    gm_import_link_va((uint32_t)(import - gm_imports));
    gm_import_mapped++;
}

static void import_set_unmapped(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_va[gm_bucket_of_va(import->va)];
    while (*place != i)
        place = &gm_imports[*place].next_va;
    *place = import->next_va;
    import->va = 0;
    gm_import_mapped--;
}

/* The mapped imports, in no order: the one after `import`, or the first for NULL. NULL: no more. */
static struct gm_import *import_next(const struct gm_import *import)
{
    uint32_t bucket = 0, i = GM_IMPORT_NONE;
    if (import != NULL) {
        bucket = gm_bucket_of_va(import->va) + 1;
        i = import->next_va;
    }
    while (i == GM_IMPORT_NONE && bucket < gm_import_room)
        i = gm_by_va[bucket++];
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

uint32_t gm_import_list(uint32_t *cursor, struct gm_holds_entry *entries, uint32_t most)
{
    uint32_t n = 0;
    for (; *cursor < gm_import_room && n < most; ++*cursor) {
        const struct gm_import *import = &gm_imports[*cursor];
        if (import->bytes != 0)
            entries[n++] = (struct gm_holds_entry){
                .va = import->va, .frame = import->frame, .gpu = import->gpu};
    }
    return n;
}

bool gm_import_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame)
{
    const struct gm_import *import = import_at(va);
    if (import != NULL)
        *frame = import->handle;
    return import != NULL;
}

void gm_import_count(size_t *cached, size_t *mapped)
{
    *cached = gm_import_cached;
    *mapped = gm_import_mapped;
}

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
    CUresult result = home != NULL ? views_unmap(home, import->va, import->bytes, borrowed)
                                   : GM_WITH_CONTEXT(borrowed, import->gpu,
                                                     gm_real.cuMemUnmap(import->va, import->bytes));
    result = gm_map_unless_over(result);
    if (result == CUDA_SUCCESS)
        import_set_unmapped(import);
    return result;
}

static CUresult gm_drop_one(struct gm_import *import, struct gm_borrowed *borrowed)
{
    if (import->va != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = GM_WITH_CONTEXT(borrowed, import->gpu, gm_real.cuMemRelease(import->handle));
    result = gm_map_unless_over(result);
    if (result == CUDA_SUCCESS)
        import_remove(import);
    return result;
}

/* Import the frame of *entry from `fd`, which stays the caller's. */
static CUresult gm_import_one(const struct gm_map_entry *entry, int fd,
                              struct gm_borrowed *borrowed)
{
    CUmemGenericAllocationHandle handle;
    struct gm_import *old = import_find(entry->frame);
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
    if (!import_add(entry->frame, entry->gpu, entry->bytes, handle)) {
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
    struct gm_import *import = import_find(entry->frame);
    if (import == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (import->va != 0 || import->bytes != entry->bytes || import_at(entry->va) != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct gm_vmm_handle *home = gm_vmm_home(entry->va);
    CUresult result =
        home != NULL
            ? views_map(home, entry->va, entry->bytes, import->handle, borrowed)
            : GM_WITH_CONTEXT(borrowed, entry->gpu,
                              gm_real.cuMemMap(entry->va, entry->bytes, 0, import->handle, 0));
    if (result == CUDA_SUCCESS)
        import_set_mapped(import, entry->va);
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
        gm_unmap_one(import_at(entry[mapped].va), &borrowed);
drop_imported:
    while (imported-- > 0) {
        struct gm_import *import = import_find(entry[imported].frame);
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
        struct gm_import *import = entry[i].va == 0 ? NULL : import_at(entry[i].va);
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
        struct gm_import *import = import_find(entry[i].frame);
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
    for (const struct gm_import *import = NULL; (import = import_next(import)) != NULL;) {
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
        if (import_at(va) == NULL)
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
        struct gm_import *import = import_at(va);
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
    for (struct gm_import *import = import_next(NULL), *next; import != NULL; import = next) {
        next = import_next(import);
        if (gm_unmap_one(import, &borrowed) == CUDA_SUCCESS)
            gm_drop_one(import, &borrowed);
    }
    gm_give_back(&borrowed);
}

/* ---- views ---- */

/*
 * Maps and unmaps views: the places where the program mapped virtual handles (tables/vmm.h).
 *
 * The mapper calls the first half when a frame comes to a chunk in a home, or leaves it. The
 * second half are the program's calls, which its threads pass to the link thread (gm_work_run).
 * For chunks that are not mapped they change the table only; the mapper does the rest when the
 * chunk returns.
 *
 * Owns nothing: the views are in the table. Link thread only.
 */

/* ---- for the mapper ---- */

/* The views where chunks of the handle's home are mapped: none once it is pinned. */
static const struct gm_vmm_view *gm_views_of(const struct gm_vmm_handle *handle)
{
    return handle->real == 0 ? handle->views : NULL;
}

/* The address in a view of the home's address `va`. */
static uint64_t gm_view_of(const struct gm_vmm_view *view, uint64_t va)
{
    return view->va + (va - view->handle->home);
}

size_t gm_views_access(const struct gm_vmm_view *view, CUmemAccessDesc *desc)
{
    size_t n = 0;
    for (int device = 0; device < GM_VMM_DEVICES; device++) {
        if (view->access[device] == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            continue;
        desc[n++] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
            .flags = (CUmemAccess_flags)view->access[device],
        };
    }
    return n;
}

static CUresult gm_view_allow(const struct gm_vmm_view *view, uint64_t va, uint64_t bytes,
                              struct gm_borrowed *borrowed)
{
    CUmemAccessDesc desc[GM_VMM_DEVICES];
    size_t n = gm_views_access(view, desc);
    if (n == 0)
        return CUDA_SUCCESS;
    return GM_WITH_CONTEXT(borrowed, (uint32_t)view->handle->gpu,
                           gm_real.cuMemSetAccess(gm_view_of(view, va), bytes, desc, n));
}

/* Map the frame of the chunk at `va` of a home at every view. All or nothing. */
static CUresult views_map(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                          CUmemGenericAllocationHandle frame, struct gm_borrowed *borrowed)
{
    const struct gm_vmm_view *view = gm_views_of(handle);
    CUresult result = CUDA_SUCCESS;
    for (; view != NULL && result == CUDA_SUCCESS; view = view->next) {
        result = GM_WITH_CONTEXT(borrowed, (uint32_t)handle->gpu,
                                 gm_real.cuMemMap(gm_view_of(view, va), bytes, 0, frame, 0));
        if (result != CUDA_SUCCESS)
            break;
    }
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    for (const struct gm_vmm_view *done = handle->views; done != view; done = done->next)
        gm_real.cuMemUnmap(gm_view_of(done, va), bytes);
    return result;
}

CUresult gm_views_allow(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                        struct gm_borrowed *borrowed)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct gm_vmm_view *view = gm_views_of(handle);
         view != NULL && result == CUDA_SUCCESS; view = view->next)
        result = gm_view_allow(view, va, bytes, borrowed);
    return result;
}

/* Unmap the chunk at every view. Returns the first failure, but does the rest too. Repeatable. */
static CUresult views_unmap(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
                            struct gm_borrowed *borrowed)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct gm_vmm_view *view = gm_views_of(handle); view != NULL; view = view->next) {
        CUresult one = GM_WITH_CONTEXT(borrowed, (uint32_t)handle->gpu,
                                       gm_real.cuMemUnmap(gm_view_of(view, va), bytes));
        if (one == CUDA_ERROR_DEINITIALIZED)
            one = CUDA_SUCCESS;
        result = result == CUDA_SUCCESS ? one : result;
    }
    return result;
}

/* ---- the program's calls ---- */

/* Bytes of the chunk that starts `left` bytes before the end of a handle. */
static uint64_t gm_chunk_at(uint64_t left)
{
    return gm_class_bytes(gm_chunk_next(left));
}

CUresult gm_views_fill(const struct gm_vmm_view *view)
{
    const struct gm_vmm_handle *handle = view->handle;
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = CUDA_SUCCESS;
    bool is_any = false;
    if (handle->real != 0)
        return gm_real.cuMemMap(view->va, view->bytes, 0, handle->real, 0);
    for (uint64_t done = 0, chunk; done < handle->bytes && result == CUDA_SUCCESS; done += chunk) {
        CUmemGenericAllocationHandle frame;
        chunk = gm_chunk_at(handle->bytes - done);
        if (!gm_import_frame_at(handle->home + done, &frame))
            continue;
        result = GM_WITH_CONTEXT(&borrowed, (uint32_t)handle->gpu,
                                 gm_real.cuMemMap(view->va + done, chunk, 0, frame, 0));
        is_any = is_any || result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS && is_any)
        gm_real.cuMemUnmap(view->va, view->bytes); /* holes do not matter */
    gm_give_back(&borrowed);
    return result;
}

CUresult gm_views_on_map(void *argument)
{
    const struct gm_view_call *call = argument;
    struct gm_vmm_view *view;
    struct gm_vmm_taken taken;
    CUresult result = gm_vmm_add_view(call->value, call->va, call->bytes, call->offset, &view);
    if (result != CUDA_SUCCESS)
        return result;
    struct gm_alloc alloc = {
        .va = view->va,
        .bytes = view->bytes,
        .span = view->bytes,
        .device = view->handle->device,
        .gpu = view->handle->gpu,
        .home = view->handle->home,
        .kind = GM_ALLOC_VIEW,
    };
    result = gm_views_fill(view);
    if (result == CUDA_SUCCESS && gm_allocs_insert(&alloc) != 0) {
        gm_real.cuMemUnmap(view->va, view->bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* If the program released the handle meanwhile, this was its last use. */
    if (result != CUDA_SUCCESS && gm_vmm_take(call->va, call->bytes, &taken) && taken.dead != NULL)
        ((struct gm_view_call *)argument)->dead = taken.dead;
    return result;
}

/* The GPU whose context to borrow: that of the first view. */
static uint32_t gm_call_gpu(const struct gm_view_call *call)
{
    struct gm_vmm_view view;
    const uint64_t end = call->va + call->bytes;
    for (uint64_t at = call->va; at < end && gm_vmm_next(at, end - at, &view);
         at = view.va + view.bytes)
        if (gm_vmm_view_is_virtual(&view))
            return (uint32_t)view.handle->gpu;
    return UINT32_MAX;
}

CUresult gm_views_on_unmap(void *argument)
{
    struct gm_view_call *call = argument;
    struct gm_borrowed borrowed = {.is_on = false};
    struct gm_vmm_taken taken;
    struct gm_alloc alloc;
    /* One call for mapped chunks, holes and other mappings. */
    CUresult result =
        GM_WITH_CONTEXT(&borrowed, gm_call_gpu(call), gm_real.cuMemUnmap(call->va, call->bytes));
    gm_give_back(&borrowed);
    if (result != CUDA_SUCCESS)
        return result;
    while (gm_vmm_take(call->va, call->bytes, &taken)) {
        if (!taken.is_virtual)
            continue;
        gm_allocs_take(taken.view.va, &alloc);
        if (taken.dead != NULL) {
            taken.dead->next = call->dead;
            call->dead = taken.dead;
        }
    }
    return CUDA_SUCCESS;
}

/* Set the access of the mapped chunks of a view. */
static CUresult gm_view_allow_call(const struct gm_vmm_view *view, const struct gm_view_call *call,
                                   struct gm_borrowed *borrowed)
{
    const struct gm_vmm_handle *handle = view->handle;
    CUmemGenericAllocationHandle frame;
    CUresult result = CUDA_SUCCESS;
    if (handle->real != 0)
        return gm_real.cuMemSetAccess(view->va, view->bytes, call->desc, call->n_desc);
    for (uint64_t done = 0, chunk; done < handle->bytes && result == CUDA_SUCCESS; done += chunk) {
        chunk = gm_chunk_at(handle->bytes - done);
        if (gm_import_frame_at(handle->home + done, &frame))
            result = GM_WITH_CONTEXT(
                borrowed, (uint32_t)handle->gpu,
                gm_real.cuMemSetAccess(view->va + done, chunk, call->desc, call->n_desc));
    }
    return result;
}

CUresult gm_views_on_access(void *argument)
{
    const struct gm_view_call *call = argument;
    const uint64_t end = call->va + call->bytes;
    struct gm_borrowed borrowed = {.is_on = false};
    const uint32_t gpu = gm_call_gpu(call);
    struct gm_vmm_view view;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = call->va;
         at < end && result == CUDA_SUCCESS && gm_vmm_next(at, end - at, &view);
         at = view.va + view.bytes) {
        if (!gm_vmm_view_is_virtual(&view)) {
            result = GM_WITH_CONTEXT(
                &borrowed, gpu,
                gm_real.cuMemSetAccess(view.va, view.bytes, call->desc, call->n_desc));
            continue;
        }
        result = gm_view_allow_call(&view, call, &borrowed);
        for (size_t i = 0; result == CUDA_SUCCESS && i < call->n_desc; i++)
            gm_vmm_set_access(view.va, view.bytes, call->desc[i].location.id,
                              (unsigned)call->desc[i].flags);
    }
    gm_give_back(&borrowed);
    return result;
}

#include "shim/map/views.h"

#include "common/chunk.h"
#include "shim/driver/real.h"
#include "shim/map/imports.h"
#include "shim/tables/allocs.h"

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

CUresult gm_views_map(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
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

CUresult gm_views_unmap(const struct gm_vmm_handle *handle, uint64_t va, uint64_t bytes,
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

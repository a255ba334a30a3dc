/*
 * The handlers of queries: how much memory there is, and what a pointer is. They answer from the
 * allocation map (queries.h) for memory that gpumux backs; the driver answers for the rest, which
 * never moves. Only attributes that this build does not know wait at the gate.
 */
#include <string.h>

#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/memory/budget.h"
#include "shim/memory/graphs.h"
#include "shim/memory/notes.h"
#include "shim/memory/queries.h"
#include "shim/memory/freed.h"
#include "shim/observe/usage.h"
#include "shim/tables/pages.h"

CUresult gm_on_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct gm_alloc where;
    uint64_t has_free, has_total;
    if (!gm_is_live() || !gm_where(&where))
        return gm_real.cuMemGetInfo_v2(free, total);
    if (gm_graphs_exist())
        gm_graphs_sample();
    gm_usage_sample();
    if (!gm_memory_info(where.gpu, &has_free, &has_total))
        return gm_real.cuMemGetInfo_v2(free, total);
    if (free != NULL)
        *free = has_free;
    if (total != NULL)
        *total = has_total;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    uint64_t has_free, has_total;
    if (gm_is_live())
        GM_REFUSE(gm_permits());
    if (bytes == NULL || !gm_is_live() || !gm_memory_info(gm_gpu_of(dev), &has_free, &has_total))
        return gm_real.cuDeviceTotalMem_v2(bytes, dev);
    *bytes = has_total;
    return CUDA_SUCCESS;
}

/*
 * The pointer to ask the driver about, for a `ptr` in no allocation of ours: NULL if it is in the
 * rest of an allocation's last chunk, or in memory that was freed and is kept (freed.h). The
 * program has nothing there, but the driver may have a chunk mapped.
 */
static CUdeviceptr gm_foreign(CUdeviceptr ptr)
{
    return gm_pages_have(ptr) || gm_freed_has(ptr) ? 0 : ptr;
}

CUresult gm_on_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct gm_place place;
    if (!gm_is_live())
        return gm_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
    GM_REFUSE(gm_permits());
    if (!gm_place_find(dptr, &place))
        return gm_real.cuMemGetAddressRange_v2(pbase, psize, gm_foreign(dptr));
    if (pbase != NULL)
        *pbase = place.base;
    if (psize != NULL)
        *psize = place.bytes;
    return CUDA_SUCCESS;
}

static CUdevice gm_current_device(void)
{
    CUdevice device;
    return gm_real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

CUresult gm_on_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct gm_place place;
    if (data == NULL || !gm_is_live())
        return gm_real.cuPointerGetAttribute(data, attribute, ptr);
    GM_REFUSE(gm_permits());
    if (!gm_place_find(ptr, &place))
        return gm_real.cuPointerGetAttribute(data, attribute, gm_foreign(ptr));
    if (!gm_place_knows(attribute)) /* the driver must see it mapped */
        return GM_GATED(gm_real.cuPointerGetAttribute(data, attribute, ptr));
    return gm_place_attribute(&place, attribute, ptr, gm_current_device(), data);
}

/* Like the driver, 0 for attributes that do not apply. */
CUresult gm_on_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                      void **data, CUdeviceptr ptr)
{
    struct gm_place place;
    if (numAttributes == 0 || attributes == NULL || data == NULL || !gm_is_live())
        return gm_real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
    GM_REFUSE(gm_permits());
    if (!gm_place_find(ptr, &place))
        return gm_real.cuPointerGetAttributes(numAttributes, attributes, data, gm_foreign(ptr));

    bool are_known = true;
    for (unsigned int i = 0; i < numAttributes; i++) {
        if (data[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        are_known = are_known && gm_place_knows(attributes[i]);
    }
    if (!are_known) {
        CUresult result =
            GM_GATED(gm_real.cuPointerGetAttributes(numAttributes, attributes, data, ptr));
        if (result != CUDA_SUCCESS)
            return result;
    }
    CUdevice device = gm_current_device();
    for (unsigned int i = 0; i < numAttributes; i++)
        if (gm_place_knows(attributes[i]) &&
            gm_place_attribute(&place, attributes[i], ptr, device, data[i]) != CUDA_SUCCESS)
            memset(data[i], 0, gm_place_attribute_size(attributes[i]));
    return CUDA_SUCCESS;
}

CUresult gm_on_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                     CUdeviceptr ptr)
{
    struct gm_place place;
    uint32_t number;
    if (!gm_is_live())
        return gm_real.cuPointerSetAttribute(value, attribute, ptr);
    GM_REFUSE(gm_permits_unsafe());
    if (!gm_place_find(ptr, &place))
        return gm_real.cuPointerSetAttribute(value, attribute, gm_foreign(ptr));
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    if (place.is_mapped)
        return CUDA_ERROR_NOT_SUPPORTED;
    memcpy(&number, value, sizeof(number));
    return gm_allocs_set_sync_memops(ptr, place.alloc.id, number != 0) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

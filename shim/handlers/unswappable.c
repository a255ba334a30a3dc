/* The handlers of managed memory and arrays: the driver makes the memory, and gpumux counts it. */
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/managed.h"
#include "shim/memory/notes.h"
#include "shim/memory/release.h"
#include "shim/tables/accounts.h"
#include "shim/tables/arrays.h"

CUresult gm_on_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct gm_alloc where;
    bool is_live = gm_is_live();
    if (is_live)
        gm_free_deferred();
    CUresult result = gm_real.cuMemAllocManaged(dptr, bytesize, flags);
    if (result == CUDA_SUCCESS && is_live && gm_where(&where))
        gm_note_managed(where, *dptr, bytesize);
    return result;
}

/* Gated like prefetches. */
#define GM_ON_ADVISE(symbol, is_device, params, args)                                              \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        CUresult result = GM_GATED(gm_real.symbol args);                                           \
        if (result == CUDA_SUCCESS && gm_is_live() && gm_managed_exists())                         \
            gm_managed_advise(devPtr, count, advice, is_device);                                   \
        return result;                                                                             \
    }
GM_ON_ADVISE(cuMemAdvise, device >= 0,
             (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
             (devPtr, count, advice, device))
GM_ON_ADVISE(cuMemAdvise_v2, location.type == CU_MEM_LOCATION_TYPE_DEVICE,
             (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
             (devPtr, count, advice, location))

static CUresult gm_note_array(CUresult result, const void *const *handle,
                              const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    struct gm_alloc where;
    if (result == CUDA_SUCCESS && gm_where(&where))
        gm_arrays_add(*handle, &where, gm_array_bytes(descriptor, levels));
    return result;
}

CUresult gm_on_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    bool is_live = gm_is_live();
    CUresult result = gm_real.cuArrayCreate_v2(pHandle, pAllocateArray);
    if (!is_live || result != CUDA_SUCCESS)
        return result;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = pAllocateArray->Width,
        .Height = pAllocateArray->Height,
        .Format = pAllocateArray->Format,
        .NumChannels = pAllocateArray->NumChannels,
    };
    return gm_note_array(result, (const void *const *)pHandle, &descriptor, 1);
}

CUresult gm_on_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    bool is_live = gm_is_live();
    CUresult result = gm_real.cuArray3DCreate_v2(pHandle, pAllocateArray);
    return is_live && result == CUDA_SUCCESS
               ? gm_note_array(result, (const void *const *)pHandle, pAllocateArray, 1)
               : result;
}

CUresult gm_on_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                      const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                      unsigned int numMipmapLevels)
{
    bool is_live = gm_is_live();
    CUresult result = gm_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
    return is_live && result == CUDA_SUCCESS ? gm_note_array(result, (const void *const *)pHandle,
                                                             pMipmappedArrayDesc, numMipmapLevels)
                                             : result;
}

/* Uncount first: when the real call returns, another thread may already have the handle. */
#define GM_ON_DESTROY(symbol, type, handle)                                                        \
    CUresult gm_on_##symbol(type handle)                                                           \
    {                                                                                              \
        struct gm_alloc array;                                                                     \
        bool is_known = gm_is_live() && gm_arrays_take(handle, &array);                            \
        CUresult result = gm_real.symbol(handle);                                                  \
        if (is_known && result != CUDA_SUCCESS)                                                    \
            gm_arrays_put_back(&array);                                                            \
        return result;                                                                             \
    }
GM_ON_DESTROY(cuArrayDestroy, CUarray, hArray)
GM_ON_DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray, hMipmappedArray)

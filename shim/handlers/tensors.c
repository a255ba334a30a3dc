/*
 * The handlers of tensor maps: how far their tensors reach is noted (tables/tensors.h), as kernels
 * get the maps instead of addresses.
 */
#include "shim/handlers/handlers.h"

#include <string.h>

#include "common/tensors.h"
#include "shim/tables/tensors.h"

/* The arguments are the program's, and the driver has accepted them. */
static CUresult note(CUresult result, const CUtensorMap *map, CUtensorMapDataType type,
                     cuuint32_t rank, const void *address, const cuuint64_t *dimensions,
                     const cuuint64_t *strides)
{
    uint64_t bytes, size[GM_TENSOR_RANK], step[GM_TENSOR_RANK] = {0};
    if (result != CUDA_SUCCESS || rank == 0 || rank > GM_TENSOR_RANK)
        return result;
    for (uint32_t i = 0; i < rank; i++) {
        size[i] = dimensions[i];
        if (i + 1 < rank)
            step[i] = strides[i];
    }
    if (gm_tensor_bytes(type, rank, size, step, &bytes))
        gm_tensors_note(map, (uintptr_t)address, bytes);
    return result;
}

CUresult gm_on_cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                      void *address, const cuuint64_t *dimensions,
                                      const cuuint64_t *strides, const cuuint32_t *box,
                                      const cuuint32_t *element_strides,
                                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                      CUtensorMapL2promotion promotion,
                                      CUtensorMapFloatOOBfill fill)
{
    return note(gm_real.cuTensorMapEncodeTiled(map, type, rank, address, dimensions, strides, box,
                                               element_strides, interleave, swizzle, promotion,
                                               fill),
                map, type, rank, address, dimensions, strides);
}

CUresult gm_on_cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                       void *address, const cuuint64_t *dimensions,
                                       const cuuint64_t *strides, const int *lower,
                                       const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                       const cuuint32_t *element_strides,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill)
{
    return note(gm_real.cuTensorMapEncodeIm2col(map, type, rank, address, dimensions, strides,
                                                lower, upper, channels, pixels, element_strides,
                                                interleave, swizzle, promotion, fill),
                map, type, rank, address, dimensions, strides);
}

CUresult gm_on_cuTensorMapEncodeIm2colWide(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dimensions, const cuuint64_t *strides, int lower, int upper,
    cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_strides,
    CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    return note(gm_real.cuTensorMapEncodeIm2colWide(map, type, rank, address, dimensions, strides,
                                                    lower, upper, channels, pixels, element_strides,
                                                    interleave, mode, swizzle, promotion, fill),
                map, type, rank, address, dimensions, strides);
}

/* The tensor is as large as before. */
CUresult gm_on_cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    uint64_t va, bytes;
    const bool is_known = map != NULL && gm_tensors_exist() && gm_tensors_find(map, &va, &bytes);
    const CUresult result = gm_real.cuTensorMapReplaceAddress(map, address);
    if (result == CUDA_SUCCESS && is_known)
        gm_tensors_note(map, (uintptr_t)address, bytes);
    return result;
}

#include "shim/memory/queries.h"

#include <string.h>

#include "shim/memory/pools.h"
#include "shim/tables/arena.h"
#include "shim/tables/pages.h"

bool gm_place_find(CUdeviceptr ptr, struct gm_place *place)
{
    struct gm_alloc *alloc = &place->alloc;
    if (!gm_pages_have(ptr) || gm_allocs_find(ptr, alloc) == GM_ALLOC_UNKNOWN ||
        alloc->kind == GM_ALLOC_REAL || alloc->kind == GM_ALLOC_HANDLE)
        return false;
    place->base = alloc->va;
    place->bytes = alloc->bytes;
    place->id = alloc->id;
    place->pool = NULL;
    place->is_mapped = alloc->kind == GM_ALLOC_VIEW;
    if (place->is_mapped)
        return gm_vmm_find(ptr, &place->view);
    if (alloc->kind != GM_ALLOC_ARENA)
        return true;
    uint64_t base;
    if (!gm_pools_find(ptr, &base, &place->bytes, &place->pool))
        return false;
    /* the id of a block: its region's, and its offset there */
    place->id = 1ull << 63 | (base - place->base) / GM_BLOCK_GRAIN << 32 | (uint32_t)place->id;
    place->base = base;
    return true;
}

size_t gm_place_attribute_size(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    default:
        return 4;
    }
}

bool gm_place_knows(CUpointer_attribute attribute)
{
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
           attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

/* The CUmemAccess_flags of `device`. */
static unsigned gm_place_access(const struct gm_place *place, CUdeviceptr ptr, CUdevice device)
{
    unsigned long long flags = 0;
    const bool is_own = device < 0 || device == place->alloc.device;
    if (!place->is_mapped)
        return is_own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (is_own)
        return place->view.access;
    return gm_vmm_get_access(ptr, device, &flags) ? (unsigned)flags : 0;
}

/* The value of an attribute as a number. False: the attribute does not apply. */
static bool gm_place_number(const struct gm_place *place, CUpointer_attribute attribute,
                            CUdeviceptr ptr, CUdevice device, uint64_t *number)
{
    const struct gm_alloc *alloc = &place->alloc;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *number = place->is_mapped ? 0 : (uint64_t)(uintptr_t)alloc->context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *number = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *number = ptr;
        return !place->is_mapped || gm_place_access(place, ptr, device) != 0;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *number = alloc->is_sync_memops;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *number = place->id;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *number = place->is_mapped ? place->view.value : place->id;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *number = (uint64_t)alloc->device;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *number = alloc->kind == GM_ALLOC_CHUNKS;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *number = place->is_mapped ? place->view.range : place->base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *number = place->is_mapped ? place->view.range_bytes : place->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *number = place->base;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *number = place->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *number = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *number = gm_place_access(place, ptr, device);
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *number = (uint64_t)(uintptr_t)place->pool;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *number = place->is_mapped ? place->view.handle_types : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *number = 0;
        return true;
    default: /* HOST_POINTER */
        return false;
    }
}

CUresult gm_place_attribute(const struct gm_place *place, CUpointer_attribute attribute,
                            CUdeviceptr ptr, CUdevice device, void *data)
{
    uint64_t number;
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
        if (place->is_mapped)
            return CUDA_ERROR_NOT_SUPPORTED;
        memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        return CUDA_SUCCESS;
    }
    if (!gm_place_number(place, attribute, ptr, device, &number))
        return CUDA_ERROR_INVALID_VALUE;
    if (gm_place_attribute_size(attribute) == sizeof(uint64_t)) {
        memcpy(data, &number, sizeof(uint64_t));
    } else {
        uint32_t low = (uint32_t)number;
        memcpy(data, &low, sizeof(low));
    }
    return CUDA_SUCCESS;
}

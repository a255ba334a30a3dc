/*
 * The patches: functions that the Compute Sanitizer calls before each access to global memory. They
 * mark the pages in the launch's area (mark.h), which comes as `userdata`; NULL: nobody records
 * this launch.
 *
 * Their types are those that sanitizer_patching.h gives for each kind of instruction.
 */
#define GM_DEVICE static __device__ __forceinline__
#include "shim/profiler/mark.h"

#include <sanitizer_patching.h>

static __device__ __forceinline__ SanitizerPatchResult mark(void *userdata, uint64_t from,
                                                            uint64_t bytes)
{
    if (userdata != NULL)
        gm_mark((struct gm_area *)userdata, from, bytes);
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult
gm_patch_access(void *userdata, uint64_t pc, void *ptr, uint32_t bytes, uint32_t flags,
                const void *data)
{
    if ((flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH) != 0)
        return SANITIZER_PATCH_SUCCESS;
    return mark(userdata, (uint64_t)ptr, bytes);
}

/* cp.async: what is filled with zeros is not read. */
extern "C" __device__ __noinline__ SanitizerPatchResult
gm_patch_copy(void *userdata, uint64_t pc, void *src, uint32_t dst, uint32_t bytes, uint32_t zeros)
{
    return mark(userdata, (uint64_t)src, src != NULL && bytes > zeros ? bytes - zeros : 0);
}

/* cp.async.bulk: the size is in blocks of 16 bytes. */
extern "C" __device__ __noinline__ SanitizerPatchResult
gm_patch_bulk_in(void *userdata, uint64_t pc, uint64_t src, uint32_t dst, uint32_t barrier,
                 uint32_t mask_and_size, uint32_t is_multicast)
{
    return mark(userdata, src, (mask_and_size & 0xffffu) * 16ull);
}

extern "C" __device__ __noinline__ SanitizerPatchResult
gm_patch_bulk_out(void *userdata, uint64_t pc, uint64_t dst, uint32_t src, uint32_t mask_and_size,
                  uint32_t has_mask)
{
    return mark(userdata, dst, (mask_and_size & 0xffffu) * 16ull);
}

extern "C" __device__ __noinline__ SanitizerPatchResult
gm_patch_bulk_reduce(void *userdata, uint64_t pc, uint64_t dst, uint32_t src, uint32_t blocks)
{
    return mark(userdata, dst, blocks * 16ull);
}

/* Accesses through a tensor map: only the map is known here, so the host adds its whole tensor. */
extern "C" __device__ __noinline__ SanitizerPatchResult gm_patch_tensor(void *userdata, uint64_t pc)
{
    if (userdata != NULL)
        ((struct gm_area *)userdata)->has_tensors = 1;
    return SANITIZER_PATCH_SUCCESS;
}

/* Areas of frames. See area.h. */
#include "bench/area.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/chunk.h"

void gm_device_check(const struct gm_device *device, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench: %s: %s\n", call, gm_cuda_text(&device->cuda, result));
    exit(3);
}

void gm_device_open(struct gm_device *device)
{
    char why[256];
    CUresult (*version)(int *);
    if (gm_cuda_open(&device->cuda, why, sizeof(why)) != 0) {
        fprintf(stderr, "bench: %s\n", why);
        exit(3);
    }
    *(void **)&version = dlsym(device->cuda.library, "cuDriverGetVersion");
    device->version = 0;
    if (version != NULL)
        gm_device_check(device, version(&device->version), "cuDriverGetVersion");
    GM_NEED(device, cuInit, 0);
    GM_NEED(device, cuDeviceGet, &device->device, 0);
    GM_NEED(device, cuDeviceGetName, device->name, sizeof(device->name), device->device);
    GM_NEED(device, cuDevicePrimaryCtxRetain, &device->context, device->device);
    GM_NEED(device, cuCtxSetCurrent, device->context);
    if (device->cuda.cuDeviceGetAttribute(&device->node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                          device->device) != CUDA_SUCCESS ||
        device->node < 0)
        device->node = 0;
}

void gm_device_close(struct gm_device *device)
{
    GM_NEED(device, cuDevicePrimaryCtxRelease_v2, device->device);
    gm_cuda_close(&device->cuda);
}

void gm_area_make(const struct gm_device *device, struct gm_area *area, uint64_t bytes,
                  bool is_host)
{
    size_t frames = (bytes + GM_CHUNK_MAX - 1) / GM_CHUNK_MAX;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->device},
    };
    CUmemAccessDesc access[2] = {
        {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = device->node},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    if (is_host)
        prop.location = access[1].location;
    area->bytes = frames * GM_CHUNK_MAX;
    area->handles = calloc(frames, sizeof(area->handles[0]));
    if (area->handles == NULL)
        gm_device_check(device, CUDA_ERROR_OUT_OF_MEMORY, "calloc");
    GM_NEED(device, cuMemAddressReserve, &area->at, area->bytes, GM_CHUNK_MAX, 0, 0);
    for (size_t i = 0; i < frames; i++) {
        CUdeviceptr at = area->at + i * GM_CHUNK_MAX;
        GM_NEED(device, cuMemCreate, &area->handles[i], GM_CHUNK_MAX, &prop, 0);
        GM_NEED(device, cuMemMap, at, GM_CHUNK_MAX, 0, area->handles[i], 0);
        GM_NEED(device, cuMemSetAccess, at, GM_CHUNK_MAX, access, is_host ? 2 : 1);
    }
}

void gm_area_free(const struct gm_device *device, struct gm_area *area)
{
    for (uint64_t i = 0; i < area->bytes / GM_CHUNK_MAX; i++) {
        GM_NEED(device, cuMemUnmap, area->at + i * GM_CHUNK_MAX, GM_CHUNK_MAX);
        GM_NEED(device, cuMemRelease, area->handles[i]);
    }
    GM_NEED(device, cuMemAddressFree, area->at, area->bytes);
    free(area->handles);
}

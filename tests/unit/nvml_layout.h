/* NVIDIA's own header against what shim/entry/nvml.h declares. The two name the same functions, so
 * that this one's are renamed. */
#ifndef GM_TEST_NVML_LAYOUT_H
#define GM_TEST_NVML_LAYOUT_H

#include <stddef.h>

#define nvmlDeviceGetMemoryInfo nvml_of_nvidia_1
#define nvmlDeviceGetMemoryInfo_v2 nvml_of_nvidia_2
#define nvmlDeviceGetComputeRunningProcesses nvml_of_nvidia_3
#define nvmlDeviceGetComputeRunningProcesses_v2 nvml_of_nvidia_4
#define nvmlDeviceGetComputeRunningProcesses_v3 nvml_of_nvidia_5
#define nvmlDeviceGetMPSComputeRunningProcesses nvml_of_nvidia_6
#define nvmlDeviceGetMPSComputeRunningProcesses_v2 nvml_of_nvidia_7
#define nvmlDeviceGetMPSComputeRunningProcesses_v3 nvml_of_nvidia_8
#define nvmlDeviceGetRunningProcessDetailList nvml_of_nvidia_9
#include <nvml.h>
#undef nvmlDeviceGetRunningProcessDetailList
#undef nvmlDeviceGetMPSComputeRunningProcesses
#undef nvmlDeviceGetMPSComputeRunningProcesses_v2
#undef nvmlDeviceGetMPSComputeRunningProcesses_v3
#undef nvmlDeviceGetComputeRunningProcesses
#undef nvmlDeviceGetComputeRunningProcesses_v2
#undef nvmlDeviceGetComputeRunningProcesses_v3
#undef nvmlDeviceGetMemoryInfo
#undef nvmlDeviceGetMemoryInfo_v2

#include "shim/entry/nvml.h"

#define GM_SAME(ours, theirs, field)                                                               \
    _Static_assert(offsetof(struct ours, field) == offsetof(theirs, field), #theirs "." #field);
_Static_assert(sizeof(struct gm_nvml_memory) == sizeof(nvmlMemory_t), "nvmlMemory_t");
GM_SAME(gm_nvml_memory, nvmlMemory_t, total)
GM_SAME(gm_nvml_memory, nvmlMemory_t, free)
GM_SAME(gm_nvml_memory, nvmlMemory_t, used)
_Static_assert(sizeof(struct gm_nvml_memory_v2) == sizeof(nvmlMemory_v2_t), "nvmlMemory_v2_t");
GM_SAME(gm_nvml_memory_v2, nvmlMemory_v2_t, version)
GM_SAME(gm_nvml_memory_v2, nvmlMemory_v2_t, total)
GM_SAME(gm_nvml_memory_v2, nvmlMemory_v2_t, reserved)
GM_SAME(gm_nvml_memory_v2, nvmlMemory_v2_t, free)
GM_SAME(gm_nvml_memory_v2, nvmlMemory_v2_t, used)
_Static_assert(sizeof(struct gm_nvml_process_v1) == sizeof(nvmlProcessInfo_v1_t), "process, v1");
GM_SAME(gm_nvml_process_v1, nvmlProcessInfo_v1_t, pid)
_Static_assert(offsetof(struct gm_nvml_process_v1, used) ==
                   offsetof(nvmlProcessInfo_v1_t, usedGpuMemory),
               "used, v1");
_Static_assert(sizeof(struct gm_nvml_process) == sizeof(nvmlProcessInfo_t), "process");
GM_SAME(gm_nvml_process, nvmlProcessInfo_t, pid)
_Static_assert(offsetof(struct gm_nvml_process, used) == offsetof(nvmlProcessInfo_t, usedGpuMemory),
               "used");
#ifdef nvmlProcessDetailList_v1
_Static_assert(sizeof(struct gm_nvml_detail) == sizeof(nvmlProcessDetail_v1_t), "detail");
GM_SAME(gm_nvml_detail, nvmlProcessDetail_v1_t, pid)
_Static_assert(offsetof(struct gm_nvml_detail, used) ==
                   offsetof(nvmlProcessDetail_v1_t, usedGpuMemory),
               "used, detail");
_Static_assert(offsetof(struct gm_nvml_details, details) ==
                   offsetof(nvmlProcessDetailList_v1_t, procArray),
               "details");
_Static_assert(nvmlProcessDetailList_v1 == GM_NVML_DETAILS_1, "details' version");
#endif
_Static_assert(nvmlMemory_v2 == (sizeof(struct gm_nvml_memory_v2) | 2u << 24), "its version");
_Static_assert((int)NVML_SUCCESS == (int)GM_NVML_SUCCESS &&
                   (int)NVML_ERROR_LIBRARY_NOT_FOUND == (int)GM_NVML_LIBRARY_NOT_FOUND &&
                   (int)NVML_ERROR_FUNCTION_NOT_FOUND == (int)GM_NVML_FUNCTION_NOT_FOUND,
               "results");
_Static_assert(GM_NVML_UUID_MAX >= NVML_DEVICE_UUID_V2_BUFFER_SIZE, "the longest uuid");

#endif

/* Questions about devices. What they answer is a modest GPU of compute capability 9.0. */
#include "tests/simcuda/device_file.h"
#include "tests/simcuda/sim.h"

#include <stdio.h>
#include <string.h>

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(ordinal);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}
SIM_ENTRY(cuDeviceGet);

SIM_API CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_options.devices;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceGetCount);

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    if (name == NULL || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "simcuda GPU %d", sim_options.number[device]);
    return result;
}
SIM_ENTRY(cuDeviceGetName);

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    sim_device_uuid(sim_options.number[device], sim_options.dir_hash, uuid->bytes);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, device);
}
SIM_ENTRY(cuDeviceGetUuid);

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, device);
}
SIM_ENTRY(cuDeviceGetUuid_v2);

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem);
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result == CUDA_SUCCESS)
        *bytes = sim_options.memory[device];
    return result;
}
SIM_ENTRY(cuDeviceTotalMem_v2);

SIM_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    SIM_ENTER(cuDeviceComputeCapability);
    if (major == NULL || minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result == CUDA_SUCCESS) {
        *major = 9;
        *minor = 0;
    }
    return result;
}
SIM_ENTRY(cuDeviceComputeCapability);

/* One row an attribute that is not 0. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
};

SIM_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_ENTER(cuDeviceGetAttribute);
    if (value == NULL || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].attribute == attribute)
            *value = attributes[i].value;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
        *value = (int)sim_options.compute_mode;
    if (attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED)
        *value = sim_options.has_mps;
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && sim_options.has_mps)
        *value = (int)(*value * sim_options.mps_percent / 100 + 0.999); /* an H100 has 66 of 132 */
    const bool is_vmm = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    const bool is_fds =
        attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    const bool is_host =
        attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if (((is_vmm || is_fds || is_host) && sim_options.has_no_vmm) ||
        (is_fds && sim_options.has_no_fds) || (is_host && sim_options.has_no_host_numa))
        *value = 0;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceGetAttribute);

SIM_API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    if (text == NULL || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_device_check(device);
    if (result == CUDA_SUCCESS)
        snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)device + 1);
    return result;
}
SIM_ENTRY(cuDeviceGetPCIBusId);

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    if (device == NULL || text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus, slot;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (domain != 0 || slot != 0 || bus < 1 || bus > (unsigned)sim_options.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceGetByPCIBusId);

SIM_API CUresult cuDeviceCanAccessPeer(int *can_access, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    if (can_access == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_check(device) != CUDA_SUCCESS || sim_device_check(peer) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    *can_access = device != peer;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceCanAccessPeer);

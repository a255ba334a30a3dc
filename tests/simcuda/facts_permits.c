/*
 * Facts of permission: what each call about memory answers beside a capture, by the mode of the
 * capture and the thread that calls, and inside a host function. Each question has objects of its
 * own.
 */
#include "tests/simcuda/facts.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static struct {
    CUstream captured; /* or the stream that the host function is in */
    CUstream beside;   /* both are non-blocking */
    CUdeviceptr small, large, pooled, pitched, managed;
    CUmemoryPool made_pool, default_pool;
    CUmemGenericAllocationHandle loose;  /* exportable, not mapped */
    CUmemGenericAllocationHandle mapped; /* at `range` */
    CUdeviceptr range, unmapped, reserved;
    void *pinned;
    CUarray array;
    CUmodule module, loaded; /* loaded: by an action */
    CUevent before;
} it;

static CUmemAllocationProp device_prop(void)
{
    return fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult make_array(CUarray *array)
{
    const CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return cuArrayCreate(array, &desc);
}

/* Forget an object that is gone, so that clean_up leaves it alone. */
#define GONE(object, call)                                                                         \
    const CUresult result = (call);                                                                \
    if (result == CUDA_SUCCESS)                                                                    \
        (object) = 0;                                                                              \
    return result

static CUresult do_mem_alloc(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAlloc(&p, 4096);
    if (r == CUDA_SUCCESS)
        cuMemFree(p);
    return r;
}
static CUresult do_mem_alloc_of_8_mi_b(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAlloc(&p, 8 * MIB);
    if (r == CUDA_SUCCESS)
        cuMemFree(p);
    return r;
}
static CUresult do_mem_alloc_of_0(void)
{
    CUdeviceptr p;
    return cuMemAlloc(&p, 0);
}
static CUresult do_mem_alloc_to_null(void)
{
    return cuMemAlloc(NULL, 8 * MIB);
}
static CUresult do_mem_alloc_pitch(void)
{
    CUdeviceptr p;
    size_t pitch;
    const CUresult r = cuMemAllocPitch(&p, &pitch, 4096, 1024, 4);
    if (r == CUDA_SUCCESS)
        cuMemFree(p);
    return r;
}
static CUresult do_mem_alloc_pitch_with_element_3(void)
{
    CUdeviceptr p;
    size_t pitch;
    return cuMemAllocPitch(&p, &pitch, 4096, 1024, 3);
}
static CUresult do_mem_alloc_managed(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL);
    if (r == CUDA_SUCCESS)
        cuMemFree(p);
    return r;
}
static CUresult do_mem_free(void)
{
    GONE(it.small, cuMemFree(it.small));
}
static CUresult do_mem_free_of_8_mi_b(void)
{
    GONE(it.large, cuMemFree(it.large));
}
static CUresult do_mem_free_of_an_interior(void)
{
    return cuMemFree(it.large + 4096);
}
static CUresult do_mem_free_of_null(void)
{
    return cuMemFree(0);
}
static CUresult do_mem_free_of_pool_memory(void)
{
    GONE(it.pooled, cuMemFree(it.pooled));
}
static CUresult do_mem_alloc_async_beside(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAllocAsync(&p, MIB, it.beside);
    if (r == CUDA_SUCCESS)
        cuMemFreeAsync(p, it.beside);
    return r;
}
static CUresult do_mem_alloc_async_of_0_beside(void)
{
    CUdeviceptr p;
    return cuMemAllocAsync(&p, 0, it.beside);
}
static CUresult do_mem_alloc_async_to_null_beside(void)
{
    return cuMemAllocAsync(NULL, MIB, it.beside);
}
static CUresult do_mem_alloc_from_pool_async_beside(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAllocFromPoolAsync(&p, MIB, it.made_pool, it.beside);
    if (r == CUDA_SUCCESS)
        cuMemFreeAsync(p, it.beside);
    return r;
}
static CUresult do_mem_free_async_beside(void)
{
    GONE(it.pooled, cuMemFreeAsync(it.pooled, it.beside));
}
static CUresult do_mem_free_async_beside_of_8_mi_b_of_cu_mem_alloc(void)
{
    GONE(it.large, cuMemFreeAsync(it.large, it.beside));
}
static CUresult do_mem_free_async_beside_of_anything(void)
{
    return cuMemFreeAsync((CUdeviceptr)1 << 40, it.beside);
}
static CUresult do_mem_free_async_beside_of_null(void)
{
    return cuMemFreeAsync(0, it.beside);
}
static CUresult do_mem_free_async_of_pool_memory_there(void)
{
    GONE(it.pooled, cuMemFreeAsync(it.pooled, it.captured));
}
static CUresult do_mem_free_async_of_cu_mem_alloc_s_there(void)
{
    GONE(it.large, cuMemFreeAsync(it.large, it.captured));
}
static CUresult do_mem_pool_create(void)
{
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUresult r = cuMemPoolCreate(&pool, &props);
    if (r == CUDA_SUCCESS)
        cuMemPoolDestroy(pool);
    return r;
}
static CUresult do_mem_pool_destroy(void)
{
    GONE(it.made_pool, cuMemPoolDestroy(it.made_pool));
}
static CUresult do_mem_pool_trim_to(void)
{
    return cuMemPoolTrimTo(it.default_pool, 0);
}
static CUresult do_mem_pool_get_attribute_of_used_memory(void)
{
    cuuint64_t v;
    return cuMemPoolGetAttribute(it.default_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v);
}
static CUresult do_mem_pool_get_attribute_of_the_threshold(void)
{
    cuuint64_t v;
    return cuMemPoolGetAttribute(it.default_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v);
}
static CUresult do_mem_pool_set_attribute(void)
{
    cuuint64_t v = 0;
    return cuMemPoolSetAttribute(it.made_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v);
}
static CUresult do_mem_pool_set_access(void)
{
    const CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemPoolSetAccess(it.made_pool, &d, 1);
}
static CUresult do_device_get_mem_pool(void)
{
    CUmemoryPool pool;
    return cuDeviceGetMemPool(&pool, device);
}
static CUresult do_device_set_mem_pool(void)
{
    return cuDeviceSetMemPool(device, it.default_pool);
}
static CUresult do_mem_address_reserve(void)
{
    CUdeviceptr p;
    const CUresult r = cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0);
    if (r == CUDA_SUCCESS)
        cuMemAddressFree(p, 2 * MIB);
    return r;
}
static CUresult do_mem_address_free(void)
{
    GONE(it.reserved, cuMemAddressFree(it.reserved, 2 * MIB));
}
static CUresult do_mem_address_free_of_a_mapping(void)
{
    return cuMemAddressFree(it.range, 2 * MIB);
}
static CUresult do_mem_create(void)
{
    CUmemGenericAllocationHandle h;
    const CUmemAllocationProp prop = device_prop();
    const CUresult r = cuMemCreate(&h, 2 * MIB, &prop, 0);
    if (r == CUDA_SUCCESS)
        cuMemRelease(h);
    return r;
}
static CUresult do_mem_release(void)
{
    GONE(it.loose, cuMemRelease(it.loose));
}
static CUresult do_mem_release_of_0(void)
{
    return cuMemRelease(0);
}
static CUresult do_mem_map(void)
{
    const CUresult r = cuMemMap(it.unmapped, 2 * MIB, 0, it.loose, 0);
    if (r == CUDA_SUCCESS)
        cuMemUnmap(it.unmapped, 2 * MIB);
    return r;
}
static CUresult do_mem_map_over_a_mapping(void)
{
    return cuMemMap(it.range, 2 * MIB, 0, it.loose, 0);
}
static CUresult do_mem_set_access(void)
{
    const CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(it.range, 2 * MIB, &d, 1);
}
static CUresult do_mem_set_access_of_a_hole(void)
{
    const CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(it.unmapped, 2 * MIB, &d, 1);
}
static CUresult do_mem_get_access(void)
{
    unsigned long long f;
    const CUmemLocation l = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return cuMemGetAccess(&f, &l, it.range);
}
static CUresult do_mem_unmap(void)
{
    return cuMemUnmap(it.range, 2 * MIB);
}
static CUresult do_mem_unmap_of_half(void)
{
    return cuMemUnmap(it.range, MIB);
}
static CUresult do_mem_retain_allocation_handle(void)
{
    CUmemGenericAllocationHandle h;
    const CUresult r = cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)it.range);
    if (r == CUDA_SUCCESS)
        cuMemRelease(h);
    return r;
}
static CUresult do_mem_retain_allocation_handle_of_cu_mem_alloc_s(void)
{
    CUmemGenericAllocationHandle h;
    return cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)it.large);
}
static CUresult do_mem_get_allocation_properties_from_handle(void)
{
    CUmemAllocationProp prop;
    return cuMemGetAllocationPropertiesFromHandle(&prop, it.mapped);
}
static CUresult do_mem_get_allocation_granularity(void)
{
    size_t n;
    const CUmemAllocationProp prop = device_prop();
    return cuMemGetAllocationGranularity(&n, &prop, 0);
}
static CUresult do_mem_export_to_shareable_handle(void)
{
    int fd = -1;
    const CUresult r =
        cuMemExportToShareableHandle(&fd, it.loose, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (fd >= 0)
        close(fd);
    return r;
}
static CUresult do_mem_export_to_shareable_handle_of_mapped_memory(void)
{
    int fd = -1;
    const CUresult r =
        cuMemExportToShareableHandle(&fd, it.mapped, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (fd >= 0)
        close(fd);
    return r;
}
static CUresult do_mem_import_from_shareable_handle_of_1(void)
{
    CUmemGenericAllocationHandle h;
    return cuMemImportFromShareableHandle(&h, (void *)(intptr_t)-1,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
static CUresult do_ipc_get_mem_handle(void)
{
    CUipcMemHandle h;
    return cuIpcGetMemHandle(&h, it.large);
}
static CUresult do_ipc_open_mem_handle_of_no_handle(void)
{
    CUipcMemHandle h;
    CUdeviceptr p;
    memset(&h, 1, sizeof h);
    return cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
static CUresult do_ipc_close_mem_handle_of_anything(void)
{
    return cuIpcCloseMemHandle((CUdeviceptr)1 << 40);
}
static CUresult do_ipc_close_mem_handle_of_its_own(void)
{
    return cuIpcCloseMemHandle(it.large);
}
static CUresult do_mem_get_handle_for_address_range(void)
{
    int fd = -1;
    const CUresult r = cuMemGetHandleForAddressRange(&fd, it.large, 8 * MIB,
                                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (fd >= 0)
        close(fd);
    return r;
}
static CUresult do_mem_get_info(void)
{
    size_t a, b;
    return cuMemGetInfo(&a, &b);
}
static CUresult do_device_total_mem(void)
{
    size_t n;
    return cuDeviceTotalMem(&n, device);
}
static CUresult do_mem_get_address_range(void)
{
    CUdeviceptr p;
    size_t n;
    return cuMemGetAddressRange(&p, &n, it.large);
}
static CUresult do_mem_get_address_range_of_anything(void)
{
    CUdeviceptr p;
    size_t n;
    return cuMemGetAddressRange(&p, &n, (CUdeviceptr)1 << 40);
}
static CUresult do_pointer_get_attribute(void)
{
    CUmemorytype t;
    return cuPointerGetAttribute(&t, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, it.large);
}
static CUresult do_pointer_get_attribute_to_null(void)
{
    return cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, it.large);
}
static CUresult do_pointer_get_attributes(void)
{
    CUmemorytype t;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &t;
    return cuPointerGetAttributes(1, &which, &data, it.large);
}
static CUresult do_pointer_set_attribute(void)
{
    int on = 1;
    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, it.large);
}
static CUresult do_mem_host_get_device_pointer(void)
{
    CUdeviceptr p;
    return cuMemHostGetDevicePointer(&p, it.pinned, 0);
}
static CUresult do_array_create(void)
{
    CUarray a;
    const CUresult r = make_array(&a);
    if (r == CUDA_SUCCESS)
        cuArrayDestroy(a);
    return r;
}
static CUresult do_array_destroy(void)
{
    GONE(it.array, cuArrayDestroy(it.array));
}
static CUresult do_array_get_descriptor(void)
{
    CUDA_ARRAY_DESCRIPTOR d;
    return cuArrayGetDescriptor(&d, it.array);
}
static CUresult do_device_graph_mem_trim(void)
{
    return cuDeviceGraphMemTrim(device);
}
static CUresult do_module_load_data(void)
{
    return cuModuleLoadData(&it.loaded, fact_ptx);
}
static CUresult do_module_unload(void)
{
    GONE(it.module, cuModuleUnload(it.module));
}
static CUresult do_module_get_global_of_nothing(void)
{
    CUdeviceptr p;
    size_t n;
    return cuModuleGetGlobal(&p, &n, it.module, "nothing");
}
static CUresult do_ctx_get_current(void)
{
    CUcontext c;
    return cuCtxGetCurrent(&c);
}
static CUresult do_ctx_set_current(void)
{
    return cuCtxSetCurrent(context);
}
static CUresult do_ctx_get_device(void)
{
    CUdevice d;
    return cuCtxGetDevice(&d);
}
static CUresult do_ctx_push_current(void)
{
    CUcontext c;
    const CUresult r = cuCtxPushCurrent(context);
    if (r == CUDA_SUCCESS)
        cuCtxPopCurrent(&c);
    return r;
}
static CUresult do_device_get(void)
{
    CUdevice d;
    return cuDeviceGet(&d, 0);
}
static CUresult do_device_get_count(void)
{
    int n;
    return cuDeviceGetCount(&n);
}
static CUresult do_device_get_attribute(void)
{
    int n;
    return cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
}
static CUresult do_driver_get_version(void)
{
    int n;
    return cuDriverGetVersion(&n);
}
static CUresult do_device_primary_ctx_get_state(void)
{
    unsigned f;
    int n;
    return cuDevicePrimaryCtxGetState(device, &f, &n);
}
static CUresult do_device_primary_ctx_retain(void)
{
    CUcontext c;
    const CUresult r = cuDevicePrimaryCtxRetain(&c, device);
    if (r == CUDA_SUCCESS)
        cuDevicePrimaryCtxRelease(device);
    return r;
}
static CUresult do_ctx_get_limit_of_the_stack(void)
{
    size_t n;
    return cuCtxGetLimit(&n, CU_LIMIT_STACK_SIZE);
}
static CUresult do_ctx_set_limit_of_the_stack(void)
{
    return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024);
}
static CUresult do_stream_create(void)
{
    CUstream s;
    const CUresult r = cuStreamCreate(&s, 0);
    if (r == CUDA_SUCCESS)
        cuStreamDestroy(s);
    return r;
}
static CUresult do_stream_get_ctx_of_another(void)
{
    CUcontext c;
    return cuStreamGetCtx(it.beside, &c);
}
static CUresult do_stream_is_capturing_of_another(void)
{
    CUstreamCaptureStatus s;
    return cuStreamIsCapturing(it.beside, &s);
}
static CUresult do_event_query(void)
{
    return cuEventQuery(it.before);
}
static CUresult do_thread_exchange_stream_capture_mode(void)
{
    CUstreamCaptureMode m = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult r = cuThreadExchangeStreamCaptureMode(&m);
    if (r == CUDA_SUCCESS)
        cuThreadExchangeStreamCaptureMode(&m);
    return r;
}
static CUresult do_get_error_name(void)
{
    const char *s;
    return cuGetErrorName(CUDA_ERROR_UNKNOWN, &s);
}
static CUresult do_get_proc_address(void)
{
    void *p;
    return cuGetProcAddress("cuMemAlloc", &p, 12000, 0, NULL);
}

static const struct action {
    const char *name;
    CUresult (*act)(void);
} actions[] = {
    {"cuMemAlloc", do_mem_alloc},
    {"cuMemAlloc of 8 MiB", do_mem_alloc_of_8_mi_b},
    {"cuMemAlloc of 0", do_mem_alloc_of_0},
    {"cuMemAlloc to NULL", do_mem_alloc_to_null},
    {"cuMemAllocPitch", do_mem_alloc_pitch},
    {"cuMemAllocPitch with element 3", do_mem_alloc_pitch_with_element_3},
    {"cuMemAllocManaged", do_mem_alloc_managed},
    {"cuMemFree", do_mem_free},
    {"cuMemFree of 8 MiB", do_mem_free_of_8_mi_b},
    {"cuMemFree of an interior", do_mem_free_of_an_interior},
    {"cuMemFree of NULL", do_mem_free_of_null},
    {"cuMemFree of pool memory", do_mem_free_of_pool_memory},
    {"cuMemAllocAsync beside", do_mem_alloc_async_beside},
    {"cuMemAllocAsync of 0 beside", do_mem_alloc_async_of_0_beside},
    {"cuMemAllocAsync to NULL beside", do_mem_alloc_async_to_null_beside},
    {"cuMemAllocFromPoolAsync beside", do_mem_alloc_from_pool_async_beside},
    {"cuMemFreeAsync beside", do_mem_free_async_beside},
    {"cuMemFreeAsync beside of 8 MiB of cuMemAlloc",
     do_mem_free_async_beside_of_8_mi_b_of_cu_mem_alloc},
    {"cuMemFreeAsync beside of anything", do_mem_free_async_beside_of_anything},
    {"cuMemFreeAsync beside of NULL", do_mem_free_async_beside_of_null},
    {"cuMemFreeAsync of pool memory, there", do_mem_free_async_of_pool_memory_there},
    {"cuMemFreeAsync of cuMemAlloc's, there", do_mem_free_async_of_cu_mem_alloc_s_there},
    {"cuMemPoolCreate", do_mem_pool_create},
    {"cuMemPoolDestroy", do_mem_pool_destroy},
    {"cuMemPoolTrimTo", do_mem_pool_trim_to},
    {"cuMemPoolGetAttribute of used memory", do_mem_pool_get_attribute_of_used_memory},
    {"cuMemPoolGetAttribute of the threshold", do_mem_pool_get_attribute_of_the_threshold},
    {"cuMemPoolSetAttribute", do_mem_pool_set_attribute},
    {"cuMemPoolSetAccess", do_mem_pool_set_access},
    {"cuDeviceGetMemPool", do_device_get_mem_pool},
    {"cuDeviceSetMemPool", do_device_set_mem_pool},
    {"cuMemAddressReserve", do_mem_address_reserve},
    {"cuMemAddressFree", do_mem_address_free},
    {"cuMemAddressFree of a mapping", do_mem_address_free_of_a_mapping},
    {"cuMemCreate", do_mem_create},
    {"cuMemRelease", do_mem_release},
    {"cuMemRelease of 0", do_mem_release_of_0},
    {"cuMemMap", do_mem_map},
    {"cuMemMap over a mapping", do_mem_map_over_a_mapping},
    {"cuMemSetAccess", do_mem_set_access},
    {"cuMemSetAccess of a hole", do_mem_set_access_of_a_hole},
    {"cuMemGetAccess", do_mem_get_access},
    {"cuMemUnmap", do_mem_unmap},
    {"cuMemUnmap of half", do_mem_unmap_of_half},
    {"cuMemRetainAllocationHandle", do_mem_retain_allocation_handle},
    {"cuMemRetainAllocationHandle of cuMemAlloc's",
     do_mem_retain_allocation_handle_of_cu_mem_alloc_s},
    {"cuMemGetAllocationPropertiesFromHandle", do_mem_get_allocation_properties_from_handle},
    {"cuMemGetAllocationGranularity", do_mem_get_allocation_granularity},
    {"cuMemExportToShareableHandle", do_mem_export_to_shareable_handle},
    {"cuMemExportToShareableHandle of mapped memory",
     do_mem_export_to_shareable_handle_of_mapped_memory},
    {"cuMemImportFromShareableHandle of -1", do_mem_import_from_shareable_handle_of_1},
    {"cuIpcGetMemHandle", do_ipc_get_mem_handle},
    {"cuIpcOpenMemHandle of no handle", do_ipc_open_mem_handle_of_no_handle},
    {"cuIpcCloseMemHandle of anything", do_ipc_close_mem_handle_of_anything},
    {"cuIpcCloseMemHandle of its own", do_ipc_close_mem_handle_of_its_own},
    {"cuMemGetHandleForAddressRange", do_mem_get_handle_for_address_range},
    {"cuMemGetInfo", do_mem_get_info},
    {"cuDeviceTotalMem", do_device_total_mem},
    {"cuMemGetAddressRange", do_mem_get_address_range},
    {"cuMemGetAddressRange of anything", do_mem_get_address_range_of_anything},
    {"cuPointerGetAttribute", do_pointer_get_attribute},
    {"cuPointerGetAttribute to NULL", do_pointer_get_attribute_to_null},
    {"cuPointerGetAttributes", do_pointer_get_attributes},
    {"cuPointerSetAttribute", do_pointer_set_attribute},
    {"cuMemHostGetDevicePointer", do_mem_host_get_device_pointer},
    {"cuArrayCreate", do_array_create},
    {"cuArrayDestroy", do_array_destroy},
    {"cuArrayGetDescriptor", do_array_get_descriptor},
    {"cuDeviceGraphMemTrim", do_device_graph_mem_trim},
    {"cuModuleLoadData", do_module_load_data},
    {"cuModuleUnload", do_module_unload},
    {"cuModuleGetGlobal of nothing", do_module_get_global_of_nothing},
    {"cuCtxGetCurrent", do_ctx_get_current},
    {"cuCtxSetCurrent", do_ctx_set_current},
    {"cuCtxGetDevice", do_ctx_get_device},
    {"cuCtxPushCurrent", do_ctx_push_current},
    {"cuDeviceGet", do_device_get},
    {"cuDeviceGetCount", do_device_get_count},
    {"cuDeviceGetAttribute", do_device_get_attribute},
    {"cuDriverGetVersion", do_driver_get_version},
    {"cuDevicePrimaryCtxGetState", do_device_primary_ctx_get_state},
    {"cuDevicePrimaryCtxRetain", do_device_primary_ctx_retain},
    {"cuCtxGetLimit of the stack", do_ctx_get_limit_of_the_stack},
    {"cuCtxSetLimit of the stack", do_ctx_set_limit_of_the_stack},
    {"cuStreamCreate", do_stream_create},
    {"cuStreamGetCtx of another", do_stream_get_ctx_of_another},
    {"cuStreamIsCapturing of another", do_stream_is_capturing_of_another},
    {"cuEventQuery", do_event_query},
    {"cuThreadExchangeStreamCaptureMode", do_thread_exchange_stream_capture_mode},
    {"cuGetErrorName", do_get_error_name},
    {"cuGetProcAddress", do_get_proc_address},
};
#define N_ACTIONS (sizeof actions / sizeof actions[0])

static void set_up(void)
{
    const CUmemAllocationProp prop = device_prop();
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    NEED(cuStreamCreate(&it.captured, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&it.beside, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&it.small, 4096));
    NEED(cuMemAlloc(&it.large, 8 * MIB));
    NEED(cuDeviceGetDefaultMemPool(&it.default_pool, device));
    NEED(cuMemPoolCreate(&it.made_pool, &props));
    NEED(cuMemAllocAsync(&it.pooled, MIB, it.beside));
    NEED(cuMemCreate(&it.loose, 2 * MIB, &prop, 0));
    NEED(cuMemCreate(&it.mapped, 2 * MIB, &prop, 0));
    NEED(cuMemAddressReserve(&it.range, 2 * MIB, 0, 0, 0));
    NEED(cuMemAddressReserve(&it.unmapped, 2 * MIB, 0, 0, 0));
    NEED(cuMemAddressReserve(&it.reserved, 2 * MIB, 0, 0, 0));
    NEED(cuMemMap(it.range, 2 * MIB, 0, it.mapped, 0));
    NEED(cuMemSetAccess(it.range, 2 * MIB, &desc, 1));
    NEED(cuMemHostAlloc(&it.pinned, 4096, 0));
    NEED(make_array(&it.array));
    NEED(cuModuleLoadData(&it.module, fact_ptx));
    NEED(cuEventCreate(&it.before, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventRecord(it.before, it.beside));
    NEED(cuCtxSynchronize());
}

/* What an action freed is 0. A mapping may be gone: unmapping a hole is allowed. */
static void clean_up(void)
{
    NEED(cuCtxSynchronize());
    if (it.small != 0)
        NEED(cuMemFree(it.small));
    if (it.large != 0)
        NEED(cuMemFree(it.large));
    if (it.pooled != 0)
        NEED(cuMemFree(it.pooled));
    if (it.made_pool != NULL)
        NEED(cuMemPoolDestroy(it.made_pool));
    NEED(cuMemUnmap(it.range, 2 * MIB));
    NEED(cuMemAddressFree(it.range, 2 * MIB));
    NEED(cuMemAddressFree(it.unmapped, 2 * MIB));
    if (it.reserved != 0)
        NEED(cuMemAddressFree(it.reserved, 2 * MIB));
    NEED(cuMemRelease(it.mapped));
    if (it.loose != 0)
        NEED(cuMemRelease(it.loose));
    NEED(cuMemFreeHost(it.pinned));
    if (it.array != NULL)
        NEED(cuArrayDestroy(it.array));
    if (it.module != NULL)
        NEED(cuModuleUnload(it.module));
    if (it.loaded != NULL)
        NEED(cuModuleUnload(it.loaded));
    it.loaded = NULL;
    NEED(cuEventDestroy(it.before));
    NEED(cuStreamDestroy(it.beside));
    NEED(cuStreamDestroy(it.captured));
}

/* ---- beside a capture ---- */

static CUresult answer;
static CUstreamCaptureMode mode_of_thread;
static const struct action *asked;

static void act(void)
{
    CUstreamCaptureMode mode = mode_of_thread;
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    answer = asked->act();
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
}

static void *act_elsewhere(void *unused)
{
    (void)unused;
    NEED(cuCtxSetCurrent(context));
    act();
    return NULL;
}

static void ask_beside(const char *how, CUstreamCaptureMode mode, CUstreamCaptureMode thread_mode,
                       bool is_elsewhere)
{
    mode_of_thread = thread_mode;
    for (size_t i = 0; i < N_ACTIONS; i++) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        CUgraph graph = NULL;
        pthread_t thread;
        set_up();
        asked = &actions[i];
        NEED(cuStreamBeginCapture(it.captured, mode));
        if (!is_elsewhere)
            act();
        else if (pthread_create(&thread, NULL, act_elsewhere, NULL) != 0 ||
                 pthread_join(thread, NULL) != 0)
            exit(1);
        NEED(cuStreamIsCapturing(it.captured, &status));
        cuStreamEndCapture(it.captured, &graph);
        printf("%s: %s: %s, status %d\n", how, asked->name, fact_name(answer), (int)status);
        fflush(stdout);
        if (graph != NULL)
            NEED(cuGraphDestroy(graph));
        clean_up();
    }
}

void facts_of_global_capture(void)
{
    ask_beside("global", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

void facts_of_global_capture_elsewhere(void)
{
    ask_beside("global, elsewhere", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
               true);
}

void facts_of_global_capture_elsewhere_locally(void)
{
    ask_beside("global, elsewhere local", CU_STREAM_CAPTURE_MODE_GLOBAL,
               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true);
}

void facts_of_local_capture(void)
{
    ask_beside("local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

void facts_of_local_capture_elsewhere(void)
{
    ask_beside("local, elsewhere", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
               CU_STREAM_CAPTURE_MODE_GLOBAL, true);
}

void facts_of_relaxed_capture(void)
{
    ask_beside("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

void facts_of_relaxed_thread(void)
{
    ask_beside("global, thread relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL,
               CU_STREAM_CAPTURE_MODE_RELAXED, false);
}

/* ---- in a host function ---- */

static void CUDA_CB host_function(void *unused)
{
    (void)unused;
    answer = asked->act();
}

static void CUDA_CB old_callback(CUstream stream, CUresult status, void *unused)
{
    (void)stream;
    (void)status;
    host_function(unused);
}

/* Submit a host function in one of three ways. */
static void submit(int way)
{
    CUgraph graph;
    CUgraphExec exec;
    if (way == 0) {
        NEED(cuLaunchHostFunc(it.captured, host_function, NULL));
    } else if (way == 1) {
        NEED(cuStreamAddCallback(it.captured, old_callback, NULL, 0));
    } else {
        NEED(cuStreamBeginCapture(it.captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        NEED(cuLaunchHostFunc(it.captured, host_function, NULL));
        NEED(cuStreamEndCapture(it.captured, &graph));
        NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
        NEED(cuGraphLaunch(exec, it.captured));
        NEED(cuStreamSynchronize(it.captured));
        NEED(cuGraphExecDestroy(exec));
        NEED(cuGraphDestroy(graph));
    }
}

/* cuArrayDestroy waits there for the stream for ever, as seen; what comes behind it in the list was
 * not asked. */
static void ask_inside(const char *how, int way)
{
    for (size_t i = 0; i < N_ACTIONS && actions[i].act != do_array_destroy; i++) {
        set_up();
        asked = &actions[i];
        submit(way);
        NEED(cuStreamSynchronize(it.captured));
        printf("%s: %s: %s\n", how, asked->name, fact_name(answer));
        fflush(stdout);
        clean_up();
    }
}

void facts_of_host_functions(void)
{
    ask_inside("host function", 0);
}

void facts_of_callbacks(void)
{
    ask_inside("callback", 1);
}

void facts_of_host_nodes(void)
{
    ask_inside("host node", 2);
}

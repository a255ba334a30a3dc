/*
 * The handlers of the program's own virtual memory management (model: tables/vmm.h).
 *
 * A handle is virtual if gpumux may move its memory: it is on a managed GPU and nobody else has
 * access. Memory for other devices of the machine (GPUDirect) or for other machines, compressible
 * memory and tiles of sparse arrays stay the driver's and count as unswappable. An exportable
 * handle is virtual until it is exported (pin.h): PyTorch makes all its segments exportable by
 * default.
 *
 * For ranges with views the table answers, because the driver sees nothing there while the program
 * is swapped out. Calls on other ranges go to the driver.
 *
 * Environment, read once:
 *   GPUMUX_VMM_EXPORT=real  the driver makes exportable handles from the start: for programs that
 *                           export all of them
 */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/log.h"
#include "common/marks.h"
#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/link/work.h"
#include "shim/map/peers.h"
#include "shim/map/mapper.h"
#include "shim/memory/obtain.h"
#include "shim/memory/pin.h"
#include "shim/memory/queries.h"
#include "shim/memory/release.h"
#include "shim/memory/sharing.h"
#include "shim/memory/freed.h"
#include "shim/tables/accounts.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"
#include "shim/tables/vmm.h"

/* ---- what can be virtual ---- */

/* Computed once; threads that race get the same answer. *known: 0 unknown, 1 no, 2 yes. */
static bool gm_vmm_once(_Atomic int *known, bool (*find_out)(void))
{
    int is = atomic_load_explicit(known, memory_order_relaxed);
    if (is == 0) {
        is = find_out() ? 2 : 1;
        atomic_store_explicit(known, is, memory_order_relaxed);
    }
    return is == 2;
}

/* Whether something here may access GPU memory by physical address: network cards with RDMA,
 * GPUDirect storage, gdrcopy. */
static bool gm_find_direct(void)
{
    bool has =
        access("/sys/module/nvidia_fs", F_OK) == 0 || access("/sys/module/gdrdrv", F_OK) == 0;
    DIR *dir = opendir("/sys/class/infiniband");
    if (dir == NULL)
        return has || errno != ENOENT;
    for (struct dirent *entry; !has && (entry = readdir(dir)) != NULL;)
        has = entry->d_name[0] != '.';
    closedir(dir);
    return has;
}

static bool gm_find_real(void)
{
    const char *word = secure_getenv("GPUMUX_VMM_EXPORT");
    if (word == NULL || word[0] == '\0' || strcmp(word, "virtual") == 0)
        return false;
    if (strcmp(word, "real") == 0)
        return true;
    gm_log(GM_LOG_WARN, "GPUMUX_VMM_EXPORT must be virtual or real: using virtual");
    return false;
}

static bool gm_has_direct(void)
{
    static _Atomic int known;
    return gm_vmm_once(&known, gm_find_direct);
}

static bool gm_is_export_real(void)
{
    static _Atomic int known;
    return gm_vmm_once(&known, gm_find_real);
}

static bool gm_can_be_virtual(size_t bytes, const CUmemAllocationProp *prop)
{
    return !gm_sharing_is_real() && bytes > 0 && bytes % GM_CHUNK_MIN == 0 &&
           prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           prop->win32HandleMetaData == NULL &&
           prop->allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE &&
           prop->allocFlags.usage == 0 &&
           (prop->allocFlags.gpuDirectRDMACapable == 0 || !gm_has_direct()) &&
           (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
            (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
             !gm_is_export_real()));
}

/* ---- handles ---- */

/* CUDA_ERROR_NOT_SUPPORTED: the real driver shall make it. */
static CUresult gm_make_handle(struct gm_vmm_handle made, uint64_t *value)
{
    CUdeviceptr home;
    if (gm_real.cuMemAddressReserve(&home, made.bytes, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    made.home = home;
    struct gm_vmm_handle *handle = gm_vmm_create(&made);
    if (handle == NULL) {
        gm_real.cuMemAddressFree(home, made.bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->next = NULL;
    int result = gm_obtain_chunks(home, made.bytes, made.gpu);
    if (result < 0)
        goto lost;
    if (result != 0) {
        gm_vmm_bury(handle);
        gm_real.cuMemAddressFree(home, made.bytes);
        return (CUresult)result;
    }
    struct gm_alloc alloc = {
        .va = home,
        .bytes = made.bytes,
        .span = made.bytes,
        .device = made.device,
        .gpu = made.gpu,
        .kind = GM_ALLOC_HANDLE,
    };
    if (gm_allocs_insert(&alloc) != 0) {
        gm_release_handles(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Lost meanwhile: the decision whether the program is whole did not include this handle. */
    if (!gm_link_has_daemon())
        goto lost;
    *value = handle->value;
    return CUDA_SUCCESS;

lost:
    gm_release_handles(handle);
    return result == -ETIMEDOUT ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult gm_on_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (!gm_is_live() || handle == NULL || prop == NULL || flags != 0)
        return gm_real.cuMemCreate(handle, size, prop, flags);
    gm_free_deferred();
    bool is_here = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int gpu = is_here ? gm_gpu_of(prop->location.id) : -1;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (gpu >= 0 && gm_can_be_virtual(size, prop) && gm_link_has_daemon()) {
        struct gm_vmm_handle made = {
            .bytes = size, .device = prop->location.id, .gpu = gpu, .prop = *prop};
        uint64_t value;
        result = gm_make_handle(made, &value);
        if (result == CUDA_SUCCESS)
            *handle = value;
    }
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return gm_tell_allocated(result);
    result = gm_real.cuMemCreate(handle, size, prop, flags);
    if (result == CUDA_SUCCESS && gpu >= 0)
        gm_vmm_note_real(*handle, size, gpu);
    return gm_tell_driver_allocated(result, size);
}

CUresult gm_on_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct gm_vmm_handle *dead;
    if (!gm_is_live())
        return gm_real.cuMemRelease(handle);
    GM_REFUSE(gm_permits());
    if (gm_vmm_is_virtual(handle)) {
        CUresult result = gm_vmm_release(handle, &dead);
        return result != CUDA_SUCCESS ? result : gm_release_handles(dead);
    }
    gm_vmm_release_real(handle); /* first: the driver may reuse the value at once */
    return gm_real.cuMemRelease(handle);
}

/* Whether `va` is in memory that gpumux backs and the program did not map itself. */
static bool gm_is_own_memory(CUdeviceptr va)
{
    struct gm_alloc alloc;
    if (gm_pages_have(va) && gm_allocs_find(va, &alloc) != GM_ALLOC_UNKNOWN)
        return alloc.kind != GM_ALLOC_REAL && alloc.kind != GM_ALLOC_VIEW;
    return gm_freed_has(va);
}

CUresult gm_on_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    const CUdeviceptr va = (CUdeviceptr)(uintptr_t)addr;
    uint64_t value;
    if (!gm_is_live() || handle == NULL)
        return gm_real.cuMemRetainAllocationHandle(handle, addr);
    GM_REFUSE(gm_permits());
    if (gm_vmm_retain(va, &value)) {
        *handle = value;
        return CUDA_SUCCESS;
    }
    if (gm_is_own_memory(va))
        return CUDA_ERROR_INVALID_VALUE; /* from cuMemAlloc: it has no handle */
    CUresult result = gm_real.cuMemRetainAllocationHandle(handle, addr);
    if (result == CUDA_SUCCESS)
        gm_vmm_retain_real(*handle);
    return result;
}

CUresult gm_on_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                      CUmemGenericAllocationHandle handle)
{
    struct gm_vmm_handle copy;
    if (!gm_is_live() || !gm_vmm_is_virtual(handle))
        return gm_real.cuMemGetAllocationPropertiesFromHandle(prop, handle);
    GM_REFUSE(gm_permits());
    if (prop == NULL || !gm_vmm_look(handle, &copy))
        return CUDA_ERROR_INVALID_VALUE;
    *prop = copy.prop;
    return CUDA_SUCCESS;
}

/* Mark what goes to other processes as this one's. */
static CUresult gm_tell_exported(CUresult result, CUmemAllocationHandleType type, const void *made)
{
    if (result != CUDA_SUCCESS || !gm_is_live() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return result;
    gm_link_exported();
    gm_mark_export(*(const int *)made);
    return result;
}

CUresult gm_on_cuMemExportToShareableHandle(void *shareableHandle,
                                            CUmemGenericAllocationHandle handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    struct gm_vmm_handle copy;
    if (!gm_is_live() || !gm_vmm_is_virtual(handle))
        return gm_tell_exported(
            gm_real.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags),
            handleType, shareableHandle);
    GM_REFUSE(gm_permits());
    if (shareableHandle == NULL || flags != 0 || !gm_vmm_look(handle, &copy) ||
        ((unsigned)copy.prop.requestedHandleTypes & (unsigned)handleType) == 0)
        return CUDA_ERROR_INVALID_VALUE; /* as for a handle that is not exportable */
    CUmemGenericAllocationHandle real;
    CUresult result = gm_pin(handle, &real);
    if (result != CUDA_SUCCESS)
        return result;
    return gm_tell_exported(
        gm_real.cuMemExportToShareableHandle(shareableHandle, real, handleType, flags), handleType,
        shareableHandle);
}

/* The daemon hears whose memory it is, as their kernels may wait for each other from now on. */
CUresult gm_on_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                              CUmemAllocationHandleType shHandleType)
{
    const CUresult result = gm_real.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
    if (result != CUDA_SUCCESS || !gm_is_live() ||
        shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return result;
    const pid_t exporter = gm_exporter_of((int)(intptr_t)osHandle);
    if (exporter != 0 && exporter != getpid())
        gm_link_imported(exporter);
    return result;
}

/* Multicast writes to the memory of all members: it must not move. */
CUresult gm_on_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                  CUmemGenericAllocationHandle memHandle, size_t memOffset,
                                  size_t size, unsigned long long flags)
{
    CUmemGenericAllocationHandle real = memHandle;
    CUresult result = gm_is_live() ? gm_permits() : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && gm_is_live() && gm_vmm_is_virtual(memHandle))
        result = gm_pin(memHandle, &real);
    if (result != CUDA_SUCCESS)
        return result;
    return gm_real.cuMulticastBindMem(mcHandle, mcOffset, real, memOffset, size, flags);
}

CUresult gm_on_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                   CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    struct gm_vmm_view view;
    CUmemGenericAllocationHandle real;
    bool is_live = gm_is_live() && memptr + size > memptr;
    if (is_live)
        GM_REFUSE(gm_permits());
    for (CUdeviceptr at = memptr;
         is_live && at < memptr + size && gm_vmm_next(at, memptr + size - at, &view);
         at = view.va + view.bytes) {
        uint64_t value;
        struct gm_vmm_handle *dead;
        if (!gm_vmm_retain(view.va, &value))
            continue;
        CUresult result = gm_pin(value, &real);
        gm_vmm_release(value, &dead);
        gm_release_handles(dead);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return gm_real.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
}

/* ---- ranges ---- */

CUresult gm_on_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                   CUdeviceptr addr, unsigned long long flags)
{
    bool is_live = gm_is_live();
    CUresult result = gm_real.cuMemAddressReserve(ptr, size, alignment, addr, flags);
    if (is_live && result == CUDA_SUCCESS)
        gm_vmm_reserve(*ptr, size);
    return result;
}

CUresult gm_on_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    if (!gm_is_live() || ptr + size < ptr)
        return gm_real.cuMemAddressFree(ptr, size);
    GM_REFUSE(gm_permits());
    if (gm_vmm_has_views(ptr, size) || gm_is_own_memory(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    bool was_known = gm_vmm_unreserve(ptr, size); /* first: the driver may reuse it at once */
    CUresult result = gm_real.cuMemAddressFree(ptr, size);
    if (result != CUDA_SUCCESS && was_known)
        gm_vmm_reserve(ptr, size);
    return result;
}

static bool gm_is_aligned(CUdeviceptr ptr, size_t size)
{
    return size > 0 && ptr % GM_CHUNK_MIN == 0 && size % GM_CHUNK_MIN == 0 && ptr + size > ptr;
}

static CUresult gm_map_real(CUdeviceptr ptr, size_t size, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct gm_vmm_taken taken;
    if (size == 0 || ptr + size < ptr)
        return gm_real.cuMemMap(ptr, size, offset, handle, flags);
    if (gm_is_own_memory(ptr) || gm_is_own_memory(ptr + size - 1))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult noted = gm_vmm_map_real(handle, ptr, size);
    if (noted == CUDA_ERROR_INVALID_VALUE)
        return noted;
    CUresult result = gm_real.cuMemMap(ptr, size, offset, handle, flags);
    if (result != CUDA_SUCCESS && noted == CUDA_SUCCESS)
        gm_vmm_take(ptr, size, &taken);
    return result;
}

CUresult gm_on_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (!gm_is_live())
        return gm_real.cuMemMap(ptr, size, offset, handle, flags);
    GM_REFUSE(gm_permits());
    if (!gm_vmm_is_virtual(handle))
        return gm_map_real(ptr, size, offset, handle, flags);
    if (!gm_is_aligned(ptr, size) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct gm_view_call call = {.va = ptr, .bytes = size, .value = handle, .offset = offset};
    CUresult result = gm_work_run(gm_views_on_map, &call);
    gm_release_handles(call.dead);
    return result;
}

CUresult gm_on_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct gm_vmm_taken taken;
    if (!gm_is_live() || ptr + size < ptr)
        return gm_real.cuMemUnmap(ptr, size);
    GM_REFUSE(gm_permits());
    if (gm_is_own_memory(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    if (!gm_vmm_has_views(ptr, size)) {
        CUresult result = gm_real.cuMemUnmap(ptr, size);
        while (result == CUDA_SUCCESS && gm_vmm_take(ptr, size, &taken))
            continue;
        return result;
    }
    if (!gm_is_aligned(ptr, size) || !gm_vmm_is_whole(ptr, size, false))
        return CUDA_ERROR_INVALID_VALUE;
    struct gm_view_call call = {.va = ptr, .bytes = size};
    CUresult result = gm_work_run(gm_views_on_unmap, &call);
    CUresult buried = gm_release_handles(call.dead);
    return result != CUDA_SUCCESS ? result : buried;
}

/* The driver's answer to this access to memory of `device` (tests/simcuda/facts.txt). */
static CUresult gm_check_access(const CUmemAccessDesc *desc, int32_t device)
{
    int n_devices = 0, can_reach = 1;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        desc->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc->location.id < 0 ||
        gm_real.cuDeviceGetCount(&n_devices) != CUDA_SUCCESS || desc->location.id >= n_devices ||
        desc->location.id >= GM_VMM_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->location.id != device && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        gm_real.cuDeviceCanAccessPeer != NULL &&
        gm_real.cuDeviceCanAccessPeer(&can_reach, desc->location.id, device) == CUDA_SUCCESS &&
        can_reach == 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

CUresult gm_on_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                              size_t count)
{
    if (!gm_is_live() || ptr + size < ptr)
        return gm_real.cuMemSetAccess(ptr, size, desc, count);
    GM_REFUSE(gm_permits());
    if (gm_is_own_memory(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    if (!gm_vmm_has_views(ptr, size))
        return gm_real.cuMemSetAccess(ptr, size, desc, count);
    if (desc == NULL || count == 0 || !gm_vmm_is_whole(ptr, size, true))
        return CUDA_ERROR_INVALID_VALUE;
    struct gm_vmm_view view;
    for (CUdeviceptr at = ptr; at < ptr + size && gm_vmm_next(at, ptr + size - at, &view);
         at = view.va + view.bytes) {
        for (size_t i = 0; gm_vmm_view_is_virtual(&view) && i < count; i++) {
            CUresult result = gm_check_access(&desc[i], view.handle->device);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    struct gm_view_call call = {.va = ptr, .bytes = size, .desc = desc, .n_desc = count};
    return gm_work_run(gm_views_on_access, &call);
}

/* The device of a location; -1: a NUMA node of the host. For the host the driver answers as for the
 * device with that id (tests/simcuda/facts.txt). */
static CUresult gm_accessor(const CUmemLocation *location, CUdevice *device)
{
    int n_devices = 0;
    *device = -1;
    if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_SUCCESS;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE &&
        location->type != CU_MEM_LOCATION_TYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->id < 0 || gm_real.cuDeviceGetCount(&n_devices) != CUDA_SUCCESS ||
        location->id >= n_devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = location->id;
    return CUDA_SUCCESS;
}

/* Memory that the program did not map itself is open to its device and to peers. */
CUresult gm_on_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                              CUdeviceptr ptr)
{
    struct gm_place place;
    CUdevice device;
    if (!gm_is_live() || flags == NULL || location == NULL)
        return gm_real.cuMemGetAccess(flags, location, ptr);
    GM_REFUSE(gm_permits());
    if (!gm_place_find(ptr, &place))
        return gm_is_own_memory(ptr) ? CUDA_ERROR_INVALID_VALUE
                                     : gm_real.cuMemGetAccess(flags, location, ptr);
    CUresult result = gm_accessor(location, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (place.is_mapped)
        return gm_vmm_get_access(ptr, device, flags) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    bool is_open = device == place.alloc.device ||
                   (place.alloc.gpu >= 0 && gm_peers_has((uint32_t)place.alloc.gpu, device));
    *flags = is_open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/*
 * Virtual memory management: reservations, handles, mappings.
 *
 * A handle's memory is a memfd named simcuda-<hash of SIMCUDA_DIR>-<d device | h node>-<frame id>,
 * which is how an import knows what it is. Each handle keeps a PROT_NONE mapping of it; cuMemMap
 * duplicates that with mremap, so an import needs no fd, as on a real driver. A handle made here
 * and exportable keeps the fd.
 *
 * A handle dies when its last reference (create, import, retain) is released and its last mapping
 * is gone; only then is its memory given back. Until then its value can be used for anything but a
 * release. The va lock guards handles, reservations and ranges.
 */
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLE_TAG 0x5300000000000000ull
#define ADDRESS_LIMIT (1ull << 47)

struct sim_handle {
    CUmemGenericAllocationHandle value;
    uint32_t refs, maps;
    uint64_t size;
    CUmemAllocationProp prop;
    int fd;     /* to export; -1: cannot be */
    void *keep; /* PROT_NONE mapping of the memory */
    uint64_t frame;
};

struct reservation {
    uint64_t start, size;
};

static struct sim_handle **handles; /* by the index in a value; NULL: free */
static size_t n_handles;
static uint64_t handle_serial;
static struct reservation *reservations; /* sorted */
static size_t n_reservations, reservation_room;

unsigned sim_handle_types(const struct sim_handle *handle)
{
    return (unsigned)handle->prop.requestedHandleTypes;
}

uint64_t sim_handle_id(const struct sim_handle *handle)
{
    return handle->frame;
}

/* The device that a handle's memory is on, or -1: host. */
static int device_of(const CUmemAllocationProp *prop)
{
    return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : -1;
}

/* ---- reservations ---- */

static size_t reservation_index(uint64_t address)
{
    size_t low = 0, high = n_reservations;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (reservations[middle].start + reservations[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_reserved(uint64_t start, uint64_t size)
{
    const size_t i = reservation_index(start);
    return i < n_reservations && reservations[i].start <= start &&
           start + size <= reservations[i].start + reservations[i].size;
}

void sim_reservation(uint64_t address, uint64_t *start, uint64_t *size)
{
    pthread_mutex_lock(&sim_va_lock);
    if (is_reserved(address, 1)) {
        const struct reservation *r = &reservations[reservation_index(address)];
        *start = r->start;
        *size = r->size;
    }
    pthread_mutex_unlock(&sim_va_lock);
}

static void add_reservation(uint64_t start, uint64_t size)
{
    const size_t i = reservation_index(start);
    if (n_reservations == reservation_room) {
        reservation_room = reservation_room == 0 ? 64 : reservation_room * 2;
        reservations = sim_grow(reservations, reservation_room * sizeof *reservations);
    }
    memmove(&reservations[i + 1], &reservations[i], (n_reservations - i) * sizeof *reservations);
    reservations[i] = (struct reservation){start, size};
    n_reservations++;
}

/* An aligned PROT_NONE area, at `hint` if that is free. */
static void *reserve_area(uint64_t size, uint64_t alignment, uint64_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint != 0 && hint % alignment == 0) {
        void *p =
            mmap((void *)(uintptr_t)hint, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == (void *)(uintptr_t)hint)
            return p;
        if (p != MAP_FAILED)
            munmap(p, size);
    }
    char *p = mmap(NULL, size + alignment, PROT_NONE, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    const uint64_t before = (alignment - (uint64_t)(uintptr_t)p % alignment) % alignment;
    if (before > 0)
        munmap(p, before);
    if (alignment > before)
        munmap(p + before + size, alignment - before);
    return p + before;
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags)
{
    SIM_ENTER(cuMemAddressReserve);
    if (ptr == NULL || size == 0 || size % SIM_GRANULARITY != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size >= ADDRESS_LIMIT || alignment >= ADDRESS_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t step = alignment > SIM_GRANULARITY ? alignment : SIM_GRANULARITY;
    void *p = reserve_area(size, step, addr);
    if (p == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim_va_lock);
    add_reservation((uint64_t)(uintptr_t)p, size);
    pthread_mutex_unlock(&sim_va_lock);
    *ptr = (uint64_t)(uintptr_t)p;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemAddressReserve);

SIM_API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(cuMemAddressFree);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const size_t i = reservation_index(ptr);
    const struct sim_range *mapped = sim_range_at(sim_range_index(ptr));
    if (i < n_reservations && reservations[i].start == ptr && reservations[i].size == size &&
        (mapped == NULL || mapped->start >= ptr + size)) {
        n_reservations--;
        memmove(&reservations[i], &reservations[i + 1],
                (n_reservations - i) * sizeof *reservations);
        munmap((void *)(uintptr_t)ptr, size);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemAddressFree);

/* ---- handles ---- */

static struct sim_handle *find_handle(CUmemGenericAllocationHandle value)
{
    const size_t i = value & 0xffffffull;
    return i < n_handles && handles[i] != NULL && handles[i]->value == value ? handles[i] : NULL;
}

static void add_handle(struct sim_handle *h)
{
    size_t i = 0;
    while (i < n_handles && handles[i] != NULL)
        i++;
    if (i == n_handles) {
        const size_t n = n_handles == 0 ? 64 : n_handles * 2;
        handles = sim_grow(handles, n * sizeof *handles);
        memset(handles + n_handles, 0, (n - n_handles) * sizeof *handles);
        n_handles = n;
    }
    h->value = HANDLE_TAG | (++handle_serial & 0xffffffull) << 24 | i;
    handles[i] = h;
}

/* Under the va lock: the handle ends if nothing refers to it and nothing maps it. */
static void end_if_unused(struct sim_handle *h)
{
    if (h->refs > 0 || h->maps > 0)
        return;
    handles[h->value & 0xffffffull] = NULL;
    bool is_shared = false; /* another handle of this process has the same frame */
    for (size_t i = 0; i < n_handles && !is_shared; i++)
        is_shared = handles[i] != NULL && handles[i]->frame == h->frame &&
                    device_of(&handles[i]->prop) == device_of(&h->prop);
    munmap(h->keep, h->size);
    if (h->fd >= 0)
        close(h->fd);
    if (!is_shared && device_of(&h->prop) >= 0)
        sim_frame_drop(device_of(&h->prop), h->frame);
    free(h);
}

static bool is_node(int node)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    return node == 0 || (node > 0 && access(path, F_OK) == 0);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->win32HandleMetaData != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned types = (unsigned)prop->requestedHandleTypes;
    const bool is_on_node = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if ((types & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ||
        sim_options.has_no_vmm || (types != 0 && sim_options.has_no_fds) ||
        (is_on_node && sim_options.has_no_host_numa))
        return CUDA_ERROR_NOT_SUPPORTED;
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_check(prop->location.id);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return is_node(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
        return types == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The memory of a new handle: its memfd, and the mapping that keeps it. */
static CUresult make_memory(struct sim_handle *h)
{
    char name[64];
    const int device = device_of(&h->prop);
    snprintf(name, sizeof name, "simcuda-%016llx-%c%d-%llx",
             (unsigned long long)sim_options.dir_hash, device >= 0 ? 'd' : 'h',
             device >= 0 ? sim_options.number[device] : h->prop.location.id,
             (unsigned long long)h->frame);
    h->fd = memfd_create(name, MFD_CLOEXEC);
    if (h->fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    h->keep = MAP_FAILED;
    if (ftruncate(h->fd, (off_t)h->size) == 0)
        h->keep = mmap(NULL, h->size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, h->fd, 0);
    if (h->keep == MAP_FAILED) {
        close(h->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (h->prop.requestedHandleTypes == 0) {
        close(h->fd);
        h->fd = -1;
    }
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(cuMemCreate);
    if (handle == NULL || size == 0 || size % SIM_GRANULARITY != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_handle *h = sim_alloc(sizeof *h);
    h->size = size;
    h->prop = *prop;
    h->refs = 1;
    const int device = device_of(prop);
    if (device >= 0)
        result = sim_frame_add(device, size, &h->frame);
    else
        h->frame = sim_frame_number();
    if (result != CUDA_SUCCESS)
        goto free_handle;
    result = make_memory(h);
    if (result != CUDA_SUCCESS)
        goto drop_frame;
    pthread_mutex_lock(&sim_va_lock);
    add_handle(h);
    *handle = h->value;
    pthread_mutex_unlock(&sim_va_lock);
    return CUDA_SUCCESS;
drop_frame:
    if (device >= 0)
        sim_frame_drop(device, h->frame);
free_handle:
    free(h);
    return result;
}
SIM_ENTRY(cuMemCreate);

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemRelease);
    pthread_mutex_lock(&sim_va_lock);
    struct sim_handle *h = find_handle(handle);
    const bool has_reference = h != NULL && h->refs > 0;
    if (has_reference) {
        h->refs--;
        end_if_unused(h);
    }
    pthread_mutex_unlock(&sim_va_lock);
    return has_reference ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemRelease);

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    SIM_ENTER(cuMemRetainAllocationHandle);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *range = sim_range_find((uint64_t)(uintptr_t)addr);
    if (range != NULL && range->kind == SIM_RANGE_MAPPED) {
        range->handle->refs++;
        *handle = range->handle->value;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemRetainAllocationHandle);

SIM_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(cuMemGetAllocationGranularity);
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_prop(prop);
    if (result == CUDA_SUCCESS)
        *granularity = SIM_GRANULARITY;
    return result;
}
SIM_ENTRY(cuMemGetAllocationGranularity);

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_handle *h = find_handle(handle);
    if (h != NULL && prop != NULL)
        *prop = h->prop;
    pthread_mutex_unlock(&sim_va_lock);
    return h != NULL && prop != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuMemGetAllocationPropertiesFromHandle);

/* ---- sharing ---- */

SIM_API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    SIM_ENTER(cuMemExportToShareableHandle);
    if (shareable == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_handle *h = find_handle(handle);
    if (h != NULL && h->fd >= 0) {
        const int fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
        result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
        if (fd >= 0) {
            *(int *)shareable = fd;
            if (device_of(&h->prop) >= 0)
                sim_frame_exported(device_of(&h->prop), h->frame);
        }
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemExportToShareableHandle);

/* What an fd is, by the name of its memfd. */
/* The device of that number, as this process counts; -1: it does not see it. */
static int ordinal_of(int number)
{
    int device = sim_options.devices - 1;
    while (device >= 0 && sim_options.number[device] != number)
        device--;
    return device;
}

static bool read_name(int fd, struct sim_handle *h)
{
    char path[64], name[128];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, name, sizeof name - 1);
    if (length <= 0)
        return false;
    name[length] = '\0';
    unsigned long long hash, frame;
    char kind;
    int id;
    struct stat status;
    if (sscanf(name, "/memfd:simcuda-%16llx-%c%d-%llx", &hash, &kind, &id, &frame) != 4 ||
        hash != sim_options.dir_hash || (kind != 'd' && kind != 'h') ||
        (kind == 'd' && (id = ordinal_of(id)) < 0) || fstat(fd, &status) != 0)
        return false;
    h->size = (uint64_t)status.st_size;
    h->frame = frame;
    h->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    h->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; /* it cannot be exported again */
    h->prop.location.type =
        kind == 'd' ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
    h->prop.location.id = id;
    return true;
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                void *shareable, CUmemAllocationHandleType type)
{
    SIM_ENTER(cuMemImportFromShareableHandle);
    if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = (int)(intptr_t)shareable;
    struct sim_handle *h = sim_alloc(sizeof *h);
    h->refs = 1;
    h->fd = -1;
    if (!read_name(fd, h)) {
        free(h);
        return CUDA_ERROR_UNKNOWN;
    }
    h->keep = mmap(NULL, h->size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (h->keep == MAP_FAILED) {
        free(h);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    pthread_mutex_lock(&sim_va_lock);
    if (device_of(&h->prop) >= 0)
        sim_frame_hold(device_of(&h->prop), h->frame, h->size);
    add_handle(h);
    *handle = h->value;
    pthread_mutex_unlock(&sim_va_lock);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemImportFromShareableHandle);

/* ---- mappings ---- */

SIM_API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    SIM_ENTER(cuMemMap);
    if (ptr % SIM_GRANULARITY != 0 || size % SIM_GRANULARITY != 0 || size == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_handle *h = find_handle(handle);
    if (h != NULL && (h->size != size || offset != 0)) {
        result = CUDA_ERROR_NOT_SUPPORTED; /* a mapping covers its whole handle */
    } else if (h != NULL && is_reserved(ptr, size)) {
        const struct sim_range range = {.start = ptr,
                                        .size = size,
                                        .kind = SIM_RANGE_MAPPED,
                                        .device = device_of(&h->prop),
                                        .id = sim_range_number(),
                                        .handle = h};
        void *at = (void *)(uintptr_t)ptr;
        if (sim_range_insert(&range)) {
            if (mremap(h->keep, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) {
                h->maps++;
                result = CUDA_SUCCESS;
            } else {
                sim_range_remove(sim_range_index(ptr), 1);
                result = CUDA_ERROR_MAP_FAILED;
            }
        }
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemMap);

/*
 * The mappings in [start, start + size): index of the first and how many. `is_whole`: they fill it,
 * and nothing is cut. False if one sticks out of it, or there is anything else. Under the va lock.
 */
static bool find_mappings(uint64_t start, uint64_t size, size_t *first, size_t *n, bool *is_whole)
{
    *first = sim_range_index(start);
    *n = 0;
    uint64_t at = start;
    *is_whole = size > 0;
    for (;; ++*n) {
        const struct sim_range *r = sim_range_at(*first + *n);
        if (r == NULL || r->start >= start + size)
            break;
        if (r->kind != SIM_RANGE_MAPPED || r->start < start || r->start + r->size > start + size)
            return false;
        *is_whole = *is_whole && r->start == at;
        at = r->start + r->size;
    }
    *is_whole = *is_whole && at == start + size;
    return true;
}

/* What is mapped there is unmapped; holes do not matter. */
SIM_API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(cuMemUnmap);
    if (ptr % SIM_GRANULARITY != 0 || size % SIM_GRANULARITY != 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    size_t first, n;
    bool is_whole;
    if (is_reserved(ptr, size) && find_mappings(ptr, size, &first, &n, &is_whole)) {
        const void *p = mmap((void *)(uintptr_t)ptr, size, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        result = p != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_UNMAP_FAILED;
    }
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < n; i++) {
            struct sim_handle *h = sim_range_at(first + i)->handle;
            h->maps--;
            end_if_unused(h);
        }
        sim_range_remove(first, n);
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemUnmap);

/* Index into sim_range.access that a location means, or -1. */
static int access_index(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_check(location->id) == CUDA_SUCCESS ? location->id : -1;
    case CU_MEM_LOCATION_TYPE_HOST:
        return SIM_DEVICES_MAX;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return is_node(location->id) ? SIM_DEVICES_MAX : -1;
    default:
        return -1;
    }
}

/* Memory of a device is not for the CPU; every device may reach all other memory. */
static CUresult check_access(const struct sim_range *r, const CUmemAccessDesc *desc)
{
    const int index = access_index(&desc->location);
    if (index < 0 || (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                      desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                      desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return CUDA_ERROR_INVALID_VALUE;
    return index == SIM_DEVICES_MAX && r->device >= 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* Give a range the protection of the access that it has. */
static bool protect(const struct sim_range *r)
{
    unsigned access = 0;
    for (int i = 0; i <= SIM_DEVICES_MAX; i++)
        access |= r->access[i];
    const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
                           : access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                                     : PROT_READ | PROT_WRITE;
    return mprotect((void *)(uintptr_t)r->start, r->size, protection) == 0;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                size_t count)
{
    SIM_ENTER(cuMemSetAccess);
    if (desc == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    size_t first, n;
    bool is_whole;
    CUresult result = find_mappings(ptr, size, &first, &n, &is_whole) && is_whole
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        for (size_t k = 0; k < count && result == CUDA_SUCCESS; k++)
            result = check_access(sim_range_at(first + i), &desc[k]);
    }
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        struct sim_range *r = sim_range_at(first + i);
        for (size_t k = 0; k < count; k++)
            r->access[access_index(&desc[k].location)] = (uint8_t)desc[k].flags;
        if (!protect(r))
            result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemSetAccess);

/*
 * Of memory of a device the answer for the host is that for the device with the location's id.
 * Memory that was not mapped is its own device's.
 */
SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                CUdeviceptr ptr)
{
    SIM_ENTER(cuMemGetAccess);
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const int plain = access_index(location);
    if (plain < 0)
        return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                             : CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *r = sim_range_find(ptr);
    const bool is_alias =
        location->type == CU_MEM_LOCATION_TYPE_HOST && r != NULL && r->device >= 0;
    const int index = is_alias ? location->id : plain;
    if (is_alias && sim_device_check(location->id) != CUDA_SUCCESS) {
        result = CUDA_ERROR_INVALID_DEVICE;
    } else if (r != NULL && r->kind == SIM_RANGE_MAPPED) {
        *flags = r->access[index];
        result = CUDA_SUCCESS;
    } else if (r != NULL && r->kind == SIM_RANGE_LINEAR) {
        *flags =
            index == r->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuMemGetAccess);

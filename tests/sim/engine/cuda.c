/*
 * The fake driver: physical memory as handles of pages with tags (machine.h), and the daemon's
 * addresses. What nobody here calls is left out of the table, and a call of it ends the program.
 *
 * Rules of the driver that are checked: nothing is mapped over a mapping, and nothing is unmapped,
 * or released for good, while a copy uses it. Memory that is made reads as zero.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FDS = FIRST_FD };

static struct handle handles[HANDLES];
static uint32_t n_handles; /* above the highest that is used */

/* The daemon's addresses: one place for each page. */
#define BASE 0x100000000000ull
enum { PLACES = 1 << 15 };
static struct page *places[PLACES];
static struct handle *owners[PLACES];
static uint32_t next_place;
static uint32_t free_ranges[32][4096], n_free_ranges[32]; /* by pages */

/* Registered memory lies at real addresses, by slabs. */
enum { SLABS = 64 };
static struct {
    uintptr_t at;
    struct handle *handle;
} slabs[SLABS];

/* One context a GPU, and the one that is current. */
static char contexts[GPUS];
static uint32_t current = GPUS;

uint32_t gpu_of(CUcontext context)
{
    const char *at = (const char *)context;
    require(at >= contexts && at < contexts + GPUS, "no context");
    return (uint32_t)(at - contexts);
}

/* ---- pages ---- */

void page_begin_read(struct page *page, const char *who)
{
    machine.moved_at = machine.now;
    require(page->writers == 0, "%s reads memory that is being written", who);
    page->readers++;
}

void page_begin_write(struct page *page, const char *who)
{
    require(page->writers == 0, "%s writes memory that is being written", who);
    require(page->readers == 0, "%s writes memory that is being read", who);
    page->writers++;
    page->tag = GARBAGE;
}

void page_end_read(struct page *page)
{
    machine.moved_at = machine.now;
    page->readers--;
}

static uint64_t garbage(void)
{
    return GARBAGE | ++machine.next_tag;
}

void page_end_copy(struct page *to, struct page *from)
{
    machine.moved_at = machine.now;
    to->tag = from->tag;
    to->writers--;
    from->readers--;
}

void page_end_broken(struct page *to, struct page *from)
{
    machine.moved_at = machine.now;
    to->tag = chance_percent(50) ? from->tag : garbage();
    to->writers--;
    from->readers--;
}

void page_end_clear(struct page *to, bool is_broken)
{
    machine.moved_at = machine.now;
    to->tag = is_broken && chance_percent(50) ? garbage() : 0;
    to->writers--;
}

/* ---- handles ---- */

int handle_of_fd(int fd)
{
    require(fd > FDS && fd < FDS + HANDLES, "%d is the fd of no memory", fd);
    return fd - FDS;
}

struct handle *handle_at(int handle)
{
    require(handle > 0 && handle < HANDLES && handles[handle].is_used, "no memory %d", handle);
    return &handles[handle];
}

const struct handle *handle_of_page(const struct page *page)
{
    const uintptr_t at = (uintptr_t)page - (uintptr_t)handles;
    return at < sizeof handles ? &handles[at / sizeof *handles] : NULL;
}

bool handle_is_mapped_in_pool(const bool is_frame[HANDLES])
{
    for (uint32_t i = 1; i < n_handles; i++)
        if (handles[i].is_held && handles[i].is_host && handles[i].maps > 0 && !is_frame[i])
            return true;
    return false;
}

static void end_handle(struct handle *handle)
{
    if (handle->is_held || handle->refs > 0 || handle->kept > 0)
        return;
    for (uint32_t i = 0; i < handle->pages; i++)
        require(handle->page[i].readers + handle->page[i].writers == 0,
                "memory is released under a copy");
    require(handle->maps == 0, "memory is gone that a program has mapped");
    memset(handle, 0, sizeof *handle);
}

void handle_ref(int handle)
{
    handle_at(handle)->refs++;
    handle_at(handle)->was_sent = true;
}

void handle_unref(int handle)
{
    struct handle *at = handle_at(handle);
    require(at->refs > 0, "memory %d has no import", handle);
    at->refs--;
    end_handle(at);
}

void handle_keep(int handle, bool is_kept)
{
    struct handle *at = handle_at(handle);
    at->kept += is_kept ? 1 : -1u;
    end_handle(at);
}

uint64_t device_used(uint32_t gpu)
{
    uint64_t pages = 0;
    for (uint32_t i = 1; i < n_handles; i++)
        if (handles[i].is_used && !handles[i].is_host && handles[i].gpu == gpu)
            pages += handles[i].pages;
    return pages << GM_CHUNK_SHIFT;
}

/* A process that ends keeps what it has imported for a moment longer. */
uint64_t host_used(void)
{
    uint64_t pages = 0;
    for (uint32_t i = 1; i < n_handles; i++)
        if (handles[i].is_held && handles[i].is_host)
            pages += handles[i].pages;
    return pages << GM_CHUNK_SHIFT;
}

static struct handle *new_handle(uint64_t bytes, bool is_host, uint32_t gpu)
{
    for (uint32_t i = 1; i < HANDLES; i++) {
        if (handles[i].is_used)
            continue;
        handles[i] = (struct handle){.is_used = true,
                                     .is_held = true,
                                     .is_host = is_host,
                                     .gpu = gpu,
                                     .pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT)};
        n_handles = i + 1 > n_handles ? i + 1 : n_handles;
        return &handles[i];
    }
    fail("too many handles");
}

static CUresult mem_create(CUmemGenericAllocationHandle *out, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    const bool is_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    (void)flags;
    require(bytes > 0 && bytes <= GM_CHUNK_MAX && bytes % GM_CHUNK_MIN == 0, "odd memory");
    const uint32_t gpu = is_host ? current : (uint32_t)prop->location.id;
    require(machine.has_host_handles || !is_host, "the device has no handles of host memory");
    require(gpu < machine.n_gpus, "memory is made without a context, or on no GPU");
    if (is_host ? machine_fails(FAULT_PIN) : gpu_fails(gpu, FAULT_CREATE))
        return chance_percent(80) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    if (!is_host && device_used(gpu) + machine.gpus[gpu].beside + bytes > machine.gpus[gpu].bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct handle *handle = new_handle(bytes, is_host, gpu);
    *out = (CUmemGenericAllocationHandle)(handle - handles);
    if (is_host)
        require(host_used() <= machine.config.pinned, "more is pinned than --pinned");
    return CUDA_SUCCESS;
}

static CUresult mem_release(CUmemGenericAllocationHandle at)
{
    struct handle *handle = handle_at((int)at);
    require(handle->is_held, "memory is released twice");
    if (handle->is_host && handle->was_mapped && !handle->was_sent &&
        machine_fails(FAULT_RELEASE)) /* a slab of the pinned tier */
        return CUDA_ERROR_UNKNOWN;
    handle->is_held = false;
    end_handle(handle);
    return CUDA_SUCCESS;
}

static CUresult export_handle(void *fd, CUmemGenericAllocationHandle at,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type;
    (void)flags;
    if (gpu_fails(handle_at((int)at)->gpu, FAULT_CREATE))
        return CUDA_ERROR_OPERATING_SYSTEM;
    handle_at((int)at)->is_exported = true;
    *(int *)fd = FDS + (int)at;
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *out, void *fd,
                              CUmemAllocationHandleType type)
{
    struct handle *handle = handle_at(handle_of_fd((int)(intptr_t)fd));
    (void)type;
    require(handle->is_exported && !handle->is_held, "memory is imported that the daemon has");
    if (gpu_fails(handle->gpu, FAULT_CREATE))
        return CUDA_ERROR_UNKNOWN;
    handle->is_held = true;
    *out = (CUmemGenericAllocationHandle)(handle - handles);
    return CUDA_SUCCESS;
}

/* ---- addresses ---- */

static uint32_t place_of(CUdeviceptr va)
{
    const uint64_t place = (va - BASE) >> GM_CHUNK_SHIFT;
    require(va >= BASE && place < next_place && va % GM_CHUNK_MIN == 0,
            "no address of the daemon's");
    return (uint32_t)place;
}

static struct page *find_page(CUdeviceptr va, const struct handle **owner)
{
    if (va < BASE || va >= BASE + ((uint64_t)PLACES << GM_CHUNK_SHIFT)) {
        for (unsigned i = 0; i < SLABS; i++) {
            *owner = slabs[i].handle;
            if (*owner && va >= slabs[i].at && va < slabs[i].at + GM_CHUNK_MAX)
                return &slabs[i].handle->page[(va - slabs[i].at) >> GM_CHUNK_SHIFT];
        }
        fail("a copy at an address where nothing is");
    }
    struct page *page = places[place_of(va)];
    require(page, "a copy at an address where nothing is mapped");
    *owner = owners[place_of(va)];
    return page;
}

struct page *page_at(CUdeviceptr va)
{
    const struct handle *owner;
    return find_page(va, &owner);
}

struct page *page_of_frame(const struct gm_frame_handle *frame, uint32_t i)
{
    return frame->va != 0 ? page_at(frame->va + i * GM_CHUNK_MIN)
                          : &handle_at((int)frame->handle)->page[i];
}

struct page *page_of(CUdeviceptr va, uint32_t gpu)
{
    const struct handle *owner;
    struct page *page = find_page(va, &owner);
    require(owner->gpu == gpu, "GPU %u copies or hashes memory of GPU %u", gpu, owner->gpu);
    return page;
}

static CUresult reserve(CUdeviceptr *va, size_t bytes, size_t alignment, CUdeviceptr at,
                        unsigned long long flags)
{
    const uint32_t pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
    (void)at;
    (void)flags;
    const bool is_for_frame = alignment == 0; /* else for the whole pinned tier */
    if (is_for_frame ? gpu_fails(current, FAULT_CREATE) : machine_fails(FAULT_PIN))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pages < 32 && n_free_ranges[pages] > 0) {
        *va = BASE + ((uint64_t)free_ranges[pages][--n_free_ranges[pages]] << GM_CHUNK_SHIFT);
        return CUDA_SUCCESS;
    }
    require(next_place + pages <= PLACES, "no addresses left");
    *va = BASE + ((uint64_t)next_place << GM_CHUNK_SHIFT);
    next_place += pages;
    return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr va, size_t bytes)
{
    const uint32_t pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT), place = place_of(va);
    for (uint32_t i = 0; i < pages; i++)
        require(!places[place + i], "addresses are given back that are mapped");
    if (pages < 32)
        free_ranges[pages][n_free_ranges[pages]++] = place;
    return CUDA_SUCCESS;
}

static bool handle_fails(const struct handle *handle)
{
    return handle->is_host ? machine_fails(FAULT_PIN) : gpu_fails(handle->gpu, FAULT_CREATE);
}

static CUresult map(CUdeviceptr va, size_t bytes, size_t offset, CUmemGenericAllocationHandle at,
                    unsigned long long flags)
{
    struct handle *handle = handle_at((int)at);
    const uint32_t place = place_of(va), pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
    (void)flags;
    require(offset == 0 && pages == handle->pages, "a part of memory is mapped");
    if (handle_fails(handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->was_mapped = true;
    for (uint32_t i = 0; i < pages; i++) {
        require(!places[place + i], "the daemon maps over a mapping");
        places[place + i] = &handle->page[i];
        owners[place + i] = handle;
    }
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr va, size_t bytes)
{
    const uint32_t place = place_of(va), pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
    for (uint32_t i = 0; i < pages; i++)
        require(places[place + i] && places[place + i]->readers + places[place + i]->writers == 0,
                "memory is unmapped under a copy, or is not mapped");
    if (owners[place]->is_host && !owners[place]->was_sent && machine_fails(FAULT_RELEASE))
        return CUDA_ERROR_UNKNOWN;
    for (uint32_t i = 0; i < pages; i++)
        places[place + i] = NULL;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
    (void)n;
    require(places[place_of(va)] && bytes > 0, "access to what is not mapped");
    const struct handle *owner = owners[place_of(va)];
    require(access[0].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                (uint32_t)access[0].location.id == owner->gpu,
            "memory of GPU %u is mapped for GPU %d", owner->gpu, access[0].location.id);
    return handle_fails(owner) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static uintptr_t words[GPUS];

static CUresult host_register(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    require(current < machine.n_gpus, "memory is registered without a context");
    if (bytes < GM_SLAB_BYTES) {
        words[current] = (uintptr_t)at; /* in which the GPU counts: mover.c knows it */
        return CUDA_SUCCESS;
    }
    if (machine_fails(FAULT_PIN))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < SLABS; i++) {
        if (slabs[i].handle)
            continue;
        slabs[i].at = (uintptr_t)at;
        slabs[i].handle = new_handle(bytes, true, current);
        require(host_used() <= machine.config.pinned, "more is pinned than --pinned");
        return CUDA_SUCCESS;
    }
    fail("too many slabs");
}

static CUresult host_address(CUdeviceptr *address, void *at, unsigned flags)
{
    (void)flags;
    *address = (uintptr_t)at;
    return CUDA_SUCCESS;
}

static CUresult host_unregister(void *at)
{
    require(current < machine.n_gpus, "memory is released without a context");
    if ((uintptr_t)at == words[current])
        return CUDA_SUCCESS;
    if (machine_fails(FAULT_RELEASE))
        return CUDA_ERROR_UNKNOWN;
    for (unsigned i = 0; i < SLABS; i++) {
        if (!slabs[i].handle || slabs[i].at != (uintptr_t)at)
            continue;
        slabs[i].handle->is_held = false;
        end_handle(slabs[i].handle);
        slabs[i].handle = NULL;
        return CUDA_SUCCESS;
    }
    fail("memory is not registered");
}

/* ---- the device ---- */

static CUresult init(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult error, const char **text)
{
    static char name[32];
    snprintf(name, sizeof name, "error %d", (int)error);
    *text = name;
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int number)
{
    *device = number;
    return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
    *count = (int)machine.n_gpus;
    return CUDA_SUCCESS;
}

static CUresult device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "simulated");
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

static CUresult device_total(size_t *bytes, CUdevice device)
{
    *bytes = machine.gpus[device].bytes;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = machine.has_host_handles;
        break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = 0;
        break;
    default:
        *value = 1;
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&contexts[device];
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    current = gpu_of(context);
    return CUDA_SUCCESS;
}

void cuda_leave(void)
{
    current = GPUS;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
    require(current < machine.n_gpus, "the engine asks for the memory of no GPU");
    const struct gpu *gpu = &machine.gpus[current];
    const uint64_t used = device_used(current) + gpu->beside;
    *total = gpu->bytes;
    *free_bytes = used < gpu->bytes ? gpu->bytes - used : 0;
    return CUDA_SUCCESS;
}

int gm_cuda_open(struct gm_cuda *cuda, char *why, size_t why_size)
{
    (void)why;
    (void)why_size;
    *cuda = (struct gm_cuda){.cuInit = init,
                             .cuGetErrorName = error_name,
                             .cuDeviceGet = device_get,
                             .cuDeviceGetCount = device_count,
                             .cuDeviceGetName = device_name,
                             .cuDeviceGetUuid_v2 = device_uuid,
                             .cuDeviceTotalMem_v2 = device_total,
                             .cuDeviceGetAttribute = device_attribute,
                             .cuDevicePrimaryCtxRetain = retain,
                             .cuDevicePrimaryCtxRelease_v2 = release,
                             .cuCtxSetCurrent = set_current,
                             .cuMemGetInfo_v2 = memory_info,
                             .cuMemAddressReserve = reserve,
                             .cuMemAddressFree = unreserve,
                             .cuMemCreate = mem_create,
                             .cuMemRelease = mem_release,
                             .cuMemMap = map,
                             .cuMemUnmap = unmap,
                             .cuMemSetAccess = set_access,
                             .cuMemExportToShareableHandle = export_handle,
                             .cuMemImportFromShareableHandle = import_handle,
                             .cuMemHostRegister_v2 = host_register,
                             .cuMemHostGetDevicePointer_v2 = host_address,
                             .cuMemHostUnregister = host_unregister};
    return 0;
}

void gm_cuda_close(struct gm_cuda *cuda)
{
    (void)cuda;
}

CUresult gm_cuda_enter(const struct gm_cuda *cuda, CUcontext context)
{
    return cuda->cuCtxSetCurrent(context);
}

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    const char *text;
    (void)cuda;
    error_name(result, &text);
    return text;
}

uint32_t pinned_pages(const struct gm_hostpool *pool, uint32_t page, struct page **pages,
                      uint32_t most)
{
    uint32_t n = 0;
    while (page != GM_NONE && n < most) {
        CUdeviceptr at;
        uint64_t bytes;
        gm_hostpool_piece(pool, &page, &at, &bytes);
        for (; bytes > 0 && n < most; bytes -= GM_CHUNK_MIN, at += GM_CHUNK_MIN)
            pages[n++] = page_at(at);
    }
    return n;
}

/* What nobody else has goes with it. */
void cuda_die(void)
{
    memset(places, 0, next_place * sizeof *places);
    memset(n_free_ranges, 0, sizeof n_free_ranges);
    next_place = 0;
    cuda_leave();
    for (uint32_t i = 1; i < n_handles; i++) {
        if (!handles[i].is_used || !handles[i].is_held)
            continue;
        handles[i].is_held = handles[i].was_mapped = false;
        end_handle(&handles[i]);
    }
}

void cuda_begin(void)
{
    memset(handles, 0, n_handles * sizeof *handles);
    memset(places, 0, next_place * sizeof *places);
    memset(n_free_ranges, 0, sizeof n_free_ranges);
    memset(slabs, 0, sizeof slabs);
    n_handles = next_place = 0;
    cuda_leave();
}

void cuda_end(void)
{
    for (uint32_t i = 1; i < n_handles; i++)
        require(!handles[i].is_used,
                "memory %u (%u pages on the %s) is not given back: held %d, %u imports", i,
                handles[i].pages, handles[i].is_host ? "host" : "GPU", handles[i].is_held,
                handles[i].refs);
}

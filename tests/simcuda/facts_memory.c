/* Facts of memory: virtual memory management, linear and host memory, what pointers say. */
#include "tests/simcuda/facts.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- virtual memory management ---- */

static void ask_create(const char *question, size_t size, CUmemAllocationProp prop,
                       unsigned long long flags)
{
    CUmemGenericAllocationHandle handle;
    const CUresult result = cuMemCreate(&handle, size, &prop, flags);
    fact(question, result);
    if (result == CUDA_SUCCESS)
        NEED(cuMemRelease(handle));
}

void facts_of_create(void)
{
    const CUmemLocationType on_device = CU_MEM_LOCATION_TYPE_DEVICE;
    const CUmemLocationType on_node = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CUmemAllocationProp none = fact_prop(on_device, device, 0);
    none.type = 0;
    ask_create("create on the device", 2 * MIB, fact_prop(on_device, device, 0), 0);
    ask_create("create on the device with fd", 2 * MIB, fact_prop(on_device, device, 1), 0);
    ask_create("create on host NUMA 0 with fd", 2 * MIB, fact_prop(on_node, 0, 1), 0);
    ask_create("create on host NUMA 99", 2 * MIB, fact_prop(on_node, 99, 1), 0);
    ask_create("create on host with fd", 2 * MIB, fact_prop(CU_MEM_LOCATION_TYPE_HOST, 0, 1), 0);
    ask_create("create on host without fd", 2 * MIB, fact_prop(CU_MEM_LOCATION_TYPE_HOST, 0, 0), 0);
    ask_create("create on device 99", 2 * MIB, fact_prop(on_device, 99, 0), 0);
    ask_create("create on no location", 2 * MIB, fact_prop(0, 0, 0), 0);
    ask_create("create of type 0", 2 * MIB, none, 0);
    ask_create("create 0 bytes", 0, fact_prop(on_device, device, 0), 0);
    ask_create("create 1 MiB", MIB, fact_prop(on_device, device, 0), 0);
    ask_create("create with flags", 2 * MIB, fact_prop(on_device, device, 0), 1);
    ask_create("create 1 PiB", 1ull << 50, fact_prop(on_device, device, 0), 0);
    size_t granularity = 0;
    CUmemAllocationProp prop = fact_prop(on_device, device, 1);
    NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    fact_number("granularity in MiB", (long long)(granularity / MIB));
    prop = fact_prop(on_node, 0, 1);
    NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    fact_number("granularity on host NUMA in MiB", (long long)(granularity / MIB));
}

void facts_of_reserve(void)
{
    CUdeviceptr p = 0;
    fact("reserve 0 bytes", cuMemAddressReserve(&p, 0, 0, 0, 0));
    fact("reserve 1 MiB", cuMemAddressReserve(&p, MIB, 0, 0, 0));
    fact("reserve with alignment 3", cuMemAddressReserve(&p, 2 * MIB, 3, 0, 0));
    fact("reserve with flags", cuMemAddressReserve(&p, 2 * MIB, 0, 0, 1ull << 40));
    NEED(cuMemAddressReserve(&p, 2 * MIB, 1ull << 30, 0, 0));
    fact_number("reserve aligned to 1 GiB: rest", (long long)(p & ((1ull << 30) - 1)));
    fact("free half of a reservation", cuMemAddressFree(p, MIB));
    fact("free more than a reservation", cuMemAddressFree(p, 4 * MIB));
    NEED(cuMemAddressFree(p, 2 * MIB));
    fact("free a reservation twice", cuMemAddressFree(p, 2 * MIB));
}

void facts_of_map(void)
{
    CUdeviceptr p;
    CUmemGenericAllocationHandle a, b, other;
    const CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 1);
    NEED(cuMemAddressReserve(&p, 64 * MIB, 0, 0, 0));
    NEED(cuMemCreate(&a, 4 * MIB, &prop, 0));
    NEED(cuMemCreate(&b, 2 * MIB, &prop, 0));
    fact("map where nothing is reserved", cuMemMap((CUdeviceptr)1 << 40, 4 * MIB, 0, a, 0));
    fact("map half of a handle", cuMemMap(p, 2 * MIB, 0, a, 0));
    fact("map at an offset", cuMemMap(p, 2 * MIB, 2 * MIB, a, 0));
    fact("map more than a handle", cuMemMap(p, 8 * MIB, 0, a, 0));
    fact("map at half a granule", cuMemMap(p + MIB, 4 * MIB, 0, a, 0));
    fact("map with flags", cuMemMap(p, 4 * MIB, 0, a, 1));
    fact("map handle 0", cuMemMap(p, 4 * MIB, 0, 0, 0));
    fact("map", cuMemMap(p, 4 * MIB, 0, a, 0));
    fact("map over a mapping", cuMemMap(p + 2 * MIB, 2 * MIB, 0, b, 0));
    fact("map the same handle again elsewhere", cuMemMap(p + 16 * MIB, 4 * MIB, 0, a, 0));
    NEED(cuMemMap(p + 4 * MIB, 2 * MIB, 0, b, 0));

    unsigned long long access = 99;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    fact("get access before it was set", cuMemGetAccess(&access, &here, p));
    fact_number("access before it was set", (long long)access);
    fact("get access where nothing is mapped", cuMemGetAccess(&access, &here, p + 8 * MIB));
    CUmemAccessDesc desc = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    fact("set access where nothing is mapped", cuMemSetAccess(p + 8 * MIB, 2 * MIB, &desc, 1));
    fact("set access over a hole", cuMemSetAccess(p, 8 * MIB, &desc, 1));
    fact("set access to half of a mapping", cuMemSetAccess(p, 2 * MIB, &desc, 1));
    fact("set access for nobody", cuMemSetAccess(p, 4 * MIB, &desc, 0));
    desc.flags = 7;
    fact("set access with unknown flags", cuMemSetAccess(p, 4 * MIB, &desc, 1));
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    desc.location.id = 99;
    fact("set access for device 99", cuMemSetAccess(p, 4 * MIB, &desc, 1));
    desc.location.type = CU_MEM_LOCATION_TYPE_HOST;
    desc.location.id = 0;
    fact("set access to device memory for the host", cuMemSetAccess(p, 4 * MIB, &desc, 1));
    desc.location = here;
    fact("set access over two mappings", cuMemSetAccess(p, 6 * MIB, &desc, 1));
    NEED(cuMemGetAccess(&access, &here, p + 5 * MIB));
    fact_number("access after it was set", (long long)access);
    NEED(cuMemsetD8(p, 1, 6 * MIB));
    NEED(cuCtxSynchronize());

    CUdeviceptr base = 0;
    size_t size = 0;
    fact("address range in a mapping", cuMemGetAddressRange(&base, &size, p + 5 * MIB));
    fact_number("  begins at MiB", (long long)((base - p) / MIB));
    fact_number("  has MiB", (long long)(size / MIB));
    fact("address range in a reservation", cuMemGetAddressRange(&base, &size, p + 8 * MIB));
    NEED(cuMemRetainAllocationHandle(&other, (void *)(p + 5 * MIB)));
    NEED(cuMemRelease(other));
    fact("retain where nothing is mapped",
         cuMemRetainAllocationHandle(&other, (void *)(p + 8 * MIB)));
    fact("cuMemFree of a mapping", cuMemFree(p));

    fact("unmap half of a mapping", cuMemUnmap(p, 2 * MIB));
    fact("unmap where nothing is mapped", cuMemUnmap(p + 8 * MIB, 2 * MIB));
    fact("unmap where nothing is reserved", cuMemUnmap((CUdeviceptr)1 << 40, 2 * MIB));
    fact("unmap 0 bytes", cuMemUnmap(p, 0));
    fact("unmap at half a granule", cuMemUnmap(p + MIB, 2 * MIB));
    fact("unmap over half a mapping and a hole", cuMemUnmap(p + 2 * MIB, 8 * MIB));
    fact("  is the half still mapped", cuMemGetAccess(&access, &here, p));
    fact("unmap over a hole", cuMemUnmap(p, 8 * MIB));
    fact("  is it still mapped", cuMemGetAccess(&access, &here, p));
    fact("free a reservation with mappings", cuMemAddressFree(p, 64 * MIB));
    fact("  is one still mapped", cuMemGetAccess(&access, &here, p + 16 * MIB));
    NEED(cuMemUnmap(p + 16 * MIB, 4 * MIB));
    NEED(cuMemRelease(a));
    fact("release handle 0", cuMemRelease(0));

    NEED(cuMemMap(p, 2 * MIB, 0, b, 0));
    NEED(cuMemRelease(b));
    NEED(cuMemSetAccess(p, 2 * MIB, &desc, 1));
    fact("set in a mapping whose handle was released", cuMemsetD8(p, 2, 2 * MIB));
    NEED(cuCtxSynchronize());
    fact("retain the handle of such a mapping", cuMemRetainAllocationHandle(&other, (void *)p));
    NEED(cuMemRelease(other));
    NEED(cuMemUnmap(p, 2 * MIB));
    NEED(cuMemAddressFree(p, 64 * MIB));
}

void facts_of_sharing(void)
{
    CUmemGenericAllocationHandle plain, shared, import, again;
    CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 0);
    NEED(cuMemCreate(&plain, 2 * MIB, &prop, 0));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    NEED(cuMemCreate(&shared, 2 * MIB, &prop, 0));
    const CUmemAllocationHandleType fd_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = -1, second = -1;
    fact("export without having asked", cuMemExportToShareableHandle(&fd, plain, fd_type, 0));
    fact("export of handle 0", cuMemExportToShareableHandle(&fd, 0, fd_type, 0));
    fact("export", cuMemExportToShareableHandle(&fd, shared, fd_type, 0));
    fact("export again", cuMemExportToShareableHandle(&second, shared, fd_type, 0));
    fact_number("  is another fd", fd != second);
    fact_number("  closes on exec", (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(second);
    fact("import", cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, fd_type));
    fact("import again", cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, fd_type));
    fact_number("  is another handle", import != again);
    NEED(cuMemRelease(again));
    fact_number("the fd is still open", fcntl(fd, F_GETFD) >= 0);
    close(fd);
    fact("export of an import", cuMemExportToShareableHandle(&fd, import, fd_type, 0));
    CUmemAllocationProp got;
    memset(&got, 0, sizeof got);
    fact("properties of an import", cuMemGetAllocationPropertiesFromHandle(&got, import));
    fact_number("  handle types", (long long)got.requestedHandleTypes);
    fact_number("  location type", (long long)got.location.type);
    NEED(cuMemRelease(import));
    NEED(cuMemRelease(shared));
    NEED(cuMemRelease(plain));
    fd = open("/dev/null", O_RDONLY);
    fact("import of /dev/null",
         cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, fd_type));
    close(fd);
    fact("import of fd -1", cuMemImportFromShareableHandle(&import, (void *)(intptr_t)-1, fd_type));
}

/* ---- linear and host memory, pointers ---- */

void facts_of_linear(void)
{
    CUdeviceptr p, base;
    size_t pitch = 0, size = 0;
    fact("cuMemAlloc of 0", cuMemAlloc(&p, 0));
    fact("cuMemAlloc to NULL", cuMemAlloc(NULL, 1));
    fact("cuMemAlloc of 1 PiB", cuMemAlloc(&p, 1ull << 50));
    fact("cuMemFree of NULL", cuMemFree(0));
    fact("cuMemFree of anything", cuMemFree((CUdeviceptr)1 << 40));
    NEED(cuMemAlloc(&p, 1000));
    fact("cuMemFree of an interior", cuMemFree(p + 512));
    fact("address range of the interior", cuMemGetAddressRange(&base, &size, p + 999));
    fact_number("  begins", (long long)(base - p));
    fact_number("  has", (long long)size);
    fact("address range with NULL for both", cuMemGetAddressRange(NULL, NULL, p));
    fact("address range of anything", cuMemGetAddressRange(&base, &size, (CUdeviceptr)1 << 40));
    NEED(cuMemFree(p));
    fact("cuMemFree twice", cuMemFree(p));
    fact("cuMemAllocPitch with element 3", cuMemAllocPitch(&p, &pitch, 1000, 4, 3));
    fact("cuMemAllocPitch of 0 rows", cuMemAllocPitch(&p, &pitch, 1000, 0, 4));
    NEED(cuMemAllocPitch(&p, &pitch, 1000, 4, 4));
    fact_number("pitch of 1000 bytes", (long long)pitch);
    NEED(cuMemFree(p));
    fact("set at an odd address", cuMemsetD32(1, 0, 1));
    fact("set nothing at NULL", cuMemsetD8(0, 0, 0));
    fact("copy nothing to NULL", cuMemcpyHtoD(0, &p, 0));
}

void facts_of_host(void)
{
    void *p = NULL;
    CUdeviceptr d = 0;
    unsigned flags = 99;
    fact("cuMemHostAlloc of 0", cuMemHostAlloc(&p, 0, 0));
    fact_number("  gives NULL", p == NULL);
    fact("cuMemHostAlloc with unknown flags", cuMemHostAlloc(&p, 4096, 0x100));
    NEED(cuMemHostAlloc(&p, 8192, 0));
    NEED(cuMemHostGetDevicePointer(&d, p, 0));
    fact_number("device pointer is the host's", d == (CUdeviceptr)(uintptr_t)p);
    fact("cuMemHostGetFlags", cuMemHostGetFlags(&flags, p));
    fact_number("  flags", flags);
    CUdeviceptr base = 0;
    size_t size = 0;
    fact("address range of host memory", cuMemGetAddressRange(&base, &size, d + 4096));
    fact_number("  begins", (long long)(base - d));
    fact("cuMemFreeHost of an interior", cuMemFreeHost((char *)p + 4096));
    fact("cuMemFree of host memory", cuMemFree((CUdeviceptr)(uintptr_t)p));
    NEED(cuMemFreeHost(p));
    fact("cuMemFreeHost of NULL", cuMemFreeHost(NULL));
    void *area = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fact("register", cuMemHostRegister(area, MIB, 0));
    fact("register again", cuMemHostRegister(area, MIB, 0));
    fact("register what overlaps", cuMemHostRegister((char *)area + 4096, MIB, 0));
    fact("register 0 bytes", cuMemHostRegister((char *)area + 2 * MIB, 0, 0));
    fact("flags of registered memory", cuMemHostGetFlags(&flags, area));
    fact_number("  flags", flags);
    fact("cuMemFreeHost of registered memory", cuMemFreeHost(area));
    fact("unregister an interior", cuMemHostUnregister((char *)area + 4096));
    NEED(cuMemHostUnregister(area));
    fact("unregister twice", cuMemHostUnregister(area));
    munmap(area, 4 * MIB);
    fact("register what is not mapped", cuMemHostRegister(area, MIB, 0));
    int local = 0;
    fact("device pointer of any memory", cuMemHostGetDevicePointer(&d, &local, 0));
}

static void ask_pointer(const char *what, CUdeviceptr start, CUdeviceptr p)
{
    static const struct {
        const char *name;
        CUpointer_attribute attribute;
        char kind; /* n: a number; z: is it 0; a: an address, less `start`, in KiB; k: KiB */
    } rows[] = {
        {"context is NULL", CU_POINTER_ATTRIBUTE_CONTEXT, 'z'},
        {"memory type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 'n'},
        {"device pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 'a'},
        {"host pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, 'a'},
        {"sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 'n'},
        {"buffer id is 0", CU_POINTER_ATTRIBUTE_BUFFER_ID, 'z'},
        {"is managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, 'n'},
        {"ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 'n'},
        {"legacy IPC", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 'n'},
        {"range start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 'a'},
        {"range KiB", CU_POINTER_ATTRIBUTE_RANGE_SIZE, 'k'},
        {"mapped", CU_POINTER_ATTRIBUTE_MAPPED, 'n'},
        {"handle types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 'n'},
        {"access flags", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 'n'},
        {"pool is NULL", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 'z'},
        {"mapping base", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 'a'},
        {"mapping KiB", CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 'k'},
        {"block id is 0", CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 'z'},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned long long value = 0;
        const CUresult result = cuPointerGetAttribute(&value, rows[i].attribute, p);
        printf("pointer to %s: %s: ", what, rows[i].name);
        if (result != CUDA_SUCCESS)
            printf("%s\n", fact_name(result));
        else
            printf("%lld\n", rows[i].kind == 'z'   ? (long long)(value == 0)
                             : rows[i].kind == 'a' ? ((long long)value - (long long)start) / 1024
                             : rows[i].kind == 'k' ? (long long)value / 1024
                                                   : (long long)value);
    }
    CUmemorytype type = 99;
    int ordinal = 99;
    void *at = &at;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *data[] = {&type, &ordinal, &at};
    const CUresult result = cuPointerGetAttributes(3, names, data, p);
    printf("pointer to %s: all at once: %s, type %d, ordinal %d, pointer %s\n", what,
           fact_name(result), (int)type, ordinal, at == NULL ? "NULL" : "not NULL");
}

void facts_of_pointers(void)
{
    CUdeviceptr p;
    NEED(cuMemAlloc(&p, 4 * MIB));
    ask_pointer("linear memory", p, p + MIB);
    NEED(cuMemFree(p));

    CUmemGenericAllocationHandle a, b;
    CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 1);
    NEED(cuMemCreate(&a, 4 * MIB, &prop, 0));
    prop = fact_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 1);
    NEED(cuMemCreate(&b, 2 * MIB, &prop, 0));
    NEED(cuMemAddressReserve(&p, 32 * MIB, 0, 0, 0));
    NEED(cuMemMap(p, 4 * MIB, 0, a, 0));
    NEED(cuMemMap(p + 4 * MIB, 2 * MIB, 0, b, 0));
    ask_pointer("a mapping without access", p, p + MIB);
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    NEED(cuMemSetAccess(p, 6 * MIB, &desc, 1));
    ask_pointer("a device mapping", p, p + MIB);
    ask_pointer("a host NUMA mapping", p, p + 5 * MIB);
    ask_pointer("a reservation", p, p + 8 * MIB);
    NEED(cuMemUnmap(p, 6 * MIB));
    NEED(cuMemAddressFree(p, 32 * MIB));
    NEED(cuMemRelease(a));
    NEED(cuMemRelease(b));

    void *host;
    NEED(cuMemHostAlloc(&host, 4 * MIB, 0));
    ask_pointer("host memory", (CUdeviceptr)(uintptr_t)host, (CUdeviceptr)(uintptr_t)host + 4096);
    NEED(cuMemFreeHost(host));
    static int any;
    ask_pointer("any memory", (CUdeviceptr)(uintptr_t)&any, (CUdeviceptr)(uintptr_t)&any);
}

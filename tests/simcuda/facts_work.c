/* Facts of work: modules, launches, streams, events, and which calls wait for what. */
#include "tests/simcuda/facts.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define WAIT_MS 1500 /* how long a stream stays busy at most; who does not wait returns sooner */

/* ---- modules and launches ---- */

void facts_of_modules(void)
{
    CUmodule other;
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    static const char junk[] = "this is no PTX\n";
    static const char elf[64] = "\x7f"
                                "ELF";
    fact("load what is no PTX", cuModuleLoadData(&other, junk));
    fact("load an empty ELF", cuModuleLoadData(&other, elf));
    fact("load NULL", cuModuleLoadData(&other, NULL));
    fact("load a file that is not there", cuModuleLoad(&other, "/nonexistent/x.fact_ptx"));
    fact("function that is not there", cuModuleGetFunction(&function, module, "gm_nothing"));
    fact("function with no name", cuModuleGetFunction(&function, module, ""));
    NEED(cuLibraryLoadData(&library, fact_ptx, NULL, NULL, 0, NULL, NULL, 0));
    fact("kernel that is not there", cuLibraryGetKernel(&kernel, library, "gm_nothing"));
    NEED(cuLibraryGetKernel(&kernel, library, "gm_empty"));
    fact("launch a kernel as a function",
         cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuLibraryUnload(library));
    size_t offset = 99, size = 99;
    fact("parameter 1", cuFuncGetParamInfo(sweep, 1, &offset, &size));
    fact_number("  offset", (long long)offset);
    fact_number("  size", (long long)size);
    fact("parameter 2 of 2", cuFuncGetParamInfo(sweep, 2, &offset, &size));
}

void facts_of_launches(void)
{
    unsigned long long p = 0, n = 0;
    void *params[] = {&p, &n};
    unsigned long long buffer[2] = {0, 0};
    size_t bytes = sizeof buffer, few = 8;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    void *short_extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                           &few, CU_LAUNCH_PARAM_END};
    fact("launch", cuLaunchKernel(sweep, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    fact("launch with a buffer", cuLaunchKernel(sweep, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    fact("launch with half a buffer",
         cuLaunchKernel(sweep, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, short_extra));
    fact("launch with both", cuLaunchKernel(sweep, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
    fact("launch with no parameters", cuLaunchKernel(sweep, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    fact("launch of grid 0", cuLaunchKernel(empty, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    fact("launch of block 0", cuLaunchKernel(empty, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
    fact("launch of block 2048", cuLaunchKernel(empty, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    fact("launch of block 32 x 64", cuLaunchKernel(empty, 1, 1, 1, 32, 64, 1, 0, NULL, NULL, NULL));
    fact("launch of grid 1 x 70000",
         cuLaunchKernel(empty, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    NEED(cuCtxSynchronize());
}

/* ---- streams and events ---- */

static struct {
    const char *name;
    CUresult result;
} in_callback[10];
static int n_in_callback;

static void note(const char *name, CUresult result)
{
    in_callback[n_in_callback].name = name;
    in_callback[n_in_callback++].result = result;
}

static void CUDA_CB callback(void *data)
{
    CUdeviceptr p;
    CUcontext current;
    size_t free_bytes, total;
    int value;
    CUmemorytype type;
    CUevent event;
    note("cuMemAlloc", cuMemAlloc(&p, 1));
    note("cuStreamQuery", cuStreamQuery((CUstream)data));
    note("cuLaunchKernel", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, (CUstream)data, NULL, NULL));
    note("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    note("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
    note("cuDeviceGetCount", cuDeviceGetCount(&value));
    note("cuPointerGetAttribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                        (CUdeviceptr)(uintptr_t)&p));
    note("cuEventCreate", cuEventCreate(&event, 0));
}

void facts_of_streams(void)
{
    CUstream stream;
    CUevent never, plain, timed, late;
    float ms;
    unsigned *flag;
    NEED(cuMemHostAlloc((void **)&flag, 4096, 0));
    *flag = 0;
    void *params[] = {&flag};
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&never, 0));
    NEED(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&timed, 0));
    NEED(cuEventCreate(&late, 0));
    CUstream no_stream;
    CUevent no_event;
    fact("create a stream with unknown flags", cuStreamCreate(&no_stream, 8));
    fact("create an event with unknown flags", cuEventCreate(&no_event, 0x100));
    fact("query an event never recorded", cuEventQuery(never));
    fact("synchronize an event never recorded", cuEventSynchronize(never));
    fact("wait for an event never recorded", cuStreamWaitEvent(stream, never, 0));
    fact("wait for an event with unknown flags", cuStreamWaitEvent(stream, never, 8));
    NEED(cuEventRecord(timed, stream));
    NEED(cuEventRecord(plain, stream));
    NEED(cuStreamSynchronize(stream));
    fact("elapsed since an event never recorded", cuEventElapsedTime(&ms, never, timed));
    fact("elapsed to an event without timing", cuEventElapsedTime(&ms, timed, plain));
    NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    NEED(cuEventRecord(late, stream));
    fact("query a busy stream", cuStreamQuery(stream));
    fact("query an event to come", cuEventQuery(late));
    fact("elapsed to an event to come", cuEventElapsedTime(&ms, timed, late));
    fact("query the legacy stream beside a non-blocking one", cuStreamQuery(NULL));
    fact("destroy a busy stream's event", cuEventDestroy(late));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuStreamSynchronize(stream));
    fact("query an idle stream", cuStreamQuery(stream));
    fact("elapsed of one event", cuEventElapsedTime(&ms, timed, timed));

    NEED(cuLaunchHostFunc(stream, callback, stream));
    NEED(cuStreamSynchronize(stream));
    for (int i = 0; i < n_in_callback; i++) {
        printf("in a callback: ");
        fact(in_callback[i].name, in_callback[i].result);
    }
    fact("host function NULL", cuLaunchHostFunc(stream, NULL, NULL));
    fact("destroy the legacy stream", cuStreamDestroy(CU_STREAM_LEGACY));
    fact("destroy stream NULL", cuStreamDestroy(NULL));
    unsigned flags = 99;
    int priority = 99;
    NEED(cuStreamGetFlags(stream, &flags));
    fact_number("flags of a non-blocking stream", flags);
    NEED(cuStreamGetFlags(NULL, &flags));
    fact_number("flags of the legacy stream", flags);
    NEED(cuStreamGetPriority(NULL, &priority));
    fact_number("priority of the legacy stream", priority);
    *flag = 0;
    NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    fact("destroy a busy stream", cuStreamDestroy(stream));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuCtxSynchronize());
    NEED(cuEventDestroy(never));
    NEED(cuEventDestroy(plain));
    NEED(cuEventDestroy(timed));
    NEED(cuMemFreeHost(flag));
}

/* What waits and what does not, by a stream that is busy until told. */
void facts_of_waiting(void)
{
    CUstream busy;
    CUdeviceptr a, b;
    unsigned *flag;
    static char pageable[MIB];
    void *pinned;
    NEED(cuMemHostAlloc((void **)&flag, 4096, 0));
    NEED(cuMemHostAlloc(&pinned, MIB, 0));
    NEED(cuMemAlloc(&a, MIB));
    NEED(cuMemAlloc(&b, MIB));
    NEED(cuStreamCreate(&busy, CU_STREAM_DEFAULT));
    void *params[] = {&flag};
    *flag = 0;
    NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, busy, params, NULL));
    /* Each of these would hang here if it waited for the legacy stream, which waits for `busy`. */
    fact("cuMemsetD8 returns before it is done", cuMemsetD8(a, 1, MIB));
    fact("cuMemcpyDtoD returns before it is done", cuMemcpyDtoD(b, a, MIB));
    fact("  query of the legacy stream", cuStreamQuery(NULL));
    fact("cuMemcpyHtoDAsync of pinned memory returns before",
         cuMemcpyHtoDAsync(a, pinned, MIB, busy));
    fact("cuMemcpyDtoHAsync of pinned memory returns before",
         cuMemcpyDtoHAsync(pinned, a, MIB, busy));
    fact("  query of the stream", cuStreamQuery(busy));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuMemcpyHtoDAsync(a, pageable, MIB, busy));
    NEED(cuMemcpyDtoHAsync(pageable, b, MIB, busy));
    NEED(cuCtxSynchronize());
    NEED(cuStreamDestroy(busy));
    NEED(cuMemFree(a));
    NEED(cuMemFree(b));
    NEED(cuMemFreeHost(pinned));
    NEED(cuMemFreeHost(flag));
}

/* Does a call wait for work of another, non-blocking stream of its context? */
static unsigned *release;
static bool has_returned; /* the call */
static char *pageable_memory;
static void *pinned_memory;
static CUdeviceptr device_memory, second_memory, mapped_memory;
static CUmemGenericAllocationHandle mapped_handle;
static CUstream busy_stream, idle_stream;
static CUmemAccessDesc access_desc;

static void *release_later(void *argument)
{
    (void)argument;
    for (int ms = 0; ms < WAIT_MS && !__atomic_load_n(&has_returned, __ATOMIC_ACQUIRE); ms++)
        usleep(1000);
    __atomic_store_n(release, 1, __ATOMIC_RELEASE);
    return NULL;
}

static CUresult wait_alloc(void)
{
    return cuMemAlloc(&second_memory, MIB);
}
static CUresult wait_free(void)
{
    return cuMemFree(second_memory);
}
static CUresult wait_create(void)
{
    const CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 0);
    const CUresult result = cuMemAddressReserve(&mapped_memory, 2 * MIB, 0, 0, 0);
    return result == CUDA_SUCCESS ? cuMemCreate(&mapped_handle, 2 * MIB, &prop, 0) : result;
}
static CUresult wait_map(void)
{
    return cuMemMap(mapped_memory, 2 * MIB, 0, mapped_handle, 0);
}
static CUresult wait_access(void)
{
    return cuMemSetAccess(mapped_memory, 2 * MIB, &access_desc, 1);
}
static CUresult wait_unmap(void)
{
    return cuMemUnmap(mapped_memory, 2 * MIB);
}
static CUresult wait_release(void)
{
    const CUresult result = cuMemRelease(mapped_handle);
    return result == CUDA_SUCCESS ? cuMemAddressFree(mapped_memory, 2 * MIB) : result;
}
static CUresult wait_host_alloc(void)
{
    return cuMemHostAlloc(&pinned_memory, MIB, 0);
}
static CUresult wait_free_host(void)
{
    return cuMemFreeHost(pinned_memory);
}
static CUresult wait_register(void)
{
    return cuMemHostRegister(pageable_memory, MIB, 0);
}
static CUresult wait_unregister(void)
{
    return cuMemHostUnregister(pageable_memory);
}
static CUresult wait_copy_in(void)
{
    return cuMemcpyHtoD(device_memory, pageable_memory, MIB);
}
static CUresult wait_copy_in_busy(void)
{
    return cuMemcpyHtoDAsync(device_memory, pageable_memory, MIB, busy_stream);
}
static CUresult wait_copy_in_busy_small(void)
{
    return cuMemcpyHtoDAsync(device_memory, pageable_memory, 64, busy_stream);
}
static CUresult wait_copy_out_busy(void)
{
    return cuMemcpyDtoHAsync(pageable_memory, device_memory, MIB, busy_stream);
}
static CUresult wait_set_busy(void)
{
    return cuMemsetD8Async(device_memory, 0, MIB, busy_stream);
}
static CUresult wait_load(void)
{
    CUmodule m;
    const CUresult result = cuModuleLoadData(&m, fact_ptx);
    return result == CUDA_SUCCESS ? cuModuleUnload(m) : result;
}
static CUresult wait_stream(void)
{
    CUstream s;
    const CUresult result = cuStreamCreate(&s, 0);
    return result == CUDA_SUCCESS ? cuStreamDestroy(s) : result;
}
static CUresult wait_legacy(void)
{
    return cuStreamSynchronize(NULL);
}
static CUresult wait_idle(void)
{
    return cuStreamSynchronize(idle_stream);
}
static CUresult wait_context(void)
{
    return cuCtxSynchronize();
}

static const struct {
    const char *name;
    CUresult (*call)(void);
} waits[] = {
    {"cuMemAlloc", wait_alloc},
    {"cuMemFree", wait_free},
    {"cuMemCreate", wait_create},
    {"cuMemMap", wait_map},
    {"cuMemSetAccess", wait_access},
    {"cuMemUnmap", wait_unmap},
    {"cuMemRelease", wait_release},
    {"cuMemHostRegister", wait_register},
    {"cuMemHostUnregister", wait_unregister},
    {"cuMemHostAlloc", wait_host_alloc},
    {"cuMemFreeHost", wait_free_host},
    {"cuMemcpyHtoD", wait_copy_in},
    {"cuMemcpyHtoDAsync of 1 MiB of pageable memory, there", wait_copy_in_busy},
    {"cuMemcpyHtoDAsync of 64 bytes of pageable memory, there", wait_copy_in_busy_small},
    {"cuMemcpyDtoHAsync of 1 MiB of pageable memory, there", wait_copy_out_busy},
    {"cuMemsetD8Async, there", wait_set_busy},
    {"cuModuleLoadData and cuModuleUnload", wait_load},
    {"cuStreamCreate and cuStreamDestroy", wait_stream},
    {"cuStreamSynchronize of the legacy stream", wait_legacy},
    {"cuStreamSynchronize of an idle stream", wait_idle},
    {"cuCtxSynchronize", wait_context},
};

void facts_of_blocking(void)
{
    NEED(cuMemHostAlloc((void **)&release, 4096, 0));
    NEED(cuMemAlloc(&device_memory, MIB));
    NEED(cuStreamCreate(&busy_stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&idle_stream, CU_STREAM_NON_BLOCKING));
    pageable_memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    access_desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_desc.location.id = device;
    access_desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    void *params[] = {&release};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        pthread_t thread;
        __atomic_store_n(release, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&has_returned, false, __ATOMIC_RELEASE);
        NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, busy_stream, params, NULL));
        if (pthread_create(&thread, NULL, release_later, NULL) != 0)
            exit(1);
        const CUresult result = waits[i].call();
        const bool has_waited = __atomic_load_n(release, __ATOMIC_ACQUIRE) != 0;
        __atomic_store_n(&has_returned, true, __ATOMIC_RELEASE);
        printf("with a busy stream: %s: %s, %s\n", waits[i].name, fact_name(result),
               has_waited ? "waits" : "returns");
        fflush(stdout);
        pthread_join(thread, NULL);
        NEED(cuCtxSynchronize());
    }
}

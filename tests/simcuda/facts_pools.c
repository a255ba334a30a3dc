/* Facts of memory pools and of stream-ordered allocation. */
#include "tests/simcuda/facts.h"

#include <sys/wait.h>
#include <unistd.h>

static unsigned *flag; /* a kernel runs until it is set */
static CUstream stream;
static CUmemoryPool pool;

static void begin_spin(void)
{
    void *params[] = {&flag};
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void end_spin(void)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuStreamSynchronize(stream));
}

static long long number_of(CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    NEED(cuMemPoolGetAttribute(pool, attribute, &value));
    return (long long)value;
}

static long long flag_of(CUmemPool_attribute attribute)
{
    int value = 9;
    NEED(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void ask_defaults(void)
{
    CUmemoryPool current = NULL;
    NEED(cuDeviceGetMemPool(&current, device));
    fact_number("the default pool is current", current == pool);
    fact_number("its release threshold", number_of(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    fact_number("it follows events", flag_of(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES));
    fact_number("it is opportunistic", flag_of(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC));
    fact_number("it makes dependencies",
                flag_of(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES));
    fact("destroy it", cuMemPoolDestroy(pool));
    cuuint64_t value = 1;
    fact("set the high mark of used memory to 1",
         cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    fact("set used memory", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
}

static void ask_allocation(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0;
    fact("allocate no bytes", cuMemAllocAsync(&p, 0, stream));
    fact_number("  at address 0", p == 0);
    fact_number("  used then", number_of(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    fact("  free it", cuMemFreeAsync(p, stream));
    fact("  free it twice", cuMemFreeAsync(p, stream));
    fact("allocate to no pointer", cuMemAllocAsync(NULL, 512, stream));
    fact("allocate 2^46 bytes", cuMemAllocAsync(&p, 1ull << 46, stream));
    fact("allocate from no pool", cuMemAllocFromPoolAsync(&p, 512, NULL, stream));
    fact("allocate 1000 bytes", cuMemAllocAsync(&p, 1000, stream));
    fact_number("its address modulo 512", (long long)(p % 512));
    fact_number("used then", number_of(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    NEED(cuMemGetAddressRange(&base, &size, p + 5));
    fact_number("its range begins there", base == p);
    fact_number("its range has bytes", (long long)size);
    fact("free inside", cuMemFreeAsync(p + 512, stream));
    fact("cuMemFree inside", cuMemFree(p + 512));
    fact("free it", cuMemFreeAsync(p, stream));
    fact("free it twice", cuMemFreeAsync(p, stream));
    fact("then cuMemFree it", cuMemFree(p));
    fact_number("used then", number_of(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemAllocAsync(&p, 3 * MIB, stream));
    begin_spin();
    fact("cuMemFree while its stream is busy", cuMemFree(p));
    fact("  the stream then", cuStreamQuery(stream));
    end_spin();
    NEED(cuMemAlloc(&p, 3 * MIB));
    begin_spin();
    fact("free in a stream what cuMemAlloc made", cuMemFreeAsync(p, stream));
    fact("  the stream then", cuStreamQuery(stream));
    end_spin();
    fact("free 0 in a stream", cuMemFreeAsync(0, stream));
}

/* Behind work, the driver takes both frees, and the stream never ends: it is not asked here. */
static void ask_free_of_linear_memory(void)
{
    CUdeviceptr p = 0;
    NEED(cuMemAlloc(&p, 3 * MIB));
    NEED(cuMemFreeAsync(p, stream));
    NEED(cuStreamSynchronize(stream));
    fact("free twice in a stream what cuMemAlloc made", cuMemFreeAsync(p, stream));
}

static void ask_captures(void)
{
    CUdeviceptr outside = 0, inside = 0;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = 9;
    NEED(cuMemAllocAsync(&outside, MIB, stream));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    fact("captured: allocate", cuMemAllocAsync(&inside, MIB, stream));
    fact("captured: free it", cuMemFreeAsync(inside, stream));
    fact("captured: free what is no graph's", cuMemFreeAsync(outside, stream));
    NEED(cuStreamIsCapturing(stream, &status));
    fact_number("  status", status);
    fact("  end", cuStreamEndCapture(stream, &graph));
    fact("  then free it", cuMemFreeAsync(outside, stream));
    if (graph != NULL)
        NEED(cuGraphDestroy(graph));
    NEED(cuStreamSynchronize(stream));
}

static void fact_in_capture(const char *question, CUresult result)
{
    CUstreamCaptureStatus status = 9;
    NEED(cuStreamIsCapturing(stream, &status));
    printf("%s: %s, status %d\n", question, fact_name(result), (int)status);
    fflush(stdout);
}

static void begin_capture(void)
{
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/* What is asked in one capture by itself: it may end that. */
static void end_capture(void)
{
    CUgraph graph = NULL;
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
        NEED(cuGraphDestroy(graph));
}

#define FACT_ALONE(question, call)                                                                 \
    do {                                                                                           \
        begin_capture();                                                                           \
        fact_in_capture(question, call);                                                           \
        end_capture();                                                                             \
    } while (0)

/* What the shim itself asks of streams while one is captured, in the mode that forbids this thread
 * what is unsafe, and while it is told that nothing is. */
static void ask_streams(CUstream beside, CUevent event)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext its;
    CUdevice number;
    CUevent made = NULL;
    unsigned long long id;
    cuuint64_t bytes = 0;
    unsigned flags;
    int is_active;
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        printf("%s\n", relaxed ? "relaxed" : "thread-local");
        if (relaxed)
            NEED(cuThreadExchangeStreamCaptureMode(&mode));
        FACT_ALONE("its context", cuStreamGetCtx(stream, &its));
        FACT_ALONE("its id", cuStreamGetId(stream, &id));
        FACT_ALONE("the context of another", cuStreamGetCtx(beside, &its));
        FACT_ALONE("the id of another", cuStreamGetId(beside, &id));
        FACT_ALONE("the device", cuCtxGetDevice(&number));
        FACT_ALONE("is the primary context active",
                   cuDevicePrimaryCtxGetState(device, &flags, &is_active));
        FACT_ALONE("memory of graphs", cuDeviceGetGraphMemAttribute(
                                           device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
        FACT_ALONE("make an event", cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
        if (made != NULL)
            NEED(cuEventDestroy(made));
        made = NULL;
        FACT_ALONE("record an event beside it", cuEventRecord(event, beside));
        NEED(cuStreamSynchronize(beside));
        FACT_ALONE("ask for that event", cuEventQuery(event));
        if (relaxed)
            NEED(cuThreadExchangeStreamCaptureMode(&mode));
    }
}

/* Allocations beside it: from a pool that has to grow for them, that has what they need, and that
 * may grow. */
static void ask_beside(CUstream beside)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr kept = 0, other = 0;
    cuuint64_t threshold = UINT64_MAX;
    FACT_ALONE("allocate beside it", cuMemAllocFromPoolAsync(&other, MIB, pool, beside));
    NEED(cuStreamSynchronize(beside));
    NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    NEED(cuMemAllocFromPoolAsync(&kept, MIB, pool, beside));
    NEED(cuMemFreeAsync(kept, beside));
    NEED(cuStreamSynchronize(beside));
    FACT_ALONE("allocate what the pool has", cuMemAllocFromPoolAsync(&other, MIB, pool, beside));
    NEED(cuMemAllocFromPoolAsync(&other, MIB, pool, beside));
    FACT_ALONE("free it beside it", cuMemFreeAsync(other, beside));
    other = threshold = 0;
    NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    NEED(cuStreamSynchronize(beside));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    FACT_ALONE("relaxed: allocate beside it", cuMemAllocFromPoolAsync(&other, MIB, pool, beside));
    if (other != 0)
        FACT_ALONE("relaxed: free it", cuMemFreeAsync(other, beside));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    NEED(cuStreamSynchronize(beside));
}

/* And allocations, there and beside it. */
static void ask_local_capture(void)
{
    CUcontext its;
    CUmemoryPool one_pool;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream beside;
    CUdeviceptr one = 0;
    CUevent event;
    CUgraph graph = NULL;
    cuuint64_t bytes = 0;
    NEED(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventRecord(event, stream));
    NEED(cuStreamSynchronize(stream));
    ask_streams(beside, event);
    ask_beside(beside);
    begin_capture();
    fact_in_capture("allocate from the default pool",
                    cuMemAllocFromPoolAsync(&one, MIB, pool, stream));
    fact_in_capture("free it", cuMemFreeAsync(one, stream));
    fact("end", cuStreamEndCapture(stream, &graph));
    if (graph != NULL)
        NEED(cuGraphDestroy(graph));
    begin_capture();
    fact_in_capture("the default pool", cuDeviceGetDefaultMemPool(&one_pool, device));
    fact_in_capture("retain the primary context", cuDevicePrimaryCtxRetain(&its, device));
    fact_in_capture("release it", cuDevicePrimaryCtxRelease(device));
    fact_in_capture("push a context", cuCtxPushCurrent(context));
    fact_in_capture("pop it", cuCtxPopCurrent(&its));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    fact_in_capture("relaxed: an attribute of the pool",
                    cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    fact_in_capture("an attribute of the pool",
                    cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    fact_in_capture("allocate then", cuMemAllocFromPoolAsync(&one, MIB, pool, stream));
    fact("end", cuStreamEndCapture(stream, &graph));
    NEED(cuStreamDestroy(beside));
    NEED(cuCtxCreate(&its, NULL, 0, device));
    NEED(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    NEED(cuCtxSetCurrent(context));
    fact("capture in a stream of another context",
         cuStreamBeginCapture(beside, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NEED(cuCtxDestroy(its));
    NEED(cuCtxSetCurrent(context));
}

/* How many allocations of 6 MiB a pool gives. */
static void ask_limit(uint64_t mib)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .maxSize = mib * MIB};
    CUmemoryPool limited;
    CUdeviceptr p[64];
    int n = 0;
    NEED(cuMemPoolCreate(&limited, &props));
    while (n < 64 && cuMemAllocFromPoolAsync(&p[n], 6 * MIB, limited, stream) == CUDA_SUCCESS)
        n++;
    printf("of at most %d MiB, allocations of 6 MiB: %d\n", (int)mib, n);
    while (n > 0)
        NEED(cuMemFreeAsync(p[--n], stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemPoolDestroy(limited));
}

/* In a child; the parent's pool has what it asks for. */
static void ask_child(void)
{
    CUdeviceptr kept = 0, p = 0;
    NEED(cuMemAllocAsync(&kept, MIB, stream));
    NEED(cuStreamSynchronize(stream));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        fact("a child: allocate", cuMemAllocAsync(&p, MIB, stream));
        fact("a child: free it", cuMemFreeAsync(p, stream));
        fact("a child: cuMemFree its parent's", cuMemFree(kept));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    NEED(cuMemFreeAsync(kept, stream));
    NEED(cuStreamSynchronize(stream));
}

/* Memory of pools is of no context. */
static void ask_contexts(void)
{
    CUcontext own;
    CUstream its;
    CUdeviceptr p = 0;
    unsigned char byte = 0;
    NEED(cuCtxCreate(&own, NULL, 0, device));
    NEED(cuStreamCreate(&its, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAllocAsync(&p, MIB, its));
    NEED(cuMemsetD8Async(p, 7, MIB, its));
    NEED(cuCtxDestroy(own));
    NEED(cuCtxSetCurrent(context));
    fact("read memory whose context was destroyed", cuMemcpyDtoH(&byte, p, 1));
    fact_number("  it is", byte);
    fact("  free it", cuMemFreeAsync(p, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemAllocAsync(&p, MIB, stream));
    NEED(cuMemsetD8Async(p, 9, MIB, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuDevicePrimaryCtxReset(device));
    NEED(cuDevicePrimaryCtxRetain(&own, device));
    NEED(cuCtxSetCurrent(own));
    byte = 0;
    fact("read memory after the primary context was reset", cuMemcpyDtoH(&byte, p, 1));
    fact_number("  it is", byte);
    fact("  free it", cuMemFreeAsync(p, NULL));
    NEED(cuCtxSynchronize());
}

static void begin(void)
{
    NEED(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_PORTABLE));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuDeviceGetDefaultMemPool(&pool, device));
}

void facts_of_pools(void)
{
    begin();
    ask_defaults();
    ask_allocation();
}

void facts_of_pools_captured(void)
{
    begin();
    ask_captures();
}

void facts_of_pools_captured_locally(void)
{
    begin();
    ask_local_capture();
}

void facts_of_pools_contexts(void)
{
    begin();
    ask_contexts();
}

void facts_of_pools_linear(void)
{
    begin();
    ask_free_of_linear_memory();
}

void facts_of_pools_limits(void)
{
    begin();
    ask_limit(8);
    ask_limit(40);
    ask_limit(64);
    ask_child();
}

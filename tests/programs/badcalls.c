/*
 * Calls that a driver refuses, and calls in the forms of older CUDA versions: one line each, "what:
 * CUresult" or a number. What it prints with gpumux must be what it prints without it, line by line
 * (tests/integration/answers.sh), on simcuda and on a GPU.
 *
 * Nothing here makes the GPU touch what it must not: that ends the context, on any driver.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
#define LARGE (8 * MIB)     /* backed by gpumux */
#define SMALL (64ull << 10) /* the driver's own */

static int failures;

static void tell(const char *what, CUresult result)
{
    printf("%s: %d\n", what, (int)result);
}

static void tell_number(const char *what, unsigned long long number)
{
    printf("%s = %llu\n", what, number);
}

static void need(const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d, needed\n", what, (int)result);
    failures++;
}
#define NEED(call) need(#call, call)
#define TELL(call) tell(#call, call)

/* ---- frees ---- */

static void frees(const char *kind, size_t bytes)
{
    CUdeviceptr va = 0, other = 0;
    printf("-- frees, %s\n", kind);
    NEED(cuMemAlloc_v2(&va, bytes));
    TELL(cuMemFree_v2(va + 256));
    TELL(cuMemFree_v2(va + bytes - 1));
    TELL(cuMemFree_v2(va));
    TELL(cuMemFree_v2(va));
    TELL(cuMemFree_v2(va + 256));
    NEED(cuMemAlloc_v2(&va, bytes));
    NEED(cuMemAlloc_v2(&other, bytes));
    TELL(cuMemFree_v2(other));
    TELL(cuMemFree_v2(other));
    TELL(cuMemFree_v2(va));
    TELL(cuMemFreeHost((void *)(uintptr_t)va));
}

static void other_frees(void)
{
    int local = 0;
    puts("-- other frees");
    TELL(cuMemFree_v2(0));
    TELL(cuMemFree_v2(4096));
    TELL(cuMemFree_v2((CUdeviceptr)(uintptr_t)&local));
    TELL(cuMemFree_v2(UINT64_MAX));
    void *host = NULL;
    NEED(cuMemHostAlloc(&host, 4096, 0));
    TELL(cuMemFree_v2((CUdeviceptr)(uintptr_t)host));
    NEED(cuMemFreeHost(host));
}

/* ---- allocations ---- */

static void allocations(void)
{
    CUdeviceptr va = 7;
    size_t pitch = 7;
    puts("-- allocations");
    TELL(cuMemAlloc_v2(NULL, LARGE));
    TELL(cuMemAlloc_v2(&va, 0));
    TELL(cuMemAlloc_v2(&va, SIZE_MAX));
    TELL(cuMemAlloc_v2(&va, SIZE_MAX / 2));
    TELL(cuMemAlloc_v2(&va, 1ull << 46));
    TELL(cuMemAllocPitch_v2(&va, NULL, 4096, 1024, 4));
    TELL(cuMemAllocPitch_v2(NULL, &pitch, 4096, 1024, 4));
    TELL(cuMemAllocPitch_v2(&va, &pitch, 0, 1024, 4));
    TELL(cuMemAllocPitch_v2(&va, &pitch, 4096, 0, 4));
    TELL(cuMemAllocPitch_v2(&va, &pitch, 4096, 1024, 3));
    TELL(cuMemAllocPitch_v2(&va, &pitch, SIZE_MAX, 2, 4));
    TELL(cuMemAllocPitch_v2(&va, &pitch, 1ull << 40, 1ull << 40, 4));
    TELL(cuMemAllocPitch_v2(&va, &pitch, 5000, 1024, 4));
    tell_number("pitch", pitch);
    TELL(cuMemFree_v2(va));
}

/* ---- copies and sets ---- */

static void ranges(const char *kind, size_t bytes)
{
    CUdeviceptr va = 0, to = 0;
    static uint32_t word;
    void *host = malloc(bytes + 65536);
    printf("-- ranges, %s\n", kind);
    NEED(host == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    NEED(cuMemAlloc_v2(&va, bytes));
    NEED(cuMemAlloc_v2(&to, bytes));
    NEED(cuMemsetD8_v2(va, 1, bytes));
    TELL(cuMemcpyDtoH_v2(NULL, va, 16));
    TELL(cuMemcpyHtoD_v2(va, NULL, 16));
    TELL(cuMemcpyHtoD_v2(0, &word, 4));
    TELL(cuMemcpyDtoH_v2(&word, 0, 4));
    TELL(cuMemcpyHtoD_v2(4096, &word, 4));
    TELL(cuMemcpyDtoD_v2(va, 4096, 16));
    TELL(cuMemcpyDtoH_v2(&word, va, 0));
    TELL(cuMemsetD8_v2(0, 0, 16));
    TELL(cuMemsetD8_v2(4096, 0, 16));
    TELL(cuMemsetD8_v2(va, 0, 0));
    TELL(cuMemsetD32_v2(va + 1, 0, 4));
    TELL(cuMemsetD16_v2(va + 1, 0, 4));
    /* Beyond the end of all memory there is, whatever an allocation is rounded to. */
    TELL(cuMemcpyDtoH_v2(host, va, 1ull << 46));
    TELL(cuMemcpyHtoD_v2(va, host, 1ull << 46));
    TELL(cuMemcpyDtoD_v2(to, va, 1ull << 46));
    TELL(cuMemsetD8_v2(va, 0, 1ull << 46));
    TELL(cuMemcpyDtoH_v2(&word, va, 4));
    tell_number("the first word", word);
    NEED(cuMemFree_v2(to));
    NEED(cuMemFree_v2(va));
    /* What was freed. */
    TELL(cuMemsetD8_v2(va, 0, 16));
    TELL(cuMemcpyDtoH_v2(&word, va, 4));
    free(host);
}

/* ---- queries ---- */

static void queries(const char *kind, size_t bytes)
{
    CUdeviceptr va = 0, base = 7;
    size_t size = 7;
    unsigned type = 0;
    printf("-- queries, %s\n", kind);
    NEED(cuMemAlloc_v2(&va, bytes));
    TELL(cuMemGetAddressRange_v2(&base, &size, va + 300));
    tell_number("from its start", va - base);
    tell_number("bytes", size);
    TELL(cuMemGetAddressRange_v2(NULL, &size, va));
    TELL(cuMemGetAddressRange_v2(&base, NULL, va));
    TELL(cuMemGetAddressRange_v2(&base, &size, 4096));
    TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
    tell_number("memory type", type);
    TELL(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
    TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
    TELL(cuPointerGetAttribute(&type, (CUpointer_attribute)9999, va));
    NEED(cuMemFree_v2(va));
    TELL(cuMemGetAddressRange_v2(&base, &size, va));
    TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
}

static void other_queries(CUdevice device)
{
    size_t size = 0, total = 0;
    puts("-- other queries");
    TELL(cuMemGetInfo_v2(NULL, &total));
    TELL(cuMemGetInfo_v2(&size, NULL));
    TELL(cuDeviceTotalMem_v2(NULL, device));
    TELL(cuDeviceTotalMem_v2(&size, 99));
    TELL(cuDeviceTotalMem_v2(&size, -1));
}

/* ---- handles ---- */

static uint64_t nothing[64]; /* what is no handle */

static void handles(void)
{
    CUstream none = (CUstream)(void *)nothing, stream = NULL;
    CUdeviceptr va = 0;
    CUgraph graph = NULL;
    puts("-- handles");
    NEED(cuMemAlloc_v2(&va, LARGE));
    TELL(cuMemsetD8Async(va, 0, 16, none));
    TELL(cuMemcpyDtoDAsync_v2(va, va + MIB, 16, none));
    TELL(cuStreamSynchronize(none));
    TELL(cuStreamQuery(none));
    TELL(cuStreamDestroy_v2(none));
    TELL(cuStreamDestroy_v2(NULL));
    TELL(cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
    TELL(cuStreamBeginCapture_v2(none, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TELL(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TELL(cuStreamEndCapture(none, &graph));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TELL(cuStreamEndCapture(stream, &graph));
    TELL(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)77));
    NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    TELL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    TELL(cuStreamSynchronize(stream));
    TELL(cuStreamEndCapture(stream, &graph));
    TELL(cuStreamEndCapture(stream, &graph));
    TELL(cuStreamWaitValue32_v2(stream, va + 1, 0, 0));
    TELL(cuStreamWaitValue32_v2(stream, 0, 0, 0));
    TELL(cuStreamWriteValue32_v2(stream, va, 0, 99));
    TELL(cuLaunchHostFunc(stream, NULL, NULL));
    TELL(cuStreamAddCallback(stream, NULL, NULL, 0));
    NEED(cuStreamDestroy_v2(stream));
    TELL(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TELL(cuLaunchKernel((CUfunction)(void *)nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TELL(cuGraphLaunch(NULL, NULL));
    TELL(cuEventQuery(NULL));
    TELL(cuEventSynchronize((CUevent)(void *)nothing));
    TELL(cuMemFree_v2(va));
}

static void contexts(CUdevice device)
{
    CUcontext context = NULL, current = NULL;
    CUdeviceptr va = 0, inner = 0;
    puts("-- contexts");
    NEED(cuCtxGetCurrent(&current));
    TELL(cuCtxDestroy_v2(NULL));
    TELL(cuCtxDestroy_v2((CUcontext)(void *)nothing));
    TELL(cuDevicePrimaryCtxRetain(NULL, device));
    TELL(cuDevicePrimaryCtxRetain(&context, 99));
    TELL(cuDevicePrimaryCtxRelease_v2(99));
    TELL(cuCtxCreate_v2(&context, 0, 99));
    NEED(cuCtxCreate_v2(&context, 0, device));
    NEED(cuMemAlloc_v2(&inner, LARGE));
    NEED(cuCtxDestroy_v2(context));
    /* The driver reads memory that it has freed: it answers by what lies there now. */
    CUresult again = cuCtxDestroy_v2(context);
    tell("cuCtxDestroy_v2(context) again",
         again == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_INVALID_CONTEXT : again);
    NEED(cuCtxSetCurrent(current));
    TELL(cuMemFree_v2(inner));
    NEED(cuCtxSetCurrent(NULL));
    TELL(cuMemAlloc_v2(&va, LARGE));
    TELL(cuMemAlloc_v2(&va, SMALL));
    TELL(cuMemsetD8_v2(va, 0, 16));
    TELL(cuMemcpyDtoH_v2(nothing, va, 16));
    TELL(cuCtxSynchronize());
    NEED(cuCtxSetCurrent(current));
}

/* ---- the forms of older versions ---- */

static void old_forms(CUdevice device)
{
    CUcontext context = NULL, current = NULL;
    CUdeviceptr va = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    void *found = NULL;
    char log[64];
    puts("-- old forms");
    TELL(cuGetProcAddress("cuMemAlloc", &found, 3020, 0));
    tell_number("found", found != NULL);
    TELL(cuGetProcAddress("cuMemAlloc", &found, 3000, 0));
    TELL(cuGetProcAddress("cuNothing", &found, 11030, 0));
    TELL(cuGetProcAddress("cuGetProcAddress", &found, 11030, 0));
    TELL(cuGetProcAddress("cuStreamWaitValue32", &found, 8000, 0));
    TELL(cuGetProcAddress("cuStreamWaitValue32", &found, 11070, 0));
    NEED(cuCtxGetCurrent(&current));
    TELL(cuCtxCreate_v3(&context, NULL, 0, 0, device));
    TELL(cuMemAlloc_v2(&va, LARGE));
    TELL(cuMemsetD32_v2(va, 0, 4));
    TELL(cuStreamCreate(&stream, 0));
    TELL(cuStreamWriteValue32(stream, va, 5, 0));
    TELL(cuStreamWaitValue32(stream, va, 5, CU_STREAM_WAIT_VALUE_EQ));
    TELL(cuStreamWriteValue64(stream, va + 8, 6, 0));
    TELL(cuStreamWaitValue64(stream, va + 8, 6, CU_STREAM_WAIT_VALUE_GEQ));
    TELL(cuStreamSynchronize(stream));
    TELL(cuEventCreate(&event, 0));
    TELL(cuEventRecord(event, stream));
    TELL(cuEventSynchronize(event));
    TELL(cuEventDestroy(event));
    TELL(cuStreamBeginCapture(stream));
    TELL(cuMemsetD32Async(va, 9, 4, stream));
    TELL(cuStreamEndCapture(stream, &graph));
    TELL(cuGraphInstantiate(&exec, graph, &node, log, sizeof(log)));
    TELL(cuGraphLaunch(exec, stream));
    TELL(cuGraphExecDestroy(exec));
    TELL(cuGraphInstantiate_v2(&exec, graph, &node, log, sizeof(log)));
    TELL(cuGraphLaunch(exec, stream));
    TELL(cuStreamSynchronize(stream));
    TELL(cuGraphExecDestroy(exec));
    TELL(cuGraphDestroy(graph));
    uint32_t word = 0;
    TELL(cuMemcpyDtoH_v2(&word, va, 4));
    tell_number("the word", word);
    TELL(cuStreamDestroy(stream));
    TELL(cuMemFree_v2(va));
    TELL(cuCtxDestroy_v2(context));
    NEED(cuCtxSetCurrent(current));
}

int main(void)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CUdeviceptr va = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("-- before cuInit");
    TELL(cuMemAlloc_v2(&va, LARGE));
    TELL(cuMemFree_v2(4096));
    TELL(cuMemsetD8_v2(4096, 0, 16));
    TELL(cuCtxSynchronize());
    TELL(cuStreamDestroy_v2(NULL));
    NEED(cuInit(0));
    puts("-- without a context");
    TELL(cuMemAlloc_v2(&va, LARGE));
    TELL(cuMemFree_v2(4096));
    TELL(cuMemsetD8_v2(4096, 0, 16));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    frees("large", LARGE);
    frees("small", SMALL);
    other_frees();
    allocations();
    ranges("large", LARGE);
    ranges("small", SMALL);
    queries("large", LARGE);
    queries("small", SMALL);
    other_queries(device);
    handles();
    contexts(device);
    old_forms(device);
    puts("-- the primary context");
    NEED(cuMemAlloc_v2(&va, LARGE));
    TELL(cuDevicePrimaryCtxRelease(device));
    TELL(cuMemFree_v2(va));
    TELL(cuMemAlloc_v2(&va, LARGE));
    TELL(cuDevicePrimaryCtxRelease_v2(device));
    printf("%d needed calls failed\n", failures);
    return failures != 0;
}

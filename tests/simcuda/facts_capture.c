/* Facts of capture: what is allowed in one, what spoils it, and what comes out. */
#include "tests/simcuda/facts.h"

#include <pthread.h>

/* ---- capture ---- */

static struct {
    CUstream stream;  /* captures */
    CUstream other;   /* blocking, does not */
    CUstream outside; /* non-blocking, does not */
    CUevent before;   /* recorded before, in `other` */
    CUevent inside;   /* recorded in the capture */
    CUdeviceptr memory;
    void *pinned;
    CUmodule loaded, loaded_before;
} cap;

typedef CUresult action(void);

static CUresult do_nothing(void)
{
    return CUDA_SUCCESS;
}
static CUresult do_launch(void)
{
    return cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, cap.stream, NULL, NULL);
}
static CUresult do_launch_other(void)
{
    return cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, cap.other, NULL, NULL);
}
static CUresult do_launch_outside(void)
{
    return cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, cap.outside, NULL, NULL);
}
static CUresult do_launch_legacy(void)
{
    return cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
static CUresult do_ctx_synchronize(void)
{
    return cuCtxSynchronize();
}
static CUresult do_synchronize(void)
{
    return cuStreamSynchronize(cap.stream);
}
static CUresult do_synchronize_other(void)
{
    return cuStreamSynchronize(cap.other);
}
static CUresult do_synchronize_outside(void)
{
    return cuStreamSynchronize(cap.outside);
}
static CUresult do_synchronize_legacy(void)
{
    return cuStreamSynchronize(NULL);
}
static CUresult do_query(void)
{
    return cuStreamQuery(cap.stream);
}
static CUresult do_query_other(void)
{
    return cuStreamQuery(cap.other);
}
static CUresult do_query_legacy(void)
{
    return cuStreamQuery(NULL);
}
static CUresult do_event_query(void)
{
    return cuEventQuery(cap.before);
}
static CUresult do_event_synchronize(void)
{
    return cuEventSynchronize(cap.before);
}
static CUresult do_captured_event_query(void)
{
    const CUresult result = cuEventRecord(cap.inside, cap.stream);
    return result == CUDA_SUCCESS ? cuEventQuery(cap.inside) : result;
}
static CUresult do_captured_event_synchronize(void)
{
    const CUresult result = cuEventRecord(cap.inside, cap.stream);
    return result == CUDA_SUCCESS ? cuEventSynchronize(cap.inside) : result;
}
static CUresult do_alloc(void)
{
    CUdeviceptr p;
    return cuMemAlloc(&p, 4096);
}
static CUresult do_free(void)
{
    return cuMemFree(cap.memory);
}
static CUresult do_free_null(void)
{
    return cuMemFree(0);
}
static CUresult do_free_unknown(void)
{
    return cuMemFree((CUdeviceptr)1 << 40);
}
static CUresult do_host_alloc(void)
{
    void *p;
    return cuMemHostAlloc(&p, 4096, 0);
}
static CUresult do_free_host(void)
{
    return cuMemFreeHost(cap.pinned);
}
static CUresult do_register(void)
{
    static char area[8192];
    const CUresult result = cuMemHostRegister(area, sizeof area, 0);
    if (result == CUDA_SUCCESS)
        cuMemHostUnregister(area);
    return result;
}
static CUresult do_get_info(void)
{
    size_t a, b;
    return cuMemGetInfo(&a, &b);
}
static CUresult do_vmm(void)
{
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;
    const CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 0);
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemCreate(&h, 2 * MIB, &prop, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemMap(p, 2 * MIB, 0, h, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemSetAccess(p, 2 * MIB, &desc, 1);
    if (result == CUDA_SUCCESS)
        result = cuMemUnmap(p, 2 * MIB);
    if (result == CUDA_SUCCESS)
        result = cuMemRelease(h);
    if (result == CUDA_SUCCESS)
        result = cuMemAddressFree(p, 2 * MIB);
    return result;
}
static CUresult do_copy(void)
{
    static char bytes[4096];
    return cuMemcpyHtoD(cap.memory, bytes, sizeof bytes);
}
static CUresult do_copy_async(void)
{
    return cuMemcpyHtoDAsync(cap.memory, cap.pinned, 4096, cap.stream);
}
static CUresult do_copy_async_pageable(void)
{
    static char bytes[4096];
    return cuMemcpyHtoDAsync(cap.memory, bytes, sizeof bytes, cap.stream);
}
static CUresult do_set(void)
{
    return cuMemsetD8(cap.memory, 0, 4096);
}
static CUresult do_set_async(void)
{
    return cuMemsetD8Async(cap.memory, 0, 4096, cap.stream);
}
static void CUDA_CB old_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}
static CUresult do_callback(void)
{
    return cuStreamAddCallback(cap.stream, old_callback, NULL, 0);
}
static void CUDA_CB host_function(void *data)
{
    (void)data;
}
static CUresult do_host_function(void)
{
    return cuLaunchHostFunc(cap.stream, host_function, NULL);
}
static CUresult do_load(void)
{
    return cuModuleLoadData(&cap.loaded, fact_ptx);
}
static CUresult do_unload(void)
{
    return cuModuleUnload(cap.loaded_before);
}
static CUresult do_get_function(void)
{
    CUfunction function;
    return cuModuleGetFunction(&function, module, "gm_empty");
}
static CUresult do_create_stream(void)
{
    CUstream s;
    const CUresult result = cuStreamCreate(&s, 0);
    if (result == CUDA_SUCCESS)
        cuStreamDestroy(s);
    return result;
}
static CUresult do_create_event(void)
{
    CUevent e;
    const CUresult result = cuEventCreate(&e, 0);
    if (result == CUDA_SUCCESS)
        cuEventDestroy(e);
    return result;
}
static CUresult do_wait_before(void)
{
    return cuStreamWaitEvent(cap.stream, cap.before, 0);
}
static CUresult do_wait_other(void)
{
    return cuStreamWaitEvent(cap.other, cap.before, 0);
}
static CUresult do_fork(void)
{
    CUresult result = cuEventRecord(cap.inside, cap.stream);
    if (result == CUDA_SUCCESS)
        result = cuStreamWaitEvent(cap.other, cap.inside, 0);
    return result == CUDA_SUCCESS ? do_launch_other() : result;
}
static CUresult do_fork_and_join(void)
{
    CUresult result = do_fork();
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(cap.inside, cap.other);
    return result == CUDA_SUCCESS ? cuStreamWaitEvent(cap.stream, cap.inside, 0) : result;
}
static CUresult do_fork_idle(void)
{
    CUresult result = cuEventRecord(cap.inside, cap.stream);
    return result == CUDA_SUCCESS ? cuStreamWaitEvent(cap.other, cap.inside, 0) : result;
}
static CUresult do_fork_legacy(void)
{
    CUresult result = cuEventRecord(cap.inside, cap.stream);
    return result == CUDA_SUCCESS ? cuStreamWaitEvent(NULL, cap.inside, 0) : result;
}
static CUresult do_end_other(void)
{
    CUgraph graph;
    const CUresult result = do_fork();
    return result == CUDA_SUCCESS ? cuStreamEndCapture(cap.other, &graph) : result;
}
static CUresult do_begin_again(void)
{
    return cuStreamBeginCapture(cap.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
static CUresult do_is_capturing_legacy(void)
{
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(NULL, &status);
}
static CUresult do_destroy_event(void)
{
    CUevent e;
    CUresult result = cuEventCreate(&e, 0);
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(e, cap.stream);
    return result == CUDA_SUCCESS ? cuEventDestroy(e) : result;
}
static CUresult do_write_value(void)
{
    return cuStreamWriteValue32(cap.stream, cap.memory, 1, 0);
}

static action *const actions[] = {
    do_nothing,
    do_launch,
    do_launch_other,
    do_launch_outside,
    do_launch_legacy,
    do_ctx_synchronize,
    do_synchronize,
    do_synchronize_other,
    do_synchronize_outside,
    do_synchronize_legacy,
    do_query,
    do_query_other,
    do_query_legacy,
    do_event_query,
    do_event_synchronize,
    do_captured_event_query,
    do_captured_event_synchronize,
    do_alloc,
    do_free,
    do_free_null,
    do_free_unknown,
    do_host_alloc,
    do_free_host,
    do_register,
    do_get_info,
    do_vmm,
    do_copy,
    do_copy_async,
    do_copy_async_pageable,
    do_set,
    do_set_async,
    do_callback,
    do_host_function,
    do_load,
    do_unload,
    do_get_function,
    do_create_stream,
    do_create_event,
    do_wait_before,
    do_wait_other,
    do_fork,
    do_fork_and_join,
    do_fork_idle,
    do_fork_legacy,
    do_end_other,
    do_begin_again,
    do_is_capturing_legacy,
    do_destroy_event,
    do_write_value,
};
static const char *const action_names[] = {
    "nothing",
    "launch",
    "launch in another stream",
    "launch in a non-blocking stream",
    "launch in the legacy stream",
    "cuCtxSynchronize",
    "synchronize it",
    "synchronize another stream",
    "synchronize a non-blocking stream",
    "synchronize the legacy stream",
    "query it",
    "query another stream",
    "query the legacy stream",
    "query an event from before",
    "synchronize an event from before",
    "query a captured event",
    "synchronize a captured event",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemFree of NULL",
    "cuMemFree of anything",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister",
    "cuMemGetInfo",
    "create, map, unmap",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync of pinned memory",
    "cuMemcpyHtoDAsync of pageable memory",
    "cuMemsetD8",
    "cuMemsetD8Async",
    "cuStreamAddCallback",
    "cuLaunchHostFunc",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuStreamCreate",
    "cuEventCreate",
    "wait for an event from before",
    "another stream waits for an event from before",
    "fork",
    "fork and join",
    "fork without work",
    "fork to the legacy stream",
    "end in the forked stream",
    "begin again",
    "is the legacy stream capturing",
    "destroy a captured event",
    "write a value",
};
_Static_assert(sizeof actions / sizeof actions[0] == sizeof action_names / sizeof action_names[0],
               "every action has a name");

static CUstreamCaptureMode exchange(CUstreamCaptureMode mode)
{
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

struct elsewhere {
    action *act;
    CUstreamCaptureMode thread_mode;
    CUresult result;
};

static void *act_elsewhere(void *argument)
{
    struct elsewhere *e = argument;
    NEED(cuCtxSetCurrent(context));
    exchange(e->thread_mode);
    e->result = e->act();
    return NULL;
}

/* Begin a capture, act in it (here or in another thread), and say what becomes of it. */
static void ask_capture(const char *how, unsigned stream_flags, CUstreamCaptureMode mode,
                        CUstreamCaptureMode thread_mode, bool is_elsewhere, size_t i)
{
    NEED(cuStreamCreate(&cap.stream, stream_flags));
    NEED(cuStreamCreate(&cap.other, CU_STREAM_DEFAULT));
    NEED(cuStreamCreate(&cap.outside, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&cap.before, 0));
    NEED(cuEventCreate(&cap.inside, 0));
    NEED(cuMemAlloc(&cap.memory, 4096));
    NEED(cuMemHostAlloc(&cap.pinned, 4096, 0));
    NEED(cuModuleLoadData(&cap.loaded_before, fact_ptx));
    cap.loaded = NULL;
    NEED(cuEventRecord(cap.before, cap.other));
    NEED(cuCtxSynchronize());
    NEED(cuStreamBeginCapture(cap.stream, mode));
    struct elsewhere e = {actions[i], thread_mode, CUDA_SUCCESS};
    if (is_elsewhere) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, act_elsewhere, &e) != 0)
            exit(1);
        pthread_join(thread, NULL);
    } else {
        const CUstreamCaptureMode old = exchange(thread_mode);
        e.result = actions[i]();
        exchange(old);
    }
    CUstreamCaptureStatus status = 99;
    NEED(cuStreamIsCapturing(cap.stream, &status));
    CUgraph graph = (CUgraph)&graph;
    const CUresult end = cuStreamEndCapture(cap.stream, &graph);
    size_t n = 0;
    if (end == CUDA_SUCCESS)
        NEED(cuGraphGetNodes(graph, NULL, &n));
    printf("%s: %s: %s; status %d, end %s, nodes %zu%s\n", how, action_names[i],
           fact_name(e.result), (int)status, fact_name(end), n,
           end != CUDA_SUCCESS && graph != NULL ? ", graph not NULL" : "");
    fflush(stdout);
    if (end == CUDA_SUCCESS)
        NEED(cuGraphDestroy(graph));
    NEED(cuCtxSynchronize());
    /* The action may have freed these already. */
    cuMemFree(cap.memory);
    cuMemFreeHost(cap.pinned);
    if (cap.loaded != NULL)
        NEED(cuModuleUnload(cap.loaded));
    if (actions[i] != do_unload || e.result != CUDA_SUCCESS)
        NEED(cuModuleUnload(cap.loaded_before));
    NEED(cuEventDestroy(cap.before));
    NEED(cuEventDestroy(cap.inside));
    NEED(cuStreamDestroy(cap.stream));
    NEED(cuStreamDestroy(cap.other));
    NEED(cuStreamDestroy(cap.outside));
}

void facts_of_capture(void)
{
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const CUstreamCaptureMode local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    const size_t n = sizeof actions / sizeof actions[0];
    for (size_t i = 0; i < n; i++)
        ask_capture("global", CU_STREAM_DEFAULT, global, global, false, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("global, thread relaxed", CU_STREAM_DEFAULT, global, relaxed, false, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("global, non-blocking", CU_STREAM_NON_BLOCKING, global, global, false, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("local", CU_STREAM_DEFAULT, local, global, false, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("relaxed", CU_STREAM_DEFAULT, relaxed, global, false, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("global, elsewhere", CU_STREAM_NON_BLOCKING, global, global, true, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("local, elsewhere", CU_STREAM_NON_BLOCKING, local, global, true, i);
    for (size_t i = 0; i < n; i++)
        ask_capture("global, elsewhere relaxed", CU_STREAM_NON_BLOCKING, global, relaxed, true, i);
}

static CUstream ending;

static void *end_elsewhere(void *argument)
{
    CUgraph graph;
    NEED(cuCtxSetCurrent(context));
    *(CUresult *)argument = cuStreamEndCapture(ending, &graph);
    return NULL;
}

void facts_of_graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    CUstream stream;
    CUstreamCaptureStatus status;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuEventCreate(&event, 0));
    fact("end what did not begin", cuStreamEndCapture(stream, &graph));
    fact("begin in the legacy stream", cuStreamBeginCapture(NULL, 0));
    fact("begin with an unknown mode", cuStreamBeginCapture(stream, 7));
    NEED(cuStreamIsCapturing(stream, &status));
    fact_number("status when nothing captures", (long long)status);
    NEED(cuStreamBeginCapture(stream, 0));
    NEED(cuEventRecord(event, stream));
    NEED(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    NEED(cuLaunchHostFunc(stream, host_function, NULL));
    NEED(cuStreamEndCapture(stream, &graph));
    fact("query a captured event after the end", cuEventQuery(event));
    fact("synchronize a captured event after the end", cuEventSynchronize(event));
    fact("wait for a captured event after the end", cuStreamWaitEvent(stream, event, 0));
    CUgraphNode nodes[3] = {NULL, NULL, NULL};
    size_t n = 3;
    fact("nodes into 3 places", cuGraphGetNodes(graph, nodes, &n));
    fact_number("  nodes", (long long)n);
    CUgraphNodeType type;
    NEED(cuGraphNodeGetType(nodes[0], &type));
    fact_number("  type of the first", (long long)type);
    NEED(cuGraphNodeGetType(nodes[1], &type));
    fact_number("  type of the second", (long long)type);
    fact_number("  third is NULL", nodes[2] == NULL);
    fact("instantiate with unknown flags", cuGraphInstantiateWithFlags(&exec, graph, 1ull << 40));
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    NEED(cuGraphDestroy(graph));
    fact("launch after the graph was destroyed", cuGraphLaunch(exec, stream));
    fact("destroy it right away", cuGraphExecDestroy(exec));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    fact("launch an empty graph", cuGraphLaunch(exec, stream));
    fact("upload", cuGraphUpload(exec, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));

    CUresult result = CUDA_SUCCESS;
    pthread_t thread;
    ending = stream;
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (pthread_create(&thread, NULL, end_elsewhere, &result) != 0)
        exit(1);
    pthread_join(thread, NULL);
    fact("end in another thread", result);
    NEED(cuStreamIsCapturing(stream, &status));
    fact_number("  status", (long long)status);
    fact("  end here", cuStreamEndCapture(stream, &graph));
    NEED(cuEventDestroy(event));
    NEED(cuStreamDestroy(stream));
}

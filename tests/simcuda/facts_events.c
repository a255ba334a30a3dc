/* Facts of cuCtxRecordEvent: an event that stands for all work of a context. What it sees, and what
 * it leaves alone. */
#include "tests/simcuda/facts.h"

#include <pthread.h>

static unsigned *flag; /* kernels and host functions run until it is set */

static void begin_spin(CUstream stream)
{
    void *params[] = {&flag};
    NEED(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void begin_graph(CUstream stream)
{
    CUstream other;
    CUgraph graph;
    CUgraphExec exec;
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    begin_spin(other);
    NEED(cuStreamEndCapture(other, &graph));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    NEED(cuStreamDestroy(other));
}

static void CUDA_CB wait_for_flag(void *unused)
{
    (void)unused;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0)
        continue;
}

static void begin_host_function(CUstream stream)
{
    NEED(cuLaunchHostFunc(stream, wait_for_flag, NULL));
}

/* Work in `stream`, an event of the context, a look, the end of the work, the end of the event. */
static void ask(const char *what, CUcontext of, CUstream stream, void (*begin)(CUstream))
{
    CUevent event;
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin(stream);
    const CUresult recorded = cuCtxRecordEvent(of, event);
    const CUresult before = cuEventQuery(event);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    const CUresult after = cuEventSynchronize(event);
    printf("%s: record %s, then %s, at the end %s\n", what, fact_name(recorded), fact_name(before),
           fact_name(after));
    fflush(stdout);
    NEED(cuCtxSynchronize());
    NEED(cuEventDestroy(event));
}

/* What it sees. */
static void ask_streams(CUcontext of)
{
    CUstream blocking, other, first;
    int least = 0, greatest = 0;
    NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
    NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, greatest));
    ask("a kernel in the legacy stream", of, CU_STREAM_LEGACY, begin_spin);
    ask("a kernel in the thread's default stream", of, CU_STREAM_PER_THREAD, begin_spin);
    ask("a kernel in a blocking stream", of, blocking, begin_spin);
    ask("a kernel in a non-blocking stream", of, other, begin_spin);
    ask("a kernel in a stream of high priority", of, first, begin_spin);
    ask("a graph", of, other, begin_graph);
    ask("a host function", of, other, begin_host_function);
    NEED(cuStreamDestroy(blocking));
    NEED(cuStreamDestroy(other));
    NEED(cuStreamDestroy(first));
}

/* What it leaves alone: streams that go on, before they end and after. */
static void ask_beside(void)
{
    CUstream busy, blocking, other;
    CUevent event, second;
    NEED(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    begin_spin(busy);
    NEED(cuCtxRecordEvent(context, event));
    NEED(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL));
    fact("a non-blocking stream goes on", cuStreamSynchronize(other));
    NEED(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, blocking, NULL, NULL));
    fact("a blocking stream goes on", cuStreamSynchronize(blocking));
    NEED(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, NULL, NULL));
    fact("the legacy stream goes on", cuStreamSynchronize(CU_STREAM_LEGACY));
    NEED(cuCtxRecordEvent(context, second));
    fact("record it again", cuCtxRecordEvent(context, event));
    fact("destroy one that is not passed", cuEventDestroy(second));
    fact("query the other one", cuEventQuery(event));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuCtxSynchronize());
    fact("query it after cuCtxSynchronize", cuEventQuery(event));
    NEED(cuEventDestroy(event));
    NEED(cuStreamDestroy(busy));
    NEED(cuStreamDestroy(blocking));
    NEED(cuStreamDestroy(other));
}

struct other_thread {
    CUevent event;
    bool is_recording;
    CUresult result;
};

static void *act_relaxed(void *argument)
{
    struct other_thread *other = argument;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    NEED(cuCtxSetCurrent(context));
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    other->result =
        other->is_recording ? cuCtxRecordEvent(context, other->event) : cuEventQuery(other->event);
    return NULL;
}

/* Beside a capture of another thread, from a thread in relaxed mode. */
static void ask_capture(const char *what, bool is_recording)
{
    struct other_thread other = {.is_recording = is_recording};
    CUstreamCaptureStatus status;
    CUstream stream;
    CUgraph graph;
    pthread_t thread;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&other.event, CU_EVENT_DISABLE_TIMING));
    NEED(cuCtxRecordEvent(context, other.event));
    NEED(cuEventSynchronize(other.event));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (pthread_create(&thread, NULL, act_relaxed, &other) != 0)
        exit(1);
    pthread_join(thread, NULL);
    fact(what, other.result);
    NEED(cuStreamIsCapturing(stream, &status));
    fact_number("  status", status);
    const CUresult end = cuStreamEndCapture(stream, &graph);
    fact("  end", end);
    if (end == CUDA_SUCCESS)
        NEED(cuGraphDestroy(graph));
    NEED(cuEventDestroy(other.event));
    NEED(cuStreamDestroy(stream));
}

void facts_of_context_events(void)
{
    CUcontext own, popped;
    CUevent event, foreign;
    NEED(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_PORTABLE));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ask_streams(context);
    ask_beside();
    ask_capture("beside a capture: record", true);
    ask_capture("beside a capture: query one from before", false);

    NEED(cuCtxCreate(&own, NULL, 0, device));
    NEED(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    fact("record an event of another context", cuCtxRecordEvent(context, foreign));
    NEED(cuModuleLoadData(&module, fact_ptx));
    NEED(cuModuleGetFunction(&spin_until, module, "gm_spin_until"));
    ask("a kernel in a created context", own, CU_STREAM_LEGACY, begin_spin);
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    begin_spin(CU_STREAM_LEGACY);
    NEED(cuCtxPopCurrent(&popped));
    fact("record while the other context is busy", cuCtxRecordEvent(context, event));
    fact("  synchronize it", cuEventSynchronize(event));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    NEED(cuEventDestroy(event));
    NEED(cuEventDestroy(foreign));
    NEED(cuCtxDestroy(own));
}

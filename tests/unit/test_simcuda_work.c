/*
 * The simulated driver (tests/simcuda), work: order of streams and events, copies and sets,
 * kernels, capture and replay. Memory and processes are in test_simcuda.c.
 */
#include "tests/simcuda/testing.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>

/* ---- streams and events ---- */

struct order {
    int next;
    int seen[64];
};

struct note {
    struct order *order;
    int number;
};

static void CUDA_CB write_note(void *data)
{
    const struct note *note = data;
    note->order->seen[note->order->next++] = note->number;
}

static void test_a_stream_keeps_order(void **state)
{
    (void)state;
    CUstream stream;
    struct order order = {0};
    struct note notes[64];
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 64; i++) {
        notes[i] = (struct note){&order, i};
        ok(cuLaunchHostFunc(stream, write_note, &notes[i]));
    }
    ok(cuStreamSynchronize(stream));
    assert_int_equal(order.next, 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(order.seen[i], i);
    ok(cuStreamDestroy(stream));
}

/* Start a kernel that runs until *flag is set. */
static void spin_until(CUstream stream, uint32_t *flag)
{
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    void *params[] = {&flag};
    ok(launch("gm_spin_until", stream, params));
}

static void let_go(uint32_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void test_events_order_streams(void **state)
{
    (void)state;
    CUstream a, b;
    CUevent event, after;
    uint32_t flag;
    struct order order = {0};
    struct note first = {&order, 1}, second = {&order, 2};
    ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, 0));
    ok(cuEventCreate(&after, 0));
    spin_until(a, &flag);
    ok(cuLaunchHostFunc(a, write_note, &first));
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuLaunchHostFunc(b, write_note, &second));
    ok(cuEventRecord(after, b));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    /* A wait is for what was recorded then, not for what comes later. */
    ok(cuEventRecord(event, a));
    ok(cuStreamDestroy(a));
    let_go(&flag);
    ok(cuEventSynchronize(after));
    ok(cuEventSynchronize(event));
    assert_int_equal(order.next, 2);
    assert_int_equal(order.seen[0], 1);
    assert_int_equal(order.seen[1], 2);
    float ms = -1;
    ok(cuEventElapsedTime(&ms, event, after));
    assert_true(ms > -600000 && ms < 600000);
    ok(cuEventDestroy(event));
    ok(cuEventDestroy(after));
    ok(cuStreamDestroy(b));
}

static void test_elapsed_time(void **state)
{
    (void)state;
    CUevent from, to;
    uint64_t ns = 30000000;
    void *params[] = {&ns};
    ok(cuEventCreate(&from, 0));
    ok(cuEventCreate(&to, 0));
    ok(cuEventRecord(from, NULL));
    ok(launch("gm_spin", NULL, params));
    ok(cuEventRecord(to, NULL));
    ok(cuEventSynchronize(to));
    float ms = 0;
    ok(cuEventElapsedTime(&ms, from, to));
    assert_true(ms >= 29.9f && ms < 600000);
    ok(cuEventDestroy(from));
    ok(cuEventDestroy(to));
}

/* An event of the context stands for all its streams, and no stream waits for it. */
static void test_an_event_of_the_context(void **state)
{
    (void)state;
    CUcontext other;
    CUstream streams[3], late;
    CUevent event;
    uint32_t flags[3];
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    streams[2] = CU_STREAM_PER_THREAD;
    ok(cuStreamCreate(&late, CU_STREAM_DEFAULT));
    for (int i = 0; i < 3; i++)
        spin_until(streams[i], &flags[i]);
    ok(cuCtxRecordEvent(context, event));
    ok(launch("gm_empty", late, NULL));
    ok(cuStreamSynchronize(late));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        let_go(&flags[i]);
        ok(cuStreamSynchronize(streams[i]));
    }
    ok(cuEventSynchronize(event));
    ok(cuEventQuery(event));

    /* What comes after it does not count. */
    ok(cuCtxRecordEvent(context, event));
    spin_until(streams[0], &flags[0]);
    ok(cuEventSynchronize(event));
    ok(cuCtxRecordEvent(context, event));
    ok(cuEventDestroy(event)); /* not passed yet */
    let_go(&flags[0]);
    ok(cuStreamSynchronize(streams[0])); /* it looks at a flag of ours */

    ok(cuCtxCreate(&other, NULL, 0, 0));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_int_equal(cuCtxRecordEvent(context, event), CUDA_ERROR_INVALID_HANDLE);
    ok(cuCtxRecordEvent(other, event));
    ok(cuEventDestroy(event));
    ok(cuCtxDestroy(other));
    ok(cuStreamDestroy(streams[0]));
    ok(cuStreamDestroy(streams[1]));
    ok(cuStreamDestroy(late));
}

static void test_the_legacy_stream_orders_blocking_streams(void **state)
{
    (void)state;
    CUstream blocking, other, free_one;
    uint32_t flag;
    struct order order = {0};
    struct note one = {&order, 1}, two = {&order, 2}, three = {&order, 3};
    ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    ok(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    ok(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    spin_until(blocking, &flag);
    ok(cuLaunchHostFunc(blocking, write_note, &one));
    ok(cuLaunchHostFunc(NULL, write_note, &two));    /* behind `blocking` */
    ok(cuLaunchHostFunc(other, write_note, &three)); /* behind the legacy stream */
    ok(launch("gm_empty", free_one, NULL));
    ok(cuStreamSynchronize(free_one)); /* would hang if it were ordered */
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    let_go(&flag);
    ok(cuStreamSynchronize(other));
    assert_int_equal(order.next, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(order.seen[i], i + 1);
    ok(cuStreamDestroy(blocking));
    ok(cuStreamDestroy(other));
    ok(cuStreamDestroy(free_one));
}

static void *use_own_default_stream(void *argument)
{
    uint32_t *flag = argument;
    CUstream mine = CU_STREAM_PER_THREAD;
    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return NULL;
    CUfunction f;
    void *params[] = {&flag};
    if (cuModuleGetFunction(&f, module, "gm_spin_until") != CUDA_SUCCESS ||
        cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, mine, params, NULL) != CUDA_SUCCESS)
        return NULL;
    return argument;
}

static void test_every_thread_has_a_default_stream(void **state)
{
    (void)state;
    CUresult (*launch_ptsz)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void **, void **);
    CUresult (*synchronize_ptsz)(CUstream);
    *(void **)&launch_ptsz = dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz");
    *(void **)&synchronize_ptsz = dlsym(RTLD_DEFAULT, "cuStreamSynchronize_ptsz");
    static uint32_t flag;
    pthread_t thread;
    void *result = NULL;
    __atomic_store_n(&flag, 0, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, use_own_default_stream, &flag), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &flag);
    /* Its thread is gone and its kernel runs on; this thread's stream is another. */
    ok(launch_ptsz(function("gm_empty"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ok(synchronize_ptsz(NULL));
    ok(cuStreamQuery(CU_STREAM_PER_THREAD));
    let_go(&flag);
    ok(cuCtxSynchronize());
}

static CUstream full_stream;
static _Atomic unsigned launched;

static void *launch_many(void *argument)
{
    const CUfunction f = argument;
    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return NULL;
    for (; launched < 3000; launched++) {
        if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, full_stream, NULL, NULL) != CUDA_SUCCESS)
            return NULL;
    }
    return argument;
}

static void test_a_full_queue_makes_callers_wait(void **state)
{
    (void)state;
    uint32_t flag;
    pthread_t thread;
    void *result = NULL;
    ok(cuStreamCreate(&full_stream, CU_STREAM_NON_BLOCKING));
    spin_until(full_stream, &flag);
    assert_int_equal(pthread_create(&thread, NULL, launch_many, function("gm_empty")), 0);
    while (launched < 1000)
        usleep(1000);
    usleep(50000);
    assert_true(launched < 1100);
    let_go(&flag);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_int_equal(launched, 3000);
    ok(cuStreamSynchronize(full_stream));
    ok(cuStreamDestroy(full_stream));
}

static int count_threads(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void test_streams_are_cheap(void **state)
{
    (void)state;
    CUstream streams[128];
    const int before = count_threads();
    for (int i = 0; i < 128; i++)
        ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    ok(cuCtxSynchronize());
    assert_true(count_threads() <= before);
    for (int i = 0; i < 128; i++)
        ok(cuStreamDestroy(streams[i]));
}

static CUresult callback_result;

static void CUDA_CB call_in_callback(void *data)
{
    callback_result = cuMemAlloc((CUdeviceptr *)data, 1);
}

static void CUDA_CB old_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    *(CUresult *)data = status;
}

static void test_callbacks(void **state)
{
    (void)state;
    CUdeviceptr p;
    CUresult status = CUDA_ERROR_UNKNOWN;
    CUstream stream;
    ok(cuStreamCreate(&stream, 0));
    ok(cuLaunchHostFunc(stream, call_in_callback, &p));
    ok(cuStreamAddCallback(stream, old_callback, &status, 0));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(callback_result, CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(status, CUDA_SUCCESS);
    ok(cuStreamDestroy(stream));
}

static void test_values_in_streams(void **state)
{
    (void)state;
    CUstream a, b;
    CUdeviceptr p;
    ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    ok(cuMemAlloc(&p, 16));
    ok(cuMemsetD32(p, 0, 4));
    ok(cuCtxSynchronize());
    ok(cuStreamWaitValue32(a, p, 3, CU_STREAM_WAIT_VALUE_GEQ));
    ok(cuStreamWriteValue64(a, p + 8, 1ull << 40, 0));
    ok(cuStreamWaitValue64(b, p + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    assert_int_equal(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    CUstream c;
    ok(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    ok(cuStreamWriteValue32(c, p, 4, 0));
    ok(cuStreamSynchronize(b)); /* it saw what a wrote */
    ok(cuStreamSynchronize(a));
    ok(cuStreamQuery(a));
    ok(cuMemFree(p));
    ok(cuStreamDestroy(a));
    ok(cuStreamDestroy(b));
    ok(cuStreamDestroy(c));
}

/* ---- copies and sets ---- */

static void test_lines(void **state)
{
    (void)state;
    CUdeviceptr p, q;
    unsigned char in[1000], out[1000];
    CUstream stream;
    ok(cuStreamCreate(&stream, 0));
    ok(cuMemAlloc(&p, 1000));
    ok(cuMemAlloc(&q, 1000));
    for (int i = 0; i < 1000; i++)
        in[i] = (unsigned char)(i * 7);
    ok(cuMemcpyHtoD(p, in, 1000));
    ok(cuMemcpyDtoD(q, p, 1000));
    ok(cuMemcpyDtoH(out, q, 1000));
    assert_memory_equal(in, out, 1000);
    memset(out, 0, sizeof out);
    in[3] = 99;
    ok(cuMemcpyHtoDAsync(p, in, 1000, stream));
    in[3] = 98; /* pageable memory is read before the call returns */
    ok(cuMemcpyDtoDAsync(q, p, 1000, stream));
    ok(cuMemcpyDtoHAsync(out, q, 1000, stream));
    assert_int_equal(out[3], 99); /* and written */
    in[3] = 99;
    assert_memory_equal(in, out, 1000);
    ok(cuMemsetD8(q, 0, 1000));
    ok(cuMemcpy(q, p, 1000));
    ok(cuMemcpyAsync((CUdeviceptr)(uintptr_t)out, q, 1000, stream));
    assert_memory_equal(in, out, 1000);
    ok(cuMemsetD32(p, 0x01020304, 250));
    ok(cuMemsetD16Async(p, 0x0506, 2, stream));
    ok(cuMemsetD8Async(p + 999, 9, 1, stream));
    ok(cuMemcpyDtoH(out, p, 1000));
    assert_int_equal(out[0], 6);
    assert_int_equal(out[3], 5);
    assert_int_equal(out[4], 4);
    assert_int_equal(out[998], 2);
    assert_int_equal(out[999], 9);
    ok(cuMemFree(p));
    ok(cuMemFree(q));
    ok(cuStreamDestroy(stream));
}

static void test_boxes(void **state)
{
    (void)state;
    CUdeviceptr p;
    size_t pitch;
    unsigned char in[8 * 10], out[8 * 10];
    ok(cuMemAllocPitch(&p, &pitch, 10, 8, 4));
    assert_true(pitch >= 10);
    ok(cuMemsetD2D8(p, pitch, 0xee, 10, 8));
    for (int i = 0; i < 80; i++)
        in[i] = (unsigned char)i;
    CUDA_MEMCPY2D m;
    memset(&m, 0, sizeof m);
    m.srcMemoryType = CU_MEMORYTYPE_HOST;
    m.srcHost = in;
    m.srcPitch = 10;
    m.srcXInBytes = 2;
    m.srcY = 1;
    m.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    m.dstDevice = p;
    m.dstPitch = pitch;
    m.dstXInBytes = 1;
    m.dstY = 2;
    m.WidthInBytes = 5;
    m.Height = 3;
    ok(cuMemcpy2D(&m));
    CUDA_MEMCPY3D b;
    memset(&b, 0, sizeof b);
    b.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    b.srcDevice = p;
    b.srcPitch = pitch;
    b.srcHeight = 4;
    b.dstMemoryType = CU_MEMORYTYPE_HOST;
    b.dstHost = out;
    b.dstPitch = 10;
    b.dstHeight = 4;
    b.WidthInBytes = 10;
    b.Height = 4;
    b.Depth = 2;
    ok(cuMemcpy3D(&b));
    for (int y = 0; y < 8; y++) {
        for (int x = 0; x < 10; x++) {
            const bool is_inside = x >= 1 && x < 6 && y >= 2 && y < 5;
            assert_int_equal(out[y * 10 + x], is_inside ? in[(y - 1) * 10 + x + 1] : 0xee);
        }
    }
    m.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    assert_int_equal(cuMemcpy2D(&m), CUDA_ERROR_NOT_SUPPORTED);
    ok(cuMemFree(p));
}

/* ---- kernels ---- */

static void test_kernels(void **state)
{
    (void)state;
    CUdeviceptr p, c;
    uint64_t n = 1000, seed = 1, next = 2;
    ok(cuMemAlloc(&p, n * 8));
    ok(cuMemAlloc(&c, 8));
    ok(cuMemsetD8(c, 0, 8));
    ok(fill(p, n, seed, NULL));
    uint64_t value = 0;
    ok(cuMemcpyDtoH(&value, p, 8));
    assert_true(value == 0x5d8fc126c1a0a0e8ull); /* as kernels.cu has it */
    ok(cuMemcpyHtoD(p + 8 * 500, &value, 8));
    void *refill[] = {&p, &n, &seed, &next, &c};
    ok(launch("gm_verify_refill", NULL, refill));
    unsigned long long bad = 0;
    ok(cuMemcpyDtoH(&bad, c, 8));
    assert_int_equal(bad, 1);
    assert_int_equal(mismatches(p, n, next), 0);
    void *sweep[] = {&p, &n};
    uint64_t before[2], after[2];
    ok(cuMemcpyDtoH(before, p, 16));
    ok(launch("gm_sweep", NULL, sweep));
    ok(cuMemcpyDtoH(after, p, 16));
    assert_true(after[0] == before[0] + 1 && after[1] == before[1] + 1);
    ok(cuMemFree(p));
    ok(cuMemFree(c));

    float a[16], b[16], sum[16], product[16];
    CUdeviceptr da, db, dc;
    for (int i = 0; i < 16; i++) {
        a[i] = (float)i / 3;
        b[i] = (float)(16 - i);
    }
    ok(cuMemAlloc(&da, sizeof a));
    ok(cuMemAlloc(&db, sizeof a));
    ok(cuMemAlloc(&dc, sizeof a));
    ok(cuMemcpyHtoD(da, a, sizeof a));
    ok(cuMemcpyHtoD(db, b, sizeof b));
    n = 16;
    void *add[] = {&da, &db, &dc, &n};
    ok(launch("gm_vector_add", NULL, add));
    ok(cuMemcpyDtoH(sum, dc, sizeof sum));
    uint32_t width = 4;
    void *multiply[] = {&da, &db, &dc, &width};
    ok(launch("gm_matmul", NULL, multiply));
    ok(cuMemcpyDtoH(product, dc, sizeof product));
    for (int i = 0; i < 16; i++) {
        assert_true(sum[i] == a[i] + b[i]);
        float expected = 0;
        for (int k = 0; k < 4; k++)
            expected = fmaf(a[i / 4 * 4 + k], b[k * 4 + i % 4], expected);
        assert_true(product[i] == expected);
    }
    ok(cuMemFree(da));
    ok(cuMemFree(db));
    ok(cuMemFree(dc));
    CUfunction f;
    assert_int_equal(cuModuleGetFunction(&f, module, "not_this_one"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetFunction(&f, module, "some_other"), CUDA_ERROR_NOT_FOUND);
}

static void test_forms_of_launches(void **state)
{
    (void)state;
    CUdeviceptr p;
    uint64_t n = 10, value = 0;
    ok(cuMemAlloc(&p, n * 8));
    ok(cuMemsetD8(p, 0, n * 8));
    struct {
        CUdeviceptr p;
        uint64_t n;
    } block = {p, n};
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *params[] = {&p, &n};
    const CUfunction f = function("gm_sweep");
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    ok(cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params));
    CUlaunchConfig config;
    memset(&config, 0, sizeof config);
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    ok(cuLaunchKernelEx(&config, f, params, NULL));
    CUlibrary library;
    CUkernel kernel;
    CUfunction of_kernel;
    ok(cuLibraryLoadData(&library, roles_ptx, NULL, NULL, 0, NULL, NULL, 0));
    ok(cuLibraryGetKernel(&kernel, library, "gm_sweep"));
    ok(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ok(cuKernelGetFunction(&of_kernel, kernel));
    ok(cuLaunchKernel(of_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ok(cuLibraryUnload(library));
    ok(cuMemcpyDtoH(&value, p + 72, 8));
    assert_int_equal(value, 6);
    ok(cuMemFree(p));
    int blocks = 0;
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 0));
    assert_int_equal(blocks, 8);
}

/* ---- capture and replay ---- */

static void CUDA_CB count_up(void *data)
{
    ++*(int *)data;
}

static void test_capture_and_replay(void **state)
{
    (void)state;
    CUstream stream, side;
    CUevent forked, joined;
    CUdeviceptr p, q;
    uint64_t n = 100, value = 1;
    int count = 0;
    void *params[] = {&p, &n};
    uint64_t *out;
    ok(cuStreamCreate(&stream, 0));
    ok(cuStreamCreate(&side, 0));
    ok(cuEventCreate(&forked, 0));
    ok(cuEventCreate(&joined, 0));
    ok(cuMemAlloc(&p, n * 8));
    ok(cuMemAlloc(&q, n * 8));
    ok(cuMemHostAlloc((void **)&out, n * 8, 0));
    ok(cuMemsetD8(q, 0xff, n * 8));
    ok(cuCtxSynchronize());
    memset(out, 0, n * 8);
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemsetD32Async(p, 0, n * 2, stream));
    ok(launch("gm_sweep", stream, params));
    ok(cuEventRecord(forked, stream));
    ok(cuStreamWaitEvent(side, forked, 0));
    ok(launch("gm_sweep", side, params));
    ok(cuMemcpyDtoDAsync(q, p, n * 8, side));
    ok(cuEventRecord(joined, side));
    ok(cuStreamWaitEvent(stream, joined, 0));
    ok(cuMemcpyDtoHAsync(out, q, n * 8, stream));
    ok(cuLaunchHostFunc(stream, count_up, &count));
    CUstreamCaptureStatus status;
    CUgraph graph, during;
    cuuint64_t id = 0;
    const CUgraphNode *deps;
    size_t n_deps = 0;
    ok(cuStreamGetCaptureInfo(stream, &status, &id, &during, &deps, NULL, &n_deps));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(n_deps, 1);
    ok(cuStreamIsCapturing(side, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok(cuStreamEndCapture(stream, &graph));
    assert_ptr_equal(during, graph);
    assert_int_equal(count, 0);
    assert_int_equal(out[0], 0);
    ok(cuMemcpyDtoH(&value, q, 8));
    assert_true(value == ~0ull); /* nothing ran */

    static const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL,
                                               CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                               CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST};
    CUgraphNode nodes[6];
    size_t n_nodes = 0;
    ok(cuGraphGetNodes(graph, NULL, &n_nodes));
    assert_int_equal(n_nodes, 6);
    ok(cuGraphGetNodes(graph, nodes, &n_nodes));
    for (int i = 0; i < 6; i++) {
        CUgraphNodeType type;
        ok(cuGraphNodeGetType(nodes[i], &type));
        assert_int_equal(type, expected[i]);
    }
    CUgraphExec exec;
    ok(cuGraphInstantiate(&exec, graph, 0));
    ok(cuGraphDestroy(graph));
    for (int i = 0; i < 5; i++)
        ok(cuGraphLaunch(exec, i % 2 == 0 ? stream : side));
    ok(cuCtxSynchronize());
    assert_int_equal(count, 5);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[n - 1], 2);

    /* A graph launched while capturing becomes a node of the other graph. */
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(cuGraphLaunch(exec, stream));
    ok(cuGraphLaunch(exec, stream));
    ok(cuStreamEndCapture(stream, &graph));
    CUgraphExec outer;
    CUDA_GRAPH_INSTANTIATE_PARAMS with;
    memset(&with, 0, sizeof with);
    ok(cuGraphInstantiateWithParams(&outer, graph, &with));
    assert_int_equal(with.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphUpload(outer, stream));
    ok(cuGraphLaunch(outer, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(count, 7);
    ok(cuGraphExecDestroy(outer));
    ok(cuGraphDestroy(graph));
    ok(cuEventDestroy(forked));
    ok(cuEventDestroy(joined));
    ok(cuStreamDestroy(side));
    ok(cuStreamDestroy(stream));
    ok(cuMemFreeHost(out));
    ok(cuMemFree(p));
    ok(cuMemFree(q));
}

static void test_capture_to_graph(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph, same;
    CUgraphNode node;
    CUgraphExec exec;
    int count = 0;
    size_t n = 1;
    ok(cuStreamCreate(&stream, 0));
    ok(cuGraphCreate(&graph, 0));
    ok(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuLaunchHostFunc(stream, count_up, &count));
    ok(cuStreamEndCapture(stream, &same));
    assert_ptr_equal(same, graph);
    ok(cuGraphGetNodes(graph, &node, &n));
    ok(cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuLaunchHostFunc(stream, count_up, &count));
    ok(cuStreamEndCapture(stream, &same));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuGraphLaunch(exec, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(count, 2);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuStreamDestroy(stream));
}

/* Capture, do what is not allowed, and see the capture spoiled. */
static void check_spoiled(CUresult (*act)(CUstream), CUresult expected)
{
    CUstream stream;
    CUgraph graph = (CUgraph)&graph;
    CUstreamCaptureStatus status;
    ok(cuStreamCreate(&stream, 0));
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(act(stream), expected);
    ok(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    ok(cuCtxSynchronize());
    ok(cuStreamDestroy(stream));
}

static CUresult synchronize_context(CUstream stream)
{
    (void)stream;
    return cuCtxSynchronize();
}

static CUresult use_legacy_stream(CUstream stream)
{
    (void)stream;
    return cuLaunchHostFunc(NULL, count_up, NULL);
}

static CUresult allocate(CUstream stream)
{
    (void)stream;
    CUdeviceptr p;
    return cuMemAlloc(&p, 1);
}

static void test_what_spoils_a_capture(void **state)
{
    (void)state;
    check_spoiled(synchronize_context, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    check_spoiled(cuStreamSynchronize, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    check_spoiled(use_legacy_stream, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    check_spoiled(allocate, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* A thread in relaxed mode may allocate. */
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cuStreamCreate(&stream, 0));
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(cuMemAlloc(&p, 4096));
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    ok(cuStreamEndCapture(stream, &graph));
    ok(cuGraphDestroy(graph));
    ok(cuMemFree(p));
    ok(cuStreamDestroy(stream));
}

/* ---- main ---- */

int main(void)
{
    if (make_directory() != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_keeps_order),
        cmocka_unit_test(test_events_order_streams),
        cmocka_unit_test(test_elapsed_time),
        cmocka_unit_test(test_an_event_of_the_context),
        cmocka_unit_test(test_the_legacy_stream_orders_blocking_streams),
        cmocka_unit_test(test_every_thread_has_a_default_stream),
        cmocka_unit_test(test_a_full_queue_makes_callers_wait),
        cmocka_unit_test(test_streams_are_cheap),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_values_in_streams),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_forms_of_launches),
        cmocka_unit_test(test_capture_and_replay),
        cmocka_unit_test(test_capture_to_graph),
        cmocka_unit_test(test_what_spoils_a_capture),
    };
    const int failed = cmocka_run_group_tests(tests, set_up, NULL);
    remove_directory(directory);
    return failed;
}

/* gm_worker's modes about work: kernels, graphs, captures, streams, threads. See worker.h. */
#include "tests/programs/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static void hold(const struct gm_worker *worker)
{
    struct timespec span = {(time_t)(worker->hold_ns / GM_S), (long)(worker->hold_ns % GM_S)};
    nanosleep(&span, NULL);
}

/* c = a + b over all memory, each iteration on other numbers; the host checks every one. */
void gm_mode_vector(struct gm_worker *worker)
{
    uint64_t bytes = worker->bytes / 3 & ~7ull, n = bytes / sizeof(float);
    CUdeviceptr a, b, c;
    float *x = malloc(bytes), *y = malloc(bytes);
    if (x == NULL || y == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemAlloc, &a, bytes);
    GM_CU(worker, cuMemAlloc, &b, bytes);
    GM_CU(worker, cuMemAlloc, &c, bytes);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t r = gm_mix(worker->seed + worker->done, i);
            x[i] = (float)(r & 0xffff);
            y[i] = (float)(r >> 16 & 0xffff);
        }
        GM_CU(worker, cuMemcpyHtoDAsync, a, x, bytes, NULL);
        GM_CU(worker, cuMemcpyHtoDAsync, b, y, bytes, NULL);
        void *args[] = {&a, &b, &c, &n};
        gm_launch(worker, GM_KERNEL_VECTOR_ADD, NULL, args);
        GM_CU(worker, cuMemcpyDtoH, x, c, bytes);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t r = gm_mix(worker->seed + worker->done, i);
            worker->mismatches += x[i] != (float)((r & 0xffff) + (r >> 16 & 0xffff));
        }
    }
    GM_CU(worker, cuMemFree, c);
    GM_CU(worker, cuMemFree, b);
    GM_CU(worker, cuMemFree, a);
    free(y);
    free(x);
}

/*
 * c = a * b with b nearly a permutation, so that the host knows the product without computing it:
 * column j of c is twice column (j + 1) of a plus three times column (j + 7).
 */
void gm_mode_matmul(struct gm_worker *worker)
{
    const uint32_t n = 512;
    const uint64_t words = (uint64_t)n * n, bytes = words * sizeof(float);
    CUdeviceptr b, *a = calloc(worker->allocs, sizeof(*a)), *c = calloc(worker->allocs, sizeof(*c));
    float *host = malloc(bytes);
    if (a == NULL || c == NULL || host == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemAlloc, &b, bytes);
    for (uint64_t i = 0; i < words; i++)
        host[i] = 0;
    for (uint32_t j = 0; j < n; j++) {
        host[(uint64_t)((j + 1) % n) * n + j] = 2;
        host[(uint64_t)((j + 7) % n) * n + j] = 3;
    }
    GM_CU(worker, cuMemcpyHtoD, b, host, bytes);
    for (uint32_t k = 0; k < worker->allocs; k++) {
        GM_CU(worker, cuMemAlloc, &a[k], bytes);
        GM_CU(worker, cuMemAlloc, &c[k], bytes);
        for (uint64_t i = 0; i < words; i++)
            host[i] = (float)(gm_mix(worker->seed + k, i) & 0xfff);
        GM_CU(worker, cuMemcpyHtoD, a[k], host, bytes);
    }
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t k = 0; k < worker->allocs; k++) {
            uint32_t size = n;
            void *args[] = {&a[k], &b, &c[k], &size};
            gm_launch(worker, GM_KERNEL_MATMUL, NULL, args);
        }
        for (uint32_t k = 0; k < worker->allocs; k++) {
            GM_CU(worker, cuMemcpyDtoH, host, c[k], bytes);
            for (uint64_t i = 0; i < words; i++) {
                uint64_t row = i / n, col = i % n;
                uint64_t p = gm_mix(worker->seed + k, row * n + (col + 1) % n) & 0xfff;
                uint64_t q = gm_mix(worker->seed + k, row * n + (col + 7) % n) & 0xfff;
                worker->mismatches += host[i] != (float)(2 * p + 3 * q);
            }
        }
    }
    for (uint32_t k = 0; k < worker->allocs; k++) {
        GM_CU(worker, cuMemFree, a[k]);
        GM_CU(worker, cuMemFree, c[k]);
    }
    GM_CU(worker, cuMemFree, b);
    free(host);
    free(c);
    free(a);
}

/* Into an open capture: keep the last content of `first` in `copy`, then add one to every buffer.
 */
static void record_sweep(const struct gm_worker *worker, struct gm_buffer *buffers,
                         CUdeviceptr copy, CUstream stream)
{
    GM_CU(worker, cuMemcpyDtoDAsync, copy, buffers[0].at, buffers[0].bytes, stream);
    for (uint32_t i = 0; i < worker->allocs; i++) {
        uint64_t words = buffers[i].bytes / 8;
        void *args[] = {&buffers[i].at, &words};
        gm_launch(worker, GM_KERNEL_SWEEP, stream, args);
    }
}

/* `bytes` are spread over --allocs buffers and a copy of the first. */
static struct gm_buffer *make_with_copy(struct gm_worker *worker, struct gm_buffer *copy)
{
    uint64_t all = worker->bytes;
    worker->bytes = all / (worker->allocs + 1) * worker->allocs;
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    worker->bytes = all;
    copy->bytes = buffers[0].bytes;
    copy->seed = buffers[0].seed;
    GM_CU(worker, cuMemAlloc, &copy->at, copy->bytes);
    return buffers;
}

static void check_sweeps(struct gm_worker *worker, struct gm_buffer *buffers,
                         struct gm_buffer *copy, uint64_t sweeps)
{
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], sweeps);
    worker->mismatches += gm_buffer_check_host(worker, copy, sweeps - 1);
    gm_buffer_free(worker, copy);
    gm_buffers_free(worker, buffers);
}

/* One graph of copies and kernels over all memory, captured once and replayed. */
void gm_mode_graph(struct gm_worker *worker)
{
    struct gm_buffer copy, *buffers = make_with_copy(worker, &copy);
    CUstream stream;
    CUgraph graph;
    CUgraphExec replay;
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    record_sweep(worker, buffers, copy.at, stream);
    GM_CU(worker, cuStreamEndCapture, stream, &graph);
    GM_CU(worker, cuGraphInstantiateWithFlags, &replay, graph, 0);
    GM_CU(worker, cuGraphDestroy, graph);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        GM_CU(worker, cuGraphLaunch, replay, stream);
        GM_CU(worker, cuStreamSynchronize, stream);
    }
    GM_CU(worker, cuGraphExecDestroy, replay);
    GM_CU(worker, cuStreamDestroy, stream);
    check_sweeps(worker, buffers, &copy, worker->done);
}

/*
 * A capture that stays open for --hold, longer than anybody's slice, each iteration: nothing may
 * disturb it (a synchronizing call from the side would invalidate it). The odd ones are in
 * thread-local mode.
 */
void gm_mode_capture(struct gm_worker *worker)
{
    struct gm_buffer copy, *buffers = make_with_copy(worker, &copy);
    CUstream stream;
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        CUgraph graph;
        CUgraphExec replay;
        GM_CU(worker, cuStreamBeginCapture, stream,
              worker->done % 2 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                               : CU_STREAM_CAPTURE_MODE_GLOBAL);
        hold(worker);
        record_sweep(worker, buffers, copy.at, stream);
        hold(worker);
        GM_CU(worker, cuStreamEndCapture, stream, &graph);
        GM_CU(worker, cuGraphInstantiateWithFlags, &replay, graph, 0);
        GM_CU(worker, cuGraphLaunch, replay, stream);
        GM_CU(worker, cuStreamSynchronize, stream);
        GM_CU(worker, cuGraphExecDestroy, replay);
        GM_CU(worker, cuGraphDestroy, graph);
    }
    GM_CU(worker, cuStreamDestroy, stream);
    check_sweeps(worker, buffers, &copy, worker->done);
}

/* Streams in a ring, each waiting for the one before by an event, all working on the same memory.
 */
void gm_mode_streams(struct gm_worker *worker)
{
    enum { STREAMS = 4 };
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    CUstream streams[STREAMS];
    CUevent events[STREAMS];
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    for (int s = 0; s < STREAMS; s++) {
        GM_CU(worker, cuStreamCreate, &streams[s], CU_STREAM_NON_BLOCKING);
        GM_CU(worker, cuEventCreate, &events[s], CU_EVENT_DISABLE_TIMING);
    }
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (int s = 0; s < STREAMS; s++) {
            if (s > 0)
                GM_CU(worker, cuStreamWaitEvent, streams[s], events[s - 1], 0);
            for (uint32_t i = 0; i < worker->allocs; i++)
                gm_buffer_turn(worker, &buffers[i], &counter, streams[s]);
            GM_CU(worker, cuEventRecord, events[s], streams[s]);
        }
        GM_CU(worker, cuEventSynchronize, events[STREAMS - 1]);
        worker->mismatches = gm_counter_read(worker, &counter, streams[STREAMS - 1]);
    }
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    for (int s = 0; s < STREAMS; s++) {
        GM_CU(worker, cuEventDestroy, events[s]);
        GM_CU(worker, cuStreamDestroy, streams[s]);
    }
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}

struct gm_thread {
    struct gm_worker *worker;
    pthread_t thread;
    uint32_t index;
    uint64_t done;
};

/*
 * One thread's share of the memory, on a stream of its own. In mode ptds that is the NULL stream of
 * the per-thread calls; else a created one.
 */
static void *run_thread(void *argument)
{
    struct gm_thread *self = argument;
    struct gm_worker *worker = self->worker;
    bool is_own_default = worker->mode[0] == 'p';
    CUstream stream = NULL;
    struct gm_buffer buffer;
    struct gm_counter counter;

    GM_CU(worker, cuCtxSetCurrent, worker->context);
    if (!is_own_default)
        GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    gm_counter_make(worker, &counter);
    gm_buffer_make(worker, &buffer, worker->bytes / worker->threads,
                   gm_mix(worker->seed, 1000 + self->index), stream);
    uint64_t wrong = 0;
    for (; gm_is_more(worker, self->done) && wrong == 0; self->done++) {
        gm_buffer_turn(worker, &buffer, &counter, stream);
        if (self->done % 8 == 7) { /* memory that comes and goes beside the other threads */
            struct gm_buffer extra;
            gm_buffer_make(worker, &extra, 1u << 20 << self->index % 3, self->done, stream);
            gm_buffer_verify(worker, &extra, &counter, stream);
            gm_buffer_free(worker, &extra);
        }
        wrong = gm_counter_read(worker, &counter, stream);
    }
    wrong += gm_buffer_check_host(worker, &buffer, 0);
    worker->mismatches += wrong;
    gm_buffer_free(worker, &buffer);
    gm_counter_free(worker, &counter);
    if (!is_own_default)
        GM_CU(worker, cuStreamDestroy, stream);
    return NULL;
}

void gm_mode_threads(struct gm_worker *worker)
{
    struct gm_thread *threads = calloc(worker->threads, sizeof(*threads));
    if (threads == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i < worker->threads; i++) {
        threads[i].worker = worker;
        threads[i].index = i;
        if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]) != 0)
            gm_fail(worker, "no thread");
    }
    gm_say_ready(worker);
    for (uint32_t i = 0; i < worker->threads; i++) {
        pthread_join(threads[i].thread, NULL);
        worker->done += threads[i].done;
    }
    free(threads);
}

/*
 * A kernel that ends only when the host says so, after --hold: the context cannot be drained
 * meanwhile. The memory it must not lose is verified before and after.
 */
void gm_mode_spin(struct gm_worker *worker)
{
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    struct gm_counter counter;
    uint32_t *flag = NULL;
    CUdeviceptr flag_at;
    CUstream stream;
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuMemHostAlloc, (void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &flag_at, flag, 0);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
        void *args[] = {&flag_at};
        gm_launch(worker, GM_KERNEL_SPIN_UNTIL, stream, args);
        hold(worker);
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        GM_CU(worker, cuStreamSynchronize, stream);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, stream);
        worker->mismatches = gm_counter_read(worker, &counter, stream);
    }
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFreeHost, flag);
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}

static char *signal_path(const struct gm_worker *worker, const char *suffix)
{
    char *path = NULL;
    if (asprintf(&path, "%s.%s", worker->signal, suffix) < 0)
        gm_fail(worker, "no host memory");
    return path;
}

static void make_signal(const struct gm_worker *worker, const char *suffix)
{
    char *path = signal_path(worker, suffix);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        gm_fail(worker, "%s: %s", path, strerror(errno));
    close(fd);
    free(path);
}

static void await_signal(const struct gm_worker *worker, const char *suffix)
{
    const struct timespec pause = {.tv_nsec = 10 * (long)GM_MS};
    char *path = signal_path(worker, suffix);
    while (access(path, F_OK) != 0)
        nanosleep(&pause, NULL);
    free(path);
}

/*
 * Work that is submitted ahead: a kernel that waits for the host, and all of the memory verified
 * and rewritten behind it. Then the program calls nothing any more:
 *
 *   FILE.submitted    it made this when all was submitted
 *   FILE.release      once this is there, the kernel ends, and so does the work behind it
 *   FILE.end          once this is there, the program looks at what became of it
 */
void gm_mode_ahead(struct gm_worker *worker)
{
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    struct gm_counter counter;
    uint32_t *flag = NULL;
    CUdeviceptr flag_at;
    CUstream stream;
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuMemHostAlloc, (void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &flag_at, flag, 0);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
    void *args[] = {&flag_at};
    gm_launch(worker, GM_KERNEL_SPIN_UNTIL, stream, args);
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_turn(worker, &buffers[i], &counter, stream);
    make_signal(worker, "submitted");
    await_signal(worker, "release");
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    await_signal(worker, "end");
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_verify(worker, &buffers[i], &counter, stream);
    worker->mismatches = gm_counter_read(worker, &counter, stream);
    worker->done = 1;
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFreeHost, flag);
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}

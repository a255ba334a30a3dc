/*
 * bench_calls: the program of bench/overhead that makes single driver calls and times them. It
 * knows nothing of gpumux, holds no GPU memory between requests, and does what it is told, line by
 * line:
 *
 *   launch THREADS MS      empty kernels, each thread on a stream of its own
 *   graph NODES MS         replays of a graph of so many empty kernels
 *   grow SIZE MS           allocations of that size, all kept until the last, and each filled from
 *                          pageable host memory before the next, as when a model is loaded; as many
 *                          in each turn, whatever MS says
 *
 * The first two go on until MS milliseconds have passed. Each is answered by one line, name=value
 * each:
 *
 *   launch: unit_ns    time over launches, to the end of the last kernel, of all threads together
 *   graph:  unit_ns    time over replays, to the end of the last
 *   grow:   more_ns    an allocation, before which nothing was freed for a while; the median of all
 *                      but the first
 *   all:    count      launches, replays or allocations (of these at least GM_ALLOCS_LEAST)
 *
 * A launch or replay is submitted in bursts of GM_BURST and waited for, so that the queue of the
 * driver is never full: a full one would measure the GPU. The end of the input ends the program.
 *
 * Each of several threads works on a core of its own; if there are fewer, all on any. The cores of
 * a machine are not equally fast: who compares programs has their main threads share one once they
 * are ready. The driver's own threads run where they like.
 *
 * Exit codes: 0 done, 2 wrong use, 3 a CUDA call failed (named in the last line: "FAIL call: ...").
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/device.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_THREADS_MAX 64
#define GM_BURST 256
#define GM_GRAPH_BURST 32
#define GM_ALLOCS_LEAST 3
#define GM_GROWN_MOST 32u           /* allocations that are kept at once */
#define GM_GROWN_BYTES (4ull << 30) /* ... and how much, or GM_ALLOCS_LEAST of them */
#define GM_SOURCE_BYTES (32ull << 20)
/* After it, what was freed is not kept for the next allocation: the daemon takes it back after 200
 * ms at most (GM_SPARES_KEEP_NS), and looks a little later. */
#define GM_REST_NS (250 * GM_MS)

struct calls {
    struct gm_bench_device gpu;
    CUfunction empty;
    cpu_set_t anywhere; /* where this program was allowed to run when it began */
    uint64_t freed_at;  /* the last allocation of the request before */
    char *offset;       /* what the heap begins with */
    void *source;       /* grow: GM_SOURCE_BYTES to copy */
};

/* One thread of a launch request. */
struct launcher {
    struct calls *calls;
    uint64_t index, threads;
    pthread_t thread;
    pthread_barrier_t *start;
    uint64_t least_ns;
    uint64_t count, begin, end;
};

/*
 * Where a thread's stack and the heap lie within their pages decides what shares sets of the
 * caches, and which loads seem to meet which stores. That is the same at every start of the same
 * program, but another with one more library in it, so it would look like a cost of that. It is
 * drawn therefore: for the heap at each start, for the stacks of threads that launch in each
 * request (that of the main thread lies anywhere as it is). Returns bytes, less than a page.
 */
static size_t draw_offset(void)
{
    uint8_t random;
    return getrandom(&random, sizeof(random), GRND_NONBLOCK) == sizeof(random) ? random * 16u : 0;
}

static void open_cuda(struct calls *calls)
{
    calls->offset = malloc(draw_offset() + 1);
    const char *why = gm_bench_open(&calls->gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    GM_CU(&calls->gpu, cuModuleGetFunction, &calls->empty, calls->gpu.module, "gm_empty");
}

/* Where the calling thread works from now on, the one of that index of so many; a single one where
 * the main thread does. */
static void settle(const struct calls *calls, uint64_t index, uint64_t threads)
{
    cpu_set_t set = calls->anywhere;
    if (threads == 1)
        return;
    if (threads <= (uint64_t)CPU_COUNT(&set)) {
        size_t core = 0;
        for (uint64_t left = index + 1; left > 0; core++)
            left -= CPU_ISSET(core, &calls->anywhere) != 0;
        CPU_ZERO(&set);
        CPU_SET(core - 1, &set);
    }
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        gm_bench_fail(3, "this thread may not choose its core");
}

static void launch(const struct calls *calls, CUstream stream)
{
    GM_CU(&calls->gpu, cuLaunchKernel, calls->empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static __attribute__((noinline)) void launch_all(struct launcher *self)
{
    struct calls *calls = self->calls;
    CUstream stream;
    settle(calls, self->index, self->threads);
    GM_CU(&calls->gpu, cuCtxSetCurrent, calls->gpu.context);
    GM_CU(&calls->gpu, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < GM_BURST; i++) /* the driver prepares a stream at its first launches */
        launch(calls, stream);
    GM_CU(&calls->gpu, cuStreamSynchronize, stream);
    pthread_barrier_wait(self->start);
    self->begin = gm_now();
    do {
        for (int i = 0; i < GM_BURST; i++)
            launch(calls, stream);
        GM_CU(&calls->gpu, cuStreamSynchronize, stream);
        self->count += GM_BURST;
        self->end = gm_now();
    } while (self->end - self->begin < self->least_ns);
    GM_CU(&calls->gpu, cuStreamDestroy, stream);
}

static void *launch_for(void *argument)
{
    struct launcher *self = argument;
    char offset[draw_offset() + 1]; /* the stack goes on behind it */
    __asm__ volatile("" : : "r"(offset));
    launch_all(self);
    return NULL;
}

static void begin_launcher(struct launcher *launcher)
{
    if (pthread_create(&launcher->thread, NULL, launch_for, launcher) != 0)
        gm_bench_fail(2, "no thread");
}

static void serve_launch(struct calls *calls, uint64_t threads, uint64_t least_ns)
{
    struct launcher launchers[GM_THREADS_MAX];
    pthread_barrier_t start;
    uint64_t begin = UINT64_MAX, end = 0, count = 0;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        launchers[i] = (struct launcher){
            .calls = calls, .index = i, .threads = threads, .start = &start, .least_ns = least_ns};
        begin_launcher(&launchers[i]);
    }
    for (uint64_t i = 0; i < threads; i++) {
        struct launcher *one = &launchers[i];
        pthread_join(one->thread, NULL);
        begin = one->begin < begin ? one->begin : begin;
        end = one->end > end ? one->end : end;
        count += one->count;
    }
    pthread_barrier_destroy(&start);
    printf("unit_ns=%.3f count=%" PRIu64 "\n", (double)(end - begin) / (double)count, count);
}

static void serve_graph(struct calls *calls, uint64_t nodes, uint64_t least_ns)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    GM_CU(&calls->gpu, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(&calls->gpu, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (uint64_t i = 0; i < nodes; i++)
        launch(calls, stream);
    GM_CU(&calls->gpu, cuStreamEndCapture, stream, &graph);
    GM_CU(&calls->gpu, cuGraphInstantiateWithFlags, &exec, graph, 0);
    for (int i = 0; i < GM_GRAPH_BURST; i++)
        GM_CU(&calls->gpu, cuGraphLaunch, exec, stream);
    GM_CU(&calls->gpu, cuStreamSynchronize, stream);
    uint64_t begin = gm_now(), end, count = 0;
    do {
        for (int i = 0; i < GM_GRAPH_BURST; i++)
            GM_CU(&calls->gpu, cuGraphLaunch, exec, stream);
        GM_CU(&calls->gpu, cuStreamSynchronize, stream);
        count += GM_GRAPH_BURST;
        end = gm_now();
    } while (end - begin < least_ns);
    GM_CU(&calls->gpu, cuGraphExecDestroy, exec);
    GM_CU(&calls->gpu, cuGraphDestroy, graph);
    GM_CU(&calls->gpu, cuStreamDestroy, stream);
    printf("unit_ns=%.3f count=%" PRIu64 "\n", (double)(end - begin) / (double)count, count);
}

/* Until what was freed is not kept any more. */
static void rest(const struct calls *calls)
{
    const uint64_t rested_at = calls->freed_at + GM_REST_NS, now = gm_now();
    if (now < rested_at)
        usleep((useconds_t)((rested_at - now) / 1000));
}

static void fill(struct calls *calls, CUdeviceptr at, uint64_t bytes)
{
    if (calls->source == NULL) {
        calls->source = malloc(GM_SOURCE_BYTES);
        if (calls->source == NULL)
            gm_bench_fail_call(&calls->gpu, CUDA_ERROR_OUT_OF_MEMORY, "host memory");
        memset(calls->source, 1, GM_SOURCE_BYTES); /* else all of it would be one page of zeros */
    }
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < GM_SOURCE_BYTES ? bytes - done : GM_SOURCE_BYTES;
        GM_CU(&calls->gpu, cuMemcpyHtoD, at + done, calls->source, piece);
    }
}

static void serve_grow(struct calls *calls, uint64_t bytes)
{
    CUdeviceptr at[GM_GROWN_MOST];
    double ns[GM_GROWN_MOST];
    uint64_t most = GM_GROWN_BYTES / bytes;
    most = most > GM_GROWN_MOST ? GM_GROWN_MOST : most < GM_ALLOCS_LEAST ? GM_ALLOCS_LEAST : most;
    rest(calls);
    for (uint64_t i = 0; i < most; i++) {
        const uint64_t from = gm_now();
        GM_CU(&calls->gpu, cuMemAlloc, &at[i], bytes);
        ns[i] = (double)(gm_now() - from);
        fill(calls, at[i], bytes);
    }
    for (uint64_t i = 0; i < most; i++)
        GM_CU(&calls->gpu, cuMemFree, at[i]);
    calls->freed_at = gm_now();
    printf("more_ns=%.1f count=%" PRIu64 "\n", gm_samples_spread(ns + 1, most - 1).median, most);
}

/* False: there is no such request. */
static bool serve(struct calls *calls, const char *line)
{
    char verb[16], what[32];
    double ms;
    uint64_t number = 0;
    if (sscanf(line, "%15s %31s %lf", verb, what, &ms) != 3 || gm_parse_size(what, &number) != 0 ||
        number == 0 || !(ms >= 0 && ms < 1e6))
        return false;
    uint64_t least_ns = (uint64_t)(ms * (double)GM_MS);
    if (strcmp(verb, "launch") == 0 && number <= GM_THREADS_MAX)
        serve_launch(calls, number, least_ns);
    else if (strcmp(verb, "graph") == 0 && number <= 100000)
        serve_graph(calls, number, least_ns);
    else if (strcmp(verb, "grow") == 0)
        serve_grow(calls, number);
    else
        return false;
    fflush(stdout);
    return true;
}

int main(void)
{
    static struct calls calls;
    char line[128];
    open_cuda(&calls);
    if (sched_getaffinity(0, sizeof(calls.anywhere), &calls.anywhere) != 0)
        gm_bench_fail(3, "this machine has more cores than a set has room for");
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (!serve(&calls, line)) {
            printf("FAIL no such request: %s", line);
            return 2;
        }
    }
    gm_bench_close(&calls.gpu);
    free(calls.source);
    free(calls.offset);
    return 0;
}

/*
 * bench_calls: the program of bench/overhead that makes single driver calls and times them. It
 * knows nothing of gpumux, holds no GPU memory between requests, and does what it is told, line by
 * line:
 *
 *   launch THREADS MS      empty kernels, each thread on a stream of its own
 *   hook THREADS MS        the same, a burst of all threads by the entry point that the program has
 *                          and one by the driver's own, which differ where something stands between
 *                          them (LD_PRELOAD); natively they are the same
 *   graph NODES MS         replays of a graph of so many empty kernels
 *   alloc SIZE MS          allocations of that size, each freed before the next
 *   grow SIZE MS           allocations of that size, all kept until the last, and each filled from
 *                          pageable host memory before the next, as when a model is loaded; as many
 *                          in each turn, whatever MS says
 *   burst SIZE MS          the same, and none is filled
 *
 * Each but the last two goes on until MS milliseconds have passed, and is answered by one line,
 * name=value each:
 *
 *   launch: unit_ns    time over launches, to the end of the last kernel, of all threads together
 *           submit_ns  of it until the last launch had returned; the slowest thread's
 *   hook:   unit_ns    time over launches by the program's entry point, of all threads together
 *           own_ns     ... by the driver's own
 *           hook_ratio of one to the other in two bursts each, next to each other; the median
 *           hook_mean_ratio    of all of one to all of the other
 *           is_hooked  1: the two are not the same; 0: they are
 *   graph:  unit_ns    time over replays, to the end of the last
 *   alloc:  first_ns   the first allocation, before which nothing was freed for a while
 *           alloc_ns, free_ns            the medians
 *           alloc_mean_ns, free_mean_ns  the means
 *   grow, burst: more_ns  an allocation, before which nothing was freed for a while; the median
 *                      of all but the first
 *           more_mean_ns                 the mean of these
 *   all:    count      launches, replays or allocations (of these at least GM_ALLOCS_LEAST)
 *
 * A launch or replay is submitted in bursts of GM_BURST and waited for, so that the queue of the
 * driver is never full: a full one would measure the GPU. The end of the input ends the program.
 *
 *   --cores N,...   who calls works on the first of these: the cores of a machine are not equally
 *                   fast, and who is compared with others has to share theirs. Each of several
 *                   threads works on one of its own; if there are fewer, all on any. The driver's
 *                   own threads began before, and run where they like.
 *
 * Exit codes: 0 done, 2 wrong use, 3 a CUDA call failed (named in the last line: "FAIL call: ...").
 */
#include <dlfcn.h>
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

#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/programs/driver.h"
#include "tests/programs/kernels_ptx.h"

#define GM_THREADS_MAX 64
#define GM_BURST 256
#define GM_GRAPH_BURST 32
#define GM_TIMES_MAX 100000
#define GM_ALLOCS_LEAST 3
#define GM_GROWN_MOST 32u           /* allocations that are kept at once */
#define GM_GROWN_BYTES (4ull << 30) /* ... and how much, or GM_ALLOCS_LEAST of them */
#define GM_SOURCE_BYTES (32ull << 20)
#define GM_QUADS_MAX 10000
_Static_assert(GM_QUADS_MAX % 2 == 0, "as many with either way outside");
/* After it, what was freed is not kept for the next allocation. */
#define GM_REST_NS (150 * GM_MS)

struct calls {
    struct gm_driver cu;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction empty;
    unsigned cores[GM_THREADS_MAX]; /* of --cores: as many as core_count */
    size_t core_count;
    cpu_set_t anywhere; /* where this program was allowed to run when it began */
    double alloc_ns[GM_TIMES_MAX], free_ns[GM_TIMES_MAX]; /* the first ones */
    uint64_t freed_at;                                    /* the last one */
    char *offset;                                         /* what the heap begins with */
    double quads[GM_QUADS_MAX];                           /* hook: the first ratios */
    void *source;                                         /* grow: GM_SOURCE_BYTES to copy */
};

typedef __typeof__(&cuLaunchKernel) gm_launch;

/* One thread of a launch request. */
struct launcher {
    struct calls *calls;
    uint64_t index, threads;
    pthread_t thread;
    pthread_barrier_t *start;
    uint64_t least_ns;
    uint64_t count, submit_ns, begin, end;
    struct both *both;
};

/* What the threads of a hook request share: all of them submit a burst by the same way, wait for
 * it, and for each other. */
struct both {
    gm_launch ways[2]; /* the program's entry point, the driver's own */
    pthread_barrier_t begin, end;
    /* The first thread's; the others look between the two barriers. */
    unsigned way;
    bool is_over;
    uint64_t way_ns[2], quads;
};

static void check(const struct calls *calls, CUresult result, const char *call)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    if (calls->cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    printf("FAIL %s: error %d %s\n", call, (int)result, name);
    fflush(stdout);
    _Exit(3); /* other threads may be in the driver */
}
#define GM_CU(calls, call, ...) check(calls, (calls)->cu.call(__VA_ARGS__), #call)

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
    const char *why = NULL;
    calls->offset = malloc(draw_offset() + 1);
    if (gm_driver_open(&calls->cu, false, &why) != 0) {
        printf("FAIL no CUDA driver: %s not found\n", why);
        exit(3);
    }
    GM_CU(calls, cuInit, 0);
    GM_CU(calls, cuDeviceGet, &calls->device, 0);
    GM_CU(calls, cuDevicePrimaryCtxRetain, &calls->context, calls->device);
    GM_CU(calls, cuCtxSetCurrent, calls->context);
    GM_CU(calls, cuModuleLoadData, &calls->module, gm_kernels_ptx);
    GM_CU(calls, cuModuleGetFunction, &calls->empty, calls->module, "gm_empty");
}

/* Where the calling thread works from now on, the one of that index of so many. */
static void settle(const struct calls *calls, uint64_t index, uint64_t threads)
{
    cpu_set_t set;
    if (calls->core_count == 0)
        return;
    CPU_ZERO(&set);
    if (threads <= calls->core_count)
        CPU_SET(calls->cores[index], &set);
    else
        set = calls->anywhere;
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        printf("FAIL this thread may not choose its core\n");
        fflush(stdout);
        _Exit(3);
    }
}

static void launch_by(const struct calls *calls, gm_launch way, CUstream stream)
{
    check(calls, way(calls->empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
}

static void launch(const struct calls *calls, CUstream stream)
{
    launch_by(calls, calls->cu.cuLaunchKernel, stream);
}

/*
 * The driver's own entry point, by the C library's own dlsym: a versioned look-up does not find one
 * that something between exports without a version. NULL: none.
 */
static gm_launch find_own_launch(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *look_up = NULL;
    for (size_t i = 0; look_up == NULL && i < sizeof(versions) / sizeof(versions[0]); i++)
        look_up = dlvsym(RTLD_DEFAULT, "dlsym", versions[i]);
    if (library == NULL || look_up == NULL)
        return NULL;
    return (gm_launch)((void *(*)(void *, const char *))look_up)(library, "cuLaunchKernel");
}

static __attribute__((noinline)) void launch_all(struct launcher *self)
{
    struct calls *calls = self->calls;
    CUstream stream;
    settle(calls, self->index, self->threads);
    GM_CU(calls, cuCtxSetCurrent, calls->context);
    GM_CU(calls, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < GM_BURST; i++) /* the driver prepares a stream at its first launches */
        launch(calls, stream);
    GM_CU(calls, cuStreamSynchronize, stream);
    pthread_barrier_wait(self->start);
    self->begin = gm_now();
    do {
        uint64_t from = gm_now();
        for (int i = 0; i < GM_BURST; i++)
            launch(calls, stream);
        self->submit_ns += gm_now() - from;
        GM_CU(calls, cuStreamSynchronize, stream);
        self->count += GM_BURST;
        self->end = gm_now();
    } while (self->end - self->begin < self->least_ns);
    GM_CU(calls, cuStreamDestroy, stream);
}

/* A burst of this thread by that way; returns when all are through theirs. The time from here on,
 * with this thread's waking up at the end, which is the same by either way. */
static uint64_t burst_by(struct launcher *self, CUstream stream)
{
    struct both *both = self->both;
    uint64_t from = gm_now();
    for (int i = 0; i < GM_BURST; i++)
        launch_by(self->calls, both->ways[both->way], stream);
    GM_CU(self->calls, cuStreamSynchronize, stream);
    pthread_barrier_wait(&both->end);
    return gm_now() - from;
}

/* The first thread, of all: by both ways in quads, with either of them first and last in turn: what
 * comes second finds what the first left in the caches, and drift within a quad hits both. */
static __attribute__((noinline)) void lead_both(struct launcher *self, CUstream stream)
{
    struct calls *calls = self->calls;
    struct both *both = self->both;
    self->begin = gm_now();
    do {
        uint64_t ns[2] = {0, 0};
        const unsigned outer = both->quads % 2;
        for (unsigned i = 0; i < 4; i++) {
            both->way = i == 0 || i == 3 ? outer : !outer;
            pthread_barrier_wait(&both->begin);
            ns[both->way] += burst_by(self, stream);
        }
        if (both->quads < GM_QUADS_MAX)
            calls->quads[both->quads] = (double)ns[0] / (double)ns[1];
        both->way_ns[0] += ns[0];
        both->way_ns[1] += ns[1];
        both->quads++;
    } while (gm_now() - self->begin < self->least_ns || both->quads % 2 != 0);
    both->is_over = true;
    pthread_barrier_wait(&both->begin);
}

static __attribute__((noinline)) void follow_both(struct launcher *self, CUstream stream)
{
    for (;;) {
        pthread_barrier_wait(&self->both->begin);
        if (self->both->is_over)
            return;
        burst_by(self, stream);
    }
}

static void launch_both(struct launcher *self)
{
    struct calls *calls = self->calls;
    CUstream stream;
    settle(calls, self->index, self->threads);
    GM_CU(calls, cuCtxSetCurrent, calls->context);
    GM_CU(calls, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int way = 0; way < 2; way++) { /* the driver prepares a stream at its first launches */
        for (int i = 0; i < GM_BURST; i++)
            launch_by(calls, self->both->ways[way], stream);
        GM_CU(calls, cuStreamSynchronize, stream);
    }
    pthread_barrier_wait(&self->both->end); /* all are that far */
    if (self->index == 0)
        lead_both(self, stream);
    else
        follow_both(self, stream);
    GM_CU(calls, cuStreamDestroy, stream);
}

static void *launch_for(void *argument)
{
    struct launcher *self = argument;
    char offset[draw_offset() + 1]; /* the stack goes on behind it */
    __asm__ volatile("" : : "r"(offset));
    if (self->both != NULL)
        launch_both(self);
    else
        launch_all(self);
    return NULL;
}

static void begin_launcher(struct launcher *launcher)
{
    if (pthread_create(&launcher->thread, NULL, launch_for, launcher) != 0) {
        printf("FAIL no thread\n");
        fflush(stdout);
        _Exit(2); /* other threads may be in the driver */
    }
}

static void serve_launch(struct calls *calls, uint64_t threads, uint64_t least_ns)
{
    struct launcher launchers[GM_THREADS_MAX];
    pthread_barrier_t start;
    uint64_t begin = UINT64_MAX, end = 0, count = 0;
    double submit = 0;
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
        double mine = (double)one->submit_ns / (double)one->count;
        submit = mine > submit ? mine : submit;
    }
    pthread_barrier_destroy(&start);
    printf("unit_ns=%.3f submit_ns=%.3f count=%" PRIu64 "\n", (double)(end - begin) / (double)count,
           submit, count);
}

static void serve_hook(struct calls *calls, uint64_t threads, uint64_t least_ns)
{
    struct launcher launchers[GM_THREADS_MAX];
    struct both both = {.ways = {calls->cu.cuLaunchKernel, find_own_launch()}};
    if (both.ways[1] == NULL) {
        printf("FAIL the driver's own cuLaunchKernel is not found\n");
        exit(3);
    }
    pthread_barrier_init(&both.begin, NULL, (unsigned)threads);
    pthread_barrier_init(&both.end, NULL, (unsigned)threads);
    for (uint64_t i = 0; i < threads; i++) {
        launchers[i] = (struct launcher){
            .calls = calls, .index = i, .threads = threads, .least_ns = least_ns, .both = &both};
        begin_launcher(&launchers[i]);
    }
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(launchers[i].thread, NULL);
    pthread_barrier_destroy(&both.begin);
    pthread_barrier_destroy(&both.end);
    const size_t kept = both.quads < GM_QUADS_MAX ? both.quads : GM_QUADS_MAX;
    const double launches = 2.0 * GM_BURST * (double)both.quads * (double)threads; /* by each way */
    printf(
        "unit_ns=%.3f own_ns=%.3f hook_ratio=%.6f hook_mean_ratio=%.6f is_hooked=%d count=%.0f\n",
        (double)both.way_ns[0] / launches, (double)both.way_ns[1] / launches,
        gm_samples_median_ratio(calls->quads, kept),
        (double)both.way_ns[0] / (double)both.way_ns[1], both.ways[0] != both.ways[1], launches);
}

static void serve_graph(struct calls *calls, uint64_t nodes, uint64_t least_ns)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    GM_CU(calls, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(calls, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (uint64_t i = 0; i < nodes; i++)
        launch(calls, stream);
    GM_CU(calls, cuStreamEndCapture, stream, &graph);
    GM_CU(calls, cuGraphInstantiateWithFlags, &exec, graph, 0);
    for (int i = 0; i < GM_GRAPH_BURST; i++)
        GM_CU(calls, cuGraphLaunch, exec, stream);
    GM_CU(calls, cuStreamSynchronize, stream);
    uint64_t begin = gm_now(), end, count = 0;
    do {
        for (int i = 0; i < GM_GRAPH_BURST; i++)
            GM_CU(calls, cuGraphLaunch, exec, stream);
        GM_CU(calls, cuStreamSynchronize, stream);
        count += GM_GRAPH_BURST;
        end = gm_now();
    } while (end - begin < least_ns);
    GM_CU(calls, cuGraphExecDestroy, exec);
    GM_CU(calls, cuGraphDestroy, graph);
    GM_CU(calls, cuStreamDestroy, stream);
    printf("unit_ns=%.3f count=%" PRIu64 "\n", (double)(end - begin) / (double)count, count);
}

/* Until what was freed is not kept any more. */
static void rest(const struct calls *calls)
{
    const uint64_t rested_at = calls->freed_at + GM_REST_NS, now = gm_now();
    if (now < rested_at)
        usleep((useconds_t)((rested_at - now) / 1000));
}

static void serve_alloc(struct calls *calls, uint64_t bytes, uint64_t least_ns)
{
    uint64_t begin, end, count = 0, allocs = 0, frees = 0, first = 0;
    rest(calls);
    begin = gm_now();
    do {
        CUdeviceptr at;
        uint64_t from = gm_now();
        GM_CU(calls, cuMemAlloc, &at, bytes);
        uint64_t middle = gm_now();
        GM_CU(calls, cuMemFree, at);
        end = gm_now();
        if (count < GM_TIMES_MAX) {
            calls->alloc_ns[count] = (double)(middle - from);
            calls->free_ns[count] = (double)(end - middle);
        }
        if (count == 0)
            first = middle - from;
        allocs += middle - from;
        frees += end - middle;
        count++;
    } while (end - begin < least_ns || count < GM_ALLOCS_LEAST);
    calls->freed_at = end;
    size_t kept = count < GM_TIMES_MAX ? count : GM_TIMES_MAX;
    printf("first_ns=%.1f alloc_ns=%.1f free_ns=%.1f alloc_mean_ns=%.1f free_mean_ns=%.1f "
           "count=%" PRIu64 "\n",
           (double)first, gm_samples_spread(calls->alloc_ns, kept).median,
           gm_samples_spread(calls->free_ns, kept).median, (double)allocs / (double)count,
           (double)frees / (double)count, count);
}

static void fill(struct calls *calls, CUdeviceptr at, uint64_t bytes)
{
    if (calls->source == NULL) {
        calls->source = malloc(GM_SOURCE_BYTES);
        if (calls->source == NULL)
            check(calls, CUDA_ERROR_OUT_OF_MEMORY, "host memory");
        memset(calls->source, 1, GM_SOURCE_BYTES); /* else all of it would be one page of zeros */
    }
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < GM_SOURCE_BYTES ? bytes - done : GM_SOURCE_BYTES;
        GM_CU(calls, cuMemcpyHtoD, at + done, calls->source, piece);
    }
}

static void serve_grow(struct calls *calls, uint64_t bytes, bool is_filled)
{
    CUdeviceptr at[GM_GROWN_MOST];
    uint64_t most = GM_GROWN_BYTES / bytes, count = 0, allocs = 0, from, to;
    most = most > GM_GROWN_MOST ? GM_GROWN_MOST : most < GM_ALLOCS_LEAST ? GM_ALLOCS_LEAST : most;
    rest(calls);
    while (count < most) {
        from = gm_now();
        GM_CU(calls, cuMemAlloc, &at[count], bytes);
        to = gm_now();
        if (count > 0) {
            calls->alloc_ns[count - 1] = (double)(to - from);
            allocs += to - from;
        }
        if (is_filled)
            fill(calls, at[count], bytes);
        count++;
    }
    for (uint64_t i = 0; i < count; i++)
        GM_CU(calls, cuMemFree, at[i]);
    calls->freed_at = gm_now();
    printf("more_ns=%.1f more_mean_ns=%.1f count=%" PRIu64 "\n",
           gm_samples_spread(calls->alloc_ns, count - 1).median,
           (double)allocs / (double)(count - 1), count);
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
    else if (strcmp(verb, "hook") == 0 && number <= GM_THREADS_MAX)
        serve_hook(calls, number, least_ns);
    else if (strcmp(verb, "graph") == 0 && number <= 100000)
        serve_graph(calls, number, least_ns);
    else if (strcmp(verb, "alloc") == 0)
        serve_alloc(calls, number, least_ns);
    else if (strcmp(verb, "grow") == 0 || strcmp(verb, "burst") == 0)
        serve_grow(calls, number, verb[0] == 'g');
    else
        return false;
    fflush(stdout);
    return true;
}

/* "3,4,5". False: that is no list of cores. */
static bool parse_cores(struct calls *calls, const char *text)
{
    for (;;) {
        char *end;
        unsigned long core = strtoul(text, &end, 10);
        if (end == text || core >= CPU_SETSIZE || calls->core_count == GM_THREADS_MAX)
            return false;
        calls->cores[calls->core_count++] = (unsigned)core;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

int main(int argc, char **argv)
{
    static struct calls calls;
    char line[128];
    if (argc != 1 &&
        (argc != 3 || strcmp(argv[1], "--cores") != 0 || !parse_cores(&calls, argv[2]))) {
        fprintf(stderr, "usage: %s [--cores N,...], and requests on standard input\n", argv[0]);
        return 2;
    }
    open_cuda(&calls);
    if (sched_getaffinity(0, sizeof(calls.anywhere), &calls.anywhere) != 0)
        calls.core_count = 0; /* more cores than the set has room for */
    settle(&calls, 0, 1);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (!serve(&calls, line)) {
            printf("FAIL no such request: %s", line);
            return 2;
        }
    }
    GM_CU(&calls, cuModuleUnload, calls.module);
    GM_CU(&calls, cuDevicePrimaryCtxRelease, calls.device);
    free(calls.source);
    free(calls.offset);
    return 0;
}

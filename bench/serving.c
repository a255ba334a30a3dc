/*
 * bench_serving: the programs of bench/latency where there is no PyTorch; python/serving.py is the
 * same with real models. It knows nothing of gpumux, but for the hint, which is found by name. It
 * does what it is told, line by line:
 *
 *   make MODEL SIZE       take this part; SIZE is not used. "none": hold nothing.
 *   serve BEGIN S AHEAD FILE ARRIVALS
 *                         the latency-critical part: answer requests, which arrive at the times
 *                         that ARRIVALS lists. With AHEAD, call gpumux_expect so long before each.
 *   work BEGIN S FILE     the best-effort part: unit after unit, at once and until the window ends
 *
 * The window begins at BEGIN, nanoseconds of the monotonic clock, and lasts S seconds. Times in
 * files are microseconds since BEGIN, one entry a line: an arrival; an arrival and how long its
 * request took; the end of a unit, below a first line with the begin of the first unit. A request
 * that arrives while another one is served waits, and that counts.
 *
 * First it prints "open expects=N" (1: the hint is there). "made" and then each window are answered
 * by one line, name=value each; `mismatches` counts wrong results. Between requests it uses neither
 * processor nor GPU. The end of the input ends the program.
 *
 * A request copies pinned memory in, replays a graph of GM_NODES kernels and copies the result out,
 * one of a "chat" GM_TOKENS times.
 * A unit is a kernel that takes its time and one that counts it; the next unit is queued while one
 * runs. A "stencil" takes GM_LONG_NS, as long as a kernel of the real one; others GM_SHORT_NS.
 *
 * Exit codes: 0 done, 2 wrong use, 3 a CUDA call failed (named in the last line: "FAIL call: ...").
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/device.h"
#include "common/clock.h"

#define GM_WORDS 16384u /* of a request's input, and of what units count in */
#define GM_NODES 8u
#define GM_TOKENS 128u /* that a request of a chat is */
#define GM_LONG_NS (17 * GM_MS)
#define GM_SHORT_NS (2 * GM_MS)
/* Requests that are still unanswered so long after the window are given up: who waits here holds
 * up all other rows. They count as having taken at least that long. */
#define GM_LATE_NS (1 * GM_S)

struct serving {
    struct gm_bench_device gpu;
    CUfunction sweep, spin;
    CUstream stream;
    CUevent ended[2]; /* of the unit that runs and the one behind it */
    CUdeviceptr at;
    uint64_t *in, *out; /* pinned */
    CUgraphExec graph;
    unsigned tokens; /* of a request */
    uint64_t unit_ns;
    uint64_t units; /* since the memory was cleared */
    void (*expect)(uint64_t after_us, uint64_t for_us);
    uint64_t service_us; /* what a request takes alone */
};

static void open_cuda(struct serving *self)
{
    if (gm_bench_open(&self->gpu) != NULL)
        gm_bench_fail(2, "no CUDA driver");
    GM_CU(&self->gpu, cuModuleGetFunction, &self->sweep, self->gpu.module, "gm_sweep");
    GM_CU(&self->gpu, cuModuleGetFunction, &self->spin, self->gpu.module, "gm_spin");
    GM_CU(&self->gpu, cuStreamCreate, &self->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2; i++)
        GM_CU(&self->gpu, cuEventCreate, &self->ended[i], CU_EVENT_DISABLE_TIMING);
    GM_CU(&self->gpu, cuMemHostAlloc, (void **)&self->in, GM_WORDS * sizeof(self->in[0]), 0);
    GM_CU(&self->gpu, cuMemHostAlloc, (void **)&self->out, GM_WORDS * sizeof(self->out[0]), 0);
    for (uint64_t i = 0; i < GM_WORDS; i++)
        self->in[i] = i * i;
    /* As void pointer: the two kinds of pointer have no conversion in C. */
    *(void **)&self->expect = dlsym(RTLD_DEFAULT, "gpumux_expect");
}

static void sweep(const struct serving *self)
{
    CUdeviceptr at = self->at;
    uint64_t words = GM_WORDS;
    void *args[] = {&at, &words};
    GM_CU(&self->gpu, cuLaunchKernel, self->sweep, 16, 1, 1, 256, 1, 1, 0, self->stream, args,
          NULL);
}

/* Returns how many words of the last result are wrong. */
static uint64_t answer(const struct serving *self)
{
    const size_t bytes = GM_WORDS * sizeof(self->in[0]);
    uint64_t wrong = 0;
    for (unsigned token = 0; token < self->tokens; token++) {
        GM_CU(&self->gpu, cuMemcpyHtoDAsync, self->at, self->in, bytes, self->stream);
        GM_CU(&self->gpu, cuGraphLaunch, self->graph, self->stream);
        GM_CU(&self->gpu, cuMemcpyDtoHAsync, self->out, self->at, bytes, self->stream);
        GM_CU(&self->gpu, cuStreamSynchronize, self->stream);
    }
    for (uint64_t i = 0; i < GM_WORDS; i++)
        wrong += self->out[i] != self->in[i] + GM_NODES;
    return wrong;
}

/* Queue a unit. */
static void begin_unit(struct serving *self)
{
    void *args[] = {&self->unit_ns};
    GM_CU(&self->gpu, cuLaunchKernel, self->spin, 1, 1, 1, 32, 1, 1, 0, self->stream, args, NULL);
    sweep(self);
    GM_CU(&self->gpu, cuEventRecord, self->ended[self->units % 2], self->stream);
    self->units++;
}

static void drop(struct serving *self)
{
    if (self->graph == NULL)
        return;
    GM_CU(&self->gpu, cuGraphExecDestroy, self->graph);
    GM_CU(&self->gpu, cuMemFree, self->at);
    self->graph = NULL;
}

static void make(struct serving *self, const char *model)
{
    drop(self);
    if (strcmp(model, "none") != 0) {
        CUgraph graph;
        GM_CU(&self->gpu, cuMemAlloc, &self->at, GM_WORDS * sizeof(self->in[0]));
        GM_CU(&self->gpu, cuStreamBeginCapture, self->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        for (unsigned i = 0; i < GM_NODES; i++)
            sweep(self);
        GM_CU(&self->gpu, cuStreamEndCapture, self->stream, &graph);
        GM_CU(&self->gpu, cuGraphInstantiateWithFlags, &self->graph, graph, 0);
        GM_CU(&self->gpu, cuGraphDestroy, graph);
        self->tokens = strcmp(model, "chat") == 0 ? GM_TOKENS : 1;
        answer(self); /* the first of everything */
        uint64_t from = gm_now();
        answer(self);
        self->service_us = (gm_now() - from) / GM_US;
        self->unit_ns = strcmp(model, "stencil") == 0 ? GM_LONG_NS : GM_SHORT_NS;
        GM_CU(&self->gpu, cuMemsetD32Async, self->at, 0, GM_WORDS * 2, self->stream);
        GM_CU(&self->gpu, cuStreamSynchronize, self->stream);
        self->units = 0;
    }
    printf("made size=0 unit_us=%" PRIu64 "\n", self->service_us);
}

static void sleep_until(uint64_t at)
{
    const struct timespec until = gm_timespec(at);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

static double us_after(uint64_t now, uint64_t begin)
{
    return (double)(int64_t)(now - begin) / (double)GM_US;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (file == NULL)
        gm_bench_fail(2, "a file cannot be opened");
    return file;
}

static void close_file(FILE *file)
{
    if (fclose(file) != 0)
        gm_bench_fail(2, "a file cannot be written");
}

static void serve(const struct serving *self, uint64_t begin, uint64_t end, uint64_t ahead_ns,
                  const char *path, const char *arrivals)
{
    FILE *in = open_file(arrivals, "re"), *out = open_file(path, "we");
    uint64_t wrong = 0, requests = 0, served = 0, hints = 0;
    double at_us;
    while (fscanf(in, "%lf", &at_us) == 1) {
        const uint64_t at = begin + (uint64_t)(int64_t)(at_us * (double)GM_US);
        requests++;
        if (ahead_ns != 0 && self->expect != NULL && gm_now() < at - ahead_ns) {
            sleep_until(at - ahead_ns);
            self->expect(ahead_ns / GM_US, self->service_us);
            hints++;
        }
        sleep_until(at);
        if (gm_now() < end + GM_LATE_NS) {
            wrong += answer(self);
            served++;
        }
        fprintf(out, "%.1f %.1f\n", at_us, us_after(gm_now(), at));
    }
    fclose(in);
    close_file(out);
    printf("requests=%" PRIu64 " served=%" PRIu64 " hints=%" PRIu64 " mismatches=%" PRIu64 "\n",
           requests, served, hints, wrong);
}

static void work(struct serving *self, uint64_t begin, uint64_t end, const char *path)
{
    const size_t bytes = GM_WORDS * sizeof(self->out[0]);
    FILE *out = open_file(path, "we");
    const uint64_t before = self->units;
    uint64_t wrong = 0;
    fprintf(out, "%.1f\n", us_after(gm_now(), begin));
    begin_unit(self);
    for (uint64_t ended = before; ended < self->units; ended++) {
        if (gm_now() < end)
            begin_unit(self);
        GM_CU(&self->gpu, cuEventSynchronize, self->ended[ended % 2]);
        fprintf(out, "%.1f\n", us_after(gm_now(), begin));
    }
    close_file(out);
    GM_CU(&self->gpu, cuMemcpyDtoHAsync, self->out, self->at, bytes, self->stream);
    GM_CU(&self->gpu, cuStreamSynchronize, self->stream);
    for (uint64_t i = 0; i < GM_WORDS; i++)
        wrong += self->out[i] != self->units;
    printf("units=%" PRIu64 " mismatches=%" PRIu64 "\n", self->units - before, wrong);
}

/* False: there is no such request. */
static bool obey(struct serving *self, const char *line)
{
    char word[32], file[1024], arrivals[1024];
    uint64_t begin, ahead_us;
    double seconds;
    if (sscanf(line, "make %31s", word) == 1) {
        make(self, word);
    } else if (self->graph == NULL) {
        return false;
    } else if (sscanf(line, "serve %" SCNu64 " %lf %" SCNu64 " %1023s %1023s", &begin, &seconds,
                      &ahead_us, file, arrivals) == 5) {
        serve(self, begin, begin + (uint64_t)(seconds * (double)GM_S), ahead_us * GM_US, file,
              arrivals);
    } else if (sscanf(line, "work %" SCNu64 " %lf %1023s", &begin, &seconds, file) == 3) {
        work(self, begin, begin + (uint64_t)(seconds * (double)GM_S), file);
    } else {
        return false;
    }
    fflush(stdout);
    return true;
}

int main(void)
{
    static struct serving self;
    char line[4096];
    open_cuda(&self);
    printf("open expects=%d\n", self.expect != NULL);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (!obey(&self, line)) {
            printf("FAIL no such request: %s", line);
            return 2;
        }
    }
    drop(&self);
    for (int i = 0; i < 2; i++)
        GM_CU(&self.gpu, cuEventDestroy, self.ended[i]);
    GM_CU(&self.gpu, cuMemFreeHost, self.in);
    GM_CU(&self.gpu, cuMemFreeHost, self.out);
    GM_CU(&self.gpu, cuStreamDestroy, self.stream);
    gm_bench_close(&self.gpu);
    return 0;
}

/*
 * bench_mix: the programs that bench/mixes.py runs, in the shape of those of HuntKTm's evaluation.
 *
 *   mix NAME --bytes SIZE (--passes N | --until MS)
 *   mix --devices
 *
 *   square    vector square: two arrays, a stream each
 *   price     option prices by Black and Scholes, on ten streams
 *   learn     machine learning: two sets of records are classified by a linear model each
 *   image     image processing: three images are blurred, their edges found, and both blended
 *   deep      deep learning: two images are convolved, pooled and activated
 *   mix-a     relu and sigmoid, and a sum, of four arrays
 *   mix-b     tanh and gelu, and a sum, of eight arrays
 *
 * The grids are fixed, as in such suites, so most kernels leave multiprocessors free. A program:
 *
 *   1  waits for the line "go" or "go DEVICES". It has not touched the driver until then. DEVICES
 *      becomes CUDA_VISIBLE_DEVICES.
 *   2  opens GPU 0 and takes --bytes.
 *   3  makes its inputs: an eighth of them comes from host memory, the rest is computed.
 *   4  does its passes, each with its results read at the end: N, or until MS milliseconds have
 *      passed since "go", one at least. Each pass computes the same.
 *   5  adds the last results up, frees everything, and says one line, name=value each:
 *
 *        init_ms      until cuInit had returned, so with any wait for room
 *        open_ms      context and module
 *        fill_ms      memory and inputs
 *        work_ms      the passes
 *        passes, bytes, sum, and of the first kernel of each of its `streams` streams: blocks,
 *        threads
 *        gpu          the first eight digits of the GPU's UUID, as a number
 *
 *      and ends with code 0. --devices prints a line of each GPU: total and free (bytes), gpu.
 *
 * A failure is the line "FAIL ..." and code 3 for a CUDA call, 2 for wrong use.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device.h"
#include "bench/mix_math.h"
#include "bench/mix_ptx.h"
#include "bench/report.h"
#include "common/clock.h"
#include "common/size.h"

#define LANES_MAX 10
#define ARRAYS_MAX 3
#define STEPS_MAX 3
#define WIDTH 4096u
#define FROM_HOST 8 /* of the input, the part that comes from host memory: one in so many */
#define PAGE_BYTES (2ull << 20)
#define STAGE_BYTES (16u << 20) /* of host memory */

enum kernel {
    START,
    SQUARE,
    PRICE,
    ACTIVATE,
    BLUR,
    EDGES,
    BLEND,
    CONVOLVE,
    POOL,
    SCORE,
    REDUCE,
    KERNELS
};
static const char *const names[KERNELS] = {
    "gm_mix_start", "gm_mix_square", "gm_mix_price",  "gm_mix_activate",
    "gm_mix_blur",  "gm_mix_edges",  "gm_mix_blend",  "gm_mix_convolve",
    "gm_mix_pool",  "gm_mix_score",  "gm_mix_reduce",
};

struct step {
    enum kernel kernel;
    int from, to; /* arrays; a sum goes nowhere */
    uint32_t what;
};

/* A stream with arrays of its own. */
struct kind {
    const char *name;
    uint32_t lanes, blocks, threads;
    uint32_t weight[ARRAYS_MAX]; /* how large the arrays are beside each other */
    uint32_t n_steps;
    struct step step[STEPS_MAX];
};

static const struct kind kinds[] = {
    {"square", 2, 96, 256, {1, 1}, 1, {{SQUARE, 0, 1, 0}}},
    {"price", 10, 32, 128, {1, 1}, 1, {{PRICE, 0, 1, 0}}},
    {"learn", 2, 64, 256, {GM_MIX_FEATURES, 1}, 1, {{SCORE, 0, 1, 7}}},
    {"image",
     3,
     64,
     256,
     {1, 1, 1},
     3,
     {{BLUR, 0, 1, WIDTH}, {EDGES, 1, 2, WIDTH}, {BLEND, 2, 1, 0}}},
    {"deep",
     2,
     128,
     256,
     {4, 4, 1},
     3,
     {{CONVOLVE, 0, 1, WIDTH}, {POOL, 1, 2, 0}, {ACTIVATE, 2, 2, GM_MIX_TANH}}},
    {"mix-a",
     4,
     64,
     256,
     {1, 1},
     3,
     {{ACTIVATE, 0, 1, GM_MIX_RELU}, {ACTIVATE, 1, 1, GM_MIX_SIGMOID}, {REDUCE, 1, -1, 0}}},
    {"mix-b",
     8,
     32,
     512,
     {1, 1},
     3,
     {{ACTIVATE, 0, 1, GM_MIX_TANH}, {ACTIVATE, 1, 1, GM_MIX_GELU}, {REDUCE, 1, -1, 0}}},
};

struct lane {
    CUstream stream;
    CUdeviceptr array[ARRAYS_MAX];
    CUdeviceptr sum; /* in mix.sums */
};

struct mix {
    const struct kind *kind;
    uint64_t bytes, passes, until_ms;
    uint64_t begun; /* "go" */
    uint64_t count[ARRAYS_MAX];
    struct gm_bench_device gpu;
    CUfunction kernel[KERNELS];
    struct lane lane[LANES_MAX];
    CUdeviceptr sums; /* one of 64 bits each */
    uint64_t sum;
    double init_ms, open_ms, fill_ms, work_ms;
};

/* ---- the GPU ---- */

static void open_driver(struct gm_bench_device *gpu)
{
    const char *why = NULL;
    if (gm_driver_open(&gpu->cu, false, &why) != 0)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    GM_CU(gpu, cuInit, 0);
}

static void open_device(struct gm_bench_device *gpu, int index)
{
    GM_CU(gpu, cuDeviceGet, &gpu->device, index);
    GM_CU(gpu, cuDevicePrimaryCtxRetain, &gpu->context, gpu->device);
    GM_CU(gpu, cuCtxSetCurrent, gpu->context);
}

static uint32_t number_of(const struct gm_bench_device *gpu)
{
    CUuuid uuid;
    GM_CU(gpu, cuDeviceGetUuid, &uuid, gpu->device);
    uint32_t number = 0;
    for (int i = 0; i < 4; i++)
        number = number << 8 | (uint8_t)uuid.bytes[i];
    return number;
}

static void print_devices(void)
{
    struct gm_bench_device gpu;
    int count = 0;
    open_driver(&gpu);
    GM_CU(&gpu, cuDeviceGetCount, &count);
    for (int i = 0; i < count; i++) {
        size_t free = 0, total = 0;
        open_device(&gpu, i);
        GM_CU(&gpu, cuMemGetInfo, &free, &total);
        printf("total=%zu free=%zu gpu=%u\n", total, free, number_of(&gpu));
        GM_CU(&gpu, cuDevicePrimaryCtxRelease, gpu.device);
    }
}

static void open_all(struct mix *mix)
{
    uint64_t from = gm_now();
    open_driver(&mix->gpu);
    mix->init_ms = gm_bench_ms_since(from);
    from = gm_now();
    open_device(&mix->gpu, 0);
    GM_CU(&mix->gpu, cuModuleLoadData, &mix->gpu.module, gm_mix_ptx);
    for (int i = 0; i < KERNELS; i++)
        GM_CU(&mix->gpu, cuModuleGetFunction, &mix->kernel[i], mix->gpu.module, names[i]);
    mix->open_ms = gm_bench_ms_since(from);
}

/* ---- memory ---- */

static void launch(const struct mix *mix, const struct lane *lane, enum kernel kernel,
                   CUdeviceptr from, CUdeviceptr to, uint64_t n, uint32_t what)
{
    void *args[] = {&from, &to, &n, &what};
    GM_CU(&mix->gpu, cuLaunchKernel, mix->kernel[kernel], mix->kind->blocks, 1, 1,
          mix->kind->threads, 1, 1, 0, lane->stream, args, NULL);
}

/* Elements of each array: all lanes and the sums together have --bytes at most. Where there is
 * enough, arrays have whole pages of the GPU, so that they take no more than that. */
static void size_arrays(struct mix *mix)
{
    uint64_t weights = 0;
    for (int i = 0; i < ARRAYS_MAX; i++)
        weights += mix->kind->weight[i];
    const uint64_t rest = mix->bytes > 2 * PAGE_BYTES ? mix->bytes - PAGE_BYTES : mix->bytes;
    const uint64_t unit = rest / mix->kind->lanes / sizeof(float) / weights;
    const uint64_t page = unit < 8 * PAGE_BYTES / sizeof(float) ? 1024 : PAGE_BYTES / sizeof(float);
    if (unit < page)
        gm_bench_fail(2, "--bytes is too small");
    for (int i = 0; i < ARRAYS_MAX; i++)
        mix->count[i] = unit / page * page * mix->kind->weight[i];
}

/* The input of a lane: the first part from the host. */
static void fill(const struct mix *mix, uint32_t index, const void *stage)
{
    const struct lane *lane = &mix->lane[index];
    const uint64_t bytes = mix->count[0] / FROM_HOST * sizeof(float);
    launch(mix, lane, START, 0, lane->array[0], mix->count[0], index + 1);
    for (uint64_t at = 0; at < bytes; at += STAGE_BYTES)
        GM_CU(&mix->gpu, cuMemcpyHtoDAsync, lane->array[0] + at, stage,
              bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES, lane->stream);
    GM_CU(&mix->gpu, cuStreamSynchronize, lane->stream);
}

static void make_lanes(struct mix *mix)
{
    const uint64_t from = gm_now();
    float *stage = malloc(STAGE_BYTES);
    if (stage == NULL)
        gm_bench_fail(3, "no host memory");
    for (uint32_t i = 0; i < STAGE_BYTES / sizeof(float); i++)
        stage[i] = gm_mix_random(0, i);
    size_arrays(mix);
    GM_CU(&mix->gpu, cuMemAlloc, &mix->sums, LANES_MAX * sizeof(uint64_t));
    for (uint32_t i = 0; i < mix->kind->lanes; i++) {
        struct lane *lane = &mix->lane[i];
        GM_CU(&mix->gpu, cuStreamCreate, &lane->stream, CU_STREAM_NON_BLOCKING);
        lane->sum = mix->sums + i * sizeof(uint64_t);
        for (int k = 0; k < ARRAYS_MAX; k++)
            if (mix->count[k] > 0)
                GM_CU(&mix->gpu, cuMemAlloc, &lane->array[k], mix->count[k] * sizeof(float));
        fill(mix, i, stage);
    }
    free(stage);
    mix->fill_ms = gm_bench_ms_since(from);
}

static void free_lanes(const struct mix *mix)
{
    for (uint32_t i = 0; i < mix->kind->lanes; i++) {
        const struct lane *lane = &mix->lane[i];
        for (int k = 0; k < ARRAYS_MAX; k++)
            if (lane->array[k] != 0)
                GM_CU(&mix->gpu, cuMemFree, lane->array[k]);
        GM_CU(&mix->gpu, cuStreamDestroy, lane->stream);
    }
    GM_CU(&mix->gpu, cuMemFree, mix->sums);
}

/* ---- work ---- */

static void reduce(const struct mix *mix, const struct lane *lane, int from)
{
    GM_CU(&mix->gpu, cuMemsetD32Async, lane->sum, 0, 2, lane->stream);
    launch(mix, lane, REDUCE, lane->array[from], lane->sum, mix->count[from], 0);
}

static void do_step(const struct mix *mix, const struct lane *lane, const struct step *step)
{
    if (step->kernel == REDUCE)
        reduce(mix, lane, step->from);
    else
        launch(mix, lane, step->kernel, lane->array[step->from], lane->array[step->to],
               mix->count[step->to], step->what);
}

static uint64_t read_sums(const struct mix *mix)
{
    uint64_t sum = 0, one;
    for (uint32_t i = 0; i < mix->kind->lanes; i++) {
        const struct lane *lane = &mix->lane[i];
        GM_CU(&mix->gpu, cuMemcpyDtoHAsync, &one, lane->sum, sizeof(one), lane->stream);
        GM_CU(&mix->gpu, cuStreamSynchronize, lane->stream);
        sum += one;
    }
    return sum;
}

static void work(struct mix *mix)
{
    const uint64_t from = gm_now();
    uint64_t pass = 0;
    do {
        for (uint32_t k = 0; k < mix->kind->n_steps; k++)
            for (uint32_t i = 0; i < mix->kind->lanes; i++)
                do_step(mix, &mix->lane[i], &mix->kind->step[k]);
        read_sums(mix);
        pass++;
    } while (mix->passes > 0 ? pass < mix->passes
                             : gm_bench_ms_since(mix->begun) < (double)mix->until_ms);
    mix->passes = pass;
    mix->work_ms = gm_bench_ms_since(from);
}

/* Of the last array that is written. */
static void add_up(struct mix *mix)
{
    int last = 0;
    for (uint32_t k = 0; k < mix->kind->n_steps; k++)
        last = mix->kind->step[k].to >= 0 ? mix->kind->step[k].to : last;
    for (uint32_t i = 0; i < mix->kind->lanes; i++)
        reduce(mix, &mix->lane[i], last);
    mix->sum = read_sums(mix);
}

static void report(const struct mix *mix, uint32_t gpu)
{
    printf("done init_ms=%.3f open_ms=%.3f fill_ms=%.3f work_ms=%.3f passes=%" PRIu64
           " bytes=%" PRIu64 " sum=%" PRIu64 " streams=%u blocks=%u threads=%u gpu=%u\n",
           mix->init_ms, mix->open_ms, mix->fill_ms, mix->work_ms, mix->passes, mix->bytes,
           mix->sum, mix->kind->lanes, mix->kind->blocks, mix->kind->threads, gpu);
    fflush(stdout);
}

/* ---- options ---- */

static bool parse(struct mix *mix, int argc, char **argv)
{
    const struct gm_option options[] = {
        {"--bytes", GM_OPTION_SIZE, &mix->bytes, 1, UINT64_MAX},
        {"--passes", GM_OPTION_NUMBER, &mix->passes, 1, UINT64_MAX},
        {"--until", GM_OPTION_NUMBER, &mix->until_ms, 1, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && argc > 1; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            mix->kind = &kinds[i];
    return mix->kind != NULL &&
           gm_options_take(argc - 1, argv + 1, options, sizeof(options) / sizeof(options[0])) &&
           mix->bytes > 0 && (mix->passes > 0) != (mix->until_ms > 0);
}

/* Wait for the word. False: nobody says it any more. */
static bool wait_for_go(void)
{
    char line[256], devices[200];
    if (fgets(line, sizeof(line), stdin) == NULL)
        return false;
    const int n = sscanf(line, "go %199s", devices);
    if (n == 1 && setenv("CUDA_VISIBLE_DEVICES", devices, 1) != 0)
        gm_bench_fail(2, "no environment");
    return true;
}

int main(int argc, char **argv)
{
    static struct mix mix;
    if (argc == 2 && strcmp(argv[1], "--devices") == 0) {
        print_devices();
        return 0;
    }
    if (!parse(&mix, argc, argv)) {
        fprintf(stderr, "usage: mix NAME --bytes SIZE (--passes N | --until MS) | mix --devices\n");
        return 2;
    }
    if (!wait_for_go())
        return 0;
    mix.begun = gm_now();
    open_all(&mix);
    const uint32_t gpu = number_of(&mix.gpu);
    make_lanes(&mix);
    work(&mix);
    add_up(&mix);
    report(&mix, gpu);
    free_lanes(&mix);
    gm_bench_close(&mix.gpu);
    return 0;
}

/*
 * bench_layers: the program that oversize.py runs under gpumux, and natively beside it. Its memory
 * is that of a model. It knows nothing of gpumux and works when it is told to, line by line:
 *
 *   layers --layers N --layer SIZE [--gradients] [--activation SIZE] [--workspace SIZE]
 *          [--used SIZE] [--host SIZE] [--seed N]
 *
 * First it allocates and fills N weights of --layer bytes, with --gradients as many gradients, and
 * after these two activations and a workspace, as programs do; then it prints "ready". Of the
 * workspace each layer uses the first --used bytes (all). A decoder has one token: some 10 KiB of
 * activation, and a workspace that is made for much more than it needs. In training both are large.
 * --host: so much pinned host memory beside it, whose rates it measures. After that a line on
 * standard input is a request, answered by one line on standard output, name=value each:
 *
 *   tokens N   For each token: every layer reads its weight once, then reads and writes an
 *              activation and what it uses of the workspace.
 *   steps N    For each step, forward: every layer reads its weight. Backward, from the last to the
 *              first: it reads its weight and writes its gradient. Update: it reads its gradient,
 *              and reads and writes its weight. Each of these then reads and writes an activation
 *              and the workspace likewise.
 *              Both answer: ms (median of one), min_ms, max_ms, mismatches.
 *   rates      GB/s over the link: read, write, and rewrite (both ways summed, each byte read and
 *              written); and resident: of reading all weights.
 *
 * Every word that is read is checked. Each token, step or rate ends with a synchronization. Times
 * are by a monotonic clock on the host. The end of the input ends it. Exit codes as for bench_app.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_REPEATS_MAX 4096

enum kernel { GM_FILL, GM_VERIFY, GM_REWRITE, GM_KERNELS };

/* Memory with a pattern, which follows from the seed. */
struct block {
    CUdeviceptr at;
    uint64_t words;
    uint64_t seed;
};

struct app {
    uint64_t layers, layer_bytes, activation_bytes, workspace_bytes, used_bytes, host_bytes, seed;
    bool has_gradients;
    struct gm_bench_device gpu;
    CUfunction kernel[GM_KERNELS];
    CUstream stream;
    CUdeviceptr counter; /* of wrong words */
    uint64_t counted;    /* as read last */
    struct block *weights, *gradients;
    struct block activations[2], workspace, host;
    void *host_memory;
};

static double ms_since(uint64_t from)
{
    return (double)(gm_now() - from) / (double)GM_MS;
}

static void open_cuda(struct app *app)
{
    static const char *const names[GM_KERNELS] = {"gm_fill", "gm_verify", "gm_verify_refill"};
    const char *why = gm_bench_open(&app->gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    for (int i = 0; i < GM_KERNELS; i++)
        GM_CU(&app->gpu, cuModuleGetFunction, &app->kernel[i], app->gpu.module, names[i]);
    GM_CU(&app->gpu, cuStreamCreate, &app->stream, 0);
}

/* ---- kernels ---- */

static void launch(const struct app *app, enum kernel kernel, void **args)
{
    GM_CU(&app->gpu, cuLaunchKernel, app->kernel[kernel], 1024, 1, 1, 256, 1, 1, 0, app->stream,
          args, NULL);
}

static void read_block(struct app *app, struct block *block)
{
    void *args[] = {&block->at, &block->words, &block->seed, &app->counter};
    launch(app, GM_VERIFY, args);
}

static void write_block(struct app *app, struct block *block)
{
    block->seed++;
    void *args[] = {&block->at, &block->words, &block->seed};
    launch(app, GM_FILL, args);
}

static void rewrite_block(struct app *app, struct block *block)
{
    uint64_t next = block->seed + 1;
    void *args[] = {&block->at, &block->words, &block->seed, &next, &app->counter};
    launch(app, GM_REWRITE, args);
    block->seed = next;
}

/* Wait for all of it. Returns the words that were wrong. */
static uint64_t finish(struct app *app)
{
    const uint64_t before = app->counted;
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
    GM_CU(&app->gpu, cuMemcpyDtoH, &app->counted, app->counter, sizeof(app->counted));
    return app->counted - before;
}

/* ---- memory ---- */

static void make_block(struct app *app, struct block *block, uint64_t bytes)
{
    /* Seeds go up by one with each writing; those of blocks lie far apart. */
    static uint64_t n_blocks;
    GM_CU(&app->gpu, cuMemAlloc, &block->at, bytes);
    block->words = bytes / 8;
    block->seed = app->seed + (++n_blocks << 32);
    write_block(app, block);
}

static struct block *make_blocks(struct app *app)
{
    struct block *blocks = calloc(app->layers, sizeof(*blocks));
    if (blocks == NULL)
        gm_bench_fail(1, "no host memory");
    for (uint64_t i = 0; i < app->layers; i++)
        make_block(app, &blocks[i], app->layer_bytes);
    return blocks;
}

static void make_memory(struct app *app)
{
    const uint64_t zero = 0;
    GM_CU(&app->gpu, cuMemAlloc, &app->counter, sizeof(zero));
    GM_CU(&app->gpu, cuMemcpyHtoD, app->counter, &zero, sizeof(zero));
    app->weights = make_blocks(app);
    if (app->has_gradients)
        app->gradients = make_blocks(app);
    for (int i = 0; i < 2; i++)
        make_block(app, &app->activations[i], app->activation_bytes);
    make_block(app, &app->workspace, app->workspace_bytes);
    if (app->used_bytes > 0)
        app->workspace.words = app->used_bytes / 8;
    if (app->host_bytes > 0) {
        GM_CU(&app->gpu, cuMemHostAlloc, &app->host_memory, app->host_bytes,
              CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
        GM_CU(&app->gpu, cuMemHostGetDevicePointer, &app->host.at, app->host_memory, 0);
        app->host.words = app->host_bytes / 8;
        app->host.seed = app->seed;
        write_block(app, &app->host);
    }
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
}

static void free_blocks(struct app *app, struct block *blocks)
{
    for (uint64_t i = 0; blocks != NULL && i < app->layers; i++)
        GM_CU(&app->gpu, cuMemFree, blocks[i].at);
    free(blocks);
}

static void free_memory(struct app *app)
{
    free_blocks(app, app->weights);
    free_blocks(app, app->gradients);
    for (int i = 0; i < 2; i++)
        GM_CU(&app->gpu, cuMemFree, app->activations[i].at);
    GM_CU(&app->gpu, cuMemFree, app->workspace.at);
    GM_CU(&app->gpu, cuMemFree, app->counter);
    if (app->host_memory != NULL)
        GM_CU(&app->gpu, cuMemFreeHost, app->host_memory);
}

/* ---- work ---- */

static void use_small(struct app *app, uint64_t layer)
{
    rewrite_block(app, &app->activations[layer % 2]);
    rewrite_block(app, &app->workspace);
}

static void make_token(struct app *app)
{
    for (uint64_t i = 0; i < app->layers; i++) {
        read_block(app, &app->weights[i]);
        use_small(app, i);
    }
}

static void make_step(struct app *app)
{
    make_token(app); /* forward */
    for (uint64_t i = app->layers; i-- > 0;) {
        read_block(app, &app->weights[i]);
        write_block(app, &app->gradients[i]);
        use_small(app, i);
    }
    for (uint64_t i = 0; i < app->layers; i++) {
        read_block(app, &app->gradients[i]);
        rewrite_block(app, &app->weights[i]);
        use_small(app, i);
    }
}

static void answer_work(struct app *app, void (*work)(struct app *app), uint64_t n)
{
    static double ms[GM_REPEATS_MAX];
    uint64_t mismatches = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = gm_now();
        work(app);
        mismatches += finish(app);
        ms[i] = ms_since(from);
    }
    const struct gm_spread spread = gm_samples_spread(ms, n); /* sorts them */
    printf("ms=%.4f min_ms=%.4f max_ms=%.4f mismatches=%" PRIu64 "\n", spread.median, ms[0],
           ms[n - 1], mismatches);
    fflush(stdout);
    if (mismatches != 0)
        exit(1);
}

static double rate_of(struct app *app, void (*use)(struct app *app, struct block *block),
                      struct block *blocks, uint64_t n, uint64_t ways, uint64_t *mismatches)
{
    const uint64_t from = gm_now();
    for (uint64_t i = 0; i < n; i++)
        use(app, &blocks[i]);
    *mismatches += finish(app);
    return (double)(n * ways * blocks[0].words * 8) / ms_since(from) / 1e6;
}

static void answer_rates(struct app *app)
{
    uint64_t bad = 0;
    const double reads = rate_of(app, read_block, &app->host, 1, 1, &bad);
    const double writes = rate_of(app, write_block, &app->host, 1, 1, &bad);
    const double both = rate_of(app, rewrite_block, &app->host, 1, 2, &bad);
    const double resident = rate_of(app, read_block, app->weights, app->layers, 1, &bad);
    printf("read=%.4f write=%.4f rewrite=%.4f resident=%.4f mismatches=%" PRIu64 "\n", reads,
           writes, both, resident, bad);
    fflush(stdout);
    if (bad != 0)
        exit(1);
}

/* Serve requests until the last. */
static void serve(struct app *app)
{
    char line[256], verb[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        uint64_t n = 0;
        const int fields = sscanf(line, "%15s %" SCNu64, verb, &n);
        const bool is_work = fields == 2 && n > 0 && n <= GM_REPEATS_MAX;
        if (is_work && strcmp(verb, "tokens") == 0) {
            answer_work(app, make_token, n);
        } else if (is_work && strcmp(verb, "steps") == 0 && app->has_gradients) {
            answer_work(app, make_step, n);
        } else if (fields == 1 && strcmp(verb, "rates") == 0 && app->host_bytes > 0) {
            answer_rates(app);
        } else {
            printf("FAIL no such request: %s", line);
            exit(2);
        }
    }
}

/* ---- the command line ---- */

static uint64_t *number_of(struct app *app, const char *option, bool *is_size)
{
    *is_size = true;
    if (strcmp(option, "--layer") == 0)
        return &app->layer_bytes;
    if (strcmp(option, "--activation") == 0)
        return &app->activation_bytes;
    if (strcmp(option, "--workspace") == 0)
        return &app->workspace_bytes;
    if (strcmp(option, "--used") == 0)
        return &app->used_bytes;
    if (strcmp(option, "--host") == 0)
        return &app->host_bytes;
    *is_size = false;
    if (strcmp(option, "--layers") == 0)
        return &app->layers;
    return strcmp(option, "--seed") == 0 ? &app->seed : NULL;
}

static bool parse(struct app *app, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool is_size;
        if (strcmp(argv[i], "--gradients") == 0) {
            app->has_gradients = true;
            continue;
        }
        uint64_t *number = number_of(app, argv[i], &is_size);
        const char *value = argv[++i]; /* NULL behind the last */
        if (number == NULL || value == NULL ||
            (is_size ? gm_parse_size(value, number) : gm_parse_number(value, number)) != 0)
            return false;
    }
    return app->layers > 0 && app->layer_bytes >= 8 && app->activation_bytes >= 8 &&
           app->workspace_bytes >= 8 && app->used_bytes <= app->workspace_bytes;
}

int main(int argc, char **argv)
{
    static struct app app = {.activation_bytes = 8ull << 20, .workspace_bytes = 32ull << 20};
    if (!parse(&app, argc, argv)) {
        fprintf(stderr, "usage: layers --layers N --layer SIZE [--gradients] [--activation SIZE] "
                        "[--workspace SIZE] [--used SIZE] [--host SIZE] [--seed N]\n");
        return 2;
    }
    open_cuda(&app);
    const uint64_t from = gm_now();
    make_memory(&app);
    printf("ready fill_ms=%.3f\n", ms_since(from));
    fflush(stdout);
    serve(&app);
    free_memory(&app);
    GM_CU(&app.gpu, cuStreamDestroy, app.stream);
    gm_bench_close(&app.gpu);
    return 0;
}

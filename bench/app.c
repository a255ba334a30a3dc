/*
 * bench_app: the program that the benches run under gpumux, and natively beside it. It knows
 * nothing of gpumux. It holds device memory that is all written, and works when it is told to, line
 * by line:
 *
 *   app --bytes SIZE [--piece SIZE] [--seed N]
 *
 * --bytes are allocated in pieces of --piece (1 GiB; the last may be smaller) and filled with a
 * pattern; then it prints "ready" with what that took. After that, a line on standard input is a
 * request, answered by one line on standard output, name=value each:
 *
 *   turn WORK [MS]
 *   run WORK MS [FILE]
 *
 * turn: an empty kernel to its end, then passes over all memory until MS milliseconds have passed,
 * at least one. The answer: first_ms (from before the first call to the end of the empty kernel),
 * work_ms, pass_ms and pass_max_ms (the median pass and the longest), passes, mismatches. run: the
 * passes alone; first_ms is 0. With FILE, each pass is a line of it: when it ended and how long it
 * took, in milliseconds, and what it was.
 *
 * WORK is what a pass does: rewrite (check and write anew), verify (check), mixed (one rewrite,
 * then seven verify, which are bound by memory) or none. The end of the input ends it, with code 0
 * after all memory was freed.
 *
 * Times are by a monotonic clock on the host. Exit codes: 0 done, 1 wrong data, 2 wrong use, 3 a
 * CUDA call failed (named in the last line: "FAIL call: error 2 CUDA_ERROR_OUT_OF_MEMORY").
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

#define GM_PASSES_MAX 65536
#define GM_MIXED 8 /* of so many passes, one rewrites */

enum kernel { GM_FILL, GM_VERIFY, GM_REWRITE, GM_EMPTY, GM_KERNELS };
enum work { GM_WORK_NONE, GM_WORK_VERIFY, GM_WORK_REWRITE, GM_WORK_MIXED, GM_WORKS };
static const char *const work_names[GM_WORKS] = {"none", "verify", "rewrite", "mixed"};

struct piece {
    CUdeviceptr at;
    uint64_t words;
    uint64_t seed;
};

struct pass {
    double end_ms; /* by the clock that a daemon's status uses */
    enum work work;
};

struct app {
    uint64_t bytes, piece_bytes, seed;
    struct gm_bench_device gpu;
    CUfunction kernel[GM_KERNELS];
    CUstream stream;
    CUdeviceptr counter; /* of wrong words */
    uint64_t counted;    /* as read last */
    struct piece *pieces;
    size_t n_pieces;
    struct pass passes[GM_PASSES_MAX]; /* the first ones */
    double pass_ms[GM_PASSES_MAX];     /* how long each took */
};

static double ms_since(uint64_t from)
{
    return (double)(gm_now() - from) / (double)GM_MS;
}

/* Another seed; the same function as the kernels use, of an index that no word has. */
static uint64_t next_seed(uint64_t seed)
{
    uint64_t z = seed + 0x9E3779B97F4A7C15ull * 0x5eed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static void launch(const struct app *app, enum kernel kernel, void **args)
{
    bool is_empty = kernel == GM_EMPTY;
    GM_CU(&app->gpu, cuLaunchKernel, app->kernel[kernel], is_empty ? 1 : 1024, 1, 1,
          is_empty ? 1 : 256, 1, 1, 0, app->stream, args, NULL);
}

static void open_cuda(struct app *app)
{
    static const char *const names[GM_KERNELS] = {"gm_fill", "gm_verify", "gm_verify_refill",
                                                  "gm_empty"};
    const char *why = gm_bench_open(&app->gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    for (int i = 0; i < GM_KERNELS; i++)
        GM_CU(&app->gpu, cuModuleGetFunction, &app->kernel[i], app->gpu.module, names[i]);
    GM_CU(&app->gpu, cuStreamCreate, &app->stream, 0);
}

static void fill(struct app *app)
{
    uint64_t zero = 0;
    app->n_pieces = (app->bytes + app->piece_bytes - 1) / app->piece_bytes;
    app->pieces = calloc(app->n_pieces, sizeof(app->pieces[0]));
    if (app->pieces == NULL)
        gm_bench_fail(1, "no host memory");
    GM_CU(&app->gpu, cuMemAlloc, &app->counter, sizeof(zero));
    GM_CU(&app->gpu, cuMemcpyHtoD, app->counter, &zero, sizeof(zero));
    for (size_t i = 0; i < app->n_pieces; i++) {
        struct piece *piece = &app->pieces[i];
        uint64_t left = app->bytes - i * app->piece_bytes;
        uint64_t bytes = left < app->piece_bytes ? left : app->piece_bytes;
        GM_CU(&app->gpu, cuMemAlloc, &piece->at, bytes);
        piece->words = bytes / 8;
        piece->seed = next_seed(app->seed + i);
        void *args[] = {&piece->at, &piece->words, &piece->seed};
        launch(app, GM_FILL, args);
    }
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
}

/* Once over all memory. Returns the wrong words. */
static uint64_t make_pass(struct app *app, enum work work)
{
    uint64_t before = app->counted;
    for (size_t i = 0; work != GM_WORK_NONE && i < app->n_pieces; i++) {
        struct piece *piece = &app->pieces[i];
        uint64_t next = next_seed(piece->seed);
        if (work == GM_WORK_REWRITE) {
            void *args[] = {&piece->at, &piece->words, &piece->seed, &next, &app->counter};
            launch(app, GM_REWRITE, args);
            piece->seed = next;
        } else {
            void *args[] = {&piece->at, &piece->words, &piece->seed, &app->counter};
            launch(app, GM_VERIFY, args);
        }
    }
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
    if (work != GM_WORK_NONE)
        GM_CU(&app->gpu, cuMemcpyDtoH, &app->counted, app->counter, sizeof(app->counted));
    return app->counted - before;
}

static void write_passes(const struct app *app, size_t count, const char *file)
{
    FILE *out = fopen(file, "we");
    for (size_t i = 0; out != NULL && i < count; i++)
        fprintf(out, "%.3f %.4f %s\n", app->passes[i].end_ms, app->pass_ms[i],
                work_names[app->passes[i].work]);
    if (out == NULL || fclose(out) != 0)
        gm_bench_fail(2, "%s: %s", file, strerror(errno));
}

/* Passes until `least_ms` have passed. Returns how many; the longest in *most_ms. */
static size_t make_passes(struct app *app, enum work what, double least_ms, double *most_ms,
                          uint64_t *mismatches)
{
    uint64_t begun = gm_now();
    size_t n = 0;
    do {
        enum work one = what;
        uint64_t at = gm_now();
        if (what == GM_WORK_MIXED)
            one = n % GM_MIXED == 0 ? GM_WORK_REWRITE : GM_WORK_VERIFY;
        *mismatches += make_pass(app, one);
        double ms = ms_since(at);
        if (n < GM_PASSES_MAX) {
            app->passes[n] = (struct pass){.end_ms = ms_since(0), .work = one};
            app->pass_ms[n] = ms;
        }
        *most_ms = ms > *most_ms ? ms : *most_ms;
        n++;
    } while (ms_since(begun) < least_ms);
    return n;
}

static void work(struct app *app, enum work what, double least_ms, bool is_run, const char *file)
{
    uint64_t from = gm_now(), mismatches = 0;
    double first_ms = 0, most_ms = 0;
    if (!is_run) {
        launch(app, GM_EMPTY, NULL);
        GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
        first_ms = ms_since(from);
    }
    uint64_t begun = gm_now();
    size_t passes = make_passes(app, what, least_ms, &most_ms, &mismatches);
    double work_ms = ms_since(begun);
    size_t kept = passes < GM_PASSES_MAX ? passes : GM_PASSES_MAX;
    if (file[0] != '\0')
        write_passes(app, kept, file);
    printf("first_ms=%.4f work_ms=%.4f pass_ms=%.4f pass_max_ms=%.4f passes=%zu mismatches=%" PRIu64
           "\n",
           first_ms, work_ms, gm_samples_spread(app->pass_ms, kept).median, most_ms, passes,
           mismatches);
    fflush(stdout);
    if (mismatches != 0)
        exit(1);
}

static bool parse_work(const char *text, enum work *what)
{
    for (int i = 0; i < GM_WORKS; i++) {
        if (strcmp(text, work_names[i]) == 0) {
            *what = (enum work)i;
            return true;
        }
    }
    return false;
}

/* Serve requests until the last. */
static void serve(struct app *app)
{
    char line[1024], verb[16], name[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char file[1024] = "";
        enum work what;
        double ms = 0;
        int n = sscanf(line, "%15s %15s %lf %1023s", verb, name, &ms, file);
        bool is_run = n >= 1 && strcmp(verb, "run") == 0;
        if (n < 2 || (!is_run && strcmp(verb, "turn") != 0) || !parse_work(name, &what)) {
            printf("FAIL no such request: %s", line);
            exit(2);
        }
        work(app, what, ms, is_run, file);
    }
}

static bool parse(struct app *app, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1]; /* NULL behind the last */
        char *end = NULL;
        if (value == NULL)
            return false;
        if (strcmp(option, "--seed") == 0) {
            errno = 0;
            app->seed = strtoull(value, &end, 10);
            if (errno != 0 || end == value || *end != '\0')
                return false;
        } else {
            bool is_bytes = strcmp(option, "--bytes") == 0;
            uint64_t *size = is_bytes ? &app->bytes : &app->piece_bytes;
            if ((!is_bytes && strcmp(option, "--piece") != 0) || gm_parse_size(value, size) != 0)
                return false;
        }
    }
    app->bytes &= ~7ull;
    app->piece_bytes &= ~7ull;
    return app->bytes > 0 && app->piece_bytes > 0;
}

int main(int argc, char **argv)
{
    static struct app app = {.piece_bytes = 1ull << 30, .seed = 1};
    uint64_t from = gm_now();
    if (!parse(&app, argc, argv)) {
        fprintf(stderr, "usage: app --bytes SIZE [--piece SIZE] [--seed N]\n");
        return 2;
    }
    open_cuda(&app);
    double open_ms = ms_since(from);
    from = gm_now();
    fill(&app);
    printf("ready open_ms=%.3f fill_ms=%.3f\n", open_ms, ms_since(from));
    fflush(stdout);
    serve(&app);
    for (size_t i = 0; i < app.n_pieces; i++)
        GM_CU(&app.gpu, cuMemFree, app.pieces[i].at);
    GM_CU(&app.gpu, cuMemFree, app.counter);
    GM_CU(&app.gpu, cuStreamDestroy, app.stream);
    gm_bench_close(&app.gpu);
    free(app.pieces);
    return 0;
}

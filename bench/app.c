/*
 * bench_app: the program that the benches run under gpumux, and natively beside it. It knows
 * nothing of gpumux. It holds device memory that is all written, and works when it is told to, line
 * by line:
 *
 *   app --bytes SIZE [--piece SIZE] [--seed N] [--touch SIZE] [--touch-at WHERE] [--stripes N]
 *       [--one] [--spin-us N]
 *       [--activation SIZE --workspace SIZE [--used SIZE] [--gradients] [--host SIZE]]
 *
 * --bytes are allocated in pieces of --piece (1 GiB; the last may be smaller) and filled with
 * random words; then it prints "ready" with what that took, and the bytes of which a pass goes over
 * (touched): all, or --touch bytes, in whole pieces. They begin --touch-at so many bytes, or lie in
 * the "middle" or at the "end" (0); in --stripes of one size evenly over all (1). With --one all
 * pieces are parts of one allocation, and kernels get its address and an index: no address says
 * which piece it is. With --spin-us a pass begins with a kernel that takes so long and touches
 * nothing. After that, a line on standard input is a request, answered by one line on standard
 * output, name=value each:
 *
 *   turn WORK [MS]
 *   run WORK MS [FILE]
 *   place WHERE
 *   follow SIZE
 *   check
 *
 * turn: an empty kernel to its end, then passes until MS milliseconds have passed,
 * at least one. The answer: first_ms (from before the first call to the end of the empty kernel),
 * work_ms, pass_ms and pass_max_ms (the median pass and the longest), passes, mismatches. run: the
 * passes alone; first_ms is 0. With FILE, each pass is a line of it: when it ended and how long it
 * took, in milliseconds.
 *
 * WORK is what a pass does: rewrite (check and write anew), or verify (check). place: from now on
 * what is touched is there (as --touch-at); the answer is placed, in bytes. follow: from now on
 * a pass also checks the last SIZE bytes (whole pieces, not with --one), whose addresses its
 * kernels read from device memory; the answer is followed, in bytes. check: checks all memory
 * once; the answer is mismatches. The end of the input ends the program, with code 0 after all
 * memory was freed.
 *
 * With --activation and --workspace its memory is that of a model, whose weights are the pieces:
 * after these it allocates, with --gradients, as many gradients, and last two activations and a
 * workspace, of which each layer uses the first --used bytes (all). A decoder has one token: some
 * 10 KiB of activation, and a workspace that is made for much more than it needs. In training both
 * are large. --host: so much pinned host memory beside it. Then requests are also
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
 * Every word that is read is checked. Each token, step or rate ends with a synchronization.
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
#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_PASSES_MAX 65536

enum kernel {
    GM_FILL,
    GM_VERIFY,
    GM_REWRITE,
    GM_VERIFY_AT,
    GM_REWRITE_AT,
    GM_VERIFY_THROUGH,
    GM_SPIN,
    GM_EMPTY,
    GM_KERNELS
};
enum work { GM_WORK_VERIFY, GM_WORK_REWRITE, GM_WORKS };
static const char *const work_names[GM_WORKS] = {"verify", "rewrite"};

struct piece {
    CUdeviceptr at; /* with --one that of the allocation */
    uint64_t first; /* word of what is at `at` */
    uint64_t words;
    uint64_t seed;
};

struct model {
    uint64_t activation_bytes, workspace_bytes, used_bytes, host_bytes;
    bool has_gradients;
    struct piece *gradients; /* as many as pieces */
    struct piece activations[2], workspace, host;
    void *host_memory;
};

struct app {
    uint64_t bytes, piece_bytes, seed;
    uint64_t touched_bytes, stripes, spin_us;
    const char *touched_at;
    bool is_one;
    struct gm_bench_device gpu;
    CUfunction kernel[GM_KERNELS];
    CUstream stream;
    CUdeviceptr counter; /* of wrong words */
    uint64_t counted;    /* as read last */
    struct piece *pieces;
    size_t n_pieces, n_touched, first_touched;
    struct model model;
    CUdeviceptr cells;             /* of device memory: the addresses of all pieces */
    size_t n_followed;             /* from the last on */
    double end_ms[GM_PASSES_MAX];  /* when each pass ended, by the clock of a daemon's status */
    double pass_ms[GM_PASSES_MAX]; /* how long it took */
};

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
    bool is_small = kernel == GM_EMPTY || kernel == GM_SPIN;
    GM_CU(&app->gpu, cuLaunchKernel, app->kernel[kernel], is_small ? 1 : 1024, 1, 1,
          is_small ? 1 : 256, 1, 1, 0, app->stream, args, NULL);
}

static void open_cuda(struct app *app)
{
    static const char *const names[GM_KERNELS] = {
        "gm_fill",           "gm_verify", "gm_verify_refill", "gm_verify_at", "gm_verify_refill_at",
        "gm_verify_through", "gm_spin",   "gm_empty"};
    const char *why = gm_bench_open(&app->gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    for (int i = 0; i < GM_KERNELS; i++)
        GM_CU(&app->gpu, cuModuleGetFunction, &app->kernel[i], app->gpu.module, names[i]);
    GM_CU(&app->gpu, cuStreamCreate, &app->stream, 0);
}

/* ---- kernels ---- */

static void verify(const struct app *app, struct piece *piece)
{
    void *args[] = {&piece->at, &piece->words, &piece->seed, (void *)&app->counter};
    void *args_at[] = {&piece->at, &piece->first, &piece->words, &piece->seed,
                       (void *)&app->counter};
    launch(app, app->is_one ? GM_VERIFY_AT : GM_VERIFY, app->is_one ? args_at : args);
}

static void write_piece(const struct app *app, struct piece *piece)
{
    piece->seed = next_seed(piece->seed);
    void *args[] = {&piece->at, &piece->words, &piece->seed};
    launch(app, GM_FILL, args);
}

static void rewrite(const struct app *app, struct piece *piece)
{
    uint64_t next = next_seed(piece->seed);
    void *args[] = {&piece->at, &piece->words, &piece->seed, &next, (void *)&app->counter};
    void *args_at[] = {&piece->at,   &piece->first, &piece->words,
                       &piece->seed, &next,         (void *)&app->counter};
    launch(app, app->is_one ? GM_REWRITE_AT : GM_REWRITE, app->is_one ? args_at : args);
    piece->seed = next;
}

/* Wait for all that was launched. Returns the words that were wrong. */
static uint64_t finish(struct app *app)
{
    uint64_t before = app->counted;
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
    GM_CU(&app->gpu, cuMemcpyDtoH, &app->counted, app->counter, sizeof(app->counted));
    return app->counted - before;
}

/* ---- memory ---- */

/* Memory, and the kernels that fill it. */
static void make_pieces(struct app *app)
{
    CUdeviceptr all = 0;
    if (app->is_one)
        GM_CU(&app->gpu, cuMemAlloc, &all, app->bytes);
    for (size_t i = 0; i < app->n_pieces; i++) {
        struct piece *piece = &app->pieces[i];
        uint64_t left = app->bytes - i * app->piece_bytes;
        uint64_t bytes = left < app->piece_bytes ? left : app->piece_bytes;
        piece->at = all;
        piece->words = bytes / 8;
        piece->seed = app->is_one ? next_seed(app->seed) : app->seed + i;
        if (app->is_one) {
            piece->first = i * (app->piece_bytes / 8);
            continue;
        }
        GM_CU(&app->gpu, cuMemAlloc, &piece->at, bytes);
        write_piece(app, piece);
    }
    if (app->is_one) {
        uint64_t words = app->bytes / 8;
        void *args[] = {&all, &words, &app->pieces[0].seed};
        launch(app, GM_FILL, args);
    }
}

/* Seeds of those of a model lie far from those of pieces. */
static void make_piece(struct app *app, struct piece *piece, uint64_t bytes)
{
    static uint64_t n;
    GM_CU(&app->gpu, cuMemAlloc, &piece->at, bytes);
    piece->words = bytes / 8;
    piece->seed = app->seed + (++n << 32);
    write_piece(app, piece);
}

static void make_model(struct app *app, struct model *model)
{
    if (model->has_gradients) {
        model->gradients = calloc(app->n_pieces, sizeof(model->gradients[0]));
        if (model->gradients == NULL)
            gm_bench_fail(1, "no host memory");
        for (size_t i = 0; i < app->n_pieces; i++)
            make_piece(app, &model->gradients[i], app->pieces[i].words * 8);
    }
    for (int i = 0; i < 2; i++)
        make_piece(app, &model->activations[i], model->activation_bytes);
    make_piece(app, &model->workspace, model->workspace_bytes);
    if (model->used_bytes > 0)
        model->workspace.words = model->used_bytes / 8;
    if (model->host_bytes == 0)
        return;
    GM_CU(&app->gpu, cuMemHostAlloc, &model->host_memory, model->host_bytes,
          CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    GM_CU(&app->gpu, cuMemHostGetDevicePointer, &model->host.at, model->host_memory, 0);
    model->host.words = model->host_bytes / 8;
    write_piece(app, &model->host);
}

static void free_model(const struct app *app, const struct model *model)
{
    for (size_t i = 0; model->gradients != NULL && i < app->n_pieces; i++)
        GM_CU(&app->gpu, cuMemFree, model->gradients[i].at);
    for (int i = 0; i < 2; i++)
        GM_CU(&app->gpu, cuMemFree, model->activations[i].at);
    GM_CU(&app->gpu, cuMemFree, model->workspace.at);
    if (model->host_memory != NULL)
        GM_CU(&app->gpu, cuMemFreeHost, model->host_memory);
    free(model->gradients);
}

/* What is touched lies there from now on. */
static void place(struct app *app, const char *where)
{
    const size_t left = app->n_pieces - app->n_touched;
    uint64_t bytes = 0;
    const bool is_end = strcmp(where, "end") == 0, is_middle = strcmp(where, "middle") == 0;
    if (!is_end && !is_middle && (gm_parse_size(where, &bytes) != 0 || bytes >= app->bytes))
        gm_bench_fail(2, "there is no such place: %s", where);
    app->first_touched = is_end ? left : is_middle ? left / 2 : bytes / app->piece_bytes;
}

/* The i-th of the pieces that are touched. Behind the last piece comes the first. */
static struct piece *touched_piece(const struct app *app, size_t i)
{
    const size_t of_stripe = app->n_touched / app->stripes;
    const size_t from = i / of_stripe * (app->n_pieces / app->stripes);
    return &app->pieces[(app->first_touched + from + i % of_stripe) % app->n_pieces];
}

static void fill(struct app *app)
{
    uint64_t zero = 0;
    app->pieces = calloc(app->n_pieces, sizeof(app->pieces[0]));
    if (app->pieces == NULL)
        gm_bench_fail(1, "no host memory");
    GM_CU(&app->gpu, cuMemAlloc, &app->counter, sizeof(zero));
    GM_CU(&app->gpu, cuMemcpyHtoD, app->counter, &zero, sizeof(zero));
    make_pieces(app);
    if (app->model.workspace_bytes > 0)
        make_model(app, &app->model);
    GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
}

/* ---- work ---- */

/* What the last pieces hold, by the addresses that lie in device memory. */
static void verify_followed(const struct app *app)
{
    for (size_t i = app->n_pieces - app->n_followed; i < app->n_pieces; i++) {
        CUdeviceptr cell = app->cells + i * sizeof(cell);
        void *args[] = {&cell, &app->pieces[i].words, &app->pieces[i].seed, (void *)&app->counter};
        launch(app, GM_VERIFY_THROUGH, args);
    }
}

/* Once over what is touched. Returns the wrong words. */
static uint64_t make_pass(struct app *app, enum work work)
{
    if (app->spin_us > 0) {
        uint64_t ns = app->spin_us * GM_US;
        void *args[] = {&ns};
        launch(app, GM_SPIN, args);
    }
    for (size_t i = 0; i < app->n_touched; i++) {
        struct piece *piece = touched_piece(app, i);
        if (work == GM_WORK_REWRITE)
            rewrite(app, piece);
        else
            verify(app, piece);
    }
    verify_followed(app);
    return finish(app);
}

static void write_passes(const struct app *app, size_t count, const char *file)
{
    FILE *out = fopen(file, "we");
    for (size_t i = 0; out != NULL && i < count; i++)
        fprintf(out, "%.3f %.4f\n", app->end_ms[i], app->pass_ms[i]);
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
        uint64_t at = gm_now();
        *mismatches += make_pass(app, what);
        double ms = gm_bench_ms_since(at);
        if (n < GM_PASSES_MAX) {
            app->end_ms[n] = gm_bench_ms_since(0);
            app->pass_ms[n] = ms;
        }
        *most_ms = ms > *most_ms ? ms : *most_ms;
        n++;
    } while (gm_bench_ms_since(begun) < least_ms);
    return n;
}

static void work(struct app *app, enum work what, double least_ms, bool is_run, const char *file)
{
    uint64_t from = gm_now(), mismatches = 0;
    double first_ms = 0, most_ms = 0;
    if (!is_run) {
        launch(app, GM_EMPTY, NULL);
        GM_CU(&app->gpu, cuStreamSynchronize, app->stream);
        first_ms = gm_bench_ms_since(from);
    }
    uint64_t begun = gm_now();
    size_t passes = make_passes(app, what, least_ms, &most_ms, &mismatches);
    double work_ms = gm_bench_ms_since(begun);
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

static void follow(struct app *app, const char *size)
{
    uint64_t bytes;
    if (gm_parse_size(size, &bytes) != 0 || app->is_one || bytes > app->bytes)
        gm_bench_fail(2, "there is nothing to follow: %s", size);
    if (app->cells == 0) {
        GM_CU(&app->gpu, cuMemAlloc, &app->cells, app->n_pieces * sizeof(app->cells));
        for (size_t i = 0; i < app->n_pieces; i++)
            GM_CU(&app->gpu, cuMemcpyHtoD, app->cells + i * sizeof(app->cells), &app->pieces[i].at,
                  sizeof(app->cells));
    }
    app->n_followed = (bytes + app->piece_bytes - 1) / app->piece_bytes;
    printf("followed=%" PRIu64 "\n", app->n_followed * app->piece_bytes);
    fflush(stdout);
}

static void check(struct app *app)
{
    for (size_t i = 0; i < app->n_pieces; i++)
        verify(app, &app->pieces[i]);
    uint64_t mismatches = finish(app);
    printf("mismatches=%" PRIu64 "\n", mismatches);
    fflush(stdout);
    if (mismatches != 0)
        exit(1);
}

static void use_small(struct app *app, size_t layer)
{
    rewrite(app, &app->model.activations[layer % 2]);
    rewrite(app, &app->model.workspace);
}

static void make_token(struct app *app)
{
    for (size_t i = 0; i < app->n_pieces; i++) {
        verify(app, &app->pieces[i]);
        use_small(app, i);
    }
}

static void make_step(struct app *app)
{
    make_token(app); /* forward */
    for (size_t i = app->n_pieces; i-- > 0;) {
        verify(app, &app->pieces[i]);
        write_piece(app, &app->model.gradients[i]);
        use_small(app, i);
    }
    for (size_t i = 0; i < app->n_pieces; i++) {
        verify(app, &app->model.gradients[i]);
        rewrite(app, &app->pieces[i]);
        use_small(app, i);
    }
}

static void repeat(struct app *app, void (*make)(struct app *app), uint64_t n)
{
    uint64_t mismatches = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = gm_now();
        make(app);
        mismatches += finish(app);
        app->pass_ms[i] = gm_bench_ms_since(from);
    }
    const struct gm_spread spread = gm_samples_spread(app->pass_ms, n); /* sorts them */
    printf("ms=%.4f min_ms=%.4f max_ms=%.4f mismatches=%" PRIu64 "\n", spread.median,
           app->pass_ms[0], app->pass_ms[n - 1], mismatches);
    fflush(stdout);
    if (mismatches != 0)
        exit(1);
}

static double rate_of(struct app *app, void (*use)(const struct app *app, struct piece *piece),
                      struct piece *pieces, size_t n, unsigned ways, uint64_t *mismatches)
{
    const uint64_t from = gm_now();
    uint64_t words = 0;
    for (size_t i = 0; i < n; i++) {
        use(app, &pieces[i]);
        words += pieces[i].words;
    }
    *mismatches += finish(app);
    return (double)(ways * words * 8) / gm_bench_ms_since(from) / 1e6;
}

static void tell_rates(struct app *app)
{
    uint64_t bad = 0;
    struct piece *host = &app->model.host;
    const double reads = rate_of(app, verify, host, 1, 1, &bad);
    const double writes = rate_of(app, write_piece, host, 1, 1, &bad);
    const double both = rate_of(app, rewrite, host, 1, 2, &bad);
    const double resident = rate_of(app, verify, app->pieces, app->n_pieces, 1, &bad);
    printf("read=%.4f write=%.4f rewrite=%.4f resident=%.4f mismatches=%" PRIu64 "\n", reads,
           writes, both, resident, bad);
    fflush(stdout);
    if (bad != 0)
        exit(1);
}

/* What only a model can do. False: it is another request. */
static bool serve_model(struct app *app, const char *line)
{
    char verb[16];
    uint64_t n = 0;
    const struct model *model = &app->model;
    const int fields = sscanf(line, "%15s %" SCNu64, verb, &n);
    const bool is_work = fields == 2 && n > 0 && n <= GM_PASSES_MAX && model->workspace_bytes > 0;
    if (is_work && strcmp(verb, "tokens") == 0)
        repeat(app, make_token, n);
    else if (is_work && strcmp(verb, "steps") == 0 && model->has_gradients)
        repeat(app, make_step, n);
    else if (fields == 1 && strcmp(verb, "rates") == 0 && model->host_bytes > 0)
        tell_rates(app);
    else
        return false;
    return true;
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
    char line[1024], verb[16], name[1024];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char file[1024] = "";
        enum work what;
        double ms = 0;
        if (serve_model(app, line))
            continue;
        int n = sscanf(line, "%15s %1023s %lf %1023s", verb, name, &ms, file);
        bool is_run = n >= 1 && strcmp(verb, "run") == 0;
        if (n == 1 && strcmp(verb, "check") == 0) {
            check(app);
            continue;
        }
        if (n == 2 && strcmp(verb, "place") == 0) {
            place(app, name);
            printf("placed=%" PRIu64 "\n", app->first_touched * app->piece_bytes);
            fflush(stdout);
            continue;
        }
        if (n == 2 && strcmp(verb, "follow") == 0) {
            follow(app, name);
            continue;
        }
        if (n < 2 || (!is_run && strcmp(verb, "turn") != 0) || !parse_work(name, &what)) {
            printf("FAIL no such request: %s", line);
            exit(2);
        }
        work(app, what, ms, is_run, file);
    }
}

/* The last piece that is touched is there, and all stripes are equal. */
static bool is_possible(struct app *app)
{
    app->bytes &= ~7ull;
    app->piece_bytes &= ~7ull;
    if (app->touched_bytes == 0)
        app->touched_bytes = app->bytes;
    if (app->bytes == 0 || app->piece_bytes == 0)
        return false;
    app->n_pieces = (app->bytes + app->piece_bytes - 1) / app->piece_bytes;
    app->n_touched = (app->touched_bytes + app->piece_bytes - 1) / app->piece_bytes;
    const struct model *model = &app->model;
    return app->touched_bytes <= app->bytes && app->n_touched % app->stripes == 0 &&
           (model->workspace_bytes > 0) == (model->activation_bytes > 0) &&
           model->used_bytes <= model->workspace_bytes && !(app->is_one && model->workspace_bytes);
}

int main(int argc, char **argv)
{
    static struct app app = {.piece_bytes = 1ull << 30, .seed = 1, .stripes = 1, .touched_at = "0"};
    const struct gm_option options[] = {
        {"--bytes", GM_OPTION_SIZE, &app.bytes, 8, UINT64_MAX},
        {"--piece", GM_OPTION_SIZE, &app.piece_bytes, 8, UINT64_MAX},
        {"--touch", GM_OPTION_SIZE, &app.touched_bytes, 1, UINT64_MAX},
        {"--touch-at", GM_OPTION_TEXT, &app.touched_at, 0, 0},
        {"--stripes", GM_OPTION_NUMBER, &app.stripes, 1, UINT64_MAX},
        {"--seed", GM_OPTION_NUMBER, &app.seed, 0, UINT64_MAX},
        {"--spin-us", GM_OPTION_NUMBER, &app.spin_us, 0, UINT64_MAX},
        {"--one", GM_OPTION_FLAG, &app.is_one, 0, 0},
        {"--activation", GM_OPTION_SIZE, &app.model.activation_bytes, 8, UINT64_MAX},
        {"--workspace", GM_OPTION_SIZE, &app.model.workspace_bytes, 8, UINT64_MAX},
        {"--used", GM_OPTION_SIZE, &app.model.used_bytes, 8, UINT64_MAX},
        {"--gradients", GM_OPTION_FLAG, &app.model.has_gradients, 0, 0},
        {"--host", GM_OPTION_SIZE, &app.model.host_bytes, 8, UINT64_MAX},
    };
    uint64_t from = gm_now();
    if (!gm_options_take(argc, argv, options, sizeof(options) / sizeof(options[0])) ||
        !is_possible(&app)) {
        fprintf(stderr, "usage: app --bytes SIZE [--piece SIZE] [--seed N] [--touch SIZE] "
                        "[--touch-at WHERE] [--stripes N] [--one] [--spin-us N]\n");
        return 2;
    }
    place(&app, app.touched_at);
    open_cuda(&app);
    double open_ms = gm_bench_ms_since(from);
    from = gm_now();
    fill(&app);
    const uint64_t touched = app.n_touched * app.piece_bytes;
    printf("ready open_ms=%.3f fill_ms=%.3f touched=%" PRIu64 "\n", open_ms,
           gm_bench_ms_since(from), touched < app.bytes ? touched : app.bytes);
    fflush(stdout);
    serve(&app);
    for (size_t i = 0; i < (app.is_one ? 1 : app.n_pieces); i++)
        GM_CU(&app.gpu, cuMemFree, app.pieces[i].at);
    if (app.model.workspace_bytes > 0)
        free_model(&app, &app.model);
    if (app.cells != 0)
        GM_CU(&app.gpu, cuMemFree, app.cells);
    GM_CU(&app.gpu, cuMemFree, app.counter);
    GM_CU(&app.gpu, cuStreamDestroy, app.stream);
    gm_bench_close(&app.gpu);
    free(app.pieces);
    return 0;
}

/*
 * gm_subsets: a program that uses a random part of its memory, and then another, and whose launches
 * do not say which. It knows nothing of gpumux.
 *
 *   gm_subsets --bytes SIZE --piece SIZE --touch SIZE --phase MS --phases N [--seed N] [--rest-us
 * N]
 *
 * One allocation, all written. --phases times it draws a subset of its pieces, of --touch bytes in
 * all, each --phase milliseconds; the last stays. A pass checks each of these pieces and writes it
 * anew, one launch each, whose arguments are the address of the allocation, and a place in a table
 * in device memory; that says which piece it is. With --rest-us the GPU is busy for so long before
 * each pass, and touches nothing. Lines of standard output, in milliseconds of the monotonic clock:
 *
 *   MS subset PIECE...      what passes use from then on
 *   MS pass N US...         the N-th pass has ended; the least that each piece took since the line
 *                           before: other programs use the GPU as well
 *
 * When its input, a pipe, is at its end, it checks all pieces and ends with the line "PASS passes=N
 * mismatches=0". Exit codes are those of bench/app.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/device.h"
#include "bench/report.h"

#define TELL_MS 50 /* between two lines of passes */

static struct gm_bench_device gpu;
static CUfunction fill, refill, spin;
static CUdeviceptr memory, table, counter;
static uint64_t bytes, piece = 64ull << 20, touch, phase_ms, phases = 1, seed = 1, rest_us;
static uint64_t n_pieces, n_touched, words;
static uint64_t *drawn, *seeds; /* the first n_touched are the subset; by piece */

/* splitmix64 */
static uint64_t draw(void)
{
    static uint64_t state;
    uint64_t z = seed * 0xD1B54A32D192ED03ull + (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static void launch(CUfunction kernel, unsigned blocks, void **args)
{
    GM_CU(&gpu, cuLaunchKernel, kernel, blocks, 1, 1, blocks > 1 ? 256 : 1, 1, 1, 0, NULL, args,
          NULL);
}

static void make(void)
{
    const uint64_t zero = 0;
    GM_CU(&gpu, cuMemAlloc, &memory, n_pieces * piece);
    GM_CU(&gpu, cuMemAlloc, &table, n_pieces * sizeof(*drawn));
    GM_CU(&gpu, cuMemAlloc, &counter, sizeof(zero));
    GM_CU(&gpu, cuMemcpyHtoD, counter, &zero, sizeof(zero));
    for (uint64_t i = 0; i < n_pieces; i++) {
        CUdeviceptr at = memory + i * piece;
        void *args[] = {&at, &words, &seeds[i]};
        drawn[i] = i;
        seeds[i] = draw();
        launch(fill, 1024, args);
    }
    GM_CU(&gpu, cuCtxSynchronize, );
}

static void choose(void)
{
    for (uint64_t i = 0; i < n_touched; i++) {
        const uint64_t other = i + draw() % (n_pieces - i), one = drawn[i];
        drawn[i] = drawn[other];
        drawn[other] = one;
    }
    GM_CU(&gpu, cuMemcpyHtoD, table, drawn, n_pieces * sizeof(*drawn));
    printf("%.3f subset", gm_bench_ms_since(0));
    for (uint64_t i = 0; i < n_touched; i++)
        printf(" %" PRIu64, drawn[i]);
    printf("\n");
}

/* The k-th of the table. *least: at most how long that took. */
static void use(uint64_t k, double *least)
{
    const uint64_t from = gm_now();
    uint64_t next = draw();
    void *args[] = {&memory, &table, &k, &words, &seeds[drawn[k]], &next, &counter};
    launch(refill, 1024, args);
    GM_CU(&gpu, cuCtxSynchronize, );
    seeds[drawn[k]] = next;
    *least = fmin(*least, gm_bench_ms_since(from));
}

static void forget(double *least)
{
    for (uint64_t i = 0; i < n_pieces; i++)
        least[i] = INFINITY;
}

static bool is_over(void)
{
    struct pollfd in = {.fd = STDIN_FILENO};
    return poll(&in, 1, 0) == 1 && (in.revents & POLLHUP) != 0;
}

static uint64_t work(double *least)
{
    uint64_t passes = 0, n_drawn = 0, told = 0;
    const uint64_t begun = gm_now();
    uint64_t rest_ns = rest_us * GM_US;
    void *spin_args[] = {&rest_ns};
    while (!is_over()) {
        if (n_drawn < phases && gm_bench_ms_since(begun) >= (double)(n_drawn * phase_ms)) {
            choose();
            forget(least);
            n_drawn++;
        }
        if (rest_us > 0)
            launch(spin, 1, spin_args);
        GM_CU(&gpu, cuCtxSynchronize, );
        for (uint64_t i = 0; i < n_touched; i++)
            use(i, &least[i]);
        passes++;
        if (gm_now() - told < TELL_MS * GM_MS)
            continue;
        told = gm_now();
        printf("%.3f pass %" PRIu64, gm_bench_ms_since(0), passes);
        for (uint64_t i = 0; i < n_touched; i++)
            printf(" %.0f", least[i] * 1000);
        printf("\n");
        fflush(stdout);
        forget(least);
    }
    return passes;
}

int main(int argc, char **argv)
{
    const struct gm_option options[] = {
        {"--bytes", GM_OPTION_SIZE, &bytes, 8, UINT64_MAX},
        {"--piece", GM_OPTION_SIZE, &piece, 8, UINT64_MAX},
        {"--touch", GM_OPTION_SIZE, &touch, 8, UINT64_MAX},
        {"--phase", GM_OPTION_NUMBER, &phase_ms, 1, UINT32_MAX},
        {"--phases", GM_OPTION_NUMBER, &phases, 1, UINT32_MAX},
        {"--seed", GM_OPTION_NUMBER, &seed, 0, UINT64_MAX},
        {"--rest-us", GM_OPTION_NUMBER, &rest_us, 0, UINT32_MAX},
    };
    const bool is_right =
        gm_options_take(argc, argv, options, sizeof(options) / sizeof(options[0]));
    n_pieces = bytes / piece;
    n_touched = touch / piece;
    words = piece / sizeof(uint64_t);
    if (!is_right || n_touched == 0 || n_touched > n_pieces) {
        fprintf(stderr,
                "usage: gm_subsets --bytes SIZE --piece SIZE --touch SIZE --phase MS --phases N "
                "[--seed N] [--rest-us N]\n");
        return 2;
    }
    const char *why = gm_bench_open(&gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    GM_CU(&gpu, cuModuleGetFunction, &fill, gpu.module, "gm_fill");
    GM_CU(&gpu, cuModuleGetFunction, &refill, gpu.module, "gm_verify_refill_in");
    GM_CU(&gpu, cuModuleGetFunction, &spin, gpu.module, "gm_spin");
    drawn = calloc(n_pieces, sizeof(*drawn));
    seeds = calloc(n_pieces, sizeof(*seeds));
    double *least = calloc(n_pieces, sizeof(*least));
    if (drawn == NULL || seeds == NULL || least == NULL)
        gm_bench_fail(1, "no host memory");
    make();
    const uint64_t passes = work(least);
    uint64_t mismatches;
    for (uint64_t i = 0; i < n_pieces; i++)
        use(i, &least[i]);
    GM_CU(&gpu, cuMemcpyDtoH, &mismatches, counter, sizeof(mismatches));
    GM_CU(&gpu, cuMemFree, memory);
    GM_CU(&gpu, cuMemFree, table);
    GM_CU(&gpu, cuMemFree, counter);
    gm_bench_close(&gpu);
    free(drawn);
    free(seeds);
    free(least);
    printf("%s passes=%" PRIu64 " mismatches=%" PRIu64 "\n", mismatches == 0 ? "PASS" : "FAIL",
           passes, mismatches);
    return mismatches == 0 ? 0 : 1;
}

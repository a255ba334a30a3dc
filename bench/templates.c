/*
 * bench/templates: what it takes to evaluate the templates of a launch. Needs no GPU and no daemon.
 *
 *   templates PROFILE [--launches N] [--json FILE]
 *
 * Each launch is of a kernel of the profile, such as one that is shipped, drawn at random, with
 * arguments and dimensions drawn at random, and evaluates all of the kernel's templates, as
 * shim/observe does. "usual" is the mean of all launches, in one loop. The percentiles are of
 * launches that are timed one by one; a look at the clock, also shown, is in them.
 *
 * Times are nanoseconds. The targets are 200 for the usual one and 10,000 in 99 of 100.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/profile.h"

#define USUAL_NS 200.0
#define P99_NS 10000.0
#define LAUNCHES_MAX 10000000u
#define ARGUMENTS 4096u /* bytes */

static uint64_t result; /* of all: so that nothing is left out */

static void evaluate(const struct gm_profile_kernel *kernel, const struct gm_arguments *arguments)
{
    for (uint32_t i = 0; i < kernel->n; i++) {
        struct gm_rows rows;
        if (kernel->arguments[i].how == GM_PROFILE_TOUCH &&
            gm_template_rows(&kernel->arguments[i].template, arguments, &rows))
            result += rows.from + rows.bytes * rows.count;
    }
}

struct bench {
    struct gm_profile profile;
    uint64_t launches, random;
    unsigned char bytes[ARGUMENTS];
    struct gm_arguments arguments;
    double *ns; /* of each launch */
    double usual, p99, clock;
};

static uint64_t draw(struct bench *bench)
{
    uint64_t z = bench->random += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* Small words, and addresses: words of 8 bytes below 2^46. */
static const struct gm_profile_kernel *launch(struct bench *bench)
{
    for (uint32_t i = 0; i < GM_DIMENSIONS; i++)
        bench->arguments.dimension[i] = (uint32_t)(draw(bench) % 1024 + 1);
    const uint64_t at = draw(bench) % (ARGUMENTS / 8) * 8, word = draw(bench) >> 18;
    memcpy(bench->bytes + at, &word, sizeof(word));
    return &bench->profile.kernels[draw(bench) % bench->profile.n];
}

static void measure(struct bench *bench)
{
    uint64_t begin = gm_now();
    for (uint64_t i = 0; i < bench->launches; i++)
        launch(bench);
    const uint64_t drawing = gm_now() - begin;
    begin = gm_now();
    for (uint64_t i = 0; i < bench->launches; i++)
        evaluate(launch(bench), &bench->arguments);
    const uint64_t all = gm_now() - begin;
    bench->usual = all > drawing ? (double)(all - drawing) / (double)bench->launches : 0;
    for (uint64_t i = 0; i < bench->launches; i++) {
        begin = gm_now();
        bench->ns[i] = (double)(gm_now() - begin);
    }
    bench->clock = gm_samples_spread(bench->ns, bench->launches).median;
    for (uint64_t i = 0; i < bench->launches; i++) {
        const struct gm_profile_kernel *kernel = launch(bench);
        begin = gm_now();
        evaluate(kernel, &bench->arguments);
        bench->ns[i] = (double)(gm_now() - begin);
    }
    gm_samples_sort(bench->ns, bench->launches);
    bench->p99 = gm_samples_percentile(bench->ns, bench->launches, 99);
}

static bool is_met(const struct bench *bench)
{
    return bench->usual <= USUAL_NS && bench->p99 <= P99_NS;
}

static bool write_json(const struct bench *bench, const char *file, int argc, char **argv)
{
    FILE *out = gm_report_open(file, "templates", argc, argv, NULL, 0);
    if (out == NULL)
        return false;
    fprintf(out,
            "  \"kernels\": %u, \"launches\": %llu, \"usual_ns\": %.1f, \"p99_ns\": %.0f, "
            "\"clock_ns\": %.0f, \"met\": %s\n",
            bench->profile.n, (unsigned long long)bench->launches, bench->usual, bench->p99,
            bench->clock, is_met(bench) ? "true" : "false");
    return gm_report_close(out, file) == 0;
}

int main(int argc, char **argv)
{
    static struct bench bench = {.launches = 1000000, .random = 1};
    const char *json = NULL;
    char why[256];
    const struct gm_option options[] = {
        {"--launches", GM_OPTION_NUMBER, &bench.launches, 1, LAUNCHES_MAX},
        {"--json", GM_OPTION_TEXT, &json, 0, 0},
    };

    if (argc < 2 || argv[1][0] == '-' ||
        !gm_options_take(argc - 1, argv + 1, options, sizeof(options) / sizeof(options[0]))) {
        fprintf(stderr, "usage: templates PROFILE [--launches 1..%u] [--json FILE]\n",
                LAUNCHES_MAX);
        return 1;
    }
    if (!gm_profile_read(argv[1], &bench.profile, why, sizeof(why)) || bench.profile.n == 0) {
        fprintf(stderr, "templates: %s: %s\n", argv[1],
                bench.profile.n == 0 && why[0] == '\0' ? "no kernels" : why);
        return 1;
    }
    bench.arguments = (struct gm_arguments){.bytes = ARGUMENTS, .at = bench.bytes};
    bench.ns = calloc(bench.launches, sizeof(double));
    if (bench.ns == NULL) {
        fprintf(stderr, "templates: out of memory\n");
        return 1;
    }
    measure(&bench);
    printf("%u kernels, %llu launches; nanoseconds a launch\n\n", bench.profile.n,
           (unsigned long long)bench.launches);
    printf("usual %.1f, p99 %.0f; a look at the clock %.0f\n", bench.usual, bench.p99, bench.clock);
    printf("targets, %.0f usually and %.0f in 99 of 100: %s\n", USUAL_NS, P99_NS,
           is_met(&bench) ? "met" : "missed");
    const bool is_written = json == NULL || write_json(&bench, json, argc, argv);
    gm_profile_free(&bench.profile);
    free(bench.ns);
    return is_written ? 0 : 1;
}

/*
 * bench/gate: what the gate costs a launch when it is open, and what the shim's ioctl costs a call.
 * Needs no GPU and no daemon.
 *
 *   gate [--rounds N] [--calls N] [--json FILE]
 *
 * An empty function called through a pointer, bare and between enter and leave; both from a shared
 * library, as a program calls libgpumux. Rounds of the two are interleaved; a number is the median
 * of its rounds, the spread is from the 10th to the 90th percentile. The gate's cost is the median
 * of the rounds' differences. Where there is no membarrier the gate has a full fence instead.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/gate_call.h"
#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"

#define GM_ROUNDS_MAX 1000
#define GM_TARGET_NS 10.0

typedef int gm_call(void *, unsigned, unsigned, unsigned, void *, void **);

struct gm_series {
    double ns[GM_ROUNDS_MAX];
    struct gm_spread spread;
};

static __attribute__((noinline)) void gm_calls(gm_call *call, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        call(NULL, 1, 1, 1, NULL, NULL);
}

static double gm_time(gm_call *call, uint64_t count)
{
    uint64_t from = gm_now();
    gm_calls(call, count);
    return (double)(gm_now() - from) / (double)count;
}

/* ---- the report ---- */

static void gm_print(const char *name, const struct gm_series *series)
{
    const struct gm_spread *spread = &series->spread;
    printf("%-28s %6.2f ns   (%.2f to %.2f)\n", name, spread->median, spread->low, spread->high);
}

static void gm_json_series(FILE *out, const char *name, const struct gm_series *series)
{
    const struct gm_spread *spread = &series->spread;
    fprintf(out, "  \"%s\": {\"ns\": %.3f, \"p10\": %.3f, \"p90\": %.3f},\n", name, spread->median,
            spread->low, spread->high);
}

struct gm_options {
    uint64_t rounds;
    uint64_t calls; /* a round */
    const char *json;
};

struct gm_report {
    bool has_membarrier;
    struct gm_series bare, gated, gate;
    struct gm_series ioctl_other, ioctl_driver; /* what they cost beside a bare one */
};

static void gm_measure(const struct gm_options *options, struct gm_report *report)
{
    gm_calls(gm_bench_gated, options->calls); /* warm up, and get a slot */
    for (uint64_t i = 0; i < options->rounds; i++) {
        /* Who comes first takes turns, so that a drift of the clock rate hits both. */
        bool is_bare_first = i % 2 == 0;
        if (is_bare_first)
            report->bare.ns[i] = gm_time(gm_bench_bare, options->calls);
        report->gated.ns[i] = gm_time(gm_bench_gated, options->calls);
        if (!is_bare_first)
            report->bare.ns[i] = gm_time(gm_bench_bare, options->calls);
        report->gate.ns[i] = report->gated.ns[i] - report->bare.ns[i];
    }
    report->bare.spread = gm_samples_spread(report->bare.ns, options->rounds);
    report->gated.spread = gm_samples_spread(report->gated.ns, options->rounds);
    report->gate.spread = gm_samples_spread(report->gate.ns, options->rounds);
}

static void gm_measure_ioctl(const struct gm_options *options, gm_call *call,
                             struct gm_series *series)
{
    uint64_t calls = options->calls / 4 + 1;
    for (uint64_t i = 0; i < options->rounds; i++)
        series->ns[i] = gm_time(call, calls) - gm_time(gm_bench_ioctl_bare, calls);
    series->spread = gm_samples_spread(series->ns, options->rounds);
}

static bool gm_write_json(int argc, char **argv, const struct gm_options *options,
                          const struct gm_report *report)
{
    FILE *out = gm_report_open(options->json, "gate", argc, argv, NULL, 0);
    if (out == NULL)
        return false;
    fprintf(out, "  \"rounds\": %llu,\n  \"calls\": %llu,\n", (unsigned long long)options->rounds,
            (unsigned long long)options->calls);
    fprintf(out, "  \"membarrier\": %s,\n", report->has_membarrier ? "true" : "false");
    gm_json_series(out, "bare", &report->bare);
    gm_json_series(out, "gated", &report->gated);
    gm_json_series(out, "gate", &report->gate);
    gm_json_series(out, "ioctl", &report->ioctl_other);
    gm_json_series(out, "ioctl_of_the_driver", &report->ioctl_driver);
    fprintf(out, "  \"target_ns\": %.1f,\n  \"met\": %s\n", GM_TARGET_NS,
            report->gate.spread.median <= GM_TARGET_NS ? "true" : "false");
    return gm_report_close(out, options->json) == 0;
}

int main(int argc, char **argv)
{
    static struct gm_report report;
    struct gm_options options = {.rounds = 51, .calls = 1000000};
    const struct gm_option known[] = {
        {"--rounds", GM_OPTION_NUMBER, &options.rounds, 1, GM_ROUNDS_MAX},
        {"--calls", GM_OPTION_NUMBER, &options.calls, 1, 1000000000},
        {"--json", GM_OPTION_TEXT, &options.json, 0, 0},
    };

    if (!gm_options_take(argc, argv, known, sizeof(known) / sizeof(known[0]))) {
        fprintf(stderr, "usage: gate [--rounds 1..%d] [--calls N] [--json FILE]\n", GM_ROUNDS_MAX);
        return 1;
    }
    report.has_membarrier = gm_bench_attach(false);
    if (!report.has_membarrier && !gm_bench_attach(true)) {
        fprintf(stderr, "gate: cannot attach the gate\n");
        return 1;
    }
    gm_measure(&options, &report);
    gm_measure_ioctl(&options, gm_bench_ioctl_other, &report.ioctl_other);
    gm_measure_ioctl(&options, gm_bench_ioctl_driver, &report.ioctl_driver);
    printf("%llu rounds of %llu calls, interleaved; median (10th to 90th percentile)\n",
           (unsigned long long)options.rounds, (unsigned long long)options.calls);
    gm_print("bare call", &report.bare);
    gm_print("gated call", &report.gated);
    gm_print(report.has_membarrier ? "gate" : "gate without membarrier", &report.gate);
    gm_print("ioctl", &report.ioctl_other);
    gm_print("ioctl of the driver", &report.ioctl_driver);

    printf("target %.0f ns a call: %s\n", GM_TARGET_NS,
           report.gate.spread.median <= GM_TARGET_NS ? "met" : "missed");
    return options.json == NULL || gm_write_json(argc, argv, &options, &report) ? 0 : 1;
}

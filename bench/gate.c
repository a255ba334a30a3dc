/*
 * bench/gate: what the gate costs a launch when it is open, and what the shim's ioctl costs a call.
 * Needs no GPU and no daemon.
 *
 *   gate [--rounds N] [--calls N] [--json FILE]
 *
 * An empty function called through a pointer, bare and between enter and leave; both from a shared
 * library, as a program calls libgpumux. Rounds of the two are interleaved; a number is the median
 * of its rounds, the spread is from the 10th to the 90th percentile. The gate's cost is the median
 * of the rounds' differences. Also measured: the way without membarrier, which has a full fence.
 *
 * Instructions are counted by the processor if the kernel permits it, and else by stepping a child
 * through some calls.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- instructions ---- */

/* User-mode instructions of `count` calls, by the processor's counter. Negative: not permitted. */
static double gm_count_by_perf(gm_call *call, uint64_t count)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_HW_INSTRUCTIONS,
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    uint64_t instructions = 0;
    if (fd < 0)
        return -1;
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    gm_calls(call, count);
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    bool is_read = read(fd, &instructions, sizeof(instructions)) == sizeof(instructions);
    close(fd);
    return is_read && instructions > 0 ? (double)instructions / (double)count : -1;
}

/* Steps that a child takes from its first stop to its second, with `count` calls between. */
static long gm_count_steps(gm_call *call, uint64_t count)
{
    int status;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(1);
        gm_calls(call, 10); /* it has its slot */
        raise(SIGSTOP);
        gm_calls(call, count);
        raise(SIGSTOP);
        _exit(0);
    }
    long steps = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return -1; /* it could not be traced, and ended */
    do {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 ||
            waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
            steps = -1;
        else
            steps++;
    } while (steps > 0 && WSTOPSIG(status) == SIGTRAP);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return steps;
}

/* What differs between 600 and 100 calls is 500 calls. */
static double gm_count_by_stepping(gm_call *call)
{
    long few = gm_count_steps(call, 100), many = gm_count_steps(call, 600);
    return few > 0 && many > few ? (double)(many - few) / 500.0 : -1;
}

/* ---- the report ---- */

static void gm_print(const char *name, const struct gm_series *series, double instructions)
{
    const struct gm_spread *spread = &series->spread;
    printf("%-28s %6.2f ns   (%.2f to %.2f)", name, spread->median, spread->low, spread->high);
    if (instructions >= 0)
        printf("   %5.1f instructions", instructions);
    printf("\n");
}

static void gm_json_series(FILE *out, const char *name, const struct gm_series *series,
                           double instructions)
{
    const struct gm_spread *spread = &series->spread;
    fprintf(out, "  \"%s\": {\"ns\": %.3f, \"p10\": %.3f, \"p90\": %.3f, \"instructions\": ", name,
            spread->median, spread->low, spread->high);
    if (instructions >= 0)
        fprintf(out, "%.1f},\n", instructions);
    else
        fprintf(out, "null},\n");
}

struct gm_options {
    uint64_t rounds;
    uint64_t calls; /* a round */
    const char *json;
};

struct gm_report {
    bool has_membarrier;
    struct gm_series bare, gated, gate, fence;
    struct gm_series ioctl_other, ioctl_driver; /* what they cost beside a bare one */
    double bare_count, gated_count, gate_count; /* instructions; negative: not available */
    const char *method;
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

static void gm_count(const struct gm_options *options, struct gm_report *report)
{
    report->method = "processor";
    report->bare_count = gm_count_by_perf(gm_bench_bare, options->calls);
    report->gated_count = gm_count_by_perf(gm_bench_gated, options->calls);
    if (report->bare_count < 0 || report->gated_count < 0) {
        report->method = "single steps";
        report->bare_count = gm_count_by_stepping(gm_bench_bare);
        report->gated_count = gm_count_by_stepping(gm_bench_gated);
    }
    bool has_count = report->bare_count >= 0 && report->gated_count >= 0;
    report->gate_count = has_count ? report->gated_count - report->bare_count : -1;
    if (!has_count)
        report->method = "none";
}

struct gm_fenced {
    const struct gm_options *options;
    struct gm_series *fence;
};

/* A thread keeps the slot that it has, so the fenced way is measured in a new one. */
static void *gm_measure_fenced(void *argument)
{
    const struct gm_fenced *fenced = argument;
    uint64_t calls = fenced->options->calls / 4 + 1;
    for (uint64_t i = 0; i < fenced->options->rounds; i++)
        fenced->fence->ns[i] = gm_time(gm_bench_gated, calls) - gm_time(gm_bench_bare, calls);
    fenced->fence->spread = gm_samples_spread(fenced->fence->ns, fenced->options->rounds);
    return NULL;
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
    gm_json_series(out, "bare", &report->bare, report->bare_count);
    gm_json_series(out, "gated", &report->gated, report->gated_count);
    gm_json_series(out, "gate", &report->gate, report->gate_count);
    gm_json_series(out, "ioctl", &report->ioctl_other, -1);
    gm_json_series(out, "ioctl_of_the_driver", &report->ioctl_driver, -1);
    if (report->has_membarrier)
        gm_json_series(out, "gate_without_membarrier", &report->fence, -1);
    fprintf(out, "  \"instructions_by\": \"%s\",\n", report->method);
    fprintf(out, "  \"target_ns\": %.1f,\n  \"met\": %s\n", GM_TARGET_NS,
            report->gate.spread.median <= GM_TARGET_NS ? "true" : "false");
    return gm_report_close(out, options->json) == 0;
}

static bool gm_parse_count(const char *text, uint64_t most, uint64_t *count)
{
    char *end;
    errno = 0;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return false;
    unsigned long long value = strtoull(text, &end, 10);
    if (value == 0 || value > most || errno != 0 || *end != '\0')
        return false;
    *count = value;
    return true;
}

static bool gm_parse(int argc, char **argv, struct gm_options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool is_fine = false;
        if (strcmp(argv[i], "--rounds") == 0)
            is_fine = gm_parse_count(value, GM_ROUNDS_MAX, &options->rounds);
        else if (strcmp(argv[i], "--calls") == 0)
            is_fine = gm_parse_count(value, 1000000000, &options->calls);
        else if (strcmp(argv[i], "--json") == 0)
            is_fine = (options->json = value) != NULL;
        if (!is_fine)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct gm_report report;
    struct gm_options options = {.rounds = 51, .calls = 1000000};

    if (!gm_parse(argc, argv, &options)) {
        fprintf(stderr, "usage: gate [--rounds 1..%d] [--calls N] [--json FILE]\n", GM_ROUNDS_MAX);
        return 1;
    }
    report.has_membarrier = gm_bench_attach(false);
    if (!report.has_membarrier && !gm_bench_attach(true)) {
        fprintf(stderr, "gate: cannot attach the gate\n");
        return 1;
    }
    gm_measure(&options, &report);
    gm_count(&options, &report);
    gm_measure_ioctl(&options, gm_bench_ioctl_other, &report.ioctl_other);
    gm_measure_ioctl(&options, gm_bench_ioctl_driver, &report.ioctl_driver);
    printf("%llu rounds of %llu calls, interleaved; median (10th to 90th percentile)\n",
           (unsigned long long)options.rounds, (unsigned long long)options.calls);
    gm_print("bare call", &report.bare, report.bare_count);
    gm_print("gated call", &report.gated, report.gated_count);
    gm_print(report.has_membarrier ? "gate" : "gate without membarrier", &report.gate,
             report.gate_count);
    gm_print("ioctl", &report.ioctl_other, -1);
    gm_print("ioctl of the driver", &report.ioctl_driver, -1);

    if (report.has_membarrier) {
        pthread_t thread;
        struct gm_fenced fenced = {.options = &options, .fence = &report.fence};
        if (!gm_bench_attach(true) ||
            pthread_create(&thread, NULL, gm_measure_fenced, &fenced) != 0) {
            fprintf(stderr, "gate: cannot measure the way without membarrier\n");
            return 1;
        }
        pthread_join(thread, NULL);
        gm_print("gate without membarrier", &report.fence, -1);
    }
    if (report.gate_count >= 0)
        printf("instructions: counted by %s\n", report.method);
    else
        printf("instructions: not available\n");
    printf("target %.0f ns a call: %s\n", GM_TARGET_NS,
           report.gate.spread.median <= GM_TARGET_NS ? "met" : "missed");
    return options.json == NULL || gm_write_json(argc, argv, &options, &report) ? 0 : 1;
}

/*
 * bench/sched: what a decision of the scheduler takes, against the number of programs. Needs no GPU
 * and no daemon.
 *
 *   sched [--decisions N] [--json FILE]
 *
 * From 1 to 10,000 programs, in three situations: "all fit" on the GPU together; "some fit", a
 * tenth of them; "one fits", no two. Programs begin to want the GPU and rest at random, about half
 * of them want it at any time; now and then one grows, is given other settings, leaves or joins;
 * those whom a decision sends away close, and those whom it brings in open. Half of the programs
 * that never rest have sunk to the last level before the measurement begins. A decision is one such
 * event.
 *
 * "Cold": before a decision 64 MiB of other memory are read, as when the daemon has slept through a
 * slice; "warm": they are not. Times are microseconds of processor time, less what reading the
 * clock takes; the target is that 99 of 100 decisions take at most 50 us for 100 programs, and 1 ms
 * for 10,000.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "daemon/core/sched.h"
#include "daemon/core/sched_step.h"

#define GM_DECISIONS_MAX 1000000
#define GM_OTHER_BYTES (64u << 20)

static const uint32_t counts[] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000};
#define GM_COUNTS (sizeof(counts) / sizeof(counts[0]))

static const struct target {
    uint32_t apps;
    double us;
} targets[] = {{100, 50}, {10000, 1000}};
#define GM_TARGETS (sizeof(targets) / sizeof(targets[0]))

enum situation { GM_ALL_FIT, GM_SOME_FIT, GM_ONE_FITS, GM_SITUATIONS };
static const char *const situation_names[GM_SITUATIONS] = {"all fit", "some fit", "one fits"};

enum kind { GM_WARM, GM_COLD, GM_KINDS };
static const char *const kind_names[GM_KINDS] = {"warm", "cold"};

struct app {
    uint64_t bytes;
    bool is_known, is_wanting, is_open, is_steady, is_chosen;
};

struct world {
    uint32_t n;
    uint64_t budget, now, random;
    struct gm_sched *sched;
    struct gm_sched_decision decision;
    struct app *apps;
    uint8_t *other;
    double clock_us; /* of reading the clock twice */
};

struct figures {
    double *us; /* sorted by the summary */
    double p50, p99, most;
    double in_set, waiting; /* means */
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    return (world->random >> 33) % below;
}

/* In microseconds. */
static double clock_us(void)
{
    return (double)gm_thread_time() / 1e3;
}

static double measure_clock(void)
{
    double us[1001];
    for (size_t i = 0; i < 1001; i++) {
        double from = clock_us();
        us[i] = clock_us() - from;
    }
    return gm_samples_spread(us, 1001).median;
}

/* ---- Programs, and an engine that does what is decided ---- */

static uint64_t some_bytes(struct world *world, enum situation situation)
{
    uint64_t bytes = 1000 + draw(world, 1000);
    return situation == GM_ONE_FITS ? world->budget / 2 + bytes : bytes;
}

static bool make_world(struct world *world, uint32_t n, enum situation situation)
{
    struct gm_sched_config config = {
        .max_apps = n,
        .levels = 3,
        .allotment_ns = 8ull * GM_S,
        .slice_ns = 4ull * GM_S,
        .patience_ns = 60ull * GM_S,
        .retry_ns = GM_S,
    };
    config.budget = situation == GM_ALL_FIT    ? 4000ull * n
                    : situation == GM_SOME_FIT ? 150ull * n + 2000
                                               : 100000;
    *world = (struct world){.n = n, .budget = config.budget, .random = n, .now = 1};
    world->sched = gm_sched_init(aligned_alloc(16, gm_sched_size(&config)), &config);
    world->apps = calloc(n, sizeof(*world->apps));
    world->other = malloc(GM_OTHER_BYTES);
    if (world->sched == NULL || world->apps == NULL || world->other == NULL) {
        fprintf(stderr, "sched: out of memory\n");
        return false;
    }
    memset(world->other, 1, GM_OTHER_BYTES);
    world->clock_us = measure_clock();
    return true;
}

static void free_world(struct world *world)
{
    free(world->sched);
    free(world->apps);
    free(world->other);
}

/* One decision, in microseconds. */
static double decide(struct world *world, enum gm_sched_event_kind kind, uint32_t app,
                     const struct gm_sched_policy *policy)
{
    struct gm_sched_event event = {.kind = kind, .app = app, .bytes = world->apps[app].bytes};
    if (kind == GM_SCHED_IDLE)
        event.ago_ns = 100ull * GM_MS;
    double from = clock_us();
    int fault = policy ? gm_sched_set(world->sched, world->now, app, policy, &world->decision)
                       : gm_sched_step(world->sched, world->now, &event, &world->decision);
    double us = clock_us() - from - world->clock_us;
    if (fault != 0) {
        fprintf(stderr, "sched: event %d of app %u is refused\n", (int)kind, app);
        exit(2);
    }
    for (uint32_t i = 0; i < world->n; i++)
        world->apps[i].is_chosen = false;
    for (uint32_t i = 0; i < world->decision.n_set; i++)
        world->apps[world->decision.set[i]].is_chosen = true;
    return us > 0 ? us : 0;
}

/* Who must close or open next: NULL if everybody is as was decided. */
static struct app *find_turning(struct world *world)
{
    uint32_t first = (uint32_t)draw(world, world->n);
    for (uint32_t i = 0; i < world->n; i++) {
        struct app *app = &world->apps[(first + i) % world->n];
        if (app->is_known && app->is_open != app->is_chosen)
            return app;
    }
    return NULL;
}

static double join(struct world *world, struct app *app, uint32_t id, enum situation situation)
{
    *app = (struct app){.is_known = true, .is_steady = draw(world, 10) == 0};
    double us = decide(world, GM_SCHED_JOIN, id, NULL);
    app->bytes = some_bytes(world, situation);
    decide(world, GM_SCHED_SIZE, id, NULL);
    return us;
}

/* What happens next: an engine's answer, a wake, or something that a program or a user does. */
static double step(struct world *world, enum situation situation)
{
    struct app *app = draw(world, 4) > 0 ? find_turning(world) : NULL;
    uint64_t later = world->now + 1 + draw(world, 2ull * GM_S / (world->n + 1));
    if (app != NULL) {
        app->is_open = app->is_chosen;
        return decide(world, app->is_open ? GM_SCHED_OPENED : GM_SCHED_CLOSED,
                      (uint32_t)(app - world->apps), NULL);
    }
    if (world->decision.wake_at <= later) {
        world->now = world->decision.wake_at;
        return decide(world, GM_SCHED_TIMER, 0, NULL);
    }
    world->now = later;
    uint32_t id = (uint32_t)draw(world, world->n);
    app = &world->apps[id];
    uint64_t chance = draw(world, 1000);
    if (!app->is_known)
        return join(world, app, id, situation);
    if (chance < 5) {
        app->is_known = app->is_open = false;
        return decide(world, GM_SCHED_LEAVE, id, NULL);
    }
    if (chance < 15) {
        struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
        policy.class = (uint8_t)(draw(world, 4) == 0 ? draw(world, GM_CLASSES) : GM_CLASS_AUTO);
        policy.weight *= 1 + (uint32_t)draw(world, 3);
        policy.share = draw(world, 10) == 0 ? 500 : GM_SCHED_SHARE_ALL;
        return decide(world, GM_SCHED_TIMER, id, &policy);
    }
    if (chance < 65) {
        app->bytes = some_bytes(world, situation);
        return decide(world, GM_SCHED_SIZE, id, NULL);
    }
    if (app->is_wanting && (app->is_steady || !app->is_open))
        return decide(world, GM_SCHED_WANT, id, NULL); /* it says so again */
    app->is_wanting = !app->is_wanting;
    return decide(world, app->is_wanting ? GM_SCHED_WANT : GM_SCHED_IDLE, id, NULL);
}

/* ---- Measuring ---- */

static void read_other(struct world *world)
{
    for (uint32_t at = 0; at < GM_OTHER_BYTES; at += 64)
        ((volatile uint8_t *)world->other)[at]++;
}

static void summarize(struct figures *f, size_t count)
{
    gm_samples_sort(f->us, count);
    f->p50 = gm_samples_percentile(f->us, count, 50);
    f->p99 = gm_samples_percentile(f->us, count, 99);
    f->most = f->us[count - 1];
    f->in_set /= (double)count;
    f->waiting /= (double)count;
}

/* Everybody joins, and half of them want at once; then enough happens for levels to differ. */
static void warm_up(struct world *world, enum situation situation)
{
    for (uint32_t id = 0; id < world->n; id++) {
        join(world, &world->apps[id], id, situation);
        world->apps[id].is_wanting = draw(world, 2) == 0;
        if (world->apps[id].is_wanting)
            decide(world, GM_SCHED_WANT, id, NULL);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        step(world, situation);
        world->now += i % 10 == 0 ? draw(world, 200ull * GM_MS) : 0;
    }
}

static bool measure(uint32_t n, enum situation situation, uint64_t decisions,
                    struct figures figures[GM_KINDS])
{
    struct world world;
    if (!make_world(&world, n, situation))
        return false;
    warm_up(&world, situation);
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
        struct figures *f = &figures[kind];
        /* Reading other memory takes a thousand times as long as a decision. */
        uint64_t count = kind == GM_COLD ? decisions / 10 + 1 : decisions;
        f->us = calloc(count, sizeof(f->us[0]));
        if (f->us == NULL) {
            fprintf(stderr, "sched: out of memory\n");
            return false;
        }
        for (uint64_t i = 0; i < count; i++) {
            if (kind == GM_COLD)
                read_other(&world);
            f->us[i] = step(&world, situation);
            f->in_set += world.decision.n_set;
            f->waiting += world.decision.n_next;
        }
        summarize(f, count);
        free(f->us);
    }
    free_world(&world);
    return true;
}

static void print_line(uint32_t n, enum situation situation, const struct figures figures[GM_KINDS])
{
    printf("%7u  %-8s", n, situation_names[situation]);
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
        printf("   %8.2f %8.2f %8.2f", figures[kind].p50, figures[kind].p99, figures[kind].most);
    printf("   %7.1f %7.1f\n", figures[GM_WARM].in_set, figures[GM_WARM].waiting);
}

static bool write_json(const char *file, int argc, char **argv, uint64_t decisions,
                       struct figures figures[GM_COUNTS][GM_SITUATIONS][GM_KINDS],
                       const double worst[GM_TARGETS], bool is_met)
{
    FILE *out = gm_report_open(file, "sched", argc, argv, NULL, 0);
    if (out == NULL)
        return false;
    fprintf(out, "  \"decisions\": %llu,\n  \"runs\": [\n", (unsigned long long)decisions);
    for (size_t c = 0; c < GM_COUNTS; c++) {
        for (enum situation s = GM_ALL_FIT; s < GM_SITUATIONS; s++) {
            const struct figures *f = figures[c][s];
            fprintf(out,
                    "    {\"apps\": %u, \"situation\": \"%s\", \"in_set\": %.1f, "
                    "\"waiting\": %.1f",
                    counts[c], situation_names[s], f[GM_WARM].in_set, f[GM_WARM].waiting);
            for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
                fprintf(out, ",\n     \"%s_us\": {\"p50\": %.2f, \"p99\": %.2f, \"max\": %.2f}",
                        kind_names[kind], f[kind].p50, f[kind].p99, f[kind].most);
            bool is_last = c + 1 == GM_COUNTS && s + 1 == GM_SITUATIONS;
            fprintf(out, "}%s\n", is_last ? "" : ",");
        }
    }
    fprintf(out, "  ],\n  \"targets\": [");
    for (size_t t = 0; t < GM_TARGETS; t++)
        fprintf(out, "%s{\"apps\": %u, \"target_us\": %.0f, \"p99_us\": %.2f}", t > 0 ? ", " : "",
                targets[t].apps, targets[t].us, worst[t]);
    fprintf(out, "],\n  \"met\": %s\n", is_met ? "true" : "false");
    return gm_report_close(out, file) == 0;
}

int main(int argc, char **argv)
{
    static struct figures figures[GM_COUNTS][GM_SITUATIONS][GM_KINDS];
    double worst[GM_TARGETS] = {0};
    uint64_t decisions = 2000;
    const char *json = NULL;
    bool is_met = true;

    if (!gm_report_options(argc, argv, "--decisions", GM_DECISIONS_MAX, &decisions, &json)) {
        fprintf(stderr, "usage: sched [--decisions 1..%d] [--json FILE]\n", GM_DECISIONS_MAX);
        return 1;
    }
    printf("%llu decisions each, a tenth of it cold; microseconds of processor time\n\n",
           (unsigned long long)decisions);
    printf("%7s  %-8s   %8s %8s %8s   %8s %8s %8s   %7s %7s\n", "apps", "", "warm p50", "p99",
           "max", "cold p50", "p99", "max", "in set", "waiting");
    for (size_t c = 0; c < GM_COUNTS; c++) {
        for (enum situation s = GM_ALL_FIT; s < GM_SITUATIONS; s++) {
            if (!measure(counts[c], s, decisions, figures[c][s]))
                return 2;
            print_line(counts[c], s, figures[c][s]);
            for (size_t t = 0; t < GM_TARGETS; t++)
                for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
                    if (targets[t].apps == counts[c] && figures[c][s][kind].p99 > worst[t])
                        worst[t] = figures[c][s][kind].p99;
        }
    }
    printf("\n");
    for (size_t t = 0; t < GM_TARGETS; t++) {
        bool is_this_met = worst[t] <= targets[t].us;
        is_met = is_met && is_this_met;
        printf("target: p99 of %.0f us for %u programs: %s (%.1f us)\n", targets[t].us,
               targets[t].apps, is_this_met ? "met" : "missed", worst[t]);
    }
    return json == NULL || write_json(json, argc, argv, decisions, figures, worst, is_met) ? 0 : 1;
}

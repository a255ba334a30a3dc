/*
 * The three ways in which people share a GPU (Nixie): an interactive program beside a long-running
 * one; several long-running ones; two that work in turn, as a pipeline or an agent does, beside a
 * long-running one. No two programs fit together, so every change of turn moves memory, at 100 GB/s
 * each way.
 *
 * Policies: the feedback queue as the daemon has it by default; plain round robin, the policy of
 * older tools, with slices of 4 and of 30 s; and each program alone. Nobody is told what the
 * programs are.
 */
#include "tests/sim/patterns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define SECOND 1000000000ull
#define MS 1000000ull
#define GB 1000000000ull
#define RATE (100 * GB)
#define LENGTH (1200 * SECOND)
#define DRAIN (5 * MS)
#define WORK_NS (300 * MS) /* of a request, on average */
#define WORK_S 0.3
#define FIXED (10 * MS) /* of a switch, beside the bytes: mapping */

/* 40 GB each way, the drain and the fixed part: what an answer takes more beside others. */
#define SWITCH_S 0.415

enum policy { MLFQ, RR4, RR30, POLICIES };
static const char *const policy_names[POLICIES] = {"feedback queue", "round robin 4 s",
                                                   "round robin 30 s"};

static struct gm_sched_config config_of(enum policy policy)
{
    struct gm_sched_config config = {
        .max_apps = 8,
        .budget = 80 * GB,
        .levels = 1,
        .allotment_ns = 8 * SECOND,
        .slice_ns = 4 * SECOND,
        .patience_ns = 60 * SECOND,
        .retry_ns = SECOND,
    };
    if (policy == MLFQ)
        config.levels = 3;
    if (policy == RR30)
        config.slice_ns = 30 * SECOND;
    return config;
}

static void begin(struct world *w, enum policy policy)
{
    world_begin(w, 1);
    w->watch.place = "sim_sched: pattern ";
    w->config = config_of(policy);
    w->fixed_drain = w->drain_max = DRAIN;
    w->fixed_load = FIXED;
    w->load_max = FIXED + 2 * SECOND;
    w->idle_ns = 100 * MS;
    w->link_rate = RATE;
    world_start(w);
}

static void finish(struct world *w)
{
    while (world_step(w, LENGTH))
        continue;
}

static uint32_t add(struct world *w, uint64_t gb, uint64_t work_ns, uint64_t think_ns, uint64_t at)
{
    struct habit habit = {.work_ns = work_ns, .think_ns = think_ns, .then = WORLD_NOBODY};
    return world_join(w, gb * GB, &habit, at);
}

struct figures {
    double response, worst; /* seconds: mean and most */
    double requests;        /* that ended */
    double part;            /* of the time in which long-running programs ran, all together */
    double least, most;     /* ... of one of them */
};

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void read_requests(const struct world *w, uint32_t app, struct figures *f)
{
    const struct world_app *a = &w->apps[app];
    f->requests = (double)a->requests;
    f->response = a->requests ? seconds(a->response_ns) / f->requests : 0;
    f->worst = seconds(a->response_max_ns);
}

static void read_batch(const struct world *w, uint32_t app, struct figures *f)
{
    double part = (double)world_run_ns(w, app) / (double)LENGTH;
    f->part += part;
    f->least = f->least == 0 || part < f->least ? part : f->least;
    f->most = part > f->most ? part : f->most;
}

/* ---- (a) An interactive program beside a long-running one ---- */

static struct figures interactive(enum policy policy, bool has_interactive, bool has_batch,
                                  uint64_t think_ns)
{
    struct world w;
    struct figures f = {.part = 0};
    uint32_t batch = WORLD_NOBODY, chat = WORLD_NOBODY;
    begin(&w, policy);
    if (has_batch)
        batch = add(&w, 60, WORLD_FOREVER, 0, 2);
    if (has_interactive)
        chat = add(&w, 60, WORK_NS, think_ns, 5 * SECOND);
    finish(&w);
    if (has_batch)
        read_batch(&w, batch, &f);
    if (has_interactive)
        read_requests(&w, chat, &f);
    world_end(&w);
    return f;
}

/* ---- (b) Several long-running ones ---- */

static struct figures batches(enum policy policy)
{
    struct world w;
    struct figures f = {.part = 0};
    uint32_t apps[3];
    begin(&w, policy);
    for (unsigned i = 0; i < 3; i++)
        apps[i] = add(&w, 60, WORLD_FOREVER, 0, 2);
    finish(&w);
    for (unsigned i = 0; i < 3; i++)
        read_batch(&w, apps[i], &f);
    world_end(&w);
    return f;
}

/* ---- (c) Two that work in turn beside a long-running one ---- */

static struct figures pipeline(enum policy policy, bool has_pipeline, bool has_batch)
{
    struct world w;
    struct figures f = {.part = 0};
    uint32_t batch = WORLD_NOBODY, text = WORLD_NOBODY, image = WORLD_NOBODY;
    begin(&w, policy);
    if (has_batch)
        batch = add(&w, 60, WORLD_FOREVER, 0, 2);
    if (has_pipeline) {
        text = add(&w, 60, SECOND, 0, 5 * SECOND);
        image = add(&w, 60, 2 * SECOND, 4 * SECOND, GM_TIME_NEVER);
        w.apps[text].habit.then = image;
        w.apps[image].habit.then = text;
    }
    finish(&w);
    if (has_batch)
        read_batch(&w, batch, &f);
    if (has_pipeline) { /* a turn is a request to each */
        struct figures second = {.part = 0};
        read_requests(&w, text, &f);
        read_requests(&w, image, &second);
        f.response += second.response;
        f.worst += second.worst;
        f.requests = second.requests;
    }
    world_end(&w);
    return f;
}

/* ---- The table ---- */

static void print_line(const char *pattern, const char *policy, const struct figures *f)
{
    char response[64] = "";
    if (f->requests > 0)
        snprintf(response, sizeof response, "%8.3f %8.3f %8.0f", f->response, f->worst,
                 f->requests);
    printf("%-22s %-16s %26s", pattern, policy, response);
    if (f->part > 0)
        printf("  %7.1f %%  %6.1f .. %.1f %%", f->part * 100, f->least * 100, f->most * 100);
    printf("\n");
}

static const char *running; /* the pattern whose figures are checked */

#define check(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fflush(stdout);                                                                        \
            fprintf(stderr, "sim_sched: pattern \"%s\": not so: %s\n", running, #what);            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* What a request costs the long-running program, in seconds: the work and the switches. */
static double cost(const struct figures *f)
{
    return (1 - f->part) * seconds(LENGTH) / f->requests;
}

static void run_interactive(uint64_t think_s)
{
    char name[32];
    struct figures f[POLICIES], alone, batch;
    snprintf(name, sizeof name, "interactive, %" PRIu64 " s", think_s);
    running = name;
    for (enum policy p = MLFQ; p < POLICIES; p++) {
        f[p] = interactive(p, true, true, think_s * SECOND);
        print_line(name, policy_names[p], &f[p]);
    }
    alone = interactive(MLFQ, true, false, think_s * SECOND);
    batch = interactive(MLFQ, false, true, 0);
    alone.part = alone.least = alone.most = batch.part;
    print_line(name, "each alone", &alone);

    /* It is answered as soon as its memory is there. */
    double bound = alone.response + SWITCH_S;
    check(f[MLFQ].response <= 1.15 * bound);
    check(f[MLFQ].response <= f[RR4].response);
    check(f[MLFQ].response <= 0.6 * f[RR4].response || think_s >= 6); /* a slice of 4 s is over */
    check(f[MLFQ].response <= 0.1 * f[RR30].response);
    check(f[RR4].response <= f[RR30].response);
    /* And the batch program has nearly all that is left, and pays no more for a request. */
    check(cost(&f[MLFQ]) <= 1.02 * cost(&f[RR4]));
    check(think_s < 6 || f[MLFQ].part >= 0.85 * (1 - f[MLFQ].requests * WORK_S / seconds(LENGTH)));
    check(think_s < 6 || f[MLFQ].part >= 0.99 * f[RR4].part);
}

static void run_batches(void)
{
    struct figures f[POLICIES];
    running = "three batch programs";
    for (enum policy p = MLFQ; p < POLICIES; p++) {
        f[p] = batches(p);
        print_line(running, policy_names[p], &f[p]);
    }
    check(f[MLFQ].part >= f[RR4].part);
    check(f[MLFQ].part >= 0.95);
    check(f[MLFQ].least >= 0.9 * f[MLFQ].part / 3); /* the last slices are long */
}

static void run_pipeline(void)
{
    struct figures f[POLICIES], alone;
    running = "pipeline";
    for (enum policy p = MLFQ; p < POLICIES; p++) {
        f[p] = pipeline(p, true, true);
        print_line(running, policy_names[p], &f[p]);
    }
    alone = pipeline(MLFQ, true, false);
    alone.part = alone.least = alone.most = pipeline(MLFQ, false, true).part;
    print_line(running, "each alone", &alone);
    check(f[MLFQ].response <= 1.15 * (alone.response + SWITCH_S));
    check(f[MLFQ].response <= 0.6 * f[RR4].response);
    check(f[MLFQ].response <= 0.1 * f[RR30].response);
    check(cost(&f[MLFQ]) <= 1.02 * cost(&f[RR4]));
}

void patterns_run(void)
{
    printf("\nPatterns: programs of 60 GB on 80 GB at 100 GB/s, %.0f s each; seconds\n\n",
           seconds(LENGTH));
    printf("%-22s %-16s %8s %8s %8s  %9s  %s\n", "", "", "response", "worst", "requests", "batch",
           "  each");
    run_interactive(1);
    run_interactive(3);
    run_interactive(6);
    run_batches();
    run_pipeline();
}

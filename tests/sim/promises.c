/*
 * What single apps are promised: equal parts, parts by weight, shares, a least part for the lowest
 * priority, and that an interactive program is recognized. Every step of these runs is watched as
 * in the random workloads; what is here besides are sums over long times.
 */
#include "tests/sim/promises.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tests/sim/world.h"
#include "daemon/core/sched_account.h"

#define MS 1000000ull
#define SECOND 1000000000ull

/* Requests after which an interactive program is recognized, at the latest. */
#define GM_RECOGNIZED 3u

static const struct habit steady = {.work_ns = WORLD_FOREVER, .then = WORLD_NOBODY};

static void begin(struct world *w, const char *place, uint64_t number)
{
    world_begin(w, number);
    w->watch.place = place;
    w->config = (struct gm_sched_config){
        .max_apps = 16,
        .budget = 1000,
        .levels = 3,
        .allotment_ns = 8 * SECOND,
        .slice_ns = 4 * SECOND,
        .patience_ns = 60 * SECOND,
        .retry_ns = SECOND,
    };
    w->drain_max = 40 * MS;
    w->load_max = 800 * MS;
    w->idle_ns = 100 * MS;
}

static void run_until(struct world *w, uint64_t end)
{
    while (world_step(w, end))
        continue;
}

static void set(struct world *w, uint32_t app, enum gm_sched_class class, uint32_t weight,
                uint32_t share)
{
    struct gm_sched_policy policy = {(uint8_t) class, false, weight, share};
    world_set(w, app, &policy);
}

static uint32_t run_of(const struct world *w, uint64_t since, uint32_t app, uint64_t length)
{
    return (uint32_t)((world_run_ns(w, app) - since) * 100000 / length);
}

/* `a` and `b` differ by at most so many thousandths of the larger. */
static bool is_near(double a, double b, double thousandths)
{
    double larger = a > b ? a : b, smaller = a > b ? b : a;
    return larger - smaller <= larger * thousandths / 1000;
}

#define check(w, what) watch_check(&(w)->watch, what)

/* ---- Equal parts: n apps of which `fit` fit together ---- */

static void check_equal(uint32_t n, uint32_t fit, bool is_free, enum gm_sched_class class)
{
    struct world w;
    begin(&w, "sim_sched: equal parts ", n * 100 + fit);
    w.config.budget = fit * 100 + 99;
    if (is_free)
        w.drain_max = w.load_max = 0;
    world_start(&w);
    for (uint32_t app = 0; app < n; app++)
        set(&w, world_join(&w, 100, &steady, 1), class, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
    uint64_t slice = w.config.slice_ns << (class == GM_CLASS_BATCH ? w.config.levels - 1 : 0);
    uint64_t length = 500 * n * slice;
    run_until(&w, length);
    uint64_t low = UINT64_MAX, high = 0, total = 0;
    for (uint32_t app = 0; app < n; app++) {
        uint64_t run = world_run_ns(&w, app);
        low = run < low ? run : low;
        high = run > high ? run : high;
        total += run;
    }
    uint64_t places = n < fit ? n : fit;
    if (is_free) { /* all the time is used, and nobody is ahead by two slices */
        check(&w, total == places * (length - 1));
        check(&w, high - low <= 2 * slice);
    }
    check(&w, is_near((double)high, (double)low, 20));
    world_end(&w);
}

static void equal_parts(void)
{
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t fit = 1; fit <= n; fit++) {
            check_equal(n, fit, true, GM_CLASS_INTERACTIVE);
            check_equal(n, fit, false, GM_CLASS_INTERACTIVE);
            check_equal(n, fit, false, GM_CLASS_BATCH);
        }
    printf("equal parts: 1 to 8 apps, any number of which fit together: within 2 %%\n");
}

/* ---- Who rests shortly before each slice ends gains nothing by it ---- */

static void no_gain_by_resting(void)
{
    static const enum gm_sched_class classes[] = {GM_CLASS_INTERACTIVE, GM_CLASS_BATCH,
                                                  GM_CLASS_AUTO};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (unsigned tenths = 1; tenths <= 12; tenths++) {
            struct world w;
            begin(&w, "sim_sched: resting ", 100 * i + tenths);
            world_start(&w);
            uint64_t slice = w.config.slice_ns;
            if (classes[i] != GM_CLASS_INTERACTIVE)
                slice <<= w.config.levels - 1;
            struct habit habit = {.work_ns = slice * tenths / 10,
                                  .think_ns = 150 * MS,
                                  .is_exact = true,
                                  .then = WORLD_NOBODY};
            uint32_t honest = world_join(&w, 700, &steady, 1);
            uint32_t clever = world_join(&w, 700, &habit, 1);
            set(&w, honest, classes[i], GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
            set(&w, clever, classes[i], GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
            run_until(&w, 2000 * slice);
            check(&w, world_run_ns(&w, clever) <= world_run_ns(&w, honest) * 101 / 100);
            world_end(&w);
        }
    }
    printf("resting shortly before a slice ends gains nothing\n");
}

/* ---- Who pauses now and then loses nothing by it ---- */

/*
 * One of `n` batch programs, no two of which fit together, does nothing on the GPU for a little
 * longer than is idle, about every `tenths` of a slice: it has its share all the same, and the
 * others wait for a slice of each other app and the rest of one, at most. Returns what it has less
 * than the others, as a part.
 */
static double check_pausing(uint32_t n, unsigned tenths, enum gm_sched_class class)
{
    struct world w;
    begin(&w, "sim_sched: pausing ", 100 * n + tenths);
    world_start(&w);
    uint64_t slice = w.config.slice_ns << (w.config.levels - 1);
    struct habit habit = {
        .work_ns = slice * tenths / 10, .think_ns = 200 * MS, .then = WORLD_NOBODY};
    set(&w, world_join(&w, 700, &habit, 1), class, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
    for (uint32_t app = 1; app < n; app++)
        set(&w, world_join(&w, 700, &steady, 1), class, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
    uint64_t since[8], others = 0;
    run_until(&w, 1 + 100 * n * slice); /* all have come to the last level */
    for (uint32_t app = 0; app < n; app++) {
        since[app] = world_run_ns(&w, app);
        w.watch.apps[app].longest_wait_ns = 0;
    }
    run_until(&w, w.now + 1000 * n * slice);
    for (uint32_t app = 1; app < n; app++)
        others += world_run_ns(&w, app) - since[app];
    double less = 1 - (double)(world_run_ns(&w, 0) - since[0]) * (n - 1) / (double)others;
    uint64_t swap = w.drain_max + w.load_max + w.idle_ns;
    for (uint32_t app = 0; app < n; app++)
        check(&w, w.watch.apps[app].longest_wait_ns <= n * (slice + swap) + n * swap);
    if (less > 0.05 || less < -0.02)
        watch_fail(&w.watch, __LINE__, "of %" PRIu32 ", one that pauses has %.1f %% less", n,
                   less * 100);
    world_end(&w);
    return less;
}

static void pausing(void)
{
    static const enum gm_sched_class classes[] = {GM_CLASS_BATCH, GM_CLASS_AUTO};
    double most = 0;
    for (uint32_t n = 2; n <= 6; n++)
        for (unsigned tenths = 15; tenths <= 60; tenths += 9)
            for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
                double less = check_pausing(n, tenths, classes[i]);
                most = less > most ? less : most;
            }
    printf("pausing: a batch program that pauses every 1.5 to 6 slices has at most %.1f %% less "
           "than those that do not (at most 5 %%)\n",
           most * 100);
}

/* ---- Weights ---- */

/*
 * Steady apps of which no two fit, with weights in thousandths (0 ends them): their run times are
 * to each other as the weights, whatever drains and loads take, at every level.
 */
static void check_weights(uint64_t seed, enum gm_sched_class class, const uint32_t *weights,
                          double *worst)
{
    struct world w;
    uint32_t n = 0;
    uint64_t sum = 0;
    begin(&w, "sim_sched: weights ", seed);
    w.drain_max = draw(&w.chance, 400 * MS);
    w.load_max = draw(&w.chance, 2 * SECOND);
    world_start(&w);
    for (; weights[n]; n++) {
        uint32_t app = world_join(&w, 600 + draw(&w.chance, 400), &steady, w.now);
        set(&w, app, class, weights[n], GM_SCHED_SHARE_ALL);
        sum += weights[n];
    }
    uint64_t since[8], warm_up = class == GM_CLASS_AUTO ? 3000 * SECOND : 0;
    run_until(&w, warm_up + 1); /* those whose level is found reach the last */
    for (uint32_t app = 0; app < n; app++)
        since[app] = world_run_ns(&w, app);
    uint64_t slice = w.config.slice_ns << (class == GM_CLASS_INTERACTIVE ? 0 : w.config.levels - 1);
    uint64_t length = 400 * sum / GM_SCHED_WEIGHT_MIN * slice / 4;
    run_until(&w, w.now + length);
    for (uint32_t app = 1; app < n; app++) {
        double first = (double)(world_run_ns(&w, 0) - since[0]) / weights[0];
        double other = (double)(world_run_ns(&w, app) - since[app]) / weights[app];
        double error = other > first ? other / first - 1 : first / other - 1;
        *worst = error > *worst ? error : *worst;
        if (!is_near(first, other, 20))
            watch_fail(&w.watch, __LINE__,
                       "class %s: weights %" PRIu32 " and %" PRIu32 " run %.2f %% and %.2f %%",
                       gm_class_name(class), weights[0], weights[app],
                       run_of(&w, since[0], 0, length) / 1000.0,
                       run_of(&w, since[app], app, length) / 1000.0);
    }
    world_end(&w);
}

static void weights(void)
{
    static const uint32_t cases[][6] = {
        {2000, 1000}, {1000, 2000, 1000}, {1000, 1000, 4000}, {500, 1000, 2000},
        {1500, 1000}, {100, 200},         {100, 10000},       {10000, 5000, 2500, 1000, 100},
    };
    static const enum gm_sched_class classes[] = {GM_CLASS_INTERACTIVE, GM_CLASS_BATCH,
                                                  GM_CLASS_AUTO, GM_CLASS_LATENCY};
    double worst = 0;
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t c = 0; c < sizeof classes / sizeof *classes; c++)
            check_weights(seed++, classes[c], cases[i], &worst);
    printf("weights: %" PRIu64 " settings of 2 to 5 apps: run times are as the weights within "
           "%.2f %% (at most 2 %%)\n",
           seed - 1, worst * 100);
}

/* ---- Shares ---- */

/* An app that always wants and has a limit gets its share, no more and no less, alone and beside
 * others; and those have the rest. */
static void check_share(uint32_t share, bool has_rival, enum gm_sched_class class)
{
    struct world w;
    begin(&w, "sim_sched: share ", share);
    w.load_max = 100 * MS;
    world_start(&w);
    uint32_t app = world_join(&w, 700, &steady, 1);
    set(&w, app, class, GM_SCHED_WEIGHT, share);
    if (has_rival)
        set(&w, world_join(&w, 700, &steady, 1), GM_CLASS_AUTO, GM_SCHED_WEIGHT,
            GM_SCHED_SHARE_ALL);
    run_until(&w, 20000 * SECOND);
    uint64_t since = world_run_ns(&w, app), last = since, most = 0;
    enum { MINUTES = 300 };
    for (unsigned i = 1; i <= MINUTES; i++) {
        run_until(&w, (20000 + 60 * i) * SECOND);
        most = world_run_ns(&w, app) - last > most ? world_run_ns(&w, app) - last : most;
        last = world_run_ns(&w, app);
    }
    double part = (double)(last - since) / (MINUTES * 60.0 * (double)SECOND) * 1000;
    check(&w, part <= share * 1.01 + 1);
    check(&w, part >= share * 0.9 || has_rival); /* less what switches take */
    check(&w, most <= 70 * SECOND / GM_SCHED_SHARE_ALL * share + w.drain_max);
    world_end(&w);
}

static void shares(void)
{
    static const uint32_t cases[] = {10, 50, 100, 250, 500, 900, 999};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_share(cases[i], false, GM_CLASS_AUTO);
        check_share(cases[i], true, GM_CLASS_AUTO);
        check_share(cases[i], true, GM_CLASS_LATENCY);
    }
    printf("shares: from 1 to 99.9 %%, alone and beside others: in any minute at most 60 s and a "
           "burst of 10 s of it, over time what was said\n");
}

/* ---- What an app of low priority can expect ---- */

/*
 * One app of class batch beside `n` that never rest and are said to be more important: it has a
 * slice S at least every so often, which gm_sched_bound promises, and no more than that.
 */
static void check_patience(uint32_t n, enum gm_sched_class class, uint64_t patience_ns)
{
    struct world w;
    begin(&w, "sim_sched: patience ", n);
    w.config.patience_ns = patience_ns;
    world_start(&w);
    uint32_t low = world_join(&w, 700, &steady, 1);
    set(&w, low, GM_CLASS_BATCH, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
    for (uint32_t i = 0; i < n; i++)
        set(&w, world_join(&w, 700, &steady, 1), class, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL);
    uint64_t length = 100 * gm_sched_bound(&w.config, n + 1, 1, w.drain_max, w.load_max);
    run_until(&w, length);
    const struct watch_app *a = &w.watch.apps[low];
    uint64_t bound = gm_sched_bound(&w.config, n + 1, 1, w.drain_max, w.load_max);
    uint64_t period = bound + w.config.slice_ns;
    check(&w, a->longest_wait_ns <= bound);
    check(&w, a->run_ns >= (length / period - 1) * w.config.slice_ns);
    check(&w, a->run_ns <= length / (n + 1)); /* it is of low priority all the same */
    printf("patience: batch beside %" PRIu32 " of class %s, patience %.0f s: %.1f %% of the time, "
           "%.1f s each %.1f s; longest wait %.1f s (promised %.1f s)\n",
           n, gm_class_name(class), (double)patience_ns / 1e9,
           (double)a->run_ns * 100 / (double)length, (double)a->run_ns / 1e9 / a->slices,
           (double)length / 1e9 / a->slices, (double)a->longest_wait_ns / 1e9, (double)bound / 1e9);
    world_end(&w);
}

/* ---- An interactive program that starts as unknown ---- */

/*
 * Beside a program that never rests, from some request on it waits for one switch and no slice.
 * Started together with the other it may have to wait for the two slices that this has before it
 * drops; else it is served at once. `lead_ns`: how long before it the other started.
 */
static unsigned waited_requests(uint64_t lead_ns, uint64_t think_ns, uint64_t seed)
{
    struct world w;
    struct habit chat = {
        .work_ns = 300 * MS, .think_ns = think_ns, .is_exact = true, .then = WORLD_NOBODY};
    enum { REQUESTS = sizeof w.apps[0].responses / sizeof w.apps[0].responses[0] };
    unsigned waited = 0;
    begin(&w, "sim_sched: recognition ", seed);
    world_start(&w);
    world_join(&w, 700, &steady, 1);
    run_until(&w, 1 + lead_ns);
    uint32_t app = world_join(&w, 700, &chat, w.now);
    while (w.apps[app].requests < REQUESTS)
        check(&w, world_step(&w, GM_TIME_NEVER));
    uint64_t at_once = chat.work_ns + w.drain_max + w.load_max;
    for (unsigned i = 0; i < REQUESTS; i++)
        if (w.apps[app].responses[i] > at_once)
            waited = i + 1;
    world_end(&w);
    return waited; /* the last of them that waited for a slice */
}

static void recognition(void)
{
    unsigned old = 0, running = 0, together = 0;
    for (uint64_t seed = 1; seed <= 200; seed++)
        for (uint64_t think_ns = SECOND; think_ns <= 6 * SECOND; think_ns += SECOND) {
            unsigned waited = waited_requests(300 * SECOND, think_ns, seed);
            old = waited > old ? waited : old;
            waited = waited_requests(2 * SECOND, think_ns, seed);
            running = waited > running ? waited : running;
            waited = waited_requests(0, think_ns, seed);
            together = waited > together ? waited : together;
        }
    printf("recognition: the last request of an interactive program that waits for a slice: %u "
           "beside an "
           "old batch program, %u beside one that began 2 s before, %u beside one that began with "
           "it\n",
           old, running, together);
    if (old > 0 || running > 2 || together > GM_RECOGNIZED) {
        fprintf(stderr, "sim_sched: an interactive program is not recognized in time\n");
        exit(1);
    }
}

/* ---- When everything fits ---- */

static void everything_fits(void)
{
    struct world w;
    begin(&w, "sim_sched: everything fits ", 1);
    world_start(&w);
    for (uint32_t app = 0; app < 10; app++)
        set(&w, world_join(&w, 100, &steady, 1), (enum gm_sched_class)(app % GM_CLASSES),
            GM_SCHED_WEIGHT * (1 + app % 3), GM_SCHED_SHARE_ALL);
    run_until(&w, 10000 * SECOND);
    for (uint32_t app = 0; app < 10; app++) {
        check(&w, w.watch.apps[app].slices == 1);
        check(&w, w.watch.apps[app].longest_wait_ns <= w.load_max);
    }
    check(&w, w.watch.timers == 0);
    world_end(&w);
    printf("everything fits: nobody is ever paused, and nobody is woken\n");
}

void promises_run(void)
{
    printf("\n");
    everything_fits();
    equal_parts();
    no_gain_by_resting();
    pausing();
    weights();
    shares();
    check_patience(1, GM_CLASS_LATENCY, 60 * SECOND);
    check_patience(3, GM_CLASS_LATENCY, 60 * SECOND);
    check_patience(3, GM_CLASS_INTERACTIVE, 60 * SECOND);
    check_patience(3, GM_CLASS_INTERACTIVE, 10 * SECOND);
    check_patience(8, GM_CLASS_LATENCY, 20 * SECOND);
    recognition();
}

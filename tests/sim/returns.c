/*
 * Who comes back from a rest goes before who works without a pause. Programs of 16 GB on 24 GB, so
 * that no two fit, at 50 GB/s each way, with the settings that the daemon has by default.
 *
 *   first requests  a program that loads a model and then answers, beside 1 to 4 batch programs
 * that began with it: none of its first five requests waits for somebody's slice
 *   many requests   beside a batch program that was loaded as well, and so comes back from a rest,
 * too: one each second or every three waits for one switch, from the third on cheaters who rests
 * only to go first has no more of the GPU than who never rests, and costs the others no more
 * switches than an honest program batch programs  do not change places more often, be it that they
 * pause now and then
 */
#include "tests/sim/returns.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/core/tunables.h"
#include "tests/sim/world.h"

#define MS ((uint64_t)1000000)
#define SECOND ((uint64_t)1000000000)
#define GB ((uint64_t)1000000000)
#define SIZE (16 * GB)
#define REQUESTS 5u
#define DELAY_MAX SECOND /* a switch and a drain take 0.3 s */

#define check(w, what) watch_check(&(w)->watch, what)

static void begin(struct world *w, const char *place, uint64_t number)
{
    world_begin(w, number);
    w->watch.place = place;
    w->config = (struct gm_sched_config){
        .max_apps = 8,
        .budget = 24 * GB,
        .levels = 3,
        .allotment_ns = 8 * SECOND,
        .slice_ns = 4 * SECOND,
        .patience_ns = 60 * SECOND,
        .retry_ns = SECOND,
    };
    w->fixed_drain = w->drain_max = 20 * MS;
    w->fixed_load = 100 * MS; /* beside the bytes: with them 0.26 s */
    w->load_max = SECOND;
    w->link_rate = 50 * GB;
    w->idle_ns = 100 * MS;
    world_start(w);
}

static uint32_t add(struct world *w, uint64_t work_ns, uint64_t think_ns)
{
    const struct habit habit = {
        .work_ns = work_ns, .think_ns = think_ns, .is_exact = true, .then = WORLD_NOBODY};
    return world_join(w, SIZE, &habit, w->now);
}

static void run_for(struct world *w, uint64_t ns)
{
    const uint64_t end = w->now + ns;
    while (world_step(w, end))
        continue;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* ---- The first requests ---- */

/* The longest that one of the first five took beyond its own work. */
static uint64_t first_requests(unsigned n, uint64_t load_ns, uint64_t work_ns, uint64_t think_ns)
{
    struct world w;
    uint64_t worst = 0;
    begin(&w, "sim_sched: first requests beside ", n);
    const uint32_t chat = add(&w, load_ns, think_ns);
    struct world_app *a = &w.apps[chat];
    for (unsigned i = 0; i < n; i++)
        add(&w, WORLD_FOREVER, 0);
    for (uint64_t done = 0; done <= REQUESTS; done++) {
        while (a->requests == done)
            check(&w, world_step(&w, GM_TIME_NEVER));
        const uint64_t took = w.now - a->asked_at;
        if (done > 0 && took - work_ns > worst)
            worst = took - work_ns;
        a->habit.work_ns = work_ns; /* it is loaded */
    }
    world_end(&w);
    return worst;
}

/*
 * Whether it has enough saved up for each of the five: what a program begins with, and what its
 * rests earn. The others are answered at once for as long as that lasts: for the table only.
 */
static bool has_enough(unsigned n, uint64_t work_ns, uint64_t think_ns)
{
    const uint64_t away = 550 * MS; /* a switch, a drain, and until it is found idle */
    const int64_t costs = (int64_t)(work_ns + away);
    int64_t saved = (int64_t)(8 * SECOND);
    for (unsigned i = 0; i < REQUESTS; i++) {
        if (saved < costs)
            return false;
        saved -= costs;
        if (think_ns > away)
            saved += (int64_t)(((think_ns - away) / n) - work_ns / GM_SCHED_PAUSE);
        saved = saved < (int64_t)(8 * SECOND) ? saved : (int64_t)(8 * SECOND);
    }
    return true;
}

static void show_first_requests(void)
{
    static const uint64_t works[] = {80, 300, 1000, 3000};
    static const uint64_t thinks[] = {500, 1000, 3000, 10000, 30000};
    static const uint64_t loads[] = {1000, 5000, 7900, 12000, 30000};
    printf(
        "first requests: the longest delay of five, in seconds, of a program that loads for 1 to "
        "30 s,\nbeside 1 to 4 batch programs that began with it; * asks for more than it has saved "
        "up\n");
    printf("%18s", "think");
    for (size_t t = 0; t < sizeof thinks / sizeof *thinks; t++)
        printf("  %6.1f s", seconds(thinks[t] * MS));
    printf("\n");
    for (unsigned n = 1; n <= 4; n++)
        for (size_t k = 0; k < sizeof works / sizeof *works; k++) {
            printf("beside %u, %5.2f s: ", n, seconds(works[k] * MS));
            for (size_t t = 0; t < sizeof thinks / sizeof *thinks; t++) {
                const bool is_enough = has_enough(n, works[k] * MS, thinks[t] * MS);
                uint64_t worst = 0;
                for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
                    uint64_t one = first_requests(n, loads[i] * MS, works[k] * MS, thinks[t] * MS);
                    worst = one > worst ? one : worst;
                }
                printf("  %6.2f %c", seconds(worst), is_enough ? ' ' : '*');
                fflush(stdout);
                if (is_enough && worst > DELAY_MAX)
                    watch_fail(
                        &(struct watch){.place = "sim_sched: first requests beside ", .number = n},
                        __LINE__, "one waited for %.2f s", seconds(worst));
            }
            printf("\n");
        }
}

/* ---- Many requests ---- */

#define MANY 20u
#define LONG (1000 * SECOND) /* it is told when to ask */

/*
 * Requests of `work_ns`, one each `period_ns`, the first `begins_ns` after the other began to work,
 * which loaded for `load_ns`. The longest of the first two goes to worst[0], that of the others to
 * worst[1].
 */
static void many_requests(uint64_t work_ns, uint64_t period_ns, uint64_t begins_ns,
                          uint64_t load_ns, uint64_t worst[2])
{
    struct world w;
    begin(&w, "sim_sched: requests, ms: ", period_ns / MS);
    const uint32_t chat = add(&w, 2 * SECOND, LONG), batch = add(&w, load_ns, 5 * SECOND);
    struct world_app *a = &w.apps[chat], *other = &w.apps[batch];
    while (a->requests == 0 || other->requests == 0)
        check(&w, world_step(&w, GM_TIME_NEVER));
    a->habit.work_ns = work_ns;
    other->habit.work_ns = WORLD_FOREVER;
    uint64_t due = other->ask_at + begins_ns;
    for (uint64_t done = 1; done <= MANY; done++, due += period_ns) {
        a->ask_at = due;
        while (a->requests == done)
            check(&w, world_step(&w, GM_TIME_NEVER));
        const uint64_t took = w.now - a->asked_at;
        worst[done > 2] = took > worst[done > 2] ? took : worst[done > 2];
    }
    world_end(&w);
}

/* What they take longer than alone is one switch; but one of the first two may find the other at
 * the begin of its work: then it waits for that one's switch, and for its first turn. */
static void check_many(uint64_t work_ns, uint64_t period_ns, uint64_t most_ns)
{
    const uint64_t a_switch = 20 * MS + 100 * MS + 160 * MS; /* drain, fixed part, 8 GB: begin() */
    uint64_t worst[2] = {0};
    for (uint64_t begins = 0; begins <= SECOND; begins += 50 * MS)
        for (uint64_t load = SECOND; load <= 3 * SECOND; load += 2 * SECOND)
            many_requests(work_ns, period_ns, begins, load, worst);
    printf(
        "requests of %.2f s each %.0f s beside a program that began to work less than 1 s before: "
        "beyond that the first two take %.2f s at most, the others %.2f (a switch %.2f)\n",
        seconds(work_ns), seconds(period_ns), seconds(worst[0] - work_ns),
        seconds(worst[1] - work_ns), seconds(a_switch));
    if (worst[0] > most_ns || worst[1] > work_ns + a_switch + MS)
        watch_fail(
            &(struct watch){.place = "sim_sched: requests, s: ", .number = period_ns / SECOND},
            __LINE__, "one of the first two took %.2f s, one of the others %.2f s",
            seconds(worst[0]), seconds(worst[1]));
}

static void show_many(void)
{
    check_many(60 * MS, SECOND, SECOND);
    check_many(60 * MS, 3 * SECOND, SECOND);
    check_many(600 * MS, 3 * SECOND, 5 * SECOND / 2); /* longer than it goes before all others */
}

/* ---- Who rests only to go first ---- */

/* `m` that work and rest beside `n` that never rest, all of one level. */
static void check_cheaters(unsigned m, unsigned n, uint64_t work_ns, uint64_t rest_ns, double *most,
                           double *least)
{
    const uint64_t length = 4000 * SECOND;
    struct world w;
    double has = 0, others = 0;
    begin(&w, "sim_sched: cheaters beside ", n);
    const struct gm_sched_policy policy = {GM_CLASS_INTERACTIVE, false, GM_SCHED_WEIGHT,
                                           GM_SCHED_SHARE_ALL};
    for (unsigned i = 0; i < m; i++)
        world_set(&w, add(&w, work_ns, rest_ns), &policy);
    for (unsigned i = 0; i < n; i++)
        world_set(&w, add(&w, WORLD_FOREVER, 0), &policy);
    run_for(&w, length);
    for (uint32_t app = 0; app < m + n; app++)
        *(app < m ? &has : &others) += seconds(world_run_ns(&w, app));
    const double gain = has / m / (others / n), whole = (has + others) / seconds(length);
    *most = gain > *most ? gain : *most;
    *least = whole < *least ? whole : *least;
    if (gain > 1.02 || whole < 0.3)
        watch_fail(&w.watch, __LINE__,
                   "work of %.3f s, rests of %.3f s: it has %.2f times what the others have, and "
                   "the GPU works for %.0f %% of the time",
                   seconds(work_ns), seconds(rest_ns), gain, whole * 100);
    world_end(&w);
}

static void show_cheaters(void)
{
    static const uint64_t works[] = {1, 50, 200, 500, 1000, 2000, 3500, 4500, 9000};
    static const uint64_t rests[] = {101, 150, 300, 400, 500, 800, 1500, 4000};
    double most = 0, least = 1;
    for (unsigned m = 1; m <= 2; m++)
        for (unsigned n = 1; n <= 3; n++)
            for (size_t k = 0; k < sizeof works / sizeof *works; k++)
                for (size_t t = 0; t < sizeof rests / sizeof *rests; t++)
                    check_cheaters(m, n, works[k] * MS, rests[t] * MS, &most, &least);
    printf("cheaters: who rests to go first has %.3f times what the others have, at most; the GPU "
           "works for %.1f %% of the time, at least\n",
           most, least * 100);
}

/* ---- Batch programs ---- */

static uint64_t switches_of(uint64_t work_ns, uint64_t rest_ns, enum gm_sched_class class,
                            uint64_t before, uint64_t length)
{
    struct world w;
    begin(&w, "sim_sched: batch programs that rest, ms: ", rest_ns / MS);
    const struct gm_sched_policy policy = {(uint8_t) class, false, GM_SCHED_WEIGHT,
                                           GM_SCHED_SHARE_ALL};
    for (unsigned i = 0; i < 2; i++)
        world_set(&w, add(&w, work_ns, rest_ns), &policy);
    run_for(&w, before);
    const uint64_t since = w.watch.opened;
    run_for(&w, length);
    const uint64_t opened = w.watch.opened - since;
    world_end(&w);
    return opened;
}

static void expect_switches(uint64_t found, uint64_t most, uint64_t work_ns, uint64_t rest_ns)
{
    if (found > most)
        watch_fail(&(struct watch){.place = "sim_sched: batch programs "}, __LINE__,
                   "work of %.1f s, rests of %.2f s: %" PRIu64 " changes of turn, not %" PRIu64,
                   seconds(work_ns), seconds(rest_ns), found, most);
}

/* Of class batch, nobody goes first for a rest: so often they have to change places. */
static void show_batches(void)
{
    static const uint64_t works[] = {2000, 5000, 10000, 20000, 60000};
    static const uint64_t rests[] = {120, 200, 500};
    for (size_t k = 0; k < sizeof works / sizeof *works; k++)
        for (size_t t = 0; t < sizeof rests / sizeof *rests; t++) {
            const uint64_t work = works[k] * MS, rest = rests[t] * MS;
            const uint64_t found =
                switches_of(work, rest, GM_CLASS_AUTO, 500 * SECOND, 1000 * SECOND);
            const uint64_t said =
                switches_of(work, rest, GM_CLASS_BATCH, 500 * SECOND, 1000 * SECOND);
            expect_switches(found, said + said / 50 + 1, work, rest);
        }
    /* So many there were without this rule. */
    expect_switches(switches_of(WORLD_FOREVER, 0, GM_CLASS_AUTO, 0, 30 * SECOND), 6, 0, 0);
    expect_switches(switches_of(WORLD_FOREVER, 0, GM_CLASS_AUTO, 0, 1000 * SECOND), 67, 0, 0);
    expect_switches(switches_of(700 * MS, 150 * MS, GM_CLASS_AUTO, 0, 30 * SECOND), 29 + 1,
                    700 * MS, 150 * MS);
    printf(
        "batch programs: two that pause for 0.12 to 0.5 s, each 2 to 60 s, change places no more "
        "often for it\n");
}

void returns_run(void)
{
    printf("\n");
    show_first_requests();
    show_many();
    show_cheaters();
    show_batches();
}

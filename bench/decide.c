/*
 * bench/decide: what a decision of the planner takes, and one of the scheduler. Needs no GPU and no
 * daemon.
 *
 *   decide [--decisions N] [--json FILE]
 *
 * The planner: 100 programs with 100,000 chunks between them on a budget of 24 GiB, with pinned and
 * paged memory and a disk below it. A decision brings about 16 GiB in and as much out: one program
 * of 512 chunks of 32 MiB and 488 of 2 MiB, or eight programs of 1000 chunks of 2 MiB each; most of
 * it also moves between the tiers below. Every decision is for programs drawn at random, with the
 * others as victims in random order, in the state that carrying out the one before left. Programs
 * allocate in turn, in runs of 1 to 64 allocations of one size. The target is 1 ms in 99 of 100
 * decisions.
 *
 * The scheduler: 100 programs, in three situations: "all fit" on the GPU together; "some fit", a
 * tenth of them; "one fits", no two. Programs begin to want the GPU and rest at random, about half
 * of them want it at any time; now and then one grows, is given other settings, leaves or joins;
 * those whom a decision sends away close, and those whom it brings in open. Half of the programs
 * that never rest have sunk to the last level before the measurement begins. A decision is one such
 * event. The target is 50 us in 99 of 100.
 *
 * "Cold": before a decision 64 MiB of other memory are read, as when the daemon has slept through a
 * slice; "warm": they are not. Times are microseconds of processor time, less what reading the
 * clock takes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "daemon/core/plan.h"
#include "daemon/core/sched.h"
#include "daemon/core/sched_step.h"

#define GM_DECISIONS_MAX 1000000
#define GM_OTHER_BYTES (64u << 20)

enum kind { GM_WARM, GM_COLD, GM_KINDS };

/* A line of the table. */
struct row {
    char name[64];
    double target_us;
    double *us[GM_KINDS]; /* sorted by the summary */
    size_t count[GM_KINDS];
    double p50[GM_KINDS], p99[GM_KINDS], most[GM_KINDS];
};

static uint64_t random_state;
static uint8_t *other;
static double clock_takes_us; /* reading it twice */

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

static void *take_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "decide: out of memory\n");
        exit(1);
    }
    return memory;
}

static double clock_us(void)
{
    return (double)gm_thread_time() / 1e3;
}

static double us_since(double from)
{
    const double us = clock_us() - from - clock_takes_us;
    return us > 0 ? us : 0;
}

static void measure_clock(void)
{
    double us[1001];
    for (size_t i = 0; i < 1001; i++) {
        const double from = clock_us();
        us[i] = clock_us() - from;
    }
    clock_takes_us = gm_samples_spread(us, 1001).median;
}

static void read_other(void)
{
    for (uint32_t at = 0; at < GM_OTHER_BYTES; at += 64)
        ((volatile uint8_t *)other)[at]++;
}

static void begin_row(struct row *row, double target_us, uint64_t decisions)
{
    row->target_us = target_us;
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
        row->us[kind] = take_memory(decisions * sizeof(double));
}

static void end_row(struct row *row)
{
    printf("%-16s", row->name);
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
        gm_samples_sort(row->us[kind], row->count[kind]);
        row->p50[kind] = gm_samples_percentile(row->us[kind], row->count[kind], 50);
        row->p99[kind] = gm_samples_percentile(row->us[kind], row->count[kind], 99);
        row->most[kind] = row->us[kind][row->count[kind] - 1];
        printf("   %8.2f %8.2f %8.2f", row->p50[kind], row->p99[kind], row->most[kind]);
        free(row->us[kind]);
    }
    printf("\n");
}

static bool is_met(const struct row *row)
{
    return row->p99[GM_WARM] <= row->target_us && row->p99[GM_COLD] <= row->target_us;
}

/* ---- the planner ---- */

#define GM_APPS 100u
#define GM_CHUNKS 100000u
#define GM_FRAMES 16384u
#define GM_MOVES (8 * GM_FRAMES + 64)
#define GM_WARM_UP 100
#define GM_RUN 64 /* allocations in a row, at most */

static const struct workload {
    const char *name;
    uint32_t large, small; /* chunks of an app, of 32 and of 2 MiB */
    uint32_t targets;      /* apps that a decision is for */
} workloads[] = {
    {"plan, 32 MiB", 512, 488, 1},
    {"plan, 2 MiB", 0, 1000, 8},
};
#define GM_WORKLOADS (sizeof(workloads) / sizeof(workloads[0]))

struct planning {
    struct gm_table *table;
    struct gm_plan plan;
    struct gm_layout layout;
    struct gm_layout_target targets[GM_APPS];
    struct gm_layout_victim victims[GM_APPS];
};

static void make_planning(struct planning *world, const struct workload *workload)
{
    static uint32_t left[GM_APPS][2];
    void *memory = take_memory(gm_table_size(GM_APPS, GM_CHUNKS, GM_FRAMES));
    *world = (struct planning){0};
    world->plan.moves = take_memory(GM_MOVES * sizeof(*world->plan.moves));
    world->plan.capacity = GM_MOVES;
    world->table = gm_table_init(memory, GM_APPS, GM_CHUNKS, GM_FRAMES, 24 * GM_GIB);
    for (uint32_t app = 0; app < GM_APPS; app++) {
        gm_table_add_app(world->table, app, 1000);
        left[app][0] = workload->large;
        left[app][1] = workload->small;
    }
    uint64_t va = 1ull << 40, chunks = GM_APPS * (workload->large + workload->small);
    while (chunks > 0) {
        uint32_t app = (uint32_t)draw(GM_APPS), size = (uint32_t)draw(2);
        uint64_t bytes = size == 0 ? GM_CHUNK_MAX : GM_CHUNK_MIN;
        for (uint64_t n = 1 + draw(GM_RUN); n > 0 && left[app][size] > 0; n--) {
            left[app][size]--;
            chunks--;
            gm_table_add_allocation(world->table, app, va, bytes);
            va += bytes;
        }
    }
    uint64_t beyond = world->table->committed - 24 * GM_GIB;
    world->layout.window = GM_GIB;
    world->layout.tiers[GM_TIER_PINNED].cap = 32 * GM_GIB;
    world->layout.tiers[GM_TIER_PAGED].cap = 64 * GM_GIB;
    world->layout.tiers[GM_TIER_DISK].cap = beyond - 64 * GM_GIB;
    world->layout.targets = world->targets;
    world->layout.victims = world->victims;
}

static void draw_turn(struct planning *world, const struct workload *workload)
{
    uint32_t order[GM_APPS];
    for (uint32_t i = 0; i < GM_APPS; i++)
        order[i] = i;
    for (uint32_t i = GM_APPS; i > 1; i--) {
        uint32_t j = (uint32_t)draw(i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    world->layout.n_targets = workload->targets;
    world->layout.n_victims = GM_APPS - workload->targets;
    for (uint32_t i = 0; i < workload->targets; i++)
        world->targets[i].app = order[i];
    for (uint32_t i = 0; i < world->layout.n_victims; i++) {
        const uint32_t app = order[workload->targets + i];
        world->victims[i] =
            (struct gm_layout_victim){.app = app, .may_lose = world->table->apps[app].resident};
    }
}

/* The state that the plan leaves. */
static void carry_out(struct planning *world)
{
    struct gm_table *table = world->table;
    for (uint32_t i = 0; i < world->plan.n; i++) {
        const struct gm_move *move = &world->plan.moves[i];
        uint32_t frame = move->frame;
        if (move->kind == GM_MOVE_DESTROY) {
            gm_table_condemn_frame(table, frame, GM_NONE);
            gm_table_end_frame(table, frame);
            continue;
        }
        const struct gm_chunk *chunk = &table->chunks[move->chunk];
        uint64_t bytes = gm_class_bytes(chunk->class);
        unsigned to = GM_TIER_GPU;
        if (move->kind == GM_MOVE_EVICT) {
            gm_table_evict(table, move->chunk, 0);
            gm_table_leave_frame(table, move->chunk, 0);
        }
        if (move->kind == GM_MOVE_EVICT || move->kind == GM_MOVE_PROMOTE)
            to = GM_TIER_PINNED;
        else if (move->kind == GM_MOVE_DEMOTE)
            to = move->to_tier;
        else if (frame == GM_NONE)
            frame = gm_table_add_frame(table, table->apps[chunk->app].pool, chunk->class);
        if (move->kind == GM_MOVE_FILL) {
            gm_table_fill(table, move->chunk, frame);
        } else if (move->kind != GM_MOVE_EVICT) {
            gm_table_move(table, move->chunk, (enum gm_tier)to, 0);
        }
        world->layout.tiers[chunk->tier].used -= bytes; /* GPU and none: not read */
        world->layout.tiers[to].used += bytes;
        gm_table_end_copy(table, move->chunk, false);
        gm_table_end_map(table, move->chunk, false);
        gm_table_settle(table, move->chunk);
        if (to == GM_TIER_GPU)
            gm_table_leave_pages(table, move->chunk);
    }
}

static double plan_once(struct planning *world, bool is_cold)
{
    if (is_cold)
        read_other();
    const double from = clock_us();
    gm_layout_share(world->table, &world->layout);
    gm_plan_make(world->table, &world->layout, &world->plan);
    return us_since(from);
}

static void measure_plan(const struct workload *workload, uint64_t decisions, struct row *row)
{
    struct planning world;
    make_planning(&world, workload);
    snprintf(row->name, sizeof(row->name), "%s", workload->name);
    for (uint64_t i = 0; i < GM_WARM_UP + decisions; i++) {
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
            draw_turn(&world, workload);
            const double us = plan_once(&world, kind == GM_COLD);
            if (i >= GM_WARM_UP)
                row->us[kind][row->count[kind]++] = us;
            if (!world.plan.is_complete) {
                fprintf(stderr, "decide: a plan is not complete\n");
                exit(2);
            }
            carry_out(&world);
        }
    }
    const char *fault = gm_table_check(world.table);
    if (fault != NULL) {
        fprintf(stderr, "decide: %s\n", fault);
        exit(2);
    }
    free(world.table);
    free(world.plan.moves);
}

/* ---- the scheduler: programs, and an engine that does what is decided ---- */

enum situation { GM_ALL_FIT, GM_SOME_FIT, GM_ONE_FITS, GM_SITUATIONS };
static const char *const situation_names[GM_SITUATIONS] = {"all fit", "some fit", "one fits"};

struct app {
    uint64_t bytes;
    bool is_known, is_wanting, is_open, is_steady, is_chosen;
};

struct scheduling {
    uint64_t budget, now;
    struct gm_sched *sched;
    struct gm_sched_decision decision;
    struct app *apps;
};

static uint64_t some_bytes(struct scheduling *world, enum situation situation)
{
    uint64_t bytes = 1000 + draw(1000);
    return situation == GM_ONE_FITS ? world->budget / 2 + bytes : bytes;
}

static void make_scheduling(struct scheduling *world, enum situation situation)
{
    struct gm_sched_config config = {
        .max_apps = GM_APPS,
        .levels = 3,
        .allotment_ns = 8ull * GM_S,
        .slice_ns = 4ull * GM_S,
        .patience_ns = 60ull * GM_S,
        .retry_ns = GM_S,
    };
    config.budget = situation == GM_ALL_FIT    ? 4000ull * GM_APPS
                    : situation == GM_SOME_FIT ? 150ull * GM_APPS + 2000
                                               : 100000;
    *world = (struct scheduling){.budget = config.budget, .now = 1};
    world->sched = gm_sched_init(aligned_alloc(16, gm_sched_size(&config)), &config);
    world->apps = take_memory(GM_APPS * sizeof(*world->apps));
    if (world->sched == NULL) {
        fprintf(stderr, "decide: out of memory\n");
        exit(1);
    }
}

/* One decision, in microseconds. */
static double decide(struct scheduling *world, enum gm_sched_event_kind kind, uint32_t app,
                     const struct gm_sched_policy *policy)
{
    struct gm_sched_event event = {.kind = kind, .app = app, .bytes = world->apps[app].bytes};
    if (kind == GM_SCHED_IDLE)
        event.ago_ns = 100ull * GM_MS;
    double from = clock_us();
    int fault = policy ? gm_sched_set(world->sched, world->now, app, policy, &world->decision)
                       : gm_sched_step(world->sched, world->now, &event, &world->decision);
    const double us = us_since(from);
    if (fault != 0) {
        fprintf(stderr, "decide: event %d of app %u is refused\n", (int)kind, app);
        exit(2);
    }
    for (uint32_t i = 0; i < GM_APPS; i++)
        world->apps[i].is_chosen = false;
    for (uint32_t i = 0; i < world->decision.n_set; i++)
        world->apps[world->decision.set[i]].is_chosen = true;
    return us;
}

/* Who must close or open next: NULL if everybody is as was decided. */
static struct app *find_turning(struct scheduling *world)
{
    uint32_t first = (uint32_t)draw(GM_APPS);
    for (uint32_t i = 0; i < GM_APPS; i++) {
        struct app *app = &world->apps[(first + i) % GM_APPS];
        if (app->is_known && app->is_open != app->is_chosen)
            return app;
    }
    return NULL;
}

static double join(struct scheduling *world, struct app *app, uint32_t id, enum situation situation)
{
    *app = (struct app){.is_known = true, .is_steady = draw(10) == 0};
    double us = decide(world, GM_SCHED_JOIN, id, NULL);
    app->bytes = some_bytes(world, situation);
    decide(world, GM_SCHED_SIZE, id, NULL);
    return us;
}

/* What happens next: an engine's answer, a wake, or something that a program or a user does. */
static double step(struct scheduling *world, enum situation situation)
{
    struct app *app = draw(4) > 0 ? find_turning(world) : NULL;
    uint64_t later = world->now + 1 + draw(2ull * GM_S / (GM_APPS + 1));
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
    uint32_t id = (uint32_t)draw(GM_APPS);
    app = &world->apps[id];
    uint64_t chance = draw(1000);
    if (!app->is_known)
        return join(world, app, id, situation);
    if (chance < 5) {
        app->is_known = app->is_open = false;
        return decide(world, GM_SCHED_LEAVE, id, NULL);
    }
    if (chance < 15) {
        struct gm_sched_policy policy = {.weight = GM_SCHED_WEIGHT, .share = GM_SCHED_SHARE_ALL};
        policy.class = (uint8_t)(draw(4) == 0 ? draw(GM_CLASSES) : GM_CLASS_AUTO);
        policy.weight *= 1 + (uint32_t)draw(3);
        policy.share = draw(10) == 0 ? 500 : GM_SCHED_SHARE_ALL;
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

/* Everybody joins, and half of them want at once; then enough happens for levels to differ. */
static void warm_up(struct scheduling *world, enum situation situation)
{
    for (uint32_t id = 0; id < GM_APPS; id++) {
        join(world, &world->apps[id], id, situation);
        world->apps[id].is_wanting = draw(2) == 0;
        if (world->apps[id].is_wanting)
            decide(world, GM_SCHED_WANT, id, NULL);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        step(world, situation);
        world->now += i % 10 == 0 ? draw(200ull * GM_MS) : 0;
    }
}

static void measure_sched(enum situation situation, uint64_t decisions, struct row *row)
{
    struct scheduling world;
    make_scheduling(&world, situation);
    snprintf(row->name, sizeof(row->name), "sched, %s", situation_names[situation]);
    warm_up(&world, situation);
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
        /* Reading other memory takes a thousand times as long as a decision. */
        row->count[kind] = kind == GM_COLD ? decisions / 10 + 1 : decisions;
        for (uint64_t i = 0; i < row->count[kind]; i++) {
            if (kind == GM_COLD)
                read_other();
            row->us[kind][i] = step(&world, situation);
        }
    }
    free(world.sched);
    free(world.apps);
}

/* ---- telling ---- */

static bool write_json(const char *file, int argc, char **argv, const struct row *rows, size_t n)
{
    static const char *const names[GM_KINDS] = {"warm_us", "cold_us"};
    FILE *out = gm_report_open(file, "decide", argc, argv, NULL, 0);
    if (out == NULL)
        return false;
    fprintf(out, "  \"rows\": [\n");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "    {\"name\": \"%s\", \"target_us\": %.0f", rows[i].name, rows[i].target_us);
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
            fprintf(out, ", \"%s\": {\"p50\": %.2f, \"p99\": %.2f, \"max\": %.2f}", names[kind],
                    rows[i].p50[kind], rows[i].p99[kind], rows[i].most[kind]);
        fprintf(out, ", \"met\": %s}%s\n", is_met(&rows[i]) ? "true" : "false",
                i + 1 < n ? "," : "");
    }
    fprintf(out, "  ]\n");
    return gm_report_close(out, file) == 0;
}

int main(int argc, char **argv)
{
    static struct row rows[GM_WORKLOADS + GM_SITUATIONS];
    uint64_t decisions = 1000;
    const char *json = NULL;
    size_t n = 0, n_met = 0;
    const struct gm_option options[] = {
        {"--decisions", GM_OPTION_NUMBER, &decisions, 1, GM_DECISIONS_MAX},
        {"--json", GM_OPTION_TEXT, &json, 0, 0},
    };
    if (!gm_options_take(argc, argv, options, sizeof(options) / sizeof(options[0]))) {
        fprintf(stderr, "usage: decide [--decisions 1..%d] [--json FILE]\n", GM_DECISIONS_MAX);
        return 1;
    }
    other = take_memory(GM_OTHER_BYTES);
    memset(other, 1, GM_OTHER_BYTES);
    measure_clock();
    printf("%llu decisions each; microseconds of processor time\n\n%-16s   %8s %8s %8s   %8s %8s "
           "%8s\n",
           (unsigned long long)decisions, "", "warm p50", "p99", "max", "cold p50", "p99", "max");
    for (size_t w = 0; w < GM_WORKLOADS; w++, n++) {
        random_state = 1;
        begin_row(&rows[n], 1000, decisions);
        measure_plan(&workloads[w], decisions, &rows[n]);
        end_row(&rows[n]);
    }
    for (enum situation s = GM_ALL_FIT; s < GM_SITUATIONS; s++, n++) {
        random_state = 1;
        begin_row(&rows[n], 50, decisions);
        measure_sched(s, decisions, &rows[n]);
        end_row(&rows[n]);
    }
    for (size_t i = 0; i < n; i++)
        n_met += is_met(&rows[i]);
    printf("\n%zu of %zu targets met\n", n_met, n);
    free(other);
    return json == NULL || write_json(json, argc, argv, rows, n) ? 0 : 1;
}

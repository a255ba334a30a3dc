/*
 * bench/plan: what a decision of the planner takes. Needs no GPU and no daemon.
 *
 *   plan [--decisions N] [--json FILE]
 *
 * 100 programs with 100,000 chunks between them on a budget of 24 GiB, with pinned and paged memory
 * and a disk below it. A decision brings about 16 GiB in and as much out: one program of 512 chunks
 * of 32 MiB and 488 of 2 MiB, or eight programs of 1000 chunks of 2 MiB each; most of it also moves
 * between the tiers below. Every decision is for programs drawn at random, with the others as
 * victims in random order, in the state that carrying out the one before left.
 *
 * Programs allocate in turn, in runs of 1 to 64 allocations of one size. Beside that the worst
 * case, "scattered": one at a time, so that neighbours in a list are never neighbours in memory,
 * and the processor waits for each. Before a decision 64 MiB of other memory are read ("cold"), as
 * when the daemon has slept through a slice, or not ("warm").
 *
 * "window" is the end of a window of one program: its lists are put in the order of use, which is
 * another one than before (core/timeline.h). Most programs keep theirs.
 *
 * Times are microseconds of processor time; the target, for what is not scattered, is 1 ms in 99 of
 * 100 decisions.
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
#include "daemon/core/plan_moves.h"
#include "daemon/core/timeline.h"

#define GM_APPS 100u
#define GM_CHUNKS 100000u
#define GM_FRAMES 16384u
#define GM_MOVES (8 * GM_FRAMES + 64)
#define GM_DECISIONS_MAX 100000
#define GM_WARM_UP 100
#define GM_OTHER_BYTES (64u << 20)
#define GM_TARGET_US 1000.0

struct workload {
    const char *name;
    uint32_t large, small; /* chunks of an app, of 32 and of 2 MiB */
    uint32_t targets;      /* apps that a decision is for */
    uint32_t run;          /* allocations in a row, at most */
};

static const struct workload workloads[] = {
    {"32 MiB", 512, 488, 1, 64},
    {"2 MiB", 0, 1000, 8, 64},
    {"32 MiB, scattered", 512, 488, 1, 1},
    {"2 MiB, scattered", 0, 1000, 8, 1},
};
#define GM_WORKLOADS (sizeof(workloads) / sizeof(workloads[0]))

enum kind { GM_WARM, GM_COLD, GM_AHEAD, GM_WINDOW, GM_KINDS };
static const char *const kind_names[GM_KINDS] = {"plan, warm", "plan, cold", "ahead, cold",
                                                 "window, cold"};
static const char *const kind_members[GM_KINDS] = {"plan_warm_us", "plan_cold_us", "ahead_cold_us",
                                                   "window_cold_us"};

struct world {
    struct gm_table *table;
    struct gm_plan plan;
    struct gm_plan_input input;
    struct gm_layout layout;
    uint32_t targets[GM_APPS];
    struct gm_layout_victim victims[GM_APPS];
    uint64_t random;
    uint8_t *other;
};

struct figures {
    double *us; /* sorted by the summary */
    uint64_t moves[GM_MOVE_PROMOTE + 1];
    uint64_t bytes_in, incomplete;
    double p50, p90, p99, most;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
    return (world->random >> 33) % below;
}

static bool make_world(struct world *world, const struct workload *workload)
{
    static uint32_t left[GM_APPS][2];
    void *memory = calloc(1, gm_table_size(GM_APPS, GM_CHUNKS, GM_FRAMES));
    *world = (struct world){.random = 1, .other = malloc(GM_OTHER_BYTES)};
    world->plan.moves = calloc(GM_MOVES, sizeof(*world->plan.moves));
    world->plan.capacity = GM_MOVES;
    if (memory == NULL || world->plan.moves == NULL || world->other == NULL) {
        fprintf(stderr, "plan: out of memory\n");
        return false;
    }
    memset(world->other, 1, GM_OTHER_BYTES);
    world->table = gm_table_init(memory, GM_APPS, GM_CHUNKS, GM_FRAMES, 24 * GM_GIB);
    for (uint32_t app = 0; app < GM_APPS; app++) {
        gm_table_add_app(world->table, app, 1000);
        left[app][0] = workload->large;
        left[app][1] = workload->small;
    }
    uint64_t va = 1ull << 40, chunks = GM_APPS * (workload->large + workload->small);
    while (chunks > 0) {
        uint32_t app = (uint32_t)draw(world, GM_APPS), size = (uint32_t)draw(world, 2);
        uint64_t bytes = size == 0 ? GM_CHUNK_MAX : GM_CHUNK_MIN;
        for (uint64_t n = 1 + draw(world, workload->run); n > 0 && left[app][size] > 0; n--) {
            left[app][size]--;
            chunks--;
            gm_table_add_allocation(world->table, app, va, bytes);
            va += bytes;
        }
    }
    uint64_t beyond = world->table->committed - 24 * GM_GIB;
    world->input.window = GM_GIB;
    world->input.tiers[GM_TIER_PINNED].cap = 32 * GM_GIB;
    world->input.tiers[GM_TIER_PAGED].cap = 64 * GM_GIB;
    world->input.tiers[GM_TIER_DISK].cap = beyond - 64 * GM_GIB;
    world->layout.targets = world->targets;
    world->layout.victims = world->victims;
    world->input.layout = &world->layout;
    return true;
}

static void free_world(struct world *world)
{
    free(world->table);
    free(world->plan.moves);
    free(world->other);
}

static void draw_turn(struct world *world, const struct workload *workload, bool is_ahead)
{
    uint32_t order[GM_APPS];
    for (uint32_t i = 0; i < GM_APPS; i++)
        order[i] = i;
    for (uint32_t i = GM_APPS; i > 1; i--) {
        uint32_t j = (uint32_t)draw(world, i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    world->layout.n_targets = is_ahead ? 1 : workload->targets;
    world->layout.n_victims = GM_APPS - workload->targets;
    world->layout.is_ahead = is_ahead;
    memcpy(world->targets, order, workload->targets * sizeof(*order));
    for (uint32_t i = 0; i < world->layout.n_victims; i++) {
        const uint32_t app = order[workload->targets + i];
        world->victims[i] =
            (struct gm_layout_victim){.app = app, .may_lose = world->table->apps[app].resident};
    }
}

/* The state that the plan leaves. */
static void carry_out(struct world *world)
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
        world->input.tiers[chunk->tier].used -= bytes; /* GPU and none: not read */
        world->input.tiers[to].used += bytes;
        gm_table_end_copy(table, move->chunk, false);
        gm_table_end_map(table, move->chunk, false);
        gm_table_settle(table, move->chunk);
        if (to == GM_TIER_GPU)
            gm_table_leave_pages(table, move->chunk);
    }
}

/* In microseconds. */
static double clock_us(void)
{
    return (double)gm_thread_time() / 1e3;
}

static void read_other(struct world *world)
{
    for (uint32_t at = 0; at < GM_OTHER_BYTES; at += 64)
        ((volatile uint8_t *)world->other)[at]++;
}

static double decide(struct world *world, bool is_cold)
{
    if (is_cold)
        read_other(world);
    double from = clock_us();
    gm_layout_share(world->table, &world->layout);
    gm_plan_make(world->table, &world->input, &world->plan);
    return clock_us() - from;
}

/* A window of a program ends in which it has touched all it has, in another order than before: in
 * runs of as many allocations as it made in a row, at most. */
static double end_window(struct world *world, const struct workload *workload)
{
    struct gm_table *table = world->table;
    const uint32_t app = (uint32_t)draw(world, GM_APPS);
    uint64_t left = 0, order = 0;
    for (uint32_t a = table->apps[app].allocations.tail; a != GM_NONE;
         a = table->allocations[a].prev, left--, order++) {
        if (left == 0) {
            left = 1 + draw(world, workload->run);
            order = draw(world, GM_CHUNKS) * workload->run;
        }
        gm_table_touch(table, table->allocations[a].first, (uint32_t)order);
    }
    gm_table_end_window(table, app);
    read_other(world);
    double from = clock_us();
    gm_timeline_sort(table, app);
    return clock_us() - from;
}

static void summarize(struct figures *figures, size_t count)
{
    gm_samples_sort(figures->us, count);
    figures->p50 = gm_samples_percentile(figures->us, count, 50);
    figures->p90 = gm_samples_percentile(figures->us, count, 90);
    figures->p99 = gm_samples_percentile(figures->us, count, 99);
    figures->most = figures->us[count - 1];
}

static bool measure(const struct workload *workload, uint64_t decisions,
                    struct figures figures[GM_KINDS])
{
    struct world world;
    if (!make_world(&world, workload))
        return false;
    for (uint64_t i = 0; i < GM_WARM_UP + decisions; i++) {
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
            struct figures *f = &figures[kind];
            if (kind == GM_WINDOW) {
                const double us = end_window(&world, workload);
                if (i >= GM_WARM_UP)
                    f->us[i - GM_WARM_UP] = us;
                continue;
            }
            draw_turn(&world, workload, kind == GM_AHEAD);
            double us = decide(&world, kind != GM_WARM);
            if (i >= GM_WARM_UP) {
                f->us[i - GM_WARM_UP] = us;
                f->incomplete += !world.plan.is_complete;
                for (uint32_t m = 0; m < world.plan.n; m++) {
                    const struct gm_move *move = &world.plan.moves[m];
                    f->moves[move->kind]++;
                    if (move->kind == GM_MOVE_FILL)
                        f->bytes_in += gm_class_bytes(world.table->chunks[move->chunk].class);
                }
            }
            carry_out(&world);
        }
    }
    for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
        summarize(&figures[kind], decisions);
    const char *fault = gm_table_check(world.table);
    if (fault != NULL)
        fprintf(stderr, "plan: %s\n", fault);
    free_world(&world);
    return fault == NULL;
}

static void print_line(const struct workload *workload, enum kind kind, const struct figures *f,
                       uint64_t decisions)
{
    double n = (double)decisions;
    printf("%-17s %-15s %8.0f %8.0f %8.0f %8.0f   %6.0f %6.0f %6.0f %6.0f   %5.1f\n",
           workload->name, kind_names[kind], f->p50, f->p90, f->p99, f->most,
           (double)f->moves[GM_MOVE_EVICT] / n, (double)f->moves[GM_MOVE_FILL] / n,
           (double)f->moves[GM_MOVE_DEMOTE] / n, (double)f->moves[GM_MOVE_PROMOTE] / n,
           (double)f->bytes_in / n / (double)GM_GIB);
}

static bool write_json(const char *file, int argc, char **argv, uint64_t decisions,
                       struct figures figures[GM_WORKLOADS][GM_KINDS], bool is_met)
{
    FILE *out = gm_report_open(file, "plan", argc, argv, NULL, 0);
    if (out == NULL)
        return false;
    fprintf(out, "  \"apps\": %u,\n  \"chunks\": %u,\n  \"decisions\": %llu,\n  \"workloads\": [\n",
            GM_APPS, GM_CHUNKS, (unsigned long long)decisions);
    for (size_t w = 0; w < GM_WORKLOADS; w++) {
        fprintf(out, "    {\"name\": \"%s\"", workloads[w].name);
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
            const struct figures *f = &figures[w][kind];
            double n = (double)decisions;
            fprintf(out,
                    ",\n     \"%s\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"max\": %.1f, "
                    "\"moves\": %.1f, \"bytes_in\": %.0f}",
                    kind_members[kind], f->p50, f->p90, f->p99, f->most,
                    (double)(f->moves[GM_MOVE_EVICT] + f->moves[GM_MOVE_DESTROY] +
                             f->moves[GM_MOVE_FILL] + f->moves[GM_MOVE_DEMOTE] +
                             f->moves[GM_MOVE_PROMOTE]) /
                        n,
                    (double)f->bytes_in / n);
        }
        fprintf(out, "}%s\n", w + 1 < GM_WORKLOADS ? "," : "");
    }
    fprintf(out, "  ],\n  \"target_us\": %.0f,\n  \"met\": %s\n", GM_TARGET_US,
            is_met ? "true" : "false");
    return gm_report_close(out, file) == 0;
}

int main(int argc, char **argv)
{
    static struct figures figures[GM_WORKLOADS][GM_KINDS];
    uint64_t decisions = 1000;
    const char *json = NULL;
    bool is_met = true;

    if (!gm_report_options(argc, argv, "--decisions", GM_DECISIONS_MAX, &decisions, &json)) {
        fprintf(stderr, "usage: plan [--decisions 1..%d] [--json FILE]\n", GM_DECISIONS_MAX);
        return 1;
    }
    printf("%u programs, %u chunks, %llu decisions each; microseconds of processor time and moves "
           "a decision\n\n",
           GM_APPS, GM_CHUNKS, (unsigned long long)decisions);
    printf("%-33s %8s %8s %8s %8s   %6s %6s %6s %7s  %5s\n", "", "p50", "p90", "p99", "max",
           "evict", "fill", "demote", "promote", "GiB");
    for (size_t w = 0; w < GM_WORKLOADS; w++) {
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
            figures[w][kind].us = calloc(decisions, sizeof(double));
            if (figures[w][kind].us == NULL) {
                fprintf(stderr, "plan: out of memory\n");
                return 1;
            }
        }
        if (!measure(&workloads[w], decisions, figures[w]))
            return 2;
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++) {
            print_line(&workloads[w], kind, &figures[w][kind], decisions);
            if (workloads[w].run > 1)
                is_met = is_met && figures[w][kind].p99 <= GM_TARGET_US;
            if (kind < GM_AHEAD && figures[w][kind].incomplete > 0) {
                fprintf(stderr, "plan: %llu plans were not complete\n",
                        (unsigned long long)figures[w][kind].incomplete);
                return 2;
            }
        }
    }
    printf("\ntarget: p99 of %.0f us: %s\n", GM_TARGET_US, is_met ? "met" : "missed");
    bool is_written = json == NULL || write_json(json, argc, argv, decisions, figures, is_met);
    for (size_t w = 0; w < GM_WORKLOADS; w++)
        for (enum kind kind = GM_WARM; kind < GM_KINDS; kind++)
            free(figures[w][kind].us);
    return is_written ? 0 : 1;
}

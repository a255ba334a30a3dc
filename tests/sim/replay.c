/* Recorded traces through the scheduler again: see replay.h. */
#include "tests/sim/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/trace/trace.h"
#include "tests/sim/watch.h"
#include "daemon/core/sched_account.h"
#include "daemon/core/sched_step.h"

struct replay {
    const char *path;
    struct gm_trace_reader reader;
    uint32_t gpu; /* whose scheduler it is */
    uint64_t now; /* of its last line */
    struct gm_sched_config config;
    struct gm_sched *sched;
    struct gm_sched_decision decision;
    struct watch watch;
    uint64_t began;
    char place[PATH_MAX + 2];
    FILE *out; /* into memory: a trace that turns out to be corrupt prints nothing but that */
};

static int fail(const struct replay *r, const char *why)
{
    fprintf(stderr, "%s:%" PRIu64 ": %s\n", r->path, r->reader.number, why);
    return -EINVAL;
}

/* ---- The summary ---- */

static void print_head(struct replay *r)
{
    fprintf(r->out, "%6s %7s %7s %10s %10s %10s %10s %10s  %s\n", "app", "slices", "waits",
            "mean wait", "longest", "run", "wait", "idle", "end (seconds)");
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void print_app(struct replay *r, uint32_t app)
{
    struct gm_sched_account account;
    char end[64];
    if (!gm_sched_account(r->sched, r->watch.now, app, &account))
        return;
    const struct watch_app *a = &r->watch.apps[app];
    if (r->reader.line.row == GM_TRACE_ROW_LEAVE && r->reader.line.app == app)
        snprintf(end, sizeof end, "left at %.3f", seconds(r->now - r->began));
    else
        snprintf(end, sizeof end, "level %" PRIu32 ", %s", account.level,
                 gm_why_text(account.reason));
    fprintf(r->out,
            "%6" PRIu32 " %7" PRIu32 " %7" PRIu64 " %10.3f %10.3f %10.3f %10.3f %10.3f  %s\n", app,
            a->slices, a->waits, a->waits ? seconds(a->waited_ns) / (double)a->waits : 0,
            seconds(a->longest_wait_ns), seconds(a->run_ns), seconds(a->wait_ns),
            seconds(a->idle_ns), end);
}

/* ---- One line ---- */

static int begin(struct replay *r)
{
    if (r->sched)
        return fail(r, "the settings come twice");
    size_t size = gm_sched_size(&r->config);
    void *memory = aligned_alloc(16, (size + 15) & ~(size_t)15);
    r->sched = memory ? gm_sched_init(memory, &r->config) : NULL;
    if (!r->sched) {
        free(memory);
        return fail(r, "a scheduler of this size does not fit this machine's memory");
    }
    snprintf(r->place, sizeof r->place, "%s:", r->path);
    r->watch.place = r->place;
    r->watch.drain_max = GM_TIME_NEVER; /* what the engine keeps to is not known */
    r->watch.is_clean = true;
    watch_begin(&r->watch, r->sched, &r->config, &r->decision);
    print_head(r);
    return 0;
}

static int refuse(struct replay *r, int fault)
{
    char why[128];
    uint32_t app = r->reader.line.app;
    if (fault == GM_SCHED_BAD_APP)
        snprintf(why, sizeof why, "the scheduler refuses it: there is no app %" PRIu32, app);
    else if (fault == GM_SCHED_BAD_POLICY)
        snprintf(why, sizeof why, "the scheduler refuses it: settings that no app can have");
    else
        snprintf(why, sizeof why, "the scheduler refuses it: not what app %" PRIu32 " can do now",
                 app);
    return fail(r, why);
}

/* Give it to the scheduler. */
static int step(struct replay *r, const struct gm_sched_event *event,
                const struct gm_sched_policy *policy)
{
    const uint32_t app = r->reader.line.app;
    if (!r->sched)
        return fail(r, "the settings of this GPU's scheduler are missing");
    r->now = r->reader.line.now > r->now ? r->reader.line.now : r->now; /* as the scheduler does */
    if (r->watch.steps == 0)
        r->began = r->watch.now = r->now;
    if (event && event->kind == GM_SCHED_LEAVE)
        print_app(r, app);
    watch_before(&r->watch);
    const int fault = event ? gm_sched_step(r->sched, r->now, event, &r->decision)
                            : gm_sched_set(r->sched, r->now, app, policy, &r->decision);
    if (fault)
        return refuse(r, fault);
    if (event && (event->kind == GM_SCHED_BUSY || event->kind == GM_SCHED_ROOM ||
                  event->kind == GM_SCHED_HURRY))
        r->watch.is_clean = false;
    if (event)
        watch_event(&r->watch, r->now, event);
    else
        watch_policy(&r->watch, r->now, app, policy);
    return 0;
}

static int take(struct replay *r)
{
    const struct gm_trace_line *line = &r->reader.line;
    struct gm_sched_event event;
    struct gm_sched_policy policy;
    if (line->row == GM_TRACE_ROW_BEGIN && strcmp(line->text, "part") == 0)
        return fail(r, "it begins in the middle: record before the first program comes");
    if (line->row == GM_TRACE_ROW_LOST)
        return fail(r, "a part of it is lost");
    if (line->row < GM_TRACE_ROW_SCHED || line->gpu != r->gpu)
        return 0; /* this scheduler was not told */
    if (gm_trace_config(line, &r->config))
        return begin(r);
    if (gm_trace_event(line, &event))
        return step(r, &event, NULL);
    if (gm_trace_policy(line, &policy))
        return step(r, NULL, &policy);
    return fail(r, "nothing that a scheduler can be told");
}

static int read_lines(struct replay *r)
{
    int result = 0, more = 1;
    while (result == 0 && (more = gm_trace_next(&r->reader)) > 0) {
        r->watch.number = r->reader.number;
        result = take(r);
    }
    if (result == 0 && more < 0)
        result = fail(r, r->reader.why);
    else if (result == 0 && !r->sched)
        result = fail(r, "nothing of this GPU's scheduler is there");
    return result;
}

static void print_summary(struct replay *r, const char *table)
{
    uint64_t length = r->watch.now - r->began, run = 0;
    for (uint32_t app = 0; app < r->watch.n; app++)
        run += r->watch.apps[app].run_ns;
    run += r->watch.run_ns;
    fputs(table, stdout);
    printf("%" PRIu64 " steps in %.3f s: %" PRIu64 " slices, %" PRIu64 " drains that failed; "
           "%.3f s of run time, all invariants hold\n",
           r->watch.steps, seconds(length), r->watch.opened, r->watch.busy, seconds(run));
    printf("decisions %016" PRIx64 "\n", r->watch.hash);
}

int replay_file(const char *path, uint32_t gpu)
{
    struct replay r = {.path = path, .gpu = gpu, .reader.file = fopen(path, "r")};
    char *table = NULL;
    size_t size = 0;
    if (!r.reader.file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    r.out = open_memstream(&table, &size);
    int result = r.out ? read_lines(&r) : -ENOMEM;
    fclose(r.reader.file);
    for (uint32_t app = 0; result == 0 && app < r.watch.n; app++)
        print_app(&r, app);
    if (r.out)
        fclose(r.out);
    if (result == 0)
        print_summary(&r, table);
    if (r.sched) {
        watch_end(&r.watch);
        free(r.sched);
    }
    free(table);
    return result == 0 ? 0 : 1;
}

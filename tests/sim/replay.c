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
    uint64_t line;
    struct gm_trace_entry entry;
    struct gm_sched *sched;
    struct gm_sched_decision decision;
    struct watch watch;
    bool has_gpu, is_other; /* lines are of another GPU than the first, whose settings these are */
    uint64_t gpu;
    uint64_t began;
    char place[PATH_MAX + 2];
    FILE *out; /* into memory: a trace that turns out to be corrupt prints nothing but that */
};

static int fail(const struct replay *r, const char *why)
{
    fprintf(stderr, "%s:%" PRIu64 ": %s\n", r->path, r->line, why);
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
    const struct watch_app *a = &r->watch.apps[app];
    struct gm_sched_account account;
    char end[64];
    if (!gm_sched_account(r->sched, r->watch.now, app, &account))
        return;
    if (r->entry.event.kind == GM_SCHED_LEAVE && r->entry.event.app == app)
        snprintf(end, sizeof end, "left at %.3f", seconds(r->entry.now - r->began));
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
    size_t size = gm_sched_size(&r->entry.config);
    void *memory = aligned_alloc(16, (size + 15) & ~(size_t)15);
    r->sched = memory ? gm_sched_init(memory, &r->entry.config) : NULL;
    if (!r->sched) {
        free(memory);
        return fail(r, "a scheduler of this size does not fit this machine's memory");
    }
    snprintf(r->place, sizeof r->place, "%s:", r->path);
    r->watch.place = r->place;
    r->watch.drain_max = GM_TIME_NEVER; /* what the engine keeps to is not known */
    r->watch.is_clean = true;
    watch_begin(&r->watch, r->sched, &r->entry.config, &r->decision);
    print_head(r);
    return 0;
}

static int refuse(struct replay *r, int fault)
{
    char why[128];
    uint32_t app = r->entry.event.app;
    if (fault == GM_SCHED_BAD_APP)
        snprintf(why, sizeof why, "the scheduler refuses it: there is no app %" PRIu32, app);
    else if (fault == GM_SCHED_BAD_POLICY)
        snprintf(why, sizeof why, "the scheduler refuses it: settings that no app can have");
    else
        snprintf(why, sizeof why, "the scheduler refuses it: not what app %" PRIu32 " can do now",
                 app);
    return fail(r, why);
}

static int take(struct replay *r)
{
    const struct gm_trace_entry *e = &r->entry;
    if (e->kind == GM_TRACE_CONFIG)
        return begin(r);
    if (e->kind == GM_TRACE_VIEW) {
        if (e->view.row == GM_TRACE_ROW_BEGIN && strcmp(e->view.text, "part") == 0)
            return fail(r, "it begins in the middle: record before the first program comes");
        if (e->view.row == GM_TRACE_ROW_LOST)
            return fail(r, "a part of it is lost");
        if (e->view.row == GM_TRACE_ROW_GPU) {
            r->gpu = r->has_gpu ? r->gpu : e->view.number[0];
            r->has_gpu = true;
            r->is_other = e->view.number[0] != r->gpu;
        }
        return 0; /* the scheduler was not told */
    }
    if (r->is_other)
        return 0;
    if (r->watch.steps == 0)
        r->began = r->watch.now = e->now;
    if (e->kind == GM_TRACE_EVENT && e->event.kind == GM_SCHED_LEAVE)
        print_app(r, e->event.app);
    watch_before(&r->watch);
    int fault = e->kind == GM_TRACE_EVENT
                    ? gm_sched_step(r->sched, e->now, &e->event, &r->decision)
                    : gm_sched_set(r->sched, e->now, e->event.app, &e->policy, &r->decision);
    if (fault)
        return refuse(r, fault);
    if (e->kind == GM_TRACE_EVENT &&
        (e->event.kind == GM_SCHED_BUSY || e->event.kind == GM_SCHED_ROOM ||
         e->event.kind == GM_SCHED_HURRY))
        r->watch.is_clean = false;
    if (e->kind == GM_TRACE_EVENT)
        watch_event(&r->watch, e->now, &e->event);
    else
        watch_policy(&r->watch, e->now, e->event.app, &e->policy);
    return 0;
}

static int read_lines(struct replay *r, FILE *file)
{
    char *line = NULL, why[200];
    size_t size = 0;
    ssize_t n;
    int result = 0;
    while (result == 0 && (errno = 0, n = getline(&line, &size, file)) >= 0) {
        r->watch.number = ++r->line;
        if (memchr(line, '\0', (size_t)n))
            result = fail(r, "a zero byte in the line");
        else if (line[n - 1] != '\n')
            result = fail(r, "the line is cut off: remove it to replay what is before it");
        else if (gm_trace_parse(line, &r->entry, why, sizeof why) != 0)
            result = fail(r, why);
        else
            result = take(r);
    }
    if (result == 0 && ferror(file)) {
        fprintf(stderr, "%s: %s\n", r->path, strerror(errno));
        result = -EIO;
    }
    free(line);
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

int replay_file(const char *path)
{
    struct replay r = {.path = path};
    char *table = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    r.out = open_memstream(&table, &size);
    int result = r.out ? read_lines(&r, file) : -ENOMEM;
    fclose(file);
    if (result == 0 && !r.sched) {
        r.line = 1;
        result = fail(&r, "the file is empty");
    }
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

/*
 * mux-ctl trace export: a trace (trace/trace.h) as JSON trace events, which ui.perfetto.dev and
 * chrome://tracing open. Times are in microseconds. A GPU is a process there; its programs, its
 * switches and each direction of copies are threads. Called by trace.c; calls trace/ and say.c.
 *
 * The file can be anything: what is written lies within the trace's time.
 */
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/trace/trace.h"

/* Threads of a GPU; programs come behind them, those of all GPUs with numbers of their own. */
enum { SWITCHES = 1, COPIES, FIRST_APP = 10 };

/* A program on one GPU. One that uses two is there twice. */
struct app {
    uint32_t gpu, id; /* the daemon's number; another program may have it later */
    uint64_t pid;
    char name[GM_TRACE_TEXT]; /* "": not told */
    bool is_live, wants, is_parked;
    int state;        /* word of GM_TRACE_ROW_STATE; -1: not told yet */
    const char *does; /* NULL: nothing that is shown */
    uint64_t since;   /* it does */
};

struct out {
    FILE *file;
    struct gm_trace_line line;                     /* that is told of */
    bool is_part, has_begun, has_events, is_short; /* of memory */
    uint64_t begin;
    struct app *apps;
    uint32_t n_apps, last; /* who was looked for last */
};

/* ---- JSON ---- */

/* Write one event, and delete it. */
static void put(struct out *out, cJSON *event)
{
    char *text = cJSON_PrintUnformatted(event);
    if (text)
        fprintf(out->file, "%s\n%s", out->has_events ? "," : "", text);
    else
        out->is_short = true;
    out->has_events = true;
    cJSON_free(text);
    cJSON_Delete(event);
}

static cJSON *begin(const char *phase, const char *name, uint32_t gpu, uint32_t thread)
{
    cJSON *event = cJSON_CreateObject();
    cJSON_AddStringToObject(event, "ph", phase);
    cJSON_AddStringToObject(event, "name", name);
    cJSON_AddNumberToObject(event, "pid", (double)gpu + 1);
    cJSON_AddNumberToObject(event, "tid", thread);
    return event;
}

/* Nanoseconds of the daemon's clock are more than a double counts exactly after 104 days; those
 * since the trace's begin are not. */
static void add_time(const struct out *out, cJSON *event, uint64_t at)
{
    cJSON_AddNumberToObject(event, "ts", (double)(at - out->begin) / 1e3);
}

static void name_track(struct out *out, const char *kind, uint32_t thread, const char *name)
{
    static const char *const kinds[] = {"_name", "_sort_index"};
    for (unsigned i = 0; i < 2; i++) {
        char whole[32];
        snprintf(whole, sizeof whole, "%s%s", kind, kinds[i]);
        cJSON *event = begin("M", whole, out->line.gpu, thread);
        cJSON *args = cJSON_AddObjectToObject(event, "args");
        if (i == 0)
            cJSON_AddStringToObject(args, "name", name);
        else
            cJSON_AddNumberToObject(args, "sort_index", thread ? thread : out->line.gpu);
        put(out, event);
    }
}

/* What began before the trace is shown from its begin on. */
static cJSON *slice(const struct out *out, const char *name, uint32_t gpu, uint32_t thread,
                    uint64_t from, uint64_t to)
{
    cJSON *event = begin("X", name, gpu, thread);
    from = from < out->begin ? out->begin : from;
    add_time(out, event, from);
    cJSON_AddNumberToObject(event, "dur", to > from ? (double)(to - from) / 1e3 : 0);
    return event;
}

/* ---- programs ---- */

static const char *does_now(const struct app *app)
{
    enum { PAUSED, IS_LOADING, IS_RUNNING, IS_DRAINING }; /* of GM_TRACE_ROW_STATE */
    if (!app->is_live)
        return NULL;
    switch (app->state) {
    case IS_LOADING:
        return "loading";
    case IS_RUNNING:
        return app->wants ? "running" : "idle in its turn";
    case IS_DRAINING:
        return "draining";
    default: /* gone, too */
        return app->state > IS_DRAINING || !app->wants ? NULL
               : app->is_parked                        ? "waiting, parked"
                                                       : "waiting";
    }
}

/* It may do something else now, since `at`. */
static void look(struct out *out, struct app *app, uint64_t at)
{
    const char *does = does_now(app);
    if (does == app->does)
        return;
    at = at < app->since ? app->since : at;
    if (app->does && at > app->since)
        put(out, slice(out, app->does, app->gpu, FIRST_APP + (uint32_t)(app - out->apps),
                       app->since, at));
    app->does = does;
    app->since = at;
}

static struct app *add_app(struct out *out)
{
    const uint32_t n = out->n_apps;
    if ((n & (n - 1)) == 0) { /* they are full: 0, 1, 2, 4, ... */
        struct app *moved = realloc(out->apps, (n ? 2 * (size_t)n : 1) * sizeof *moved);
        if (!moved) {
            out->is_short = true;
            return NULL;
        }
        out->apps = moved;
    }
    out->apps[n] = (struct app){.gpu = out->line.gpu,
                                .id = out->line.app,
                                .is_live = true,
                                .state = -1,
                                .since = out->line.now};
    out->last = out->n_apps++;
    return &out->apps[n];
}

/* Who has this number now. One that nobody told of is new; NULL: out of memory. */
static struct app *find_app(struct out *out)
{
    for (uint32_t n = 0, i = out->last; n < out->n_apps; n++, i = i ? i - 1 : out->n_apps - 1) {
        struct app *app = &out->apps[i];
        if (!app->is_live || app->id != out->line.app || app->gpu != out->line.gpu)
            continue;
        out->last = i;
        return app;
    }
    return add_app(out);
}

static void end_app(struct out *out, struct app *app)
{
    app->is_live = false;
    look(out, app, out->line.now);
}

/* "alice", or the number. */
static const char *user_of(uint64_t uid, char text[64])
{
    const struct passwd *user = uid <= UINT32_MAX ? getpwuid((uid_t)uid) : NULL;
    snprintf(text, 64, "%" PRIu64, uid);
    if (user)
        snprintf(text, 64, "%s", user->pw_name);
    return text;
}

static void take_app(struct out *out, struct app *app)
{
    char name[GM_TRACE_TEXT + 128], user[64];
    if (app->name[0]) { /* its leave was lost */
        end_app(out, app);
        app = add_app(out);
    }
    if (!app)
        return;
    app->pid = out->line.number[0];
    snprintf(app->name, sizeof app->name, "%s", out->line.text[0] ? out->line.text : "?");
    snprintf(name, sizeof name, "%s (pid %" PRIu64 ", %s)", app->name, app->pid,
             user_of(out->line.number[1], user));
    name_track(out, "thread", FIRST_APP + (uint32_t)(app - out->apps), name);
}

/* ---- rows ---- */

static void take_gpu(struct out *out)
{
    static const char *const tracks[] = {"switches", "copies in", "copies out", "copies down",
                                         "copies up"};
    char name[GM_TRACE_TEXT + 32];
    snprintf(name, sizeof name, "GPU %" PRIu32 " %s", out->line.gpu, out->line.text);
    name_track(out, "process", 0, name);
    for (uint32_t i = 0; i < sizeof tracks / sizeof *tracks; i++)
        name_track(out, "thread", SWITCHES + i, tracks[i]);
}

/* The switch, and below it its parts one after another: each has its whole time, and
 * in truth they alternate. */
static void take_switch(struct out *out, const struct app *app)
{
    static const char *const parts[] = {
#define GM_PART(NAME, name, shown, words) shown,
#include "common/parts.def"
#undef GM_PART
    };
    static const char *const numbers[] = {"bytes out", "bytes in",   "unchanged",
                                          "zero",      "bytes down", "bytes up"};
    const struct gm_trace_line *line = &out->line;
    const uint64_t *number = line->number, total = number[GM_TRACE_TOTAL];
    uint64_t at = total < line->now ? line->now - total : 0;
    char name[GM_TRACE_TEXT + 64];
    snprintf(name, sizeof name, "to %s (pid %" PRIu64 ")", app->name, app->pid);
    cJSON *whole = slice(out, name, line->gpu, SWITCHES, at, line->now);
    cJSON *args = cJSON_AddObjectToObject(whole, "args");
    cJSON_AddStringToObject(args, "why", line->text);
    cJSON_AddNumberToObject(args, "waited ms", (double)number[GM_TRACE_WAITED] / 1e6);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(args, numbers[i], (double)number[GM_TRACE_OUT + i]);
    put(out, whole);
    for (unsigned part = 0; part < GM_PARTS && at < line->now; part++) {
        const uint64_t ns = number[GM_TRACE_PARTS + part], left = line->now - at;
        const uint64_t end = ns < left ? at + ns : line->now;
        if (ns > 0 && end > out->begin)
            put(out, slice(out, parts[part], line->gpu, SWITCHES, at, end));
        at = end;
    }
}

static void take_copies(struct out *out)
{
    const struct gm_trace_line *line = &out->line;
    const uint64_t from = line->number[0] > out->begin ? line->number[0] : out->begin,
                   to = line->number[1] < line->now ? line->number[1] : line->now;
    if (from >= to) /* it was before the trace, or takes no time */
        return;
    cJSON *event =
        slice(out, line->text, line->gpu,
              COPIES + (uint32_t)gm_trace_find_word(GM_TRACE_ROW_COPIED, line->text), from, to);
    cJSON *args = cJSON_AddObjectToObject(event, "args");
    cJSON_AddNumberToObject(args, "bytes", (double)line->number[2]);
    cJSON_AddNumberToObject(args, "GB/s", (double)line->number[2] / (double)(to - from));
    put(out, event);
}

static void take_tiers(struct out *out)
{
    static const char *const names[] = {"tier GPU", "tier pinned", "tier paged", "tier disk",
                                        "tier read over the link"};
    for (unsigned tier = 0; tier < 5; tier++) {
        cJSON *event = begin("C", names[tier], out->line.gpu, 0);
        add_time(out, event, out->line.now);
        cJSON_AddNumberToObject(cJSON_AddObjectToObject(event, "args"), "bytes",
                                (double)out->line.number[tier]);
        put(out, event);
    }
}

/* A mark of a program, or of a GPU. */
static void put_mark(struct out *out, const struct app *app, const char *name)
{
    const struct gm_trace_line *line = &out->line;
    cJSON *object =
        begin("i", name, line->gpu, app ? FIRST_APP + (uint32_t)(app - out->apps) : SWITCHES);
    add_time(out, object, line->now);
    cJSON_AddStringToObject(object, "s", app ? "t" : "p");
    cJSON *args = cJSON_AddObjectToObject(object, "args");
    if (line->row == GM_TRACE_ROW_REFUSED || line->row == GM_TRACE_ROW_LOST)
        cJSON_AddNumberToObject(args, "bytes", (double)line->number[0]);
    if (line->row == GM_TRACE_ROW_REFUSED || line->row == GM_TRACE_ROW_LEVEL)
        cJSON_AddStringToObject(args, "why", line->text);
    put(out, object);
}

/* A row of that program. */
static void take_of_app(struct out *out, struct app *app)
{
    const struct gm_trace_line *line = &out->line;
    char name[GM_TRACE_TEXT + 96], user[64];
    switch (line->row) {
    case GM_TRACE_ROW_APP:
        take_app(out, app);
        break;
    case GM_TRACE_ROW_STATE:
        app->state = gm_trace_find_word(line->row, line->text);
        app->is_parked = app->is_parked && app->state == 0; /* paused; parked comes before it */
        look(out, app, line->now);
        break;
    case GM_TRACE_ROW_PARKED:
        app->is_parked = true;
        if (!out->is_part || line->now > out->begin) /* not what was so before */
            put_mark(out, app, "parked");
        look(out, app, line->now);
        break;
    case GM_TRACE_ROW_WANT:
    case GM_TRACE_ROW_IDLE:
        app->wants = line->row == GM_TRACE_ROW_WANT;
        look(out, app, line->number[0] < line->now ? line->now - line->number[0] : 0);
        break;
    case GM_TRACE_ROW_LEAVE:
        end_app(out, app);
        break;
    case GM_TRACE_ROW_SWITCH:
        take_switch(out, app);
        break;
    case GM_TRACE_ROW_LEVEL:
        snprintf(name, sizeof name, "level %" PRIu64 " to %" PRIu64, line->number[0],
                 line->number[1]);
        put_mark(out, app, name);
        break;
    case GM_TRACE_ROW_SAID:
        snprintf(name, sizeof name, "%s sets %s", user_of(line->number[0], user), line->text);
        put_mark(out, app, name);
        break;
    case GM_TRACE_ROW_REFUSED:
        put_mark(out, app, "memory refused");
        break;
    default: /* the scheduler was told */
        break;
    }
}

static void take(struct out *out)
{
    switch (out->line.row) {
    case GM_TRACE_ROW_BEGIN:
        out->is_part = gm_trace_find_word(GM_TRACE_ROW_BEGIN, out->line.text) == 1;
        break;
    case GM_TRACE_ROW_GPU:
        take_gpu(out);
        break;
    case GM_TRACE_ROW_LOST:
        put_mark(out, NULL, "a part of the trace is lost");
        break;
    case GM_TRACE_ROW_COPIED:
        take_copies(out);
        break;
    case GM_TRACE_ROW_TIERS:
        take_tiers(out);
        break;
    case GM_TRACE_ROW_SCHED:
    case GM_TRACE_ROW_TIMER:
    case GM_TRACE_ROW_ROOM:
        break;
    default:;
        struct app *app = find_app(out);
        if (app)
            take_of_app(out, app);
        break;
    }
}

bool mux_export(FILE *from, const char *path, FILE *to)
{
    struct gm_trace_reader reader = {.file = from};
    struct out out = {.file = to};
    int more;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", to);
    while ((more = gm_trace_next(&reader)) > 0 && !out.is_short) {
        const uint64_t now = out.line.now; /* what is shown never goes back */
        out.line = reader.line;
        out.line.now = out.line.now < now ? now : out.line.now;
        out.begin = out.has_begun ? out.begin : out.line.now;
        out.has_begun = true;
        take(&out);
    }
    for (uint32_t i = 0; i < out.n_apps; i++)
        if (out.apps[i].is_live)
            end_app(&out, &out.apps[i]);
    fputs("\n]}\n", to);
    free(out.apps);
    if (out.is_short)
        mux_complain("%s: out of memory", path);
    else if (more < 0 && reader.number > 0)
        mux_complain("%s:%" PRIu64 ": %s", path, reader.number, reader.why);
    else if (more < 0)
        mux_complain("%s: %s", path, reader.why);
    else if (!out.has_begun)
        mux_complain("%s: nothing is recorded there", path);
    return more == 0 && out.has_begun && !out.is_short;
}

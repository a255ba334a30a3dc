/*
 * mux-ctl trace export: tracks as JSON trace events, which ui.perfetto.dev and chrome://tracing
 * open. Times are in microseconds. A GPU is a process there; its programs, its switches and each
 * direction of copies are threads. Called by trace.c; calls tracks.c.
 */
#include "daemon/ctl/tracks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/ctl/ctl.h"

/* Threads of a GPU; programs come behind them, those of all GPUs with numbers of their own. */
enum { SWITCHES = 1, COPIES, FIRST_APP = 10 };

struct out {
    FILE *file;
    const struct mux_tracks *tracks;
    bool has_events, is_short;
};

/* Write one event, and delete it. NULL: out of memory. */
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
    cJSON_AddNumberToObject(event, "pid", gpu + 1);
    cJSON_AddNumberToObject(event, "tid", thread);
    return event;
}

/* Nanoseconds of the daemon's clock are more than a double counts exactly after 104 days; those
 * since the trace's begin are not. */
static void add_time(const struct out *out, cJSON *event, uint64_t at)
{
    const uint64_t begun = out->tracks->begin;
    cJSON_AddNumberToObject(event, "ts", at > begun ? (double)(at - begun) / 1e3 : 0);
}

static void name_track(struct out *out, const char *kind, uint32_t gpu, uint32_t thread,
                       const char *name, uint32_t order)
{
    const bool is_process = thread == 0;
    cJSON *event = begin("M", kind, gpu, thread);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(event, "args"), "name", name);
    put(out, event);
    event = begin("M", is_process ? "process_sort_index" : "thread_sort_index", gpu, thread);
    cJSON_AddNumberToObject(cJSON_AddObjectToObject(event, "args"), "sort_index", order);
    put(out, event);
}

static void name_tracks(struct out *out)
{
    static const char *const ways[] = {"copies in", "copies out", "copies down", "copies up"};
    const struct mux_tracks *tracks = out->tracks;
    char name[2 * GM_TRACE_TEXT], user[64];
    for (uint32_t gpu = 0; gpu < tracks->n_gpus; gpu++) {
        snprintf(name, sizeof name, "GPU %" PRIu64 " %s", tracks->gpus[gpu].index,
                 tracks->gpus[gpu].name);
        name_track(out, "process_name", gpu, 0, name, gpu);
        name_track(out, "thread_name", gpu, SWITCHES, "switches", 0);
        for (uint32_t way = 0; way < 4; way++)
            name_track(out, "thread_name", gpu, COPIES + way, ways[way], COPIES + way);
    }
    for (uint32_t i = 0; i < tracks->n_apps; i++) {
        const struct mux_traced *app = &tracks->apps[i];
        snprintf(name, sizeof name, "%s (pid %" PRIu64 ", %s)", app->name, app->pid,
                 mux_user_of(app->uid, user));
        name_track(out, "thread_name", app->gpu, FIRST_APP + i, name, FIRST_APP + i);
    }
}

/* What began before the trace is shown from its begin on. */
static cJSON *slice(const struct out *out, const char *name, uint32_t gpu, uint32_t thread,
                    uint64_t from, uint64_t to)
{
    cJSON *event = begin("X", name, gpu, thread);
    from = from < out->tracks->begin ? out->tracks->begin : from;
    add_time(out, event, from);
    cJSON_AddNumberToObject(event, "dur", to > from ? (double)(to - from) / 1e3 : 0);
    return event;
}

static void put_spans(struct out *out)
{
    for (uint32_t i = 0; i < out->tracks->n_spans; i++) {
        const struct mux_span *span = &out->tracks->spans[i];
        put(out, slice(out, mux_does_text(span->does), out->tracks->apps[span->app].gpu,
                       FIRST_APP + span->app, span->begin, span->end));
    }
}

/* The switch, and below it its parts one after another: each has its whole time, and
 * in truth they alternate. */
static void put_switch(struct out *out, const struct mux_event *event)
{
    static const char *const parts[] = {
#define GM_PART(NAME, name, shown, words) shown,
#include "common/parts.def"
#undef GM_PART
    };
    static const char *const numbers[] = {"bytes out", "bytes in",   "unchanged",
                                          "zero",      "bytes down", "bytes up"};
    const uint64_t *number = event->view.number, total = number[GM_TRACE_TOTAL];
    const uint64_t from = total < event->at ? event->at - total : 0;
    const struct mux_traced *app = &out->tracks->apps[event->app];
    char name[2 * GM_TRACE_TEXT];
    snprintf(name, sizeof name, "to %s (pid %" PRIu64 ")", app->name, app->pid);
    cJSON *whole = slice(out, name, event->gpu, SWITCHES, from, event->at);
    cJSON *args = cJSON_AddObjectToObject(whole, "args");
    cJSON_AddStringToObject(args, "why", event->view.text);
    cJSON_AddNumberToObject(args, "waited ms", (double)number[GM_TRACE_WAITED] / 1e6);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(args, numbers[i], (double)number[GM_TRACE_OUT + i]);
    put(out, whole);
    uint64_t at = from;
    for (unsigned part = 0; part < GM_PARTS && at < event->at; part++) {
        const uint64_t ns = number[GM_TRACE_PARTS + part], left = event->at - at;
        const uint64_t end = ns < left ? at + ns : event->at;
        if (ns > 0 && end > out->tracks->begin)
            put(out, slice(out, parts[part], event->gpu, SWITCHES, at, end));
        at = end;
    }
}

static void put_copies(struct out *out)
{
    static const char *const names[] = {"in", "out", "down", "up"};
    for (uint32_t i = 0; i < out->tracks->n_copies; i++) {
        const struct mux_copies *copies = &out->tracks->copies[i];
        cJSON *event = slice(out, names[copies->way], copies->gpu, COPIES + (uint32_t)copies->way,
                             copies->begin, copies->end);
        cJSON *args = cJSON_AddObjectToObject(event, "args");
        cJSON_AddNumberToObject(args, "bytes", (double)copies->bytes);
        cJSON_AddNumberToObject(args, "GB/s",
                                (double)copies->bytes / (double)(copies->end - copies->begin));
        put(out, event);
    }
}

static void put_event(struct out *out, const struct mux_event *event)
{
    const struct gm_trace_view *view = &event->view;
    char name[GM_TRACE_TEXT + 64], user[64];
    switch (view->row) {
    case GM_TRACE_ROW_LEVEL:
        snprintf(name, sizeof name, "level %" PRIu64 " to %" PRIu64, view->number[0],
                 view->number[1]);
        break;
    case GM_TRACE_ROW_SAID:
        snprintf(name, sizeof name, "%s sets %s", mux_user_of(view->number[0], user), view->text);
        break;
    case GM_TRACE_ROW_REFUSED:
        snprintf(name, sizeof name, "memory refused");
        break;
    case GM_TRACE_ROW_PARKED:
        snprintf(name, sizeof name, "parked");
        break;
    default:
        snprintf(name, sizeof name, "a part of the trace is lost");
        break;
    }
    const bool has_app = event->app < out->tracks->n_apps;
    cJSON *object = begin("i", name, event->gpu, has_app ? FIRST_APP + event->app : SWITCHES);
    add_time(out, object, event->at);
    cJSON_AddStringToObject(object, "s", has_app ? "t" : "p");
    cJSON *args = cJSON_AddObjectToObject(object, "args");
    if (view->row == GM_TRACE_ROW_REFUSED || view->row == GM_TRACE_ROW_LOST)
        cJSON_AddNumberToObject(args, "bytes", (double)view->number[0]);
    if (view->row == GM_TRACE_ROW_REFUSED || view->row == GM_TRACE_ROW_LEVEL)
        cJSON_AddStringToObject(args, "why", view->text);
    put(out, object);
}

static void put_tiers(struct out *out)
{
    static const char *const names[] = {"GPU", "pinned", "paged", "disk", "read over the link"};
    for (uint32_t i = 0; i < out->tracks->n_tiers; i++) {
        const struct mux_tiers *tiers = &out->tracks->tiers[i];
        for (unsigned tier = 0; tier < 5; tier++) {
            char name[64];
            snprintf(name, sizeof name, "tier %s", names[tier]);
            cJSON *event = begin("C", name, tiers->gpu, 0);
            add_time(out, event, tiers->at);
            cJSON_AddNumberToObject(cJSON_AddObjectToObject(event, "args"), "bytes",
                                    (double)tiers->bytes[tier]);
            put(out, event);
        }
    }
}

bool mux_export_tracks(FILE *file, const struct mux_tracks *tracks)
{
    struct out out = {.file = file, .tracks = tracks};
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file);
    name_tracks(&out);
    put_spans(&out);
    for (uint32_t i = 0; i < tracks->n_switches; i++)
        put_switch(&out, &tracks->switches[i]);
    put_copies(&out);
    for (uint32_t i = 0; i < tracks->n_parks; i++)
        put_event(&out, &tracks->parks[i]);
    for (uint32_t i = 0; i < tracks->n_events; i++)
        put_event(&out, &tracks->events[i]);
    put_tiers(&out);
    fputs("\n]}\n", file);
    return !out.is_short;
}

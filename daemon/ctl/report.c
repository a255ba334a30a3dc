/*
 * mux-ctl trace report: tracks as one page, which needs nothing else: tables, a timeline and
 * distributions as SVG, which are whole without the script; that zooms the timeline (page.css,
 * page.js: embedded by the build). Called by trace.c; calls tracks.c.
 *
 * A lane of the timeline is GRID units wide, whatever its time is. What is closer than a unit is
 * one mark, so a page has some thousand marks for each program at most.
 */
#include "daemon/ctl/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/page.h"

#define GRID 4000.0
#define BINS 1000u /* of the lanes of copies */

struct out {
    FILE *file;
    const struct mux_tracks *tracks;
    double span; /* of the trace, in ns; more than 0 */
};

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '"')
            fputs("&quot;", file);
        else
            fputc(*text, file);
}

/* "1.25 s", "3.4 ms". Returns `text`. */
static const char *time_of(double ns, char text[32])
{
    if (ns < 1e6)
        snprintf(text, 32, "%.0f \302\265s", ns / 1e3);
    else if (ns < 1e9)
        snprintf(text, 32, "%.*f ms", ns < 1e7 ? 2 : ns < 1e8 ? 1 : 0, ns / 1e6);
    else
        snprintf(text, 32, "%.*f s", ns < 1e10 ? 2 : 1, ns / 1e9);
    return text;
}

static double place(const struct out *out, uint64_t at)
{
    const struct mux_tracks *tracks = out->tracks;
    at = at < tracks->begin ? tracks->begin : at > tracks->end ? tracks->end : at;
    return (double)(at - tracks->begin) / out->span * GRID;
}

static const char *app_name(const struct mux_traced *app, char *text, size_t size)
{
    snprintf(text, size, "%s (%" PRIu64 ")", app->name, app->pid);
    return text;
}

/* ---- numbers ---- */

struct numbers {
    double *ns;
    size_t n;
};

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Of one app, or of all: UINT32_MAX. The caller frees `ns`. */
static struct numbers lengths_of(const struct mux_length *lengths, uint32_t n, uint32_t app)
{
    struct numbers numbers = {.ns = malloc((n + 1) * sizeof *numbers.ns)};
    for (uint32_t i = 0; numbers.ns && i < n; i++)
        if (app == UINT32_MAX || lengths[i].app == app)
            numbers.ns[numbers.n++] = (double)lengths[i].ns;
    if (numbers.ns)
        qsort(numbers.ns, numbers.n, sizeof *numbers.ns, by_size);
    return numbers;
}

static double part_of(const struct numbers *numbers, double part)
{
    return numbers->n == 0 ? 0 : numbers->ns[(size_t)(part * (double)(numbers->n - 1) + 0.5)];
}

static void put_time_cell(FILE *file, const struct numbers *numbers, double part)
{
    char text[32];
    fprintf(file, "<td>%s</td>", numbers->n ? time_of(part_of(numbers, part), text) : "");
}

/* ---- tables ---- */

static void put_programs(const struct out *out)
{
    const struct mux_tracks *tracks = out->tracks;
    char text[32], user[64];
    fputs(
        "<h2>Programs</h2>\n<div class=\"wide\"><table id=\"programs\"><thead><tr><th>program</th>"
        "<th>pid</th><th>user</th><th>GPU</th><th>ran</th><th>of the time</th><th>waited</th>"
        "<th>turns</th><th>turn, half</th><th>longest</th><th>wait, half</th><th>95 %</th>"
        "<th>longest</th><th>parks</th><th>refused</th></tr></thead><tbody>\n",
        out->file);
    for (uint32_t i = 0; i < tracks->n_apps; i++) {
        const struct mux_traced *app = &tracks->apps[i];
        const struct numbers turns = lengths_of(tracks->turns, tracks->n_turns, i),
                             waits = lengths_of(tracks->waits, tracks->n_waits, i);
        const double ran = (double)app->does_ns[MUX_DOES_RUNNING],
                     waited =
                         (double)(app->does_ns[MUX_DOES_WAITING] + app->does_ns[MUX_DOES_PARKED] +
                                  app->does_ns[MUX_DOES_LOADING]);
        fputs("<tr><td>", out->file);
        put_text(out->file, app->name[0] ? app->name : "?");
        fprintf(out->file, "</td><td>%" PRIu64 "</td><td>", app->pid);
        put_text(out->file, mux_user_of(app->uid, user));
        fprintf(out->file, "</td><td>%" PRIu64 "</td><td>%s</td><td>%.0f %%</td>",
                tracks->gpus[app->gpu].index, time_of(ran, text), 100 * ran / out->span);
        fprintf(out->file, "<td>%s</td><td>%" PRIu64 "</td>", time_of(waited, text), app->turns);
        put_time_cell(out->file, &turns, 0.5);
        put_time_cell(out->file, &turns, 1);
        put_time_cell(out->file, &waits, 0.5);
        put_time_cell(out->file, &waits, 0.95);
        put_time_cell(out->file, &waits, 1);
        fprintf(out->file, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td></tr>\n", app->parks,
                app->refused);
        free(turns.ns);
        free(waits.ns);
    }
    fputs("</tbody></table></div>\n", out->file);
}

/* ---- timeline ---- */

static void begin_lane(const struct out *out, const char *kind, const char *name, unsigned height)
{
    fprintf(out->file, "<div class=\"row %s\"><div class=\"name\" title=\"", kind);
    put_text(out->file, name);
    fputs("\">", out->file);
    put_text(out->file, name);
    fprintf(
        out->file,
        "</div><svg viewBox=\"0 0 %.0f %u\" preserveAspectRatio=\"none\" style=\"height:%upx\">",
        GRID, height, height);
}

static void end_lane(const struct out *out)
{
    fputs("</svg></div>\n", out->file);
}

struct mark {
    int class; /* -1: none yet */
    double from, to;
    double ns;
    unsigned times;
};

static void put_mark(const struct out *out, const struct mark *mark)
{
    char text[32];
    if (mark->class < 0)
        return;
    fprintf(out->file,
            "<rect class=\"d%d\" x=\"%.1f\" y=\"1\" width=\"%.1f\" height=\"16\"><title>%s",
            mark->class, mark->from, fmax(mark->to - mark->from, 1),
            mux_does_text((enum mux_does)mark->class));
    if (mark->times > 1)
        fprintf(out->file, ", %u times", mark->times);
    fprintf(out->file, ", %s</title></rect>", time_of(mark->ns, text));
}

/* Spans of an app are in the order of their times, without overlaps. */
static void put_app_lane(const struct out *out, uint32_t index, const uint32_t *spans, uint32_t n)
{
    char name[GM_TRACE_TEXT + 32];
    struct mark last = {.class = -1};
    begin_lane(out, "app", app_name(&out->tracks->apps[index], name, sizeof name), 18);
    for (uint32_t i = 0; i < n; i++) {
        const struct mux_span *span = &out->tracks->spans[spans[i]];
        const double from = place(out, span->begin), to = place(out, span->end);
        const bool is_close = last.class >= 0 && from - last.to < 1 &&
                              (last.class == (int)span->does || to - last.from < 1);
        if (is_close) { /* the longer one gives the colour */
            if ((double)(span->end - span->begin) > last.ns)
                last.class = (int)span->does;
            last.to = to;
            last.ns += (double)(span->end - span->begin);
            last.times++;
            continue;
        }
        put_mark(out, &last);
        last = (struct mark){.class = (int)span->does,
                             .from = from,
                             .to = to,
                             .ns = (double)(span->end - span->begin),
                             .times = 1};
    }
    put_mark(out, &last);
    for (uint32_t i = 0; i < out->tracks->n_events; i++) {
        const struct mux_event *event = &out->tracks->events[i];
        if (event->app != index || event->view.row == GM_TRACE_ROW_LEVEL)
            continue;
        fprintf(out->file, "<path class=\"%s\" d=\"M%.1f 0v18\"><title>",
                event->view.row == GM_TRACE_ROW_REFUSED ? "bad" : "said", place(out, event->at));
        put_text(out->file, event->view.row == GM_TRACE_ROW_REFUSED ? "memory refused: " : "set: ");
        put_text(out->file, event->view.text);
        fputs("</title></path>", out->file);
    }
    end_lane(out);
}

/* The lanes of a GPU's apps. Spans are told apart by their app beforehand: each is looked at once.
 */
static bool put_app_lanes(const struct out *out, uint32_t gpu)
{
    const struct mux_tracks *tracks = out->tracks;
    uint32_t *order = malloc((tracks->n_spans + 1) * sizeof *order);
    uint32_t *first = calloc((size_t)tracks->n_apps + 2, sizeof *first);
    if (order && first) {
        for (uint32_t i = 0; i < tracks->n_spans; i++)
            first[tracks->spans[i].app + 2]++;
        for (uint32_t i = 2; i < tracks->n_apps + 2; i++)
            first[i] += first[i - 1];
        for (uint32_t i = 0; i < tracks->n_spans; i++)
            order[first[tracks->spans[i].app + 1]++] = i;
        for (uint32_t i = 0; i < tracks->n_apps; i++)
            if (tracks->apps[i].gpu == gpu)
                put_app_lane(out, i, order + first[i], first[i + 1] - first[i]);
    }
    const bool is_good = order && first;
    free(order);
    free(first);
    return is_good;
}

static void put_switches(const struct out *out, uint32_t gpu)
{
    const struct mux_tracks *tracks = out->tracks;
    char text[32], name[GM_TRACE_TEXT + 32];
    begin_lane(out, "switches", "switches", 18);
    for (uint32_t i = 0; i < tracks->n_switches; i++) {
        const struct mux_event *event = &tracks->switches[i];
        const uint64_t total = event->view.number[GM_TRACE_TOTAL];
        if (event->gpu != gpu)
            continue;
        const double from = place(out, total < event->at ? event->at - total : 0),
                     to = place(out, event->at);
        fprintf(out->file,
                "<rect class=\"switch\" x=\"%.1f\" y=\"1\" width=\"%.1f\" height=\"16\"><title>",
                from, fmax(to - from, 1));
        put_text(out->file, app_name(&tracks->apps[event->app], name, sizeof name));
        fprintf(out->file, ": %s. ", time_of((double)total, text));
        put_text(out->file, event->view.text);
        fputs("</title></rect>", out->file);
    }
    end_lane(out);
}

/* Bytes a second of one way over time, as bars. */
static void put_copies(const struct out *out, uint32_t gpu, int way)
{
    static const char *const names[] = {"copies in", "copies out", "copies down", "copies up"};
    const struct mux_tracks *tracks = out->tracks;
    double bins[BINS] = {0}, most = 0;
    const double width = out->span / BINS;
    char name[96];
    for (uint32_t i = 0; i < tracks->n_copies; i++) {
        const struct mux_copies *copies = &tracks->copies[i];
        if (copies->gpu != gpu || copies->way != way)
            continue;
        const double from = (double)(copies->begin - tracks->begin),
                     to = (double)(copies->end - tracks->begin);
        for (size_t bin = (size_t)(from / width); bin < BINS && (double)bin * width < to; bin++)
            bins[bin] += (double)copies->bytes *
                         (fmin(to, (double)(bin + 1) * width) - fmax(from, (double)bin * width)) /
                         (to - from);
    }
    for (size_t bin = 0; bin < BINS; bin++)
        most = fmax(most, bins[bin]);
    if (most <= 0)
        return;
    snprintf(name, sizeof name, "%s, up to %.1f GB/s", names[way], most / width);
    begin_lane(out, "copies", name, 30);
    for (size_t bin = 0; bin < BINS; bin++)
        if (bins[bin] > 0)
            fprintf(out->file,
                    "<rect class=\"w%d\" x=\"%.0f\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\"/>",
                    way, (double)bin * GRID / BINS, 30 - 29 * bins[bin] / most, GRID / BINS,
                    29 * bins[bin] / most);
    end_lane(out);
}

/* How full the tiers were, one above the other. */
static void put_tiers(const struct out *out, uint32_t gpu)
{
    static const char *const names[] = {"on the GPU", "pinned", "paged", "on disk"};
    const struct mux_tracks *tracks = out->tracks;
    double most = 0;
    char name[96], size[32];
    for (uint32_t i = 0; i < tracks->n_tiers; i++) {
        const uint64_t *bytes = tracks->tiers[i].bytes;
        if (tracks->tiers[i].gpu == gpu)
            most = fmax(most,
                        (double)bytes[0] + (double)bytes[1] + (double)bytes[2] + (double)bytes[3]);
    }
    if (most <= 0)
        return;
    snprintf(name, sizeof name, "tiers, up to %s", mux_bytes(most, size));
    begin_lane(out, "tiers", name, 60);
    for (int tier = 3; tier >= 0; tier--) { /* the lower ones over the sum of all */
        double last_x = -10, last_y = 60;
        bool has_some = false;
        for (uint32_t i = 0; i < tracks->n_tiers; i++)
            has_some =
                has_some || (tracks->tiers[i].gpu == gpu && tracks->tiers[i].bytes[tier] > 0);
        if (!has_some)
            continue;
        fprintf(out->file, "<path class=\"t%d\" d=\"M0 60", tier);
        for (uint32_t i = 0; i < tracks->n_tiers; i++) {
            const struct mux_tiers *at = &tracks->tiers[i];
            if (at->gpu != gpu)
                continue;
            double sum = 0;
            for (int below = 0; below <= tier; below++)
                sum += (double)at->bytes[below];
            const double x = place(out, at->at), y = 60 - 58 * sum / most;
            if (x - last_x < 1 || (y == last_y && x < GRID - 1))
                continue;
            fprintf(out->file, "H%.1fV%.1f", x, y);
            last_x = x;
            last_y = y;
        }
        fprintf(out->file, "H%.0fV60Z\"><title>%s</title></path>", GRID, names[tier]);
    }
    end_lane(out);
}

/* Round steps of time below the lanes. */
static void put_axis(const struct out *out)
{
    static const double steps[] = {1, 2, 5};
    double step = 1e3; /* 1 us */
    for (unsigned i = 0; out->span / step > 10; i++)
        step = steps[i % 3] * pow(10, 3 + (double)(i / 3));
    char text[32];
    fputs("<div class=\"row axis\"><div class=\"name\"></div><div class=\"ticks\">", out->file);
    for (double at = 0; at <= out->span; at += step)
        fprintf(out->file, "<span style=\"left:%.2f%%\">%s</span>", 100 * at / out->span,
                at > 0 ? time_of(at, text) : "0");
    fputs("</div></div>\n", out->file);
}

static bool put_timeline(const struct out *out)
{
    const struct mux_tracks *tracks = out->tracks;
    char name[GM_TRACE_TEXT + 32];
    bool is_good = true;
    fputs("<h2>Timeline</h2>\n<p class=\"legend\">", out->file);
    for (int does = MUX_DOES_WAITING; does < MUX_DOES_N; does++)
        fprintf(out->file, "<span><i class=\"d%d\"></i>%s</span>", does,
                mux_does_text((enum mux_does)does));
    fputs(
        "<span><i class=\"t0\"></i>tiers: on the GPU</span><span><i class=\"t1\"></i>pinned</span>"
        "<span><i class=\"t2\"></i>paged</span><span><i class=\"t3\"></i>disk</span></p>\n"
        "<div id=\"scroll\" tabindex=\"0\"><div id=\"lanes\">\n",
        out->file);
    for (uint32_t gpu = 0; gpu < tracks->n_gpus && is_good; gpu++) {
        snprintf(name, sizeof name, "GPU %" PRIu64 " %s", tracks->gpus[gpu].index,
                 tracks->gpus[gpu].name);
        fputs("<div class=\"row gpu\"><div class=\"name\">", out->file);
        put_text(out->file, name);
        fputs("</div></div>\n", out->file);
        put_tiers(out, gpu);
        for (int way = 0; way < 4; way++)
            put_copies(out, gpu, way);
        put_switches(out, gpu);
        is_good = put_app_lanes(out, gpu);
    }
    put_axis(out);
    fputs("</div></div>\n", out->file);
    return is_good;
}

/* ---- distributions ---- */

/* Lengths by powers of 2 of a millisecond. */
static void put_histogram(const struct out *out, const char *id, const char *title,
                          struct numbers numbers)
{
    static const char *const units[] = {"\302\265s", "ms", "s"};
    enum { LEAST = -4, MOST = 20, N = MOST - LEAST + 1, HEIGHT = 120 };
    unsigned counts[N] = {0}, most = 0;
    int first = N, last = -1;
    char text[3][32];
    fprintf(out->file, "<figure id=\"%s\"><figcaption><b>%s</b> ", id, title);
    if (numbers.n == 0) {
        fputs("none</figcaption></figure>\n", out->file);
        return;
    }
    for (size_t i = 0; i < numbers.n; i++) {
        const double bound = ceil(log2(fmax(numbers.ns[i], 1) / 1e6));
        const int bin = (int)fmin(fmax(bound, LEAST), MOST) - LEAST;
        counts[bin]++;
        most = counts[bin] > most ? counts[bin] : most;
        first = bin < first ? bin : first;
        last = bin > last ? bin : last;
    }
    fprintf(out->file, "%zu: half within %s, 95 %% within %s, longest %s</figcaption>\n", numbers.n,
            time_of(part_of(&numbers, 0.5), text[0]), time_of(part_of(&numbers, 0.95), text[1]),
            time_of(part_of(&numbers, 1), text[2]));
    const int n = last - first + 1;
    fprintf(out->file, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" style=\"width:%dpx\">",
            n * 44 + 8, HEIGHT + 40, n * 44 + 8);
    for (int i = 0; i < n; i++) {
        const double height = HEIGHT * (double)counts[first + i] / most;
        const double bound = ldexp(1e3, first + i + LEAST); /* in microseconds */
        const int unit = bound < 1e3 ? 0 : bound < 1e6 ? 1 : 2;
        snprintf(text[0], sizeof text[0], "%.0f %s", bound / pow(1e3, unit), units[unit]);
        fprintf(out->file, "<text class=\"at\" x=\"%d\" y=\"%d\">%s</text>", i * 44 + 26,
                HEIGHT + 32, text[0]);
        if (counts[first + i] > 0)
            fprintf(out->file,
                    "<rect class=\"bar\" x=\"%d\" y=\"%.1f\" width=\"36\" height=\"%.1f\">"
                    "<title>up to %s: %u</title></rect><text x=\"%d\" y=\"%.1f\">%u</text>",
                    i * 44 + 8, 16 + HEIGHT - height, height, text[0], counts[first + i],
                    i * 44 + 26, 12 + HEIGHT - height, counts[first + i]);
    }
    fputs("</svg></figure>\n", out->file);
}

struct bar {
    const char *name, *class;
    double value;
};

/* Bars that lie, with their values. */
static void put_bars(const struct out *out, const char *id, const char *title,
                     const struct bar *bars, size_t n, bool is_time)
{
    double most = 0;
    size_t row = 0;
    char text[32];
    for (size_t i = 0; i < n; i++)
        most = fmax(most, bars[i].value);
    fprintf(out->file,
            "<figure id=\"%s\"><figcaption><b>%s</b></figcaption>\n<svg class=\"chart\" "
            "viewBox=\"0 0 480 %zu\" style=\"width:480px\">",
            id, title, n * 22 + 4);
    for (size_t i = 0; i < n; i++, row++)
        fprintf(out->file,
                "<text class=\"left\" x=\"0\" y=\"%zu\">%s</text><rect class=\"%s\" x=\"130\" "
                "y=\"%zu\" "
                "width=\"%.1f\" height=\"16\"/><text class=\"left\" x=\"%.1f\" y=\"%zu\">%s</text>",
                row * 22 + 15, bars[i].name, bars[i].class, row * 22 + 2,
                most > 0 ? 250 * bars[i].value / most : 0,
                136 + (most > 0 ? 250 * bars[i].value / most : 0), row * 22 + 15,
                is_time ? time_of(bars[i].value, text) : mux_bytes(bars[i].value, text));
    fputs("</svg></figure>\n", out->file);
}

static bool put_distributions(const struct out *out)
{
    const struct mux_tracks *tracks = out->tracks;
    struct numbers switches = {.ns = malloc((tracks->n_switches + 1) * sizeof *switches.ns)};
    struct numbers waits = lengths_of(tracks->waits, tracks->n_waits, UINT32_MAX),
                   turns = lengths_of(tracks->turns, tracks->n_turns, UINT32_MAX);
    struct bar parts[] = {
#define GM_PART(NAME, name, shown, words) {shown, "bar", 0},
#include "common/parts.def"
#undef GM_PART
    };
    struct bar bytes[] = {{"in", "w0", 0}, {"out", "w1", 0},        {"down", "w2", 0},
                          {"up", "w3", 0}, {"unchanged", "bar", 0}, {"zero", "bar", 0}};
    for (uint32_t i = 0; switches.ns && i < tracks->n_switches; i++) {
        const uint64_t *number = tracks->switches[i].view.number;
        switches.ns[switches.n++] = (double)number[GM_TRACE_TOTAL];
        for (size_t part = 0; part < GM_PARTS; part++)
            parts[part].value += (double)number[GM_TRACE_PARTS + part];
        bytes[4].value += (double)number[GM_TRACE_CLEAN];
        bytes[5].value += (double)number[GM_TRACE_ZERO];
    }
    for (uint32_t i = 0; i < tracks->n_copies; i++)
        bytes[tracks->copies[i].way].value += (double)tracks->copies[i].bytes;
    const bool is_good = switches.ns && waits.ns && turns.ns;
    if (is_good) {
        qsort(switches.ns, switches.n, sizeof *switches.ns, by_size);
        fputs("<h2>Distributions</h2>\n<div class=\"figures\">\n", out->file);
        put_histogram(out, "switch-times", "Switches", switches);
        put_histogram(out, "wait-times", "Waits", waits);
        put_histogram(out, "turn-times", "Turns", turns);
        put_bars(out, "parts", "Where the time of switches went", parts, GM_PARTS, true);
        put_bars(out, "bytes", "Bytes by direction, and evicted without a copy", bytes,
                 sizeof bytes / sizeof *bytes, false);
        fputs("</div>\n", out->file);
    }
    free(switches.ns);
    free(waits.ns);
    free(turns.ns);
    return is_good;
}

/* ---- the page ---- */

static void put_head(const struct out *out)
{
    const struct mux_tracks *tracks = out->tracks;
    char text[64] = "", length[32];
    const time_t wall = (time_t)(tracks->wall / 1000000000u);
    struct tm date;
    uint64_t lost = 0;
    if (tracks->wall > 0 && localtime_r(&wall, &date))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &date);
    fprintf(out->file,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width\"><title>gpumux %s</title>\n"
            "<style>\n%s</style></head><body data-span-ns=\"%.0f\">\n<h1>gpumux <small>%s, "
            "%s</small></h1>\n",
            text, gm_page_css, out->span, text, time_of(out->span, length));
    for (uint32_t i = 0; i < tracks->n_events; i++)
        if (tracks->events[i].view.row == GM_TRACE_ROW_LOST)
            lost += tracks->events[i].view.number[0];
    if (lost > 0)
        fprintf(out->file,
                "<p class=\"warning\">Parts of the trace are lost, %" PRIu64
                " bytes: what is shown around them may be wrong.</p>\n",
                lost);
}

bool mux_report_tracks(FILE *file, const struct mux_tracks *tracks)
{
    const uint64_t span = tracks->end - tracks->begin;
    const struct out out = {.file = file, .tracks = tracks, .span = span > 0 ? (double)span : 1};
    put_head(&out);
    put_programs(&out);
    const bool is_good = put_timeline(&out) && put_distributions(&out);
    fprintf(file, "<script>\n%s</script>\n</body></html>\n", gm_page_js);
    return is_good;
}

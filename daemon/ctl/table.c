/*
 * The status document as a table. Called by status.c; calls lines.c for refusals. Reads the schema
 * of daemon/README.md, "Status". Every member is optional: what a daemon of another version lacks
 * shows as "-". Lines are as wide as the terminal, or 100 columns without one; numbers may need
 * more.
 */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/text.h"

#define CELL 256
#define LINE 100                /* columns */
#define REFUSED_S 600           /* older refusals are in the log only */
#define WRAPPED 20              /* the narrowest that text is wrapped to */
#define NAME_LEAST 15           /* columns of a name so that the row fits into 80 */
#define WORTH_TELLING (1 << 20) /* unswappable bytes: every program has a few */

enum column {
    COLUMN_APP,
    COLUMN_GPU, /* where there are several */
    COLUMN_PID,
    COLUMN_USER,
    COLUMN_NAME,
    COLUMN_STATE,
    COLUMN_RESIDENT,
    COLUMN_TOTAL,
    COLUMN_RUN,
    COLUMN_WAIT,
    COLUMN_LEVEL,
    COLUMN_CLASS,
    COLUMN_CHARGED,
    COLUMN_WHY,
    COLUMNS,
};

static const struct {
    const char *title, *key;
    enum { TEXT, COUNT, SIZE, SECONDS, CHARGED, WHY } kind;
    bool is_right;   /* aligned */
    unsigned widest; /* longer text is cut */
} columns[COLUMNS] = {
    [COLUMN_APP] = {"APP", "id", COUNT, true, 10},
    [COLUMN_GPU] = {"GPU", "gpu", COUNT, true, 3},
    [COLUMN_PID] = {"PID", "pid", COUNT, true, 10},
    [COLUMN_USER] = {"USER", "user", TEXT, false, 10},
    [COLUMN_NAME] = {"NAME", "name", TEXT, false, 24},
    [COLUMN_STATE] = {"STATE", "state", TEXT, false, 10},
    [COLUMN_RESIDENT] = {"RESIDENT", "resident_bytes", SIZE, true, 12},
    [COLUMN_TOTAL] = {"TOTAL", "total_bytes", SIZE, true, 12},
    [COLUMN_RUN] = {"RUN", "run_s", SECONDS, true, 10},
    [COLUMN_WAIT] = {"WAIT", "wait_s", SECONDS, true, 10},
    [COLUMN_LEVEL] = {"L", "level", COUNT, true, 3},
    [COLUMN_CLASS] = {"CLASS", "class", TEXT, false, 11},
    [COLUMN_CHARGED] = {"CHARGED", "charged_s", CHARGED, true, 15},
    [COLUMN_WHY] = {"WHY", "why", WHY, false, CELL - 1},
};

/* "12.3s", "4m05s", "3h20m", "2d04h". */
static const char *seconds(double value, char text[CELL])
{
    unsigned long long whole = value > 0 && value < 1e15 ? (unsigned long long)value : 0;
    if (whole < 60)
        snprintf(text, CELL, "%.1fs", value > 0 ? value : 0);
    else if (whole < 3600)
        snprintf(text, CELL, "%llum%02llus", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(text, CELL, "%lluh%02llum", whole / 3600, whole / 60 % 60);
    else
        snprintf(text, CELL, "%llud%02lluh", whole / 86400, whole / 3600 % 24);
    return text;
}

/* "3.1s/8.0s": the run time at its level, and the limit after which it drops. */
static void charged(const cJSON *app, char text[CELL])
{
    const cJSON *allotment = cJSON_GetObjectItemCaseSensitive(app, "allotment_s");
    char used[CELL], all[CELL];
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(app, "charged_s")))
        snprintf(text, CELL, "-");
    else if (!cJSON_IsNumber(allotment))
        seconds(mux_number(app, "charged_s"), text);
    else
        snprintf(text, CELL, "%.20s/%.20s", seconds(mux_number(app, "charged_s"), used),
                 seconds(allotment->valuedouble, all));
}

/* Why it is in its state, and its settings; where there are several GPUs, why it is on this one. */
static void why(const cJSON *app, bool has_several_gpus, char text[CELL])
{
    const cJSON *weight = cJSON_GetObjectItemCaseSensitive(app, "weight");
    const cJSON *share = cJSON_GetObjectItemCaseSensitive(app, "share_percent");
    char weighs[48] = "", shares[48] = "", holds[48] = "", stays[48] = "", caps[48] = "",
         grouped[80] = "", links[64] = "", ignored[CELL] = "", bytes[CELL];
    const char *reason = mux_word(app, "why"), *state = mux_word(app, "state");
    const bool runs = strcmp(state, "running") == 0 || strcmp(state, "draining") == 0;

    if (cJSON_IsNumber(weight) && weight->valuedouble != 1)
        snprintf(weighs, sizeof weighs, "weight %g", weight->valuedouble);
    if (cJSON_IsNumber(share) && share->valuedouble != 100)
        snprintf(shares, sizeof shares, "share %g%%", share->valuedouble);
    if (mux_number(app, "on_host_bytes") > 0)
        snprintf(links, sizeof links, "%.20s in host memory%s",
                 mux_size(app, "on_host_bytes", bytes), runs ? ", read over the link" : "");
    if (mux_number(app, "cap_bytes") > 0)
        snprintf(caps, sizeof caps, "cap %.30s", mux_size(app, "cap_bytes", bytes));
    if (mux_number(app, "shared_bytes") > 0)
        snprintf(holds, sizeof holds, "shares %.30s", mux_size(app, "shared_bytes", bytes));
    if (mux_number(app, "unswappable_bytes") >= WORTH_TELLING)
        snprintf(stays, sizeof stays, "%.20s unswappable",
                 mux_size(app, "unswappable_bytes", bytes));
    if (strcmp(mux_word(app, "group"), "-") != 0 && *mux_word(app, "group"))
        snprintf(grouped, sizeof grouped, "group %.63s", mux_word(app, "group"));
    if (strcmp(mux_word(app, "ignored"), "-") != 0)
        snprintf(ignored, sizeof ignored, "ignored: %.180s", mux_word(app, "ignored"));
    const char *placed = has_several_gpus ? mux_word(app, "placed") : "-";
    placed = strcmp(placed, "-") == 0 ? "" : placed;
    const char *const parts[] = {reason, links, caps,    weighs, shares,
                                 holds,  stays, grouped, placed, ignored};
    bool has_more = links[0] || caps[0] || weighs[0] || shares[0] || holds[0] || stays[0] ||
                    grouped[0] || placed[0] || ignored[0];
    int at = 0;
    text[0] = '\0';
    for (size_t i = strcmp(reason, "-") == 0 && has_more; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i][0] && at < CELL)
            at +=
                snprintf(text + at, (size_t)(CELL - at), "%s%.190s", at > 0 ? "; " : "", parts[i]);
}

static void cell(const cJSON *app, bool has_several_gpus, enum column column, char text[CELL])
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(app, columns[column].key);
    if (columns[column].kind == CHARGED)
        charged(app, text);
    else if (columns[column].kind == WHY)
        why(app, has_several_gpus, text);
    else if (columns[column].kind == TEXT)
        snprintf(text, CELL, "%.*s", (int)columns[column].widest,
                 mux_word(app, columns[column].key));
    else if (!cJSON_IsNumber(item))
        snprintf(text, CELL, "-");
    else if (columns[column].kind == SIZE)
        mux_size(app, columns[column].key, text);
    else if (columns[column].kind == SECONDS)
        seconds(item->valuedouble, text);
    else
        snprintf(text, CELL, "%.0f", item->valuedouble);
    gm_text_clean(text, CELL); /* cutting may have split a character */
}

static bool is_inside(char byte) /* a continuation byte of UTF-8 */
{
    return ((unsigned char)byte & 0xc0u) == 0x80u;
}

static int width(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += !is_inside(*text);
    return n;
}

/* Columns of a line. */
static int line_width(void)
{
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : LINE;
}

/* Print `text` in lines of `most` columns behind `indent` blanks, broken at blanks if possible. */
static void print_wrapped(const char *text, int indent, int most)
{
    const int room = most - indent > WRAPPED ? most - indent : WRAPPED;
    while (*text) {
        size_t end = 0, blank = 0;
        for (int n = 0; text[end] && (n < room || is_inside(text[end])); end++) {
            n += !is_inside(text[end]);
            blank = text[end] == ' ' ? end : blank;
        }
        if (text[end] && text[end] != ' ' && blank > 0)
            end = blank;
        printf("%*s%.*s\n", indent, "", (int)end, text);
        for (text += end; *text == ' ';)
            text++;
    }
}

/* Cut `text` to `most` characters. */
static void cut(char *text, int most)
{
    int n = 0;
    for (; *text; text++) {
        n += !is_inside(*text);
        if (n > most) {
            *text = '\0';
            return;
        }
    }
}

/* The width of a column that is not shown: it and the blanks before it are none. */
#define HIDDEN (-2)

/* The first `shown` columns. */
static void print_row(char cells[COLUMNS][CELL], const int widths[COLUMNS], int shown)
{
    cut(cells[COLUMN_NAME], widths[COLUMN_NAME]);
    for (int i = 0; i < shown; i++) {
        if (widths[i] == HIDDEN)
            continue;
        int pad = widths[i] - width(cells[i]);
        bool is_last = i == shown - 1;
        if (columns[i].is_right)
            printf("%*s%s", pad, "", cells[i]);
        else
            printf("%s%*s", cells[i], is_last ? 0 : pad, "");
        fputs(is_last ? "\n" : "  ", stdout);
    }
}

/* Print below an app's row what its first `shown` columns do not say. */
static void print_below(char cells[COLUMNS][CELL], int shown, int indent, int line)
{
    char text[2 * CELL] = "";
    bool has_why = strcmp(cells[COLUMN_WHY], "-") != 0;

    if (shown == COLUMN_LEVEL && strcmp(cells[COLUMN_LEVEL], "-") != 0)
        snprintf(text, sizeof text, "level %.10s, %.11s, charged %.40s%s%s", cells[COLUMN_LEVEL],
                 cells[COLUMN_CLASS], cells[COLUMN_CHARGED], has_why ? "; " : "",
                 has_why ? cells[COLUMN_WHY] : "");
    else if (shown <= COLUMN_WHY && has_why)
        snprintf(text, sizeof text, "%s", cells[COLUMN_WHY]);
    print_wrapped(text, indent, line);
}

/* One row per app. If the reasons do not fit into the line, each goes below its row; if the rest
 * does not fit either, so do the level, class and charge. */
static void print_apps(const cJSON *apps, bool has_several_gpus)
{
    static const int ends[] = {COLUMNS, COLUMN_WHY, COLUMN_LEVEL};
    char cells[COLUMNS][CELL];
    int widths[COLUMNS], shown = 0;
    const int line = line_width();
    const cJSON *app;

    for (int i = 0; i < COLUMNS; i++)
        widths[i] = width(columns[i].title);
    cJSON_ArrayForEach(app, apps)
    {
        for (int i = 0; i < COLUMNS; i++) {
            cell(app, has_several_gpus, (enum column)i, cells[i]);
            if (width(cells[i]) > widths[i])
                widths[i] = width(cells[i]);
        }
    }
    if (!has_several_gpus)
        widths[COLUMN_GPU] = HIDDEN;
    for (size_t end = 0; end < sizeof ends / sizeof ends[0]; end++) {
        int whole = 2 * (ends[end] - 1);
        for (int i = 0; i < ends[end]; i++)
            whole += widths[i];
        shown = ends[end];
        if (whole <= line)
            break;
        if (ends[end] == COLUMN_LEVEL) {
            int left = widths[COLUMN_NAME] - (whole - line);
            widths[COLUMN_NAME] = left > NAME_LEAST ? left : NAME_LEAST;
        }
    }
    for (int i = 0; i < COLUMNS; i++)
        snprintf(cells[i], CELL, "%s", columns[i].title);
    print_row(cells, widths, shown);
    cJSON_ArrayForEach(app, apps)
    {
        for (int i = 0; i < COLUMNS; i++)
            cell(app, has_several_gpus, (enum column)i, cells[i]);
        print_row(cells, widths, shown);
        if (shown < COLUMNS)
            print_below(cells, shown, widths[COLUMN_APP] + 2, line);
    }
}

/* The newest switch: how long it took, at what rate, and where the time went. */
static void print_last_switch(const cJSON *gpu)
{
    const cJSON *history = cJSON_GetObjectItemCaseSensitive(gpu, "history");
    const cJSON *last = cJSON_GetArrayItem(history, cJSON_GetArraySize(history) - 1);
    char out[CELL], in[CELL], parts[256];

    if (!last)
        return;
    double moved = mux_number(last, "bytes_out") + mux_number(last, "bytes_in");
    printf("  last    to app %.0f in %.1f ms: %s out, %s in, at %.1f GB/s\n",
           mux_number(last, "app"), mux_number(last, "total_ms"), mux_size(last, "bytes_out", out),
           mux_size(last, "bytes_in", in), mux_rate(moved, mux_number(last, "link_ms")));
    print_wrapped(mux_parts(last, parts, sizeof parts), 10, line_width());
    if (mux_number(last, "bytes_clean") + mux_number(last, "bytes_zero") > 0)
        printf("          not copied out: %s unchanged, %s zero\n",
               mux_size(last, "bytes_clean", out), mux_size(last, "bytes_zero", in));
    if (mux_number(last, "bytes_lowered") + mux_number(last, "bytes_raised") > 0)
        printf("          from pinned memory %s down, %s up to it\n",
               mux_size(last, "bytes_lowered", out), mux_size(last, "bytes_raised", in));
}

/* What is mapped on the host, and the tiers below pinned memory with what was moved there and back.
 */
static void print_other_tiers(const cJSON *gpu)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    const cJSON *moved = cJSON_GetObjectItemCaseSensitive(gpu, "moved");
    char used[CELL], cap[CELL], held[CELL], out[CELL], back[CELL];

    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tiers, "pinned_is_registered")))
        puts("          pinned memory is registered: no memory handles on the host, so programs "
             "cannot map it");
    if (mux_number(tiers, "pinned_shadow_bytes") > 0)
        printf("          shadows %s: pinned copies of what is on the GPU, dropped when wanted\n",
               mux_size(tiers, "pinned_shadow_bytes", used));
    if (mux_number(tiers, "on_host_bytes") > 0)
        printf("          mapped on host %s: in pinned memory, read over the link\n",
               mux_size(tiers, "on_host_bytes", used));
    if (mux_number(tiers, "paged_cap_bytes") > 0)
        printf("          paged %s of %s (%s held), %s out to it, %s back\n",
               mux_size(tiers, "paged_used_bytes", used), mux_size(tiers, "paged_cap_bytes", cap),
               mux_size(tiers, "paged_bytes", held), mux_size(moved, "pinned_to_paged_bytes", out),
               mux_size(moved, "paged_to_pinned_bytes", back));
    if (mux_number(tiers, "disk_cap_bytes") > 0)
        printf("          disk %s of %s, %s out to it, %s back\n",
               mux_size(tiers, "disk_used_bytes", used), mux_size(tiers, "disk_cap_bytes", cap),
               mux_size(moved, "pinned_to_disk_bytes", out),
               mux_size(moved, "disk_to_pinned_bytes", back));
}

static void print_budget(const cJSON *gpu)
{
    char now[CELL], most[CELL], used[CELL], cached[CELL], left[CELL];
    printf("  budget  %s", mux_size(gpu, "usable_bytes", now));
    if (mux_number(gpu, "usable_bytes") < mux_number(gpu, "budget_most_bytes"))
        printf(" now, at most %s", mux_size(gpu, "budget_most_bytes", most));
    printf(": %s used, %s cached, %s free\n", mux_size(gpu, "used_bytes", used),
           mux_size(gpu, "cached_bytes", cached), mux_size(gpu, "free_bytes", left));
}

static void print_gpu(const cJSON *gpu)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    char name[CELL], a[CELL], b[CELL], c[CELL];

    snprintf(name, sizeof name, "%.40s", mux_word(gpu, "name"));
    gm_text_clean(name, sizeof name);
    printf("GPU %.0f  %s\n", mux_number(gpu, "index"), name);
    print_budget(gpu);
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(gpu, "available_bytes")))
        printf("  room    %s for a program that starts now\n", mux_size(gpu, "available_bytes", a));
    printf("  device  %s: %s free\n", mux_size(gpu, "device_total_bytes", a),
           mux_size(gpu, "device_free_bytes", b));
    printf("  tiers   gpu %s, ", mux_size(tiers, "gpu_bytes", a));
    printf("pinned %s used, %s cached (at most %s)\n", mux_size(tiers, "pinned_used_bytes", a),
           mux_size(tiers, "pinned_cached_bytes", b), mux_size(tiers, "pinned_cap_bytes", c));
    print_other_tiers(gpu);
    if (mux_number(gpu, "shared_bytes") > 0)
        printf("  shared  %s between programs: it stays on the GPU\n",
               mux_size(gpu, "shared_bytes", a));
    printf("  moved   %s in, %s out, %.0f switches\n", mux_size(gpu, "bytes_in", a),
           mux_size(gpu, "bytes_out", b), mux_number(gpu, "switches"));
    if (mux_number(gpu, "bytes_clean") + mux_number(gpu, "bytes_zero") > 0)
        printf("          not copied out: %s unchanged, %s zero\n", mux_size(gpu, "bytes_clean", a),
               mux_size(gpu, "bytes_zero", b));
    print_last_switch(gpu);
}

static bool is_in(const cJSON *words, const char *word)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, words)
    {
        if (cJSON_IsString(one) && strcmp(one->valuestring, word) == 0)
            return true;
    }
    return false;
}

/* Features that apps lack, and what that costs. */
static void print_features_off(const cJSON *apps)
{
    const cJSON *app, *feature;
    cJSON_ArrayForEach(app, apps)
    {
        const cJSON *off = cJSON_GetObjectItemCaseSensitive(app, "features_off");
        const bool is_mps = is_in(off, "isolation"); /* that says what else it costs */
        cJSON_ArrayForEach(feature, off)
        {
            const char *what = "";
            char name[CELL], text[4 * CELL];
            if (!cJSON_IsString(feature) ||
                (is_mps && (strcmp(feature->valuestring, "park") == 0 ||
                            strcmp(feature->valuestring, "timeslices") == 0)))
                continue;
#define GM_FEATURE(bit, NAME, word, explanation)                                                   \
    if (strcmp(feature->valuestring, word) == 0)                                                   \
        what = explanation;
#include "common/features.def"
#undef GM_FEATURE
            snprintf(name, sizeof name, "%.40s", feature->valuestring);
            gm_text_clean(name, sizeof name);
            snprintf(text, sizeof text, "app %.0f without %s%s%s", mux_number(app, "id"), name,
                     *what ? ": " : "", what);
            print_wrapped(text, 0, line_width());
        }
    }
}

/* Programs that the daemon could not serve. */
static void print_refused(const cJSON *refused)
{
    double count = mux_number(refused, "count");
    char user[CELL], name[CELL], why[CELL], ago[CELL], text[4 * CELL];
    if (count < 1)
        return;
    snprintf(user, sizeof user, "%.40s", mux_word(refused, "user"));
    snprintf(name, sizeof name, "%.63s", mux_word(refused, "name"));
    snprintf(why, sizeof why, "%.183s", mux_word(refused, "why"));
    gm_text_clean(user, sizeof user);
    gm_text_clean(name, sizeof name);
    gm_text_clean(why, sizeof why);
    snprintf(text, sizeof text,
             "%.0f program%s refused since the start, the last %s ago: %s (pid %.0f, %s): %s",
             count, count < 2 ? "" : "s", seconds(mux_number(refused, "ago_s"), ago), name,
             mux_number(refused, "pid"), user, why);
    print_wrapped(text, 0, line_width());
}

/* Programs that wait at their start. */
static void print_starting(const cJSON *starting)
{
    const cJSON *one;
    const int n = cJSON_GetArraySize(starting);
    char text[4 * CELL], name[CELL], user[CELL], bytes[CELL], waited[CELL];
    if (n == 0)
        return;
    printf("%d program%s wait%s until a GPU has room beside the others:\n", n, n == 1 ? "" : "s",
           n == 1 ? "s" : "");
    cJSON_ArrayForEach(one, starting)
    {
        snprintf(user, sizeof user, "%.40s", mux_word(one, "user"));
        snprintf(name, sizeof name, "%.63s", mux_word(one, "name"));
        gm_text_clean(user, sizeof user);
        gm_text_clean(name, sizeof name);
        snprintf(text, sizeof text, "%s (pid %.0f, %s): needs %s, for %s", name,
                 mux_number(one, "pid"), user, mux_size(one, "expected_bytes", bytes),
                 seconds(mux_number(one, "waiting_s"), waited));
        print_wrapped(text, 2, line_width());
    }
}

/* Recent refusals of memory. */
static void print_refused_memory(const cJSON *gpus)
{
    const cJSON *gpu, *refusal;
    cJSON_ArrayForEach(gpu, gpus)
    {
        cJSON_ArrayForEach(refusal, cJSON_GetObjectItemCaseSensitive(gpu, "refusals"))
        {
            char text[4 * CELL], who[3 * CELL], ago[CELL];
            if (mux_number(refusal, "ago_s") > REFUSED_S)
                continue;
            snprintf(text, sizeof text, "%.16s ago %s", seconds(mux_number(refusal, "ago_s"), ago),
                     mux_refusal(refusal, who, sizeof who));
            print_wrapped(text, 0, line_width());
        }
    }
}

/* Who shares by MPS, and what that costs. */
static void print_sharing(const cJSON *servers)
{
    const cJSON *one, *pid;
    cJSON_ArrayForEach(one, servers)
    {
        const cJSON *pids = cJSON_GetObjectItemCaseSensitive(one, "pids");
        char user[64], state[16], why[256], text[4 * CELL + 512], line[512] = "";
        size_t at = 0;
        snprintf(user, sizeof user, "%.40s", mux_word(one, "user"));
        snprintf(state, sizeof state, "%.15s", mux_word(one, "state"));
        const cJSON *reason = cJSON_GetObjectItemCaseSensitive(one, "why");
        snprintf(why, sizeof why, "%.255s", cJSON_IsString(reason) ? reason->valuestring : "");
        gm_text_clean(user, sizeof user);
        gm_text_clean(state, sizeof state);
        gm_text_clean(why, sizeof why);
        cJSON_ArrayForEach(pid, pids)
        {
            if (at < sizeof line - 16)
                at += (size_t)snprintf(line + at, sizeof line - at, "%s%.0f", at > 0 ? ", " : "",
                                       pid->valuedouble);
        }
        const int n = cJSON_GetArraySize(pids);
        snprintf(text, sizeof text, "MPS of %s is %s%s%s: %d program%s%s%s", user, state,
                 *why ? ": " : "", why, n, n == 1 ? "" : "s", n > 0 ? ", pid " : "", line);
        print_wrapped(text, 0, line_width());
        if (n > 1)
            print_wrapped("a fatal fault of one of them ends the work of all, and their kernels "
                          "cannot be stopped in the middle",
                          2, line_width());
    }
}

void mux_table(const cJSON *status)
{
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(status, "gpus");
    const cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps");
    const cJSON *gpu;
    char up[CELL], version[CELL], socket[256];

    snprintf(version, sizeof version, "%s", mux_word(status, "version"));
    snprintf(socket, sizeof socket, "%s", mux_word(status, "socket"));
    gm_text_clean(version, sizeof version);
    gm_text_clean(socket, sizeof socket);
    printf("gpumuxd %s, pid %.0f, up %s, %s\n", version, mux_number(status, "pid"),
           seconds(mux_number(status, "uptime_s"), up), socket);
    cJSON_ArrayForEach(gpu, gpus)
    {
        print_gpu(gpu);
    }
    if (cJSON_GetArraySize(apps) == 0)
        puts("no apps");
    else
        print_apps(apps, cJSON_GetArraySize(gpus) > 1);
    print_features_off(apps);
    print_sharing(cJSON_GetObjectItemCaseSensitive(status, "space_sharing"));
    print_starting(cJSON_GetObjectItemCaseSensitive(status, "starting"));
    print_refused(cJSON_GetObjectItemCaseSensitive(status, "refused"));
    print_refused_memory(gpus);
}

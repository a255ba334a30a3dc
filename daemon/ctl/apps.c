/*
 * The programs that share a GPU, one line each, and the sums of their users. Called by table.c and
 * ps.c; calls columns.c. Every member is optional, as in table.c. What does not fit into the
 * terminal's line is left out, a column after the other; --long leaves out nothing.
 */
#include "daemon/ctl/ctl.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define CELL MUX_CELL
#define NAME_LEAST 15           /* columns of a name where there is little room */
#define WHY_LEAST 16            /* ... of a reason, before other columns are left out for it */
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
    enum { TEXT, COUNT, SIZE, OCCUPIED, SECONDS, CHARGED, WHY } kind;
    bool is_right;   /* aligned */
    unsigned widest; /* longer text is cut */
} columns[COLUMNS] = {
    [COLUMN_APP] = {"APP", "id", COUNT, true, 10},
    [COLUMN_GPU] = {"GPU", "gpu", COUNT, true, 3},
    [COLUMN_PID] = {"PID", "pid", COUNT, true, 10},
    [COLUMN_USER] = {"USER", "user", TEXT, false, 10},
    [COLUMN_NAME] = {"NAME", "name", TEXT, false, 24},
    [COLUMN_STATE] = {"STATE", "state", TEXT, false, 10},
    [COLUMN_RESIDENT] = {"RESIDENT", "resident_bytes", OCCUPIED, true, 12},
    [COLUMN_TOTAL] = {"TOTAL", "total_bytes", SIZE, true, 12},
    [COLUMN_RUN] = {"RUN", "run_s", SECONDS, true, 10},
    [COLUMN_WAIT] = {"WAIT", "wait_s", SECONDS, true, 10},
    [COLUMN_LEVEL] = {"L", "level", COUNT, true, 3},
    [COLUMN_CLASS] = {"CLASS", "class", TEXT, false, 11},
    [COLUMN_CHARGED] = {"CHARGED", "charged_s", CHARGED, true, 15},
    [COLUMN_WHY] = {"WHY", "why", WHY, false, CELL - 1},
};

/* "12.3s", "4m05s", "3h20m", "2d04h". */
char *mux_seconds(double value, char text[CELL])
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
        mux_seconds(mux_number(app, "charged_s"), text);
    else
        snprintf(text, CELL, "%.20s/%.20s", mux_seconds(mux_number(app, "charged_s"), used),
                 mux_seconds(allotment->valuedouble, all));
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
    text[0] = '\0';
    for (size_t i = strcmp(reason, "-") == 0 && has_more; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i][0])
            gm_text_add(text, CELL, "%s%.190s", *text ? "; " : "", parts[i]);
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
    else if (columns[column].kind == OCCUPIED)
        mux_bytes(mux_occupied(app), text);
    else if (columns[column].kind == SECONDS)
        mux_seconds(item->valuedouble, text);
    else
        snprintf(text, CELL, "%.0f", item->valuedouble);
    gm_text_clean(text, CELL); /* cutting may have split a character */
}

/* ---- the order ---- */

static const char *const states[] = {"running", "draining", "loading", "waiting", "paused",
                                     "stopped", "lost",     "idle",    "gone"};
#define STATES (sizeof states / sizeof states[0])

static int rank(const cJSON *app)
{
    size_t i = 0;
    while (i < STATES && strcmp(states[i], mux_word(app, "state")) != 0)
        i++;
    return (int)i;
}

/* The larger one first. */
static int more(const cJSON *a, const cJSON *b, const char *key)
{
    const double x = mux_number(a, key), y = mux_number(b, key);
    return (x < y) - (x > y);
}

static int by_state(const cJSON *a, const cJSON *b)
{
    const int order = rank(a) - rank(b);
    return order ? order : more(a, b, "waiting_s");
}

static int by_memory(const cJSON *a, const cJSON *b)
{
    const double x = mux_occupied(a), y = mux_occupied(b);
    return (x < y) - (x > y);
}

static int by_run(const cJSON *a, const cJSON *b)
{
    return more(a, b, "run_s");
}

static int by_wait(const cJSON *a, const cJSON *b)
{
    return more(a, b, "wait_s");
}

static int by_user(const cJSON *a, const cJSON *b)
{
    return strcmp(mux_word(a, "user"), mux_word(b, "user"));
}

static int by_name(const cJSON *a, const cJSON *b)
{
    return strcmp(mux_word(a, "name"), mux_word(b, "name"));
}

static int by_pid(const cJSON *a, const cJSON *b)
{
    return more(b, a, "pid");
}

static const struct {
    const char *name;
    int (*compare)(const cJSON *a, const cJSON *b);
} sorts[] = {
    {"state", by_state}, {"memory", by_memory}, {"run", by_run}, {"wait", by_wait},
    {"user", by_user},   {"name", by_name},     {"pid", by_pid},
};
#define SORTS (sizeof sorts / sizeof sorts[0])

bool mux_sort_index(const char *name, unsigned *index)
{
    for (*index = 0; *index < SORTS; (*index)++)
        if (strcmp(sorts[*index].name, name) == 0)
            return true;
    *index = 0;
    return false;
}

const char *mux_sort_name(unsigned index)
{
    return index < SORTS ? sorts[index].name : NULL;
}

static int compare(const void *a, const void *b, void *sort)
{
    const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
    const int order = sorts[*(const unsigned *)sort].compare(x, y);
    const int pids = by_pid(x, y);
    return order ? order : pids ? pids : more(y, x, "gpu");
}

static bool is_meant(const cJSON *app, const struct mux_options *options)
{
    char uid[24];
    snprintf(uid, sizeof uid, "%.0f", mux_number(app, "uid"));
    return (!options->user || strcmp(options->user, mux_word(app, "user")) == 0 ||
            strcmp(options->user, uid) == 0) &&
           (!options->command || fnmatch(options->command, mux_word(app, "name"), 0) == 0);
}

bool mux_sort_apps(const cJSON *status, const struct mux_options *options, struct mux_apps *sorted)
{
    const cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps"), *app;
    unsigned sort = options->sort < SORTS ? options->sort : 0;
    *sorted = (struct mux_apps){
        .has_several_gpus =
            cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(status, "gpus")) > 1};
    sorted->app = calloc((size_t)cJSON_GetArraySize(apps) + 1, sizeof *sorted->app);
    if (!sorted->app) {
        mux_complain("out of memory");
        return false;
    }
    cJSON_ArrayForEach(app, apps)
    {
        if (is_meant(app, options))
            sorted->app[sorted->n++] = app;
    }
    qsort_r(sorted->app, sorted->n, sizeof *sorted->app, compare, &sort);
    return true;
}

/* ---- the table ---- */

/* The width of a column that is not shown: it and the blanks before it are none. */
#define HIDDEN (-2)

static void print_row(char cells[COLUMNS][CELL], const int widths[COLUMNS])
{
    bool is_first = true;
    int last = COLUMNS - 1;
    while (last > 0 && widths[last] == HIDDEN)
        last--;
    for (int i = 0; i <= last; i++) {
        if (widths[i] == HIDDEN)
            continue;
        mux_cut(cells[i], widths[i]);
        const int pad = widths[i] - mux_width(cells[i]);
        fputs(is_first ? "" : "  ", stdout);
        is_first = false;
        if (columns[i].is_right)
            printf("%*s%s", pad, "", cells[i]);
        else
            printf("%s%*s", cells[i], i == last ? 0 : pad, "");
    }
    putchar('\n');
}

static int width_of(const int widths[COLUMNS])
{
    int whole = -2;
    for (int i = 0; i < COLUMNS; i++)
        whole += widths[i] + 2;
    return whole;
}

/* Have the columns fit into the line. */
static void fit(int widths[COLUMNS], int line)
{
    static const enum column dispensable[] = {COLUMN_CHARGED, COLUMN_CLASS, COLUMN_LEVEL,
                                              COLUMN_WAIT,    COLUMN_TOTAL, COLUMN_RUN,
                                              COLUMN_APP,     COLUMN_USER};
    const int why = widths[COLUMN_WHY], least = why < WHY_LEAST ? why : WHY_LEAST;
    for (size_t i = 0; i <= sizeof dispensable / sizeof dispensable[0]; i++) {
        const int others = width_of(widths) - widths[COLUMN_WHY];
        const int spare = widths[COLUMN_NAME] - NAME_LEAST;
        if (others + least > line && spare > 0)
            widths[COLUMN_NAME] -= others + least - line < spare ? others + least - line : spare;
        const int left = line - (width_of(widths) - widths[COLUMN_WHY]);
        widths[COLUMN_WHY] = left < why ? left : why;
        if (left >= least || i == sizeof dispensable / sizeof dispensable[0])
            break;
        widths[dispensable[i]] = HIDDEN;
        widths[COLUMN_WHY] = why;
    }
    if (widths[COLUMN_WHY] < 1)
        widths[COLUMN_WHY] = HIDDEN;
}

static void print_apps(const struct mux_apps *apps, bool is_long)
{
    char cells[COLUMNS][CELL];
    int widths[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        widths[i] = mux_width(columns[i].title);
    for (size_t n = 0; n < apps->n; n++) {
        for (int i = 0; i < COLUMNS; i++) {
            cell(apps->app[n], apps->has_several_gpus, (enum column)i, cells[i]);
            if (mux_width(cells[i]) > widths[i])
                widths[i] = mux_width(cells[i]);
        }
    }
    if (!apps->has_several_gpus)
        widths[COLUMN_GPU] = HIDDEN;
    if (!is_long)
        fit(widths, mux_columns());
    for (int i = 0; i < COLUMNS; i++)
        snprintf(cells[i], CELL, "%s", columns[i].title);
    print_row(cells, widths);
    for (size_t n = 0; n < apps->n; n++) {
        for (int i = 0; i < COLUMNS; i++)
            cell(apps->app[n], apps->has_several_gpus, (enum column)i, cells[i]);
        print_row(cells, widths);
    }
}

/* ---- users ---- */

/* Its entry for another GPU stands before. */
static bool is_again(const struct mux_apps *apps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mux_number(apps->app[i], "id") == mux_number(apps->app[n], "id") &&
            mux_number(apps->app[i], "gpu") != mux_number(apps->app[n], "gpu"))
            return true;
    return false;
}

static int by_run_of(const void *a, const void *b)
{
    const struct mux_user *x = a, *y = b;
    const int order = (x->run_s < y->run_s) - (x->run_s > y->run_s);
    return order ? order : strcmp(x->name, y->name);
}

bool mux_sum_users(const struct mux_apps *apps, struct mux_user **users, size_t *n_users)
{
    struct mux_user *list = calloc(apps->n + 1, sizeof *list);
    *n_users = 0;
    *users = list;
    if (!list) {
        mux_complain("out of memory");
        return false;
    }
    for (size_t n = 0; n < apps->n; n++) {
        const cJSON *app = apps->app[n];
        size_t i = 0;
        while (i < *n_users && strcmp(list[i].name, mux_word(app, "user")) != 0)
            i++;
        if (i == *n_users)
            list[(*n_users)++].name = mux_word(app, "user");
        list[i].programs += !is_again(apps, n);
        list[i].resident += mux_number(app, "resident_bytes");
        list[i].occupied += mux_occupied(app);
        list[i].total += mux_number(app, "total_bytes");
        list[i].run_s += mux_number(app, "run_s");
        list[i].wait_s += mux_number(app, "wait_s");
    }
    qsort(list, *n_users, sizeof *list, by_run_of);
    return true;
}

static void print_users(const struct mux_apps *apps)
{
    struct mux_user *users;
    size_t n;
    char name[CELL], resident[32], total[32], run[CELL], wait[CELL];
    if (apps->n < 2 || !mux_sum_users(apps, &users, &n))
        return;
    printf("\n%-10s  PROGRAMS    RESIDENT       TOTAL     RUN    WAIT\n", "USER");
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%.40s", users[i].name);
        gm_text_clean(name, sizeof name);
        mux_cut(name, 10);
        printf("%s%*s  %8u  %10s  %10s  %6s  %6s\n", name, 10 - mux_width(name), "",
               users[i].programs, mux_bytes(users[i].occupied, resident),
               mux_bytes(users[i].total, total), mux_seconds(users[i].run_s, run),
               mux_seconds(users[i].wait_s, wait));
    }
    free(users);
}

void mux_show_apps(const cJSON *status, const struct mux_options *options)
{
    struct mux_apps apps;
    if (!mux_sort_apps(status, options, &apps))
        return;
    if (apps.n == 0)
        puts("no programs");
    else
        print_apps(&apps, options->is_long);
    print_users(&apps);
    free(apps.app);
}

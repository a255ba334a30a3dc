/*
 * The screen of mux-ctl top, with ncurses: GPUs with the history of their tiers, link and work;
 * below them the programs, one line each, sorted and filtered; and keys that steer the one that is
 * marked. Called by top.c; calls samples.c, apps.c, ask.c and columns.c.
 *
 * All that it shows is the newest sample. A question that the daemon does not answer is told in the
 * last line, and asked again with the next sample.
 *
 * Where GPUs would take more than half of the screen, each is one line. On a narrow screen programs
 * have no class and no reason: the whole reason of the marked one stands below them.
 */
#ifdef GM_HAS_CURSES
#include "daemon/ctl/screen.h"

#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/settings.h"
#include "common/text.h"

#define GPU_LINES 4
#define LEAST_COLUMNS 40
#define LEAST_LINES 8
#define NARROW_FOOT 4 /* lines, with the last one */
#define NARROW 72     /* columns below which a line of a program has no room for why */
#define FILTER_MOST 40

enum { PLAIN, GOOD, WAITS, HEADER, BAD }; /* pairs of colours */

struct view {
    struct mux_options options;
    struct mux_samples *samples;
    struct mux_apps apps; /* of the newest sample that are shown */
    bool is_held;         /* the user marked one, which stays; else the first is marked */
    double marked;        /* the id of the marked one, */
    double marked_gpu;    /* ... which has a line for each GPU that it uses, */
    size_t row, first;    /* ... its place, and that of the first that is on the screen */
    char filter[FILTER_MOST];
    char told[512]; /* in the last line; "": keys */
    bool is_lost;   /* the daemon did not answer when it was last asked */
    bool is_bad, is_help, is_utf8, has_colours;
};

/* ---- writing ---- */

static void colour(const struct view *view, int pair, bool is_on)
{
    if (!view->has_colours || pair == PLAIN)
        return;
    if (is_on)
        attron(COLOR_PAIR(pair));
    else
        attroff(COLOR_PAIR(pair));
}

/* Text from a column on, cut to `most` characters. */
static void put(int line, int column, int most, const char *text)
{
    char cut[1024];
    if (most > COLS - column)
        most = COLS - column;
    if (line >= LINES || most <= 0)
        return;
    snprintf(cut, sizeof cut, "%s", text);
    gm_text_clean(cut, sizeof cut);
    mux_cut(cut, most);
    mvaddstr(line, column, cut);
}

/* The whole text from a line on, broken at blanks. Returns the line below it. */
static int put_wrapped(int line, int column, const char *text)
{
    char part[1024];
    do {
        snprintf(part, sizeof part, "%s", text);
        mux_cut(part, COLS - column);
        char *blank = strrchr(part, ' ');
        if (blank && text[strlen(part)] && text[strlen(part)] != ' ')
            *blank = '\0';
        put(line++, column, COLS, part);
        text += strlen(part);
        text += strspn(text, " ");
    } while (*text);
    return line;
}

static void say(struct view *view, bool is_bad, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct view *view, bool is_bad, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(view->told, sizeof view->told, format, list);
    va_end(list);
    view->is_bad = is_bad;
}

/* The last `width` values as a bar each, the largest of which is `most`. */
static void put_history(const struct view *view, int line, int column, int width,
                        const struct mux_gpu_history *gpu, enum mux_series series, double most)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ".", ":", ":", "+", "+", "#", "#"};
    const int n = (int)gpu->n < width ? (int)gpu->n : width;
    for (int i = 0; i < n && column + width <= COLS; i++) {
        const double value = (double)gpu->value[series][gpu->n - (unsigned)(n - i)];
        int step = most > 0 ? (int)(value / most * 8 + 0.5) : 0;
        step = step < 0 ? 0 : step > 8 ? 8 : step;
        if (step == 0 && value > 0)
            step = 1;
        mvaddstr(line, column + width - n + i, view->is_utf8 ? blocks[step] : plain[step]);
    }
}

static double largest(const struct mux_gpu_history *gpu, enum mux_series series)
{
    double most = 0;
    for (unsigned i = 0; i < gpu->n; i++)
        most = (double)gpu->value[series][i] > most ? (double)gpu->value[series][i] : most;
    return most;
}

/* ---- GPUs ---- */

/* "train.py (812), chat.py (900)": who has the GPU now. */
static void name_workers(const struct view *view, const cJSON *gpu, char *text, size_t size)
{
    const cJSON *app;
    text[0] = '\0';
    cJSON_ArrayForEach(app, cJSON_GetObjectItemCaseSensitive(view->samples->status, "apps"))
    {
        const bool works = strcmp(mux_word(app, "state"), "running") == 0;
        if (works && mux_number(app, "gpu") == mux_number(gpu, "index"))
            gm_text_add(text, size, "%s%.40s (%.0f)", *text ? ", " : "", mux_word(app, "name"),
                        mux_number(app, "pid"));
    }
    if (!*text)
        snprintf(text, size, "nobody");
}

static void put_tier(const struct view *view, int line, const char *name, double used, double all,
                     const struct mux_gpu_history *gpu, enum mux_series series)
{
    char text[128], a[32], b[32];
    const int half = COLS / 2;
    snprintf(text, sizeof text, COLS < NARROW ? "  %-6s %8s of %s" : "  %-6s %10s of %-10s", name,
             mux_bytes(used, a), all > 0 ? mux_bytes(all, b) : "none");
    put(line, 0, half, text);
    put_history(view, line, 33, half - 34, gpu, series, 1);
}

static void put_rate(const struct view *view, int line, const char *name, const char *value,
                     const struct mux_gpu_history *gpu, enum mux_series series, double most)
{
    char text[64];
    const int half = COLS / 2;
    snprintf(text, sizeof text, "%-4s %10s", name, value);
    put(line, half, 15, text);
    put_history(view, line, half + 17, COLS - half - 18, gpu, series, most);
}

static void format_rate(const struct mux_gpu_history *gpu, enum mux_series series, char text[32])
{
    snprintf(text, 32, "%.1f GB/s", mux_newest(gpu, series) / 1e9);
}

static void put_gpu(const struct view *view, int line, const cJSON *gpu,
                    const struct mux_gpu_history *history)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    char text[512], who[256], value[32];
    const double in = largest(history, MUX_IN), out = largest(history, MUX_OUT);
    name_workers(view, gpu, who, sizeof who);
    snprintf(text, sizeof text, "GPU %.0f  %.40s", mux_number(gpu, "index"), mux_word(gpu, "name"));
    colour(view, HEADER, true);
    put(line, 0, COLS / 2 - 1, text);
    colour(view, HEADER, false);
    snprintf(text, sizeof text, "%s%s", COLS < NARROW ? "" : "works: ", who);
    put(line, COLS / 2, COLS / 2, text);
    put_tier(view, line + 1, "gpu", mux_number(gpu, "used_bytes"), mux_number(gpu, "budget_bytes"),
             history, MUX_USED);
    put_tier(view, line + 2, "pinned", mux_number(tiers, "pinned_used_bytes"),
             mux_number(tiers, "pinned_cap_bytes"), history, MUX_PINNED);
    put_tier(view, line + 3, "below",
             mux_number(tiers, "paged_used_bytes") + mux_number(tiers, "disk_used_bytes"),
             mux_number(tiers, "paged_cap_bytes") + mux_number(tiers, "disk_cap_bytes"), history,
             MUX_BELOW);
    format_rate(history, MUX_IN, value);
    put_rate(view, line + 1, "in", value, history, MUX_IN, in > out ? in : out);
    format_rate(history, MUX_OUT, value);
    put_rate(view, line + 2, "out", value, history, MUX_OUT, in > out ? in : out);
    snprintf(value, sizeof value, "%.0f %%", 100 * mux_newest(history, MUX_BUSY));
    put_rate(view, line + 3, "busy", value, history, MUX_BUSY, 1);
}

/* In one line. */
static void put_gpu_short(const struct view *view, int line, const cJSON *gpu,
                          const struct mux_gpu_history *history)
{
    char text[512], who[256], used[32], in[32], out[32];
    name_workers(view, gpu, who, sizeof who);
    format_rate(history, MUX_IN, in);
    format_rate(history, MUX_OUT, out);
    snprintf(text, sizeof text, "GPU %-2.0f %9s %3.0f%%  in %-10s out %-10s busy %3.0f%%  %s",
             mux_number(gpu, "index"), mux_size(gpu, "used_bytes", used),
             100 * mux_newest(history, MUX_USED), in, out, 100 * mux_newest(history, MUX_BUSY),
             who);
    put(line, 0, COLS, text);
}

/* Returns the line below them. */
static int put_gpus(const struct view *view, int line)
{
    const cJSON *gpu;
    const int n = (int)view->samples->n_gpus;
    const bool is_short = n * GPU_LINES > LINES / 2;
    const int room = LINES / 2 > 1 ? LINES / 2 : 1;
    int at = 0;
    cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(view->samples->status, "gpus"))
    {
        if (at >= n || (is_short && at == room))
            break;
        if (is_short)
            put_gpu_short(view, line++, gpu, &view->samples->gpu[at]);
        else
            put_gpu(view, line, gpu, &view->samples->gpu[at]);
        line += is_short ? 0 : GPU_LINES;
        at++;
    }
    return line;
}

/* ---- programs ---- */

static const struct {
    const char *title;
    int width; /* the last one takes what is left */
    bool is_right;
} columns[] = {{"PID", 8, true},  {"USER", 8, false},    {"NAME", 15, false}, {"STATE", 8, false},
               {"%GPU", 5, true}, {"RESIDENT", 9, true}, {"CLASS", 5, false}, {"WHY", 0, false}};
#define COLUMNS (sizeof columns / sizeof columns[0])
#define NARROW_COLUMNS (COLUMNS - 2) /* 58 columns */

static void put_cells(int line, const char *const cell[COLUMNS])
{
    int at = 0;
    for (size_t i = 0; i < (COLS < NARROW ? NARROW_COLUMNS : COLUMNS) && at < COLS; i++) {
        const int width = columns[i].width > 0 ? columns[i].width : COLS - at;
        const int used = mux_width(cell[i]);
        put(line, at + (columns[i].is_right && used < width ? width - used : 0), width, cell[i]);
        at += width + 1;
    }
}

static int pair_of(const cJSON *app)
{
    const char *state = mux_word(app, "state");
    return strcmp(state, "running") == 0                                    ? GOOD
           : strcmp(state, "waiting") == 0 || strcmp(state, "loading") == 0 ? WAITS
           : strcmp(state, "stopped") == 0 || strcmp(state, "lost") == 0    ? BAD
                                                                            : PLAIN;
}

static void put_app(const struct view *view, int line, const cJSON *app, bool is_marked)
{
    char pid[24], percent[24], resident[32];
    const double part = mux_percent(view->samples, app);
    snprintf(pid, sizeof pid, "%.0f", mux_number(app, "pid"));
    snprintf(percent, sizeof percent, part < 0 ? "-" : "%.0f", part);
    const char *const cell[COLUMNS] = {pid,
                                       mux_word(app, "user"),
                                       mux_word(app, "name"),
                                       mux_word(app, "state"),
                                       percent,
                                       mux_bytes(mux_occupied(app), resident),
                                       mux_word(app, "class"),
                                       mux_word(app, "why")};
    if (is_marked) {
        attron(A_REVERSE);
        mvhline(line, 0, ' ', COLS);
    }
    colour(view, is_marked ? PLAIN : pair_of(app), true);
    put_cells(line, cell);
    colour(view, is_marked ? PLAIN : pair_of(app), false);
    attroff(A_REVERSE);
}

static void remember_mark(struct view *view)
{
    const cJSON *app = view->row < view->apps.n ? view->apps.app[view->row] : NULL;
    view->marked = app ? mux_number(app, "id") : -1;
    view->marked_gpu = app ? mux_number(app, "gpu") : -1;
}

/* Who is marked stays so, wherever it is now; if it is gone, the one in its place is. */
static void follow_mark(struct view *view)
{
    size_t row = 0;
    while (view->is_held && row < view->apps.n &&
           (mux_number(view->apps.app[row], "id") != view->marked ||
            mux_number(view->apps.app[row], "gpu") != view->marked_gpu))
        row++;
    if (row == view->apps.n)
        row = view->row < view->apps.n ? view->row : view->apps.n > 0 ? view->apps.n - 1 : 0;
    view->row = row;
    remember_mark(view);
}

static bool list_apps(struct view *view)
{
    size_t kept = 0;
    free(view->apps.app);
    view->apps = (struct mux_apps){0};
    if (!mux_sort_apps(view->samples->status, &view->options, &view->apps))
        return false;
    for (size_t i = 0; i < view->apps.n; i++)
        if (mux_is_filtered(view->apps.app[i], view->filter))
            view->apps.app[kept++] = view->apps.app[i];
    view->apps.n = kept;
    follow_mark(view);
    return true;
}

static void put_apps(struct view *view, int line, int end)
{
    const char *titles[COLUMNS];
    for (size_t i = 0; i < COLUMNS; i++)
        titles[i] = columns[i].title;
    attron(A_BOLD);
    put_cells(line++, titles);
    attroff(A_BOLD);
    const size_t room = end > line ? (size_t)(end - line) : 0;
    if (view->row < view->first)
        view->first = view->row;
    if (room > 0 && view->row >= view->first + room)
        view->first = view->row - room + 1;
    if (view->first + room > view->apps.n)
        view->first = view->apps.n > room ? view->apps.n - room : 0;
    for (size_t i = 0; i < room && view->first + i < view->apps.n; i++)
        put_app(view, line + (int)i, view->apps.app[view->first + i], view->first + i == view->row);
    if (view->apps.n == 0)
        put(line, 0, COLS, *view->filter ? "no program matches the filter" : "no programs");
}

/* ---- the whole screen ---- */

static void put_head(const struct view *view)
{
    const cJSON *app, *status = view->samples->status;
    unsigned n = 0, running = 0, waiting = 0;
    char text[256], up[MUX_CELL], shown[64] = "", begin[64] = "";
    cJSON_ArrayForEach(app, cJSON_GetObjectItemCaseSensitive(status, "apps"))
    {
        n++;
        running += strcmp(mux_word(app, "state"), "running") == 0;
        waiting += strcmp(mux_word(app, "state"), "waiting") == 0;
    }
    if (*view->filter)
        snprintf(shown, sizeof shown, ", %zu match \"%s\"", view->apps.n, view->filter);
    if (COLS >= NARROW)
        snprintf(begin, sizeof begin, "gpumux %.20s up %s: ", mux_word(status, "version"),
                 mux_seconds(mux_number(status, "uptime_s"), up));
    snprintf(text, sizeof text, "%s%u programs, %u running, %u waiting%s; by %s", begin, n, running,
             waiting, shown, mux_sort_name(view->options.sort));
    attron(A_BOLD);
    put(0, 0, COLS, text);
    attroff(A_BOLD);
}

static void put_help(void)
{
    static const char *const lines[] = {
        "up, down, PgUp, PgDn, Home, End   mark a program",
        "s   sort by the next of " MUX_SORT_LIST,
        "/   show only what has this text in its name, user, state or reason; Esc: all",
        "p   pause the marked program, or resume it",
        "c   change its class",
        "m   change its cap: the most GPU memory that it may occupy",
        "e   evict it: its memory leaves the GPU until it is resumed with p",
        "i   evict it until its next call",
        "h   this; any key goes back",
        "q   quit",
    };
    put(0, 0, COLS, "mux-ctl top: keys");
    int line = 2;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        line = put_wrapped(line, 2, lines[i]);
}

/* The whole reason of the marked one, or what there is to say, or the keys. */
static void put_foot(const struct view *view)
{
    const cJSON *app = view->row < view->apps.n ? view->apps.app[view->row] : NULL;
    if (app && LINES > LEAST_LINES) {
        char text[1024];
        snprintf(text, sizeof text, "%.0f %s: %s", mux_number(app, "pid"), mux_word(app, "name"),
                 mux_word(app, "why"));
        if (COLS < NARROW)
            put_wrapped(LINES - NARROW_FOOT, 0, text);
        else
            put(LINES - 2, 0, COLS, text);
        move(LINES - 1, 0);
        clrtoeol();
    }
    if (*view->told) {
        colour(view, view->is_bad ? BAD : GOOD, true);
        put(LINES - 1, 0, COLS - 1, view->told);
        colour(view, view->is_bad ? BAD : GOOD, false);
    } else {
        put(LINES - 1, 0, COLS - 1,
            COLS < NARROW
                ? "h help  s sort  / filter  p pause  e evict  q quit"
                : "h help  s sort  / filter  p pause  c class  m cap  e evict  i idle  q quit");
    }
}

static void draw(struct view *view)
{
    erase();
    if (LINES < LEAST_LINES || COLS < LEAST_COLUMNS) {
        put(0, 0, COLS, "too small a terminal");
    } else if (view->is_help) {
        put_help();
    } else {
        put_head(view);
        put_apps(view, put_gpus(view, 1), LINES - (COLS < NARROW ? NARROW_FOOT : 2));
        put_foot(view);
    }
    refresh();
}

/* ---- keys ---- */

/* Change a setting of the marked program. */
static void set_marked(struct view *view, const char *word)
{
    view->is_held = true;
    struct gm_settings said = {0};
    struct gm_msg_set_is answer = {0};
    char why[192];
    if (view->row >= view->apps.n) {
        say(view, true, "no program is marked");
        return;
    }
    if (gm_settings_take(&said, word, why, sizeof why)) {
        say(view, true, "%s", why);
        return;
    }
    const cJSON *app = view->apps.app[view->row];
    struct gm_msg_set set = mux_set_of(&said);
    struct mux_question ask = {.question = GM_MSG_SET,
                               .body = &set,
                               .answer = GM_MSG_SET_IS,
                               .result = &answer,
                               .result_size = sizeof answer};
    set.selects = GM_SET_PID;
    set.pid = (int32_t)mux_number(app, "pid");
    if (mux_try(view->options.socket, &ask))
        say(view, true, "%s", ask.why);
    else if (answer.is_refused)
        say(view, true, "%s", answer.text);
    else
        say(view, false, "pid %d (%s): %s%s%s", (int)set.pid, mux_word(app, "name"), word,
            answer.text[0] ? "; " : "", answer.text);
}

/* Ask for a line. False: the user has left it with Esc. */
static bool ask_line(const struct view *view, const char *prompt, char *line, size_t size)
{
    size_t length = 0;
    line[0] = '\0';
    timeout(-1);
    for (;;) {
        char shown[256];
        move(LINES - 1, 0);
        clrtoeol();
        snprintf(shown, sizeof shown, "%s%s_", prompt, line);
        put(LINES - 1, 0, COLS - 1, shown);
        refresh();
        const int key = getch();
        if (key == 27 || key == ERR)
            return false;
        if (key == '\n' || key == '\r' || key == KEY_ENTER)
            return true;
        if ((key == KEY_BACKSPACE || key == 127 || key == 8) && length > 0)
            line[--length] = '\0';
        else if (key >= ' ' && key < 127 && length + 1 < size)
            line[length++] = (char)key, line[length] = '\0';
    }
    (void)view;
}

static void ask_setting(struct view *view, const char *name, const char *prompt)
{
    char value[32], word[64];
    if (!ask_line(view, prompt, value, sizeof value) || !*value)
        return;
    snprintf(word, sizeof word, "%s=%s", name, value);
    set_marked(view, word);
}

static void mark(struct view *view, long by)
{
    view->is_held = true;
    const long last = (long)view->apps.n - 1;
    long row = (long)view->row + by;
    row = row > last ? last : row;
    view->row = row < 0 ? 0 : (size_t)row;
    remember_mark(view);
}

static bool is_marked_paused(const struct view *view)
{
    return view->row < view->apps.n &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(view->apps.app[view->row], "paused"));
}

/* False: the user leaves. *is_stale: there is to be a new sample. */
static bool obey(struct view *view, int key, bool *is_stale)
{
    const bool was_help = view->is_help;
    view->is_help = false;
    view->told[0] = '\0';
    switch (was_help && key != 'q' ? 0 : key) {
    case 'q':
        return false;
    case 'h':
    case '?':
        view->is_help = true;
        break;
    case KEY_UP:
    case 'k':
        mark(view, -1);
        break;
    case KEY_DOWN:
    case 'j':
        mark(view, 1);
        break;
    case KEY_PPAGE:
        mark(view, -LINES / 2);
        break;
    case KEY_NPAGE:
        mark(view, LINES / 2);
        break;
    case KEY_HOME:
        mark(view, -(long)view->apps.n);
        view->is_held = false;
        break;
    case KEY_END:
        mark(view, (long)view->apps.n);
        break;
    case 's':
        view->options.sort++;
        if (!mux_sort_name(view->options.sort))
            view->options.sort = 0;
        break;
    case '/':
        if (!ask_line(view, "show only: ", view->filter, sizeof view->filter))
            view->filter[0] = '\0';
        break;
    case 27:
        view->filter[0] = '\0';
        break;
    case 'p':
        set_marked(view, is_marked_paused(view) ? "paused=no" : "paused=yes");
        *is_stale = true;
        break;
    case 'e':
        set_marked(view, "paused=evicted");
        *is_stale = true;
        break;
    case 'i':
        set_marked(view, "paused=idle");
        *is_stale = true;
        break;
    case 'c':
        ask_setting(view, "class", "class (" GM_CLASS_LIST "): ");
        *is_stale = true;
        break;
    case 'm':
        ask_setting(view, "cap", "cap (a size, for example 6G, or none): ");
        *is_stale = true;
        break;
    default:
        break;
    }
    return true;
}

/* ---- from start to end ---- */

static void sample(struct view *view)
{
    cJSON *status;
    struct mux_question ask;
    const bool is_lost = mux_try_status(&view->options, &ask, &status) != MUX_OK;
    if (is_lost)
        say(view, true, "%s", ask.why);
    else
        mux_take_sample(view->samples, status);
    if (view->is_lost && !is_lost)
        view->told[0] = '\0'; /* it answers again */
    view->is_lost = is_lost;
}

static int show(struct view *view)
{
    const uint64_t every = view->options.watch_ns > 0 ? view->options.watch_ns : GM_S;
    uint64_t next = gm_now() + every;
    for (bool goes_on = true; goes_on;) {
        bool is_stale = gm_now() >= next;
        if (!list_apps(view))
            return MUX_FAILED;
        draw(view);
        const uint64_t now = gm_now();
        timeout(next > now ? (int)((next - now) / GM_MS) + 1 : 0);
        const int key = is_stale ? ERR : getch();
        if (key != ERR && key != KEY_RESIZE)
            goes_on = obey(view, key, &is_stale);
        if (goes_on && is_stale) {
            sample(view);
            next = gm_now() + every;
        }
    }
    return MUX_OK;
}

static void begin_colours(struct view *view)
{
    const char *no = getenv("NO_COLOR");
    view->has_colours = !(no && *no) && has_colors() && start_color() == OK;
    if (!view->has_colours)
        return;
    use_default_colors();
    init_pair(GOOD, COLOR_GREEN, -1);
    init_pair(WAITS, COLOR_YELLOW, -1);
    init_pair(HEADER, COLOR_CYAN, -1);
    init_pair(BAD, COLOR_RED, -1);
}

int mux_screen(const struct mux_options *options, struct mux_samples *samples)
{
    struct view view = {.options = *options, .samples = samples, .marked = -1, .marked_gpu = -1};
    setlocale(LC_CTYPE, "");
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        const char *term = getenv("TERM");
        mux_complain("top: nothing is known of the terminal \"%.40s\": set TERM, or say --once",
                     term ? term : "");
        return MUX_FAILED;
    }
    view.is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    begin_colours(&view);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    const int code = show(&view);
    endwin();
    delscreen(screen);
    free(view.apps.app);
    return code;
}
#endif

/* Options: see options.h. Called by main once, before anything else exists. */
#include "daemon/options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/size.h"
#include "common/sock.h"
#include "common/text.h"

enum kind {
    KIND_NUMBER,
    KIND_SIZE,
    KIND_BUDGET,
    KIND_DURATION,
    KIND_PATH,
    KIND_PLACE,
    KIND_CHOICE,
    KIND_LEVEL,
    KIND_FLAG
};
enum place { PLACE_BOTH, PLACE_LINE };

struct row {
    const char *name;
    const char *argument;
    const char *otherwise; /* the default */
    const char *help;
    uint64_t min, max;
    size_t offset; /* of the member */
    enum kind kind;
    enum place place;
};

static const struct row rows[] = {
#define GM_OPTION(name, member, kind, argument, place, min, max, otherwise, help)                  \
    {name,        argument,     otherwise, help, min, max, offsetof(struct gm_options, member),    \
     KIND_##kind, PLACE_##place},
#include "daemon/options.def"
#undef GM_OPTION
};
#define ROWS (sizeof rows / sizeof rows[0])

/* What a kind of value looks like, for the line about one that does not. */
static const char *const kind_looks[] = {
    [KIND_NUMBER] = "a number",
    [KIND_SIZE] = "a size (for example 24G or 512MiB)",
    [KIND_BUDGET] = "a size (for example 24G or 512MiB) or a percentage (for example 80%)",
    [KIND_DURATION] = "a time (for example 500ms or 4s)",
    [KIND_PATH] = "a path",
    [KIND_PLACE] = "a folder and a size (for example /var/tmp:100G)",
    [KIND_CHOICE] = "one of",
    [KIND_LEVEL] = "error, warn, info or debug",
    [KIND_FLAG] = "nothing",
};

static const struct {
    const char *name;
    enum gm_log_level level;
} levels[] = {
    {"error", GM_LOG_ERROR}, {"warn", GM_LOG_WARN}, {"info", GM_LOG_INFO}, {"debug", GM_LOG_DEBUG}};

const char *gm_options_level_name(enum gm_log_level level)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (levels[i].level == level)
            return levels[i].name;
    return "?";
}

static const struct row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

/* Digits only: no sign, no blank, no base. */
static int parse_number(const char *text, uint64_t *value)
{
    uint64_t sum = 0;
    if (*text == '\0')
        return -EINVAL;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(sum, (uint64_t)10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*text - '0'), &sum))
            return -ERANGE;
    }
    *value = sum;
    return 0;
}

static int parse_bounded(const struct row *row, int (*parse)(const char *, uint64_t *),
                         const char *text, uint64_t *value)
{
    uint64_t parsed = 0;
    int error = parse(text, &parsed);
    if (error)
        return error;
    if (parsed < row->min || parsed > row->max)
        return -ERANGE;
    *value = parsed;
    return 0;
}

static int parse_budget(const struct row *row, const char *text, struct gm_budget *budget)
{
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '%') {
        char digits[8];
        uint64_t percent = 0;
        if (length > sizeof digits)
            return -EINVAL;
        memcpy(digits, text, length - 1);
        digits[length - 1] = '\0';
        int error = parse_number(digits, &percent);
        if (error)
            return error;
        if (percent < 1 || percent > 100)
            return -ERANGE;
        *budget = (struct gm_budget){.percent = (uint32_t)percent};
        return 0;
    }
    uint64_t bytes = 0;
    int error = parse_bounded(row, gm_parse_size, text, &bytes);
    if (error == 0)
        *budget = (struct gm_budget){.bytes = bytes};
    return error;
}

/* The size is what stands behind the last colon. */
static int parse_place(const struct row *row, const char *text, struct gm_place *place)
{
    const char *colon = strrchr(text, ':');
    uint64_t bytes = 0;
    if (!colon || colon == text)
        return -EINVAL;
    int error = parse_bounded(row, gm_parse_size, colon + 1, &bytes);
    if (error)
        return error;
    if ((size_t)(colon - text) >= sizeof place->dir)
        return -ERANGE;
    memset(place, 0, sizeof *place);
    memcpy(place->dir, text, (size_t)(colon - text));
    place->bytes = bytes;
    return 0;
}

/* The index of `text` among the words of the row's argument. */
static int parse_choice(const struct row *row, const char *text, uint32_t *choice)
{
    const char *word = row->argument;
    for (uint32_t i = 0;; i++) {
        size_t length = strcspn(word, "|");
        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            *choice = i;
            return 0;
        }
        if (word[length] == '\0')
            return -EINVAL;
        word += length + 1;
    }
}

/* Parse `text` into the row's member. 0, -EINVAL or -ERANGE; the member changes on success only. */
static int set_row(struct gm_options *options, const struct row *row, const char *text)
{
    void *member = (char *)options + row->offset;
    uint64_t value = 0;
    int error = 0;

    switch (row->kind) {
    case KIND_NUMBER:
        error = parse_bounded(row, parse_number, text, &value);
        if (error == 0)
            *(uint32_t *)member = (uint32_t)value;
        return error;
    case KIND_SIZE:
        return parse_bounded(row, gm_parse_size, text, member);
    case KIND_BUDGET:
        return parse_budget(row, text, member);
    case KIND_DURATION:
        return parse_bounded(row, gm_parse_duration, text, member);
    case KIND_PATH:
        if (*text == '\0')
            return -EINVAL;
        if (strlen(text) >= PATH_MAX)
            return -ERANGE;
        memcpy(member, text, strlen(text) + 1);
        return 0;
    case KIND_PLACE:
        return parse_place(row, text, member);
    case KIND_CHOICE:
        return parse_choice(row, text, member);
    case KIND_LEVEL:
        for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
            if (strcmp(text, levels[i].name) == 0) {
                *(enum gm_log_level *)member = levels[i].level;
                return 0;
            }
        }
        return -EINVAL;
    case KIND_FLAG:
        *(bool *)member = true;
        return 0;
    }
    return -EINVAL;
}

static void format_bound(const struct row *row, uint64_t bound, char *text, size_t size)
{
    if (row->kind == KIND_SIZE || row->kind == KIND_BUDGET || row->kind == KIND_PLACE)
        gm_format_size(bound, text, size);
    else if (row->kind == KIND_DURATION && bound >= GM_S)
        snprintf(text, size, "%llus", (unsigned long long)(bound / GM_S));
    else if (row->kind == KIND_DURATION)
        snprintf(text, size, "%llums", (unsigned long long)(bound / GM_MS));
    else
        snprintf(text, size, "%llu", (unsigned long long)bound);
}

/* `text` as it can be shown inside one line: cut, and legal. */
static const char *show(const char *text, char shown[64])
{
    snprintf(shown, 64, "%s", text);
    gm_text_clean(shown, 64);
    return shown;
}

static void explain(const struct row *row, int error, const char *text, char *why, size_t size)
{
    char shown[64], min[32], max[32];
    show(text, shown);
    if (error != -ERANGE) {
        snprintf(why, size, "\"%s\" is not %s%s%s", shown, kind_looks[row->kind],
                 row->kind == KIND_CHOICE ? " " : "",
                 row->kind == KIND_CHOICE ? row->argument : "");
        return;
    }
    if (row->kind == KIND_PATH) {
        snprintf(why, size, "the path is longer than %d bytes", PATH_MAX - 1);
        return;
    }
    format_bound(row, row->min, min, sizeof min);
    format_bound(row, row->max, max, sizeof max);
    if (row->kind == KIND_BUDGET && strchr(text, '%'))
        snprintf(why, size, "\"%s\" is out of range: from 1%% to 100%%", shown);
    else if (row->max == INT64_MAX)
        snprintf(why, size, "\"%s\" is out of range: at least %s, less than 8 EiB", shown, min);
    else
        snprintf(why, size, "\"%s\" is out of range: from %s to %s", shown, min, max);
}

int gm_options_set(struct gm_options *options, const char *name, const char *text, char *why,
                   size_t why_size)
{
    char shown[64];
    const struct row *row = find_row(name, strlen(name));
    if (!row) {
        snprintf(why, why_size, "no option has the name \"%s\": gpumuxd --help lists them",
                 show(name, shown));
        return -ENOENT;
    }
    if (row->place == PLACE_LINE) {
        snprintf(why, why_size, "\"%s\" can only be given on the command line", name);
        return -EPERM;
    }
    int error = set_row(options, row, text);
    if (error) {
        int length = snprintf(why, why_size, "%s: ", name);
        if (length > 0 && (size_t)length < why_size)
            explain(row, error, text, why + length, why_size - (size_t)length);
    }
    return error;
}

void gm_options_init(struct gm_options *options)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].otherwise[0] && set_row(options, &rows[i], rows[i].otherwise))
            abort(); /* the table itself is wrong: test_options would show it */
}

/* ---- the configuration file ---------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cut blanks off both ends, in place. */
static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

static void cut_comment(char *line)
{
    for (char *c = line; *c; c++) {
        if (*c == '#' && (c == line || is_blank(c[-1]))) {
            *c = '\0';
            return;
        }
    }
}

/* One line of the file, its newline gone. `seen` has the line of each option that was set. */
static int load_line(struct gm_options *options, char *line, unsigned number, unsigned *seen,
                     char *why, size_t size)
{
    cut_comment(line);
    line = trim(line);
    if (*line == '\0')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals) {
        snprintf(why, size, "expected \"name = value\"");
        return -EINVAL;
    }
    *equals = '\0';
    const char *name = trim(line);
    const char *value = trim(equals + 1);
    int error = gm_options_set(options, name, value, why, size);
    if (error)
        return error;
    size_t i = (size_t)(find_row(name, strlen(name)) - rows);
    if (seen[i]) {
        snprintf(why, size, "%s was set on line %u already", name, seen[i]);
        return -EINVAL;
    }
    seen[i] = number;
    return 0;
}

int gm_options_load(struct gm_options *options, const char *path, char *why, size_t why_size)
{
    char line[PATH_MAX + 256], text[512];
    unsigned seen[ROWS] = {0};
    unsigned number = 0;
    int error = 0;

    FILE *file = fopen(path, "re");
    if (!file) {
        error = -errno;
        snprintf(why, why_size, "%s: cannot be read: %s", path, strerror(-error));
        return error;
    }
    while (error == 0 && fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        number++;
        if (length > 0 && line[length - 1] == '\n') {
            line[length - 1] = '\0';
            error = load_line(options, line, number, seen, text, sizeof text);
        } else if (feof(file)) {
            error = load_line(options, line, number, seen, text, sizeof text);
        } else {
            snprintf(text, sizeof text, "the line is too long, or not text");
            error = -EINVAL;
        }
        if (error)
            snprintf(why, why_size, "%s:%u: %s", path, number, text);
    }
    if (error == 0 && ferror(file)) {
        error = errno > 0 ? -errno : -EIO;
        snprintf(why, why_size, "%s: cannot be read: %s", path, strerror(-error));
    }
    fclose(file);
    return error == -ENOENT ? -EINVAL : error; /* an unknown name is not a missing file */
}

/* ---- the command line ---------------------------------------------------------------------- */

enum { KEY_ROW = 0x1000, KEY_HELP = 0x2000, KEY_VERSION };

struct line {
    const char *given[ROWS]; /* the last text of each option, NULL: not given */
    const char *extra;       /* a word that is no option */
    bool is_help, is_version, is_bad;
    char *why;
    size_t why_size;
};

/* argp found an option that it does not know, or one without its value: say which. */
static void explain_line(struct line *line, const struct argp_state *state)
{
    const char *word = state->next > 0 ? state->argv[state->next - 1] : "";
    char shown[64];
    const struct row *row = NULL;

    if (word[0] != '-' && state->next < state->argc)
        word = state->argv[state->next]; /* in the middle of a cluster of one-letter options */
    if (strncmp(word, "--", 2) == 0)
        row = find_row(word + 2, strcspn(word + 2, "="));
    if (row && row->kind == KIND_FLAG)
        snprintf(line->why, line->why_size, "--%s takes no value", row->name);
    else if (row)
        snprintf(line->why, line->why_size, "--%s needs a value: --%s=%s", row->name, row->name,
                 row->argument);
    else
        snprintf(line->why, line->why_size, "unknown option %s: gpumuxd --help lists them",
                 show(word, shown));
}

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    struct line *line = state->input;

    if (key >= KEY_ROW && key < KEY_ROW + (int)ROWS) {
        line->given[key - KEY_ROW] = argument ? argument : "";
        return 0;
    }
    switch (key) {
    case KEY_HELP:
        line->is_help = true;
        return 0;
    case KEY_VERSION:
        line->is_version = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!line->extra)
            line->extra = argument;
        return 0;
    case ARGP_KEY_ERROR:
        if (!line->is_bad)
            explain_line(line, state);
        line->is_bad = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The default configuration file. Returns false where there is none to look for. */
static bool default_config(bool is_user, char *path, size_t size)
{
    if (!is_user)
        return snprintf(path, size, "%s", GM_CONFIG_SYSTEM) < (int)size;
    const char *base = getenv("XDG_CONFIG_HOME");
    if (base && *base)
        return snprintf(path, size, "%s/%s", base, GM_CONFIG_USER) < (int)size;
    base = getenv("HOME");
    return base && *base && snprintf(path, size, "%s/.config/%s", base, GM_CONFIG_USER) < (int)size;
}

static int load_config(struct gm_options *options, const struct line *line)
{
    if (options->config[0]) {
        int error = gm_options_load(options, options->config, line->why, line->why_size);
        return error;
    }
    char path[PATH_MAX];
    if (!default_config(options->user, path, sizeof path))
        return 0;
    int error = gm_options_load(options, path, line->why, line->why_size);
    if (error == -ENOENT)
        return 0;
    memcpy(options->config, path, sizeof path);
    return error;
}

/* Apply the command line: its options of one place only, so that the file comes between. */
static int apply_line(struct gm_options *options, const struct line *line, enum place place)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (!line->given[i] || rows[i].place != place)
            continue;
        int error = set_row(options, &rows[i], line->given[i]);
        if (error) {
            int length = snprintf(line->why, line->why_size, "--%s: ", rows[i].name);
            if (length > 0 && (size_t)length < line->why_size)
                explain(&rows[i], error, line->given[i], line->why + length,
                        line->why_size - (size_t)length);
            return error;
        }
    }
    return 0;
}

static int place_socket(struct gm_options *options, const struct line *line)
{
    if (options->socket[0]) {
        options->is_own_socket = true;
        return 0;
    }
    if (!options->user) {
        snprintf(options->socket, sizeof options->socket, "%s", GM_SOCKET_SYSTEM);
        return 0;
    }
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || !*base) {
        snprintf(line->why, line->why_size,
                 "--user needs XDG_RUNTIME_DIR, which is not set: start it from a login session, "
                 "or say where with --socket");
        return -EINVAL;
    }
    if (snprintf(options->socket, sizeof options->socket, "%s/%s", base, GM_SOCKET_USER) >=
        (int)sizeof options->socket) {
        snprintf(line->why, line->why_size, "XDG_RUNTIME_DIR is too long");
        return -ENAMETOOLONG;
    }
    return 0;
}

int gm_options_parse(struct gm_options *options, int argc, char **argv, char *why, size_t why_size)
{
    static char docs[ROWS][256]; /* argp keeps pointers */
    struct argp_option table[ROWS + 3];
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < ROWS; i++) {
        bool has_default = rows[i].otherwise[0] != '\0';
        snprintf(docs[i], sizeof docs[i], "%s%s%s%s", rows[i].help, has_default ? " (default " : "",
                 rows[i].otherwise, has_default ? ")" : "");
        table[i] = (struct argp_option){
            .name = rows[i].name,
            .key = KEY_ROW + (int)i,
            .arg = rows[i].kind == KIND_FLAG ? NULL : rows[i].argument,
            .doc = docs[i],
        };
    }
    table[ROWS] = (struct argp_option){
        .name = "help", .key = KEY_HELP, .doc = "Show this and stop", .group = -1};
    table[ROWS + 1] = (struct argp_option){
        .name = "version", .key = KEY_VERSION, .doc = "Show the version and stop", .group = -1};
    const struct argp argp = {
        .options = table,
        .parser = parse_key,
        .doc = "The gpumux daemon: lets many CUDA programs share one GPU as if each owned it.\v"
               "Each option but --config and --user may stand in the configuration file, as "
               "`name = value`; the command line wins.",
    };
    char name[] = "gpumuxd";
    char *alone[] = {name, NULL};
    struct line line = {.why = why, .why_size = why_size};
    char shown[64];

    gm_options_init(options);
    /* argp's own --help and messages are off: an error is one line here, not two (DESIGN: one
     * clear line each), and help needs no error path. */
    if (argp_parse(&argp, argc > 0 ? argc : 1, argc > 0 ? argv : alone,
                   ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT, NULL, &line)) {
        if (!line.is_bad)
            snprintf(why, why_size, "the command line cannot be read: gpumuxd --help");
        return -EINVAL;
    }
    if (line.is_help) {
        argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, name);
        return GM_OPTIONS_DONE;
    }
    if (line.is_version) {
        printf("gpumuxd %s\n", GM_VERSION);
        return GM_OPTIONS_DONE;
    }
    if (line.extra) {
        snprintf(why, why_size, "\"%s\" is no option: gpumuxd --help lists them",
                 show(line.extra, shown));
        return -EINVAL;
    }
    int error = apply_line(options, &line, PLACE_LINE);
    if (error == 0)
        error = load_config(options, &line);
    if (error == 0)
        error = apply_line(options, &line, PLACE_BOTH);
    if (error == 0)
        error = place_socket(options, &line);
    return error;
}

/* Reading options: see options_load.h. */
#include "daemon/service/options_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/args.h"
#include "common/log.h"
#include "common/nearest.h"
#include "common/sock.h"
#include "daemon/service/handover.h"

#define ROWS ((size_t)GM_OPTIONS)

static const struct gm_option_row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strlen(gm_option_rows[i].name) == length &&
            memcmp(gm_option_rows[i].name, name, length) == 0)
            return &gm_option_rows[i];
    return NULL;
}

/* Set one option. The error names it. */
static int take(struct gm_options *options, const struct gm_option_row *row, const char *dashes,
                const char *text, unsigned line, char *why, size_t why_size)
{
    char wrong[512];
    int error = gm_option_take(options, row, text, line, wrong, sizeof wrong);
    if (error)
        snprintf(why, why_size, "%s%s: %s", dashes, row->name, wrong);
    return error;
}

int gm_options_set(struct gm_options *options, const char *name, const char *text, unsigned line,
                   char *why, size_t why_size)
{
    char shown[64];
    const struct gm_option_row *row = find_row(name, strlen(name));
    for (size_t i = 0; i < GM_GONES; i++) {
        if (strcmp(name, gm_gone_rows[i].name) == 0) {
            if (options->gone_line[i] == 0) /* the first one is told of */
                options->gone_line[i] = line;
            return 0;
        }
    }
    if (!row) {
        struct gm_nearest nearest;
        gm_nearest_begin(&nearest, name, strlen(name));
        for (size_t i = 0; i < GM_OPTIONS; i++)
            if (gm_option_rows[i].place != GM_PLACE_LINE)
                gm_nearest_look(&nearest, gm_option_rows[i].name);
        gm_option_show(name, shown);
        if (nearest.best)
            snprintf(why, why_size, "no option has the name \"%s\": did you mean %s?", shown,
                     nearest.best);
        else
            snprintf(why, why_size, "no option has the name \"%s\": gpumuxd --help lists them",
                     shown);
        return -ENOENT;
    }
    if (row->place == GM_PLACE_LINE) {
        snprintf(why, why_size, "\"%s\" can only be given on the command line", name);
        return -EPERM;
    }
    unsigned *given = &options->given[row - gm_option_rows];
    if ((row->kind == GM_KIND_PATH || row->kind == GM_KIND_PLACE) && text[0] != '/') {
        snprintf(why, why_size, "%s: \"%s\" does not begin with /", name,
                 gm_option_show(text, shown));
        return -EINVAL;
    }
    int error = take(options, row, "", text, line, why, why_size);
    if (error == 0 && *given && row->kind != GM_KIND_RULES) {
        snprintf(why, why_size, "%s was set on line %u already", name, *given);
        error = -EEXIST;
    }
    if (error == 0)
        *given = line;
    return error;
}

const char *gm_options_place(const struct gm_options *options, enum gm_option option,
                             char text[PATH_MAX + 32])
{
    text[0] = '\0';
    if (options->given[option] && options->given[option] != GM_GIVEN_ON_LINE)
        snprintf(text, PATH_MAX + 32, "%s:%u: ", options->config, options->given[option]);
    return text;
}

void gm_options_init(struct gm_options *options)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < ROWS; i++)
        if (gm_option_rows[i].otherwise[0] &&
            gm_option_take(options, &gm_option_rows[i], gm_option_rows[i].otherwise, 0, NULL, 0))
            abort(); /* a wrong default in options.def: test_options finds it */
}

/* ---- the configuration file ---------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

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

static int load_line(struct gm_options *options, char *line, unsigned number, char *why,
                     size_t size)
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
    return gm_options_set(options, name, value, number, why, size);
}

/* Who can write the file steers the daemon; and reading it must end. */
static int check_file(const struct stat *found, char *why, size_t size)
{
    if (S_ISDIR(found->st_mode)) {
        snprintf(why, size, "cannot be read: %s", strerror(EISDIR));
        return -EISDIR;
    }
    if (S_ISCHR(found->st_mode)) /* /dev/null */
        return 0;
    if (!S_ISREG(found->st_mode)) {
        snprintf(why, size, "is not a file");
        return -EINVAL;
    }
    if (found->st_uid != 0 && found->st_uid != geteuid()) {
        snprintf(why, size, "belongs to user %u: it must belong to root or to the daemon's user",
                 (unsigned)found->st_uid);
        return -EPERM;
    }
    if (found->st_mode & S_IWOTH) {
        snprintf(why, size, "every user may write it: chmod o-w");
        return -EPERM;
    }
    if (found->st_size > GM_CONFIG_MAX) {
        snprintf(why, size, "is larger than %u KiB", GM_CONFIG_MAX >> 10);
        return -EFBIG;
    }
    return 0;
}

static bool has_changed(const struct stat *before, const struct stat *after)
{
    return before->st_size != after->st_size || before->st_mtim.tv_sec != after->st_mtim.tv_sec ||
           before->st_mtim.tv_nsec != after->st_mtim.tv_nsec;
}

/* Open the file, without waiting for what is none. NULL: -errno in *error, and a line in `why`. */
static FILE *open_file(const char *path, struct stat *found, int *error, char *why, size_t size)
{
    char text[256];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    FILE *file = NULL;
    if (fd < 0 || fstat(fd, found)) {
        *error = -errno;
        snprintf(text, sizeof text, "cannot be read: %s", strerror(errno));
    } else {
        *error = check_file(found, text, sizeof text);
    }
    if (*error == 0 && (file = fdopen(fd, "r")) == NULL) {
        *error = -ENOMEM;
        snprintf(text, sizeof text, "out of memory");
    }
    if (file)
        return file;
    snprintf(why, size, "%s: %s", path, text);
    if (fd >= 0)
        close(fd);
    return NULL;
}

int gm_options_load(struct gm_options *options, const char *path, char *why, size_t why_size)
{
    char line[PATH_MAX + 256], text[512];
    struct stat before, after;
    unsigned number = 0;
    int error = 0;

    FILE *file = open_file(path, &before, &error, why, why_size);
    if (!file)
        return error;
    while (error == 0 && fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        number++;
        if (length > 0 && line[length - 1] == '\n') {
            line[length - 1] = '\0';
            error = load_line(options, line, number, text, sizeof text);
        } else if (feof(file)) {
            error = load_line(options, line, number, text, sizeof text);
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
    if (fstat(fileno(file), &after) == 0 && has_changed(&before, &after)) {
        error = -EAGAIN; /* also before a mistake: it may be half a line */
        snprintf(why, why_size, "%s: it changes while it is read: try again", path);
    }
    fclose(file);
    return error == -ENOENT ? -EINVAL : error; /* -ENOENT means: no such file */
}

/* ---- the command line ---------------------------------------------------------------------- */

enum { KEY_ROW = 0x1000, KEY_GONE = 0x1800, KEY_HELP = 0x2000, KEY_VERSION, KEY_CHECK, KEY_DRAIN };

struct line {
    const char *given[ROWS]; /* the last text of each option, NULL: not given */
    const char *rules[GM_RULES_MAX + 1];
    unsigned n_rules;
    bool is_gone_given[GM_GONES];
    const char *extra; /* a word that is no option */
    bool is_help, is_version, is_check, is_drain, is_bad;
    char *why;
    size_t why_size;
};

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    struct line *line = state->input;

    if (key >= KEY_ROW && key < KEY_ROW + (int)ROWS) {
        line->given[key - KEY_ROW] = argument ? argument : "yes"; /* a flag */
        if (gm_option_rows[key - KEY_ROW].kind == GM_KIND_RULES && line->n_rules <= GM_RULES_MAX)
            line->rules[line->n_rules++] = line->given[key - KEY_ROW];
        return 0;
    }
    if (key >= KEY_GONE && key < KEY_GONE + GM_GONES) {
        line->is_gone_given[key - KEY_GONE] = true;
        return 0;
    }
    switch (key) {
    case KEY_HELP:
        line->is_help = true;
        return 0;
    case KEY_VERSION:
        line->is_version = true;
        return 0;
    case KEY_DRAIN:
        line->is_drain = true;
        return 0;
    case KEY_CHECK:
        line->is_check = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!line->extra)
            line->extra = argument;
        return 0;
    case ARGP_KEY_ERROR:
        if (!line->is_bad)
            gm_args_explain(state, "gpumuxd", line->why, line->why_size);
        line->is_bad = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The path of the default configuration file. False: the environment does not name a folder. */
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
    if (options->config[0])
        return gm_options_load(options, options->config, line->why, line->why_size);
    char path[PATH_MAX];
    if (!default_config(options->user, path, sizeof path))
        return 0;
    int error = gm_options_load(options, path, line->why, line->why_size);
    if (error == -ENOENT)
        return 0;
    memcpy(options->config, path, sizeof path);
    return error;
}

/* Apply the options of the command line that have this place, so that the file can come between. */
static int apply_line(struct gm_options *options, const struct line *line,
                      enum gm_option_place place)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (!line->given[i] || gm_option_rows[i].place != place ||
            gm_option_rows[i].kind == GM_KIND_RULES)
            continue;
        int error =
            take(options, &gm_option_rows[i], "--", line->given[i], 0, line->why, line->why_size);
        if (error)
            return error;
        options->given[i] = GM_GIVEN_ON_LINE;
    }
    return 0;
}

static int apply_rules(struct gm_options *options, const struct line *line)
{
    for (unsigned i = 0; i < line->n_rules; i++) {
        int error = take(options, &gm_option_rows[GM_OPTION_rules], "--", line->rules[i], 0,
                         line->why, line->why_size);
        if (error)
            return error;
    }
    return 0;
}

/* The user, or group, that the system does not have. NULL: it has them. */
static const char *unknown_of(const struct gm_rule *rule, const char **kind)
{
    *kind = rule->is_unknown ? "user" : "group";
    return rule->is_unknown ? rule->user : rule->is_group_unknown ? rule->group : NULL;
}

/* Whether a rule for this user, or group, was one when the options were read before. */
static bool was_known(const struct gm_rules *rules, const struct gm_rule *lost)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct gm_rule *rule = &rules->rule[i];
        if (lost->is_unknown
                ? rule->has_user && !rule->is_unknown && strcmp(rule->user, lost->user) == 0
                : rule->has_group && !rule->is_group_unknown &&
                      strcmp(rule->group, lost->group) == 0)
            return true;
    }
    return false;
}

int gm_options_find_lost(const struct gm_options *held, const struct gm_options *fresh, char *why,
                         size_t why_size)
{
    if (held->config[0] && !fresh->config[0]) {
        snprintf(why, why_size, "%s: cannot be read: %s", held->config, strerror(ENOENT));
        return -ENOENT;
    }
    for (uint32_t i = 0; i < fresh->rules.n; i++) {
        const struct gm_rule *rule = &fresh->rules.rule[i];
        const char *kind, *name = unknown_of(rule, &kind);
        if (!name || !was_known(&held->rules, rule))
            continue;
        if (rule->line)
            snprintf(why, why_size, "%s:%u: rule: there is no %s \"%s\" any more", fresh->config,
                     rule->line, kind, name);
        else
            snprintf(why, why_size, "--rule: there is no %s \"%s\" any more", kind, name);
        return -ENOENT;
    }
    return 0;
}

void gm_options_warn(const struct gm_options *options, const char *warnings)
{
    for (const char *end; (end = strchr(warnings, '\n')); warnings = end + 1)
        gm_log(GM_LOG_WARN, "%.*s", (int)(end - warnings), warnings);
    for (size_t i = 0; i < GM_GONES; i++) {
        const struct gm_gone_row *row = &gm_gone_rows[i];
        if (options->gone_line[i])
            gm_log(GM_LOG_WARN, "%s:%u: %s is gone: %s", options->config, options->gone_line[i],
                   row->name, row->advice);
        if (options->is_gone_given[i])
            gm_log(GM_LOG_WARN, "command line: --%s is gone: %s", row->name, row->advice);
    }
    for (uint32_t i = 0; i < options->rules.n; i++) {
        const struct gm_rule *rule = &options->rules.rule[i];
        const char *kind, *name = unknown_of(rule, &kind);
        if (name && rule->line)
            gm_log(GM_LOG_WARN, "%s:%u: without effect: there is no %s \"%s\"", options->config,
                   rule->line, kind, name);
        else if (name)
            gm_log(GM_LOG_WARN, "--rule without effect: there is no %s \"%s\"", kind, name);
    }
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
        char session[64];
        struct stat found;
        snprintf(session, sizeof session, "/run/user/%u", (unsigned)geteuid());
        if (stat(session, &found) == 0 && found.st_uid == geteuid())
            snprintf(line->why, line->why_size,
                     "--user needs XDG_RUNTIME_DIR, which is not set: set it to %s, for programs "
                     "and mux-ctl, too",
                     session);
        else
            snprintf(
                line->why, line->why_size,
                "--user needs XDG_RUNTIME_DIR, which is not set: say where with --socket PATH, "
                "and set GPUMUX_SOCKET=PATH for programs and mux-ctl");
        return -EINVAL;
    }
    if (snprintf(options->socket, sizeof options->socket, "%s/%s", base, GM_SOCKET_USER) >=
        (int)sizeof options->socket) {
        snprintf(line->why, line->why_size, "XDG_RUNTIME_DIR is too long");
        return -ENAMETOOLONG;
    }
    return 0;
}

/* GM_OPTIONS_DONE if standard output took everything; else -EIO. */
static int written(const char *what, char *why, size_t why_size)
{
    if (!fflush(stdout) && !ferror(stdout))
        return GM_OPTIONS_DONE;
    snprintf(why, why_size, "%s cannot be written: %s", what, strerror(errno));
    return -EIO;
}

int gm_options_parse(struct gm_options *options, int argc, char **argv, char *why, size_t why_size)
{
    static char docs[ROWS][256]; /* argp keeps pointers */
    struct argp_option table[ROWS + GM_GONES + 5];
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < ROWS; i++) {
        bool has_default = gm_option_rows[i].otherwise[0] != '\0';
        snprintf(docs[i], sizeof docs[i], "%s%s%s%s", gm_option_rows[i].help,
                 has_default ? " (default " : "", gm_option_rows[i].otherwise,
                 has_default ? ")" : "");
        table[i] = (struct argp_option){
            .name = gm_option_rows[i].name,
            .key = KEY_ROW + (int)i,
            .arg = gm_option_rows[i].kind == GM_KIND_FLAG ? NULL : gm_option_rows[i].argument,
            .doc = docs[i],
        };
    }
    table[ROWS] = (struct argp_option){
        .name = "help", .key = KEY_HELP, .doc = "Show this and stop", .group = -1};
    table[ROWS + 1] = (struct argp_option){
        .name = "version", .key = KEY_VERSION, .doc = "Show the version and stop", .group = -1};
    table[ROWS + 2] = (struct argp_option){
        .name = "check",
        .key = KEY_CHECK,
        .doc = "Check whether a daemon would start with these options, the file and its rules, and "
               "stop",
        .group = -1};
    table[ROWS + 3] = (struct argp_option){
        .name = "drain",
        .key = KEY_DRAIN,
        .doc = "Have the daemon at this socket give all programs their memory back and end",
        .group = -1};
    for (size_t i = 0; i < GM_GONES; i++)
        table[ROWS + 4 + i] = (struct argp_option){
            .name = gm_gone_rows[i].name,
            .key = KEY_GONE + (int)i,
            .arg = gm_gone_rows[i].argument[0] ? gm_gone_rows[i].argument : NULL,
            .flags = OPTION_HIDDEN};
    const struct argp argp = {
        .options = table,
        .parser = parse_key,
        .doc = "The gpumux daemon: lets many CUDA programs share GPUs as if each owned them.\v"
               "Each option but --config and --user may stand in the configuration file, as "
               "`name = value`; the command line wins.",
    };
    char name[] = "gpumuxd";
    char *alone[] = {name, NULL};
    struct line line = {.why = why, .why_size = why_size};
    char shown[64];

    gm_options_init(options);
    if (argp_parse(&argp, argc > 0 ? argc : 1, argc > 0 ? argv : alone, GM_ARGS_FLAGS, NULL,
                   &line)) {
        if (!line.is_bad)
            snprintf(why, why_size, "the command line cannot be read: gpumuxd --help");
        return -EINVAL;
    }
    if (line.is_help) {
        argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, name);
        return written("the help", why, why_size);
    }
    if (line.is_version) {
        char handover[GM_HANDOVER_SIZE];
        printf("gpumuxd %s\nhandover %s\n", GM_VERSION, gm_handover(handover));
        return written("the version", why, why_size);
    }
    if (line.extra) {
        snprintf(why, why_size, "\"%s\" is no option: gpumuxd --help lists them",
                 gm_option_show(line.extra, shown));
        return -EINVAL;
    }
    memcpy(options->is_gone_given, line.is_gone_given, sizeof options->is_gone_given);
    int error = apply_line(options, &line, GM_PLACE_LINE);
    if (error == 0)
        error = apply_rules(options, &line);
    if (error == 0)
        error = load_config(options, &line);
    if (error == 0)
        error = apply_line(options, &line, GM_PLACE_BOTH);
    if (error == 0)
        error = place_socket(options, &line);
    if (error)
        return error;
    return line.is_check ? GM_OPTIONS_CHECK : line.is_drain ? GM_OPTIONS_DRAIN : GM_OPTIONS_RUN;
}

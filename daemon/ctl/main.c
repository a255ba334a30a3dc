/* mux-ctl: the command line. See ctl.h. */
#include "daemon/ctl/ctl.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/size.h"
#include "common/text.h"
#include "common/wire.h"

enum {
    KEY_SOCKET = 0x1000,
    KEY_JSON,
    KEY_WATCH,
    KEY_HELP,
    KEY_VERSION,
    KEY_COMMAND,
    KEY_USER,
    KEY_FOLLOW = 'f',
    KEY_COUNT = 'n',
};
#define WORDS_MAX 16u /* that a command takes */

struct line {
    struct mux_options options;
    char *command;
    char **rest;        /* what follows the command, up to NULL */
    unsigned n_words;   /* of `words`: those that are no options, up to NULL */
    unsigned max_words; /* more than these are a mistake */
    char *words[WORDS_MAX + 1];
    bool is_command_line; /* of mux-ctl itself: the first word is the command */
    bool is_help, is_version, is_bad;
};

static const struct argp_option main_options[] = {
    {"socket", KEY_SOCKET, "PATH", 0, "Talk to the daemon at PATH", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {"version", KEY_VERSION, NULL, 0, "Show the version and stop", -1},
    {0},
};
static const struct argp_option status_options[] = {
    {"json", KEY_JSON, NULL, 0, "The whole status, as one line of JSON", 0},
    {"watch", KEY_WATCH, "TIME", 0, "Again and again, each TIME (for example 2s)", 0},
    {"socket", KEY_SOCKET, "PATH", 0, "Talk to the daemon at PATH", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {0},
};

static const struct argp_option log_options[] = {
    {"follow", KEY_FOLLOW, NULL, 0, "Go on with what is decided from now on", 0},
    {"lines", KEY_COUNT, "N", 0, "The last N entries only", 0},
    {"json", KEY_JSON, NULL, 0, "Each entry as one line of JSON", 0},
    {"socket", KEY_SOCKET, "PATH", 0, "Talk to the daemon at PATH", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {0},
};
static const struct argp_option set_options[] = {
    {"command", KEY_COMMAND, "NAME", 0, "All programs of this name; *, ? and [...] as in a shell",
     0},
    {"user", KEY_USER, "USER", 0, "All programs of this user", 0},
    {"socket", KEY_SOCKET, "PATH", 0, "Talk to the daemon at PATH", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {0},
};

static bool fail(struct line *line)
{
    bool is_first = !line->is_bad;
    line->is_bad = true;
    return is_first;
}

/* argp found an option that it does not know, or one without its value: say which, in one line. */
static void explain(struct line *line, const struct argp_state *state)
{
    const char *word = state->next > 0 ? state->argv[state->next - 1] : "";
    if (word[0] != '-' && state->next < state->argc)
        word = state->argv[state->next];
    if (!fail(line))
        return;
    if (strcmp(word, "-n") == 0) {
        mux_complain("-n needs a value: -n N");
        return;
    }
    for (const struct argp_option *option = state->root_argp->options; option->name; option++) {
        size_t length = strlen(option->name);
        if (strncmp(word, "--", 2) || strncmp(word + 2, option->name, length) ||
            (word[2 + length] && word[2 + length] != '='))
            continue;
        if (option->arg)
            mux_complain("--%s needs a value: --%s=%s", option->name, option->name, option->arg);
        else
            mux_complain("--%s takes no value", option->name);
        return;
    }
    mux_complain("unknown option %.60s: mux-ctl --help lists them", word);
}

static bool take_count(const char *text, uint32_t *count)
{
    uint32_t sum = 0;
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || sum > 100000000)
            return false;
        sum = sum * 10 + (uint32_t)(*text - '0');
    }
    *count = sum;
    return true;
}

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    struct line *line = state->input;

    switch (key) {
    case KEY_SOCKET:
        if (!*argument && fail(line))
            mux_complain("--socket: \"\" is not a path");
        line->options.socket = argument;
        return 0;
    case KEY_JSON:
        line->options.is_json = true;
        return 0;
    case KEY_WATCH:
        if ((gm_parse_duration(argument, &line->options.watch_ns) ||
             line->options.watch_ns < 10 * GM_MS || line->options.watch_ns > 86400 * GM_S) &&
            fail(line))
            mux_complain("--watch: \"%.60s\" is not a time from 10ms to a day (for example 2s)",
                         argument);
        return 0;
    case KEY_FOLLOW:
        line->options.is_following = true;
        return 0;
    case KEY_COUNT:
        if (!take_count(argument, &line->options.count) && fail(line))
            mux_complain("-n: \"%.60s\" is not a number of entries", argument);
        return 0;
    case KEY_COMMAND:
        line->options.command = argument;
        return 0;
    case KEY_USER:
        line->options.user = argument;
        return 0;
    case KEY_HELP:
        line->is_help = true;
        return 0;
    case KEY_VERSION:
        line->is_version = true;
        return 0;
    case ARGP_KEY_ARG:
        if (line->is_command_line) {
            line->command = argument;
            line->rest = &state->argv[state->next];
            state->next = state->argc; /* the rest is the command's */
        } else if (line->n_words < line->max_words) {
            line->words[line->n_words++] = argument;
        } else if (fail(line)) {
            mux_complain("%s: \"%.60s\" is one word too many", line->command, argument);
        }
        return 0;
    case ARGP_KEY_ERROR:
        explain(line, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp main_argp = {
    .options = main_options,
    .parser = parse_key,
    .args_doc = "status [--json] [--watch=TIME]\nlog [-f] [-n N] [--json]\n"
                "set PID|--command=NAME|--user=USER SETTING...\npause "
                "PID|--command=NAME|--user=USER\nresume PID|--command=NAME|--user=USER\n"
                "trim\nrun [--require] -- PROGRAM [ARGUMENT...]\nversion",
    .doc =
        "Shows and steers gpumux, which lets many CUDA programs share one GPU.\v"
        "status shows the GPU, its memory and each app; log shows who got the GPU when and why; "
        "set "
        "changes settings of programs (mux-ctl set --help); pause and resume are two of them; trim "
        "gives memory back that no program needs; run starts a program that shares the GPU "
        "and says so if it cannot, with --require it does not start it then; version shows the "
        "version.\n\n"
        "The daemon is looked for at $GPUMUX_SOCKET if that is set, else at the system's and then "
        "the user's socket.\n\n"
        "Exit codes: 0, 1 for bad usage or a failure, 3 when the daemon is down; run: the "
        "program's own, 125 if --require is not met, 126 if it cannot be executed, 127 if it is "
        "not found.",
};
static const struct argp status_argp = {
    .options = status_options,
    .parser = parse_key,
    .doc = "Shows the GPU's budget, use and tiers, and each app with its state and why it waits.",
};

static const struct argp_option trim_options[] = {
    {"socket", KEY_SOCKET, "PATH", 0, "Talk to the daemon at PATH", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {0},
};
static const struct argp trim_argp = {
    .options = trim_options,
    .parser = parse_key,
    .doc = "Gives cached memory back at once, on the GPU and on the host. It goes by itself "
           "within 5 s of its last need.",
};

static const struct argp log_argp = {
    .options = log_options,
    .parser = parse_key,
    .doc = "Shows what was decided: each switch with who came, why, in whose place and how long "
           "it took; each change of a level; each change of settings.",
};
static const struct argp set_argp = {
    .options = set_options,
    .parser = parse_key,
    .args_doc = "PID SETTING...\n--command=NAME SETTING...\n--user=USER SETTING...",
    .doc = "Changes settings of running programs.\v"
           "Settings: class=latency (before all others), interactive (level 1), batch (the last "
           "level) or auto (found by what it does); weight=N, its turns to those of others of its "
           "level (normally 1); share=P%, the most of the GPU's time that it gets; "
           "paused=yes or no.\n\n"
           "Root and the daemon's own user may set all of this for everybody; others for their own "
           "programs, as far as rules and options let them.",
};
static const struct argp pause_argp = {
    .options = set_options,
    .parser = parse_key,
    .args_doc = "PID\n--command=NAME\n--user=USER",
    .doc = "A paused program keeps everything and gets no GPU time until it is resumed; its memory "
           "may be moved out.",
};

/* argp's own --help and messages are off: an error is one line here, not two. */
static bool parse(const struct argp *argp, int argc, char **argv, unsigned flags, struct line *line)
{
    error_t error = argp_parse(argp, argc, argv, flags | ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT,
                               NULL, line);
    if (error && fail(line))
        mux_complain("the command line cannot be read: mux-ctl --help");
    return !line->is_bad;
}

static int help(const struct argp *argp, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s", name);
    argp_help(argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, text);
    return mux_written("the help");
}

static int count(char **words)
{
    int n = 0;
    while (words[n])
        n++;
    return n;
}

/* Read the words and options of a command. False: the exit code is in *code. */
static bool parse_command(struct line *line, const struct argp *argp, unsigned max_words, int *code)
{
    char name[64];
    line->rest[-1] = line->command; /* argp wants a name before the first word */
    line->is_command_line = false;
    line->max_words = max_words;
    *code = MUX_FAILED;
    if (!parse(argp, count(line->rest - 1), line->rest - 1, 0, line))
        return false;
    if (!line->is_help)
        return true;
    snprintf(name, sizeof name, "mux-ctl %s", line->command);
    *code = help(argp, name);
    return false;
}

static int run_status(struct line *line)
{
    int code;
    return parse_command(line, &status_argp, 0, &code) ? mux_status(&line->options) : code;
}

static int run_log(struct line *line)
{
    int code;
    return parse_command(line, &log_argp, 0, &code) ? mux_log(&line->options) : code;
}

static int run_set(struct line *line)
{
    int code;
    if (!parse_command(line, &set_argp, WORDS_MAX, &code))
        return code;
    return mux_set(&line->options, line->command, NULL, line->words);
}

static int run_pause(struct line *line)
{
    int code;
    const char *settings = strcmp(line->command, "pause") == 0 ? "paused=yes" : "paused=no";
    if (!parse_command(line, &pause_argp, WORDS_MAX, &code))
        return code;
    return mux_set(&line->options, line->command, settings, line->words);
}

static int run_trim(struct line *line)
{
    int code;
    return parse_command(line, &trim_argp, 0, &code) ? mux_trim(&line->options) : code;
}

static int run_run(struct line *line)
{
    char **words = line->rest;
    for (; words[0] && strcmp(words[0], "--require") == 0; words++)
        line->options.is_required = true;
    if (words[0] && strcmp(words[0], "--") == 0) {
        words++;
    } else if (words[0] && words[0][0] == '-') {
        mux_complain("run: unknown option %.60s: mux-ctl run -- PROGRAM [ARGUMENT...]", words[0]);
        return MUX_FAILED;
    }
    if (!words[0]) {
        mux_complain("run: which program? mux-ctl run -- PROGRAM [ARGUMENT...]");
        return MUX_FAILED;
    }
    return mux_run(&line->options, words);
}

static int run_version(struct line *line)
{
    if (line->rest[0]) {
        mux_complain("version: \"%.60s\" is one word too many", line->rest[0]);
        return MUX_FAILED;
    }
    printf("mux-ctl %s (protocol %u)\n", GM_VERSION, GM_WIRE_VERSION);
    return mux_written("the version");
}

static const struct {
    const char *name;
    int (*run)(struct line *line);
} commands[] = {
    {"status", run_status}, {"log", run_log},   {"set", run_set}, {"pause", run_pause},
    {"resume", run_pause},  {"trim", run_trim}, {"run", run_run}, {"version", run_version},
};
#define COMMANDS "status, log, set, pause, resume, trim, run or version"

int main(int argc, char **argv)
{
    struct line line = {.is_command_line = true, .options.count = MUX_COUNT_UNSAID};

    if (argc < 1)
        return MUX_FAILED;
    if (!parse(&main_argp, argc, argv, ARGP_IN_ORDER, &line))
        return MUX_FAILED;
    if (line.is_help)
        return help(&main_argp, "mux-ctl");
    if (line.is_version) {
        printf("mux-ctl %s\n", GM_VERSION);
        return mux_written("the version");
    }
    if (!line.command) {
        mux_complain("what to do? " COMMANDS ": mux-ctl --help says more");
        return MUX_FAILED;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(line.command, commands[i].name) == 0)
            return commands[i].run(&line);
    mux_complain("unknown command \"%.60s\": " COMMANDS, line.command);
    return MUX_FAILED;
}

/* mux-ctl: reads the command line and calls the command. See ctl.h. */
#include "daemon/ctl/ctl.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "common/args.h"
#include "common/clock.h"
#include "common/size.h"
#include "common/standard.h"
#include "common/text.h"
#include "common/wire.h"
#include "daemon/ctl/commands.h"

enum {
    KEY_SOCKET = 0x1000,
    KEY_JSON,
    KEY_WATCH,
    KEY_HELP,
    KEY_VERSION,
    KEY_COMMAND,
    KEY_USER,
    KEY_REQUIRE,
    KEY_GROUP,
    KEY_NEED,
    KEY_SHOW,
    KEY_LEARN,
    KEY_KEEP,
};

struct line {
    struct mux_options options;
    bool is_help, is_version, is_bad;
};

static const struct command_option {
    unsigned commands; /* who has it */
    struct argp_option argp;
} command_options[] = {
#define MUX_COMMAND(...)
#define MUX_OPTION(commands, key, name, argument, help)                                            \
    {commands, {name, key, argument, 0, help, (key) == KEY_HELP ? -1 : 0}},
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};
#define OPTIONS (sizeof command_options / sizeof command_options[0])

static bool fail(struct line *line)
{
    bool is_first = !line->is_bad;
    line->is_bad = true;
    return is_first;
}

/* Say in one line which option argp did not take, and why. */
static void explain(struct line *line, const struct argp_state *state)
{
    char why[160];
    gm_args_explain(state, "mux-ctl", why, sizeof why);
    if (fail(line))
        mux_complain("%s", why);
}

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    struct line *line = state->input;
    uint64_t number = 0;

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
    case KEY_GROUP:
        if ((!*argument || strlen(argument) >= sizeof((struct gm_msg_hello){0}.group) ||
             !gm_text_is_legal(argument, strlen(argument) + 1)) &&
            fail(line))
            mux_complain("--group: \"%.60s\" is not a name of 1 to 63 bytes", argument);
        line->options.group = argument;
        return 0;
    case KEY_NEED:
        if ((gm_parse_size(argument, &number) || number == 0) && fail(line))
            mux_complain("--need: \"%.60s\" is not a size (for example 12G)", argument);
        line->options.need = argument;
        return 0;
    case 'f':
        line->options.is_following = true;
        return 0;
    case 'n':
        if ((gm_parse_number(argument, &number) || number >= MUX_COUNT_UNSAID) && fail(line))
            mux_complain("-n: \"%.60s\" is not a number of entries", argument);
        line->options.count = (uint32_t)number;
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
    case KEY_REQUIRE:
        line->options.is_required = true;
        return 0;
    case KEY_SHOW:
        line->options.is_shown = true;
        return 0;
    case KEY_LEARN:
        line->options.is_learned = true;
        return 0;
    case KEY_KEEP:
        line->options.kept = argument;
        return 0;
    case 'o':
        line->options.output = argument;
        return 0;
    case ARGP_KEY_ARGS:
        line->options.words = &state->argv[state->next];
        return 0;
    case ARGP_KEY_ERROR:
        explain(line, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int show_version(const struct mux_options *options)
{
    (void)options;
    printf("mux-ctl %s (protocol %u)\n", GM_VERSION, GM_WIRE_VERSION);
    return mux_written("the version");
}

static const struct command {
    const char *name;
    int (*run)(const struct mux_options *options);
    bool has_words;
    const char *words, *doc;
} commands[] = {
#define MUX_COMMAND(name, run, has_words, words, does, more)                                       \
    {#name, run, has_words, words, sizeof more > 1 ? does "\v" more : does},
#define MUX_OPTION(...)
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};
#define COMMANDS (sizeof commands / sizeof commands[0])

/* "status, log, ... or version", for an error. */
static const char *list_commands(char text[160])
{
    size_t at = 0;
    for (size_t i = 0; i < COMMANDS && at < 160; i++)
        at += (size_t)snprintf(text + at, 160 - at, "%s%s",
                               i == 0             ? ""
                               : i < COMMANDS - 1 ? ", "
                                                  : " or ",
                               commands[i].name);
    return text;
}

/* How to read the command line of the n-th command. argp keeps pointers. */
static const struct argp *argp_of(size_t n)
{
    static struct argp_option table[OPTIONS + 1];
    static struct argp argp;
    size_t at = 0;
    for (size_t i = 0; i < OPTIONS; i++)
        if (command_options[i].commands & 1u << n)
            table[at++] = command_options[i].argp;
    argp = (struct argp){.options = table,
                         .parser = parse_key,
                         .args_doc = *commands[n].words ? commands[n].words : NULL,
                         .doc = commands[n].doc};
    return &argp;
}

static int help(const struct argp *argp, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s", name);
    argp_help(argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, text);
    return mux_written("the help");
}

/* Read options and words. The first word of `argv` is the name of what is called. */
static bool parse(const struct argp *argp, char **argv, unsigned flags, struct line *line)
{
    int n = 0;
    while (argv[n])
        n++;
    line->options.words = &argv[n];
    if (argp_parse(argp, n, argv, flags | GM_ARGS_FLAGS, NULL, line) && fail(line))
        mux_complain("the command line cannot be read: mux-ctl --help");
    return !line->is_bad;
}

static int run(size_t n, struct line *line)
{
    const struct command *command = &commands[n];
    const struct argp *argp = argp_of(n);
    /* What follows the program's name is its own. */
    const bool is_run = command->run == mux_run || command->run == mux_profile;
    char name[64];
    line->options.name = command->name;
    if (!parse(argp, line->options.words, is_run ? ARGP_IN_ORDER : 0, line))
        return MUX_FAILED;
    if (line->is_help) {
        snprintf(name, sizeof name, "mux-ctl %s", command->name);
        return help(argp, name);
    }
    if (!command->has_words && line->options.words[0]) {
        mux_complain("%s: \"%.60s\" is one word too many", command->name, line->options.words[0]);
        return MUX_FAILED;
    }
    return command->run(&line->options);
}

static const struct argp_option main_options[] = {
    {"socket", KEY_SOCKET, "PATH", 0, "The daemon's socket", 0},
    {"help", KEY_HELP, NULL, 0, "Show this and stop", -1},
    {"version", KEY_VERSION, NULL, 0, "Show the version and stop", -1},
    {0}};
static const struct argp main_argp = {
    .options = main_options,
    .parser = parse_key,
    .args_doc = "status [--json] [--watch=TIME]\nlog [-f] [-n N] [--json]\n"
                "set PID|--command=NAME|--user=USER SETTING...\npause "
                "PID|--command=NAME|--user=USER\nresume PID|--command=NAME|--user=USER\n"
                "trim\nforget\nconfig show|check|reload\nrun [--require] -- PROGRAM [ARGUMENT...]\n"
                "profile [-o FILE] -- PROGRAM [ARGUMENT...]\nprofile --show [FILE...]\nversion",
    .doc =
        "Shows and steers gpumux, which lets many CUDA programs share one GPU.\v"
        "status shows the GPU, its memory and each program; log shows who got the GPU, when and "
        "why; set, pause and resume change settings of running programs; trim gives cached "
        "memory back to the system; run starts a program that shares the GPU; profile learns what "
        "the kernels of a program touch.\n\n"
        "mux-ctl looks for the daemon at $GPUMUX_SOCKET if that is set, else at the system's "
        "socket and then at the user's.\n\n"
        "Exit codes: 0 done, 1 wrong use or an error, 3 the daemon is down. run and profile: the "
        "program's own, 125 if the daemon cannot serve the program and --require is given, 126 if "
        "the "
        "program cannot be executed, 127 if it is not found.",
};

int main(int argc, char **argv)
{
    struct line line = {.options.count = MUX_COUNT_UNSAID};
    char list[160];

    gm_open_standard(MUX_FAILED);
    if (argc < 1 || !parse(&main_argp, argv, ARGP_IN_ORDER, &line))
        return MUX_FAILED;
    if (line.is_help)
        return help(&main_argp, "mux-ctl");
    if (line.is_version)
        return show_version(&line.options);
    const char *word = line.options.words[0];
    if (!word) {
        mux_complain("what to do? %s: mux-ctl --help says more", list_commands(list));
        return MUX_FAILED;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return run(i, &line);
    mux_complain("unknown command \"%.60s\": %s", word, list_commands(list));
    return MUX_FAILED;
}

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
    KEY_FOLLOW = 'f',
    KEY_COUNT = 'n',
};

struct line {
    struct mux_options options;
    bool is_help, is_version, is_bad;
};

#define SOCKET                                                                                     \
    {                                                                                              \
        "socket", KEY_SOCKET, "PATH", 0, "The daemon's socket", 0                                  \
    }
#define HELP                                                                                       \
    {                                                                                              \
        "help", KEY_HELP, NULL, 0, "Show this and stop", -1                                        \
    }
#define JSON(text)                                                                                 \
    {                                                                                              \
        "json", KEY_JSON, NULL, 0, text, 0                                                         \
    }

static const struct argp_option main_options[] = {
    SOCKET, HELP, {"version", KEY_VERSION, NULL, 0, "Show the version and stop", -1}, {0}};
static const struct argp_option plain_options[] = {SOCKET, HELP, {0}};
static const struct argp_option status_options[] = {
    JSON("The whole status, as one line of JSON"),
    {"watch", KEY_WATCH, "TIME", 0, "Repeat every TIME (for example 2s)", 0},
    SOCKET,
    HELP,
    {0}};
static const struct argp_option log_options[] = {
    {"follow", KEY_FOLLOW, NULL, 0, "Go on with decisions to come", 0},
    {"lines", KEY_COUNT, "N", 0, "Only the last N entries", 0},
    JSON("Each entry as one line of JSON"),
    SOCKET,
    HELP,
    {0}};
static const struct argp_option set_options[] = {
    {"command", KEY_COMMAND, "NAME", 0, "All programs of this name; *, ? and [...] as in a shell",
     0},
    {"user", KEY_USER, "USER", 0, "All programs of this user", 0},
    SOCKET,
    HELP,
    {0}};
static const struct argp_option run_options[] = {
    {"require", KEY_REQUIRE, NULL, 0, "Start the program only if the daemon can serve it", 0},
    {"group", KEY_GROUP, "NAME", 0,
     "Let the program run and pause together with all others of this group", 0},
    SOCKET,
    HELP,
    {0}};

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
    case KEY_FOLLOW:
        line->options.is_following = true;
        return 0;
    case KEY_COUNT:
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

static const struct argp main_argp = {
    .options = main_options,
    .parser = parse_key,
    .args_doc = "status [--json] [--watch=TIME]\nlog [-f] [-n N] [--json]\n"
                "set PID|--command=NAME|--user=USER SETTING...\npause "
                "PID|--command=NAME|--user=USER\nresume PID|--command=NAME|--user=USER\n"
                "trim\nrun [--require] -- PROGRAM [ARGUMENT...]\nversion",
    .doc = "Shows and steers gpumux, which lets many CUDA programs share one GPU.\v"
           "status shows the GPU, its memory and each program; log shows who got the GPU, when and "
           "why; set, pause and resume change settings of running programs; trim gives cached "
           "memory back to the system; run starts a program that shares the GPU.\n\n"
           "mux-ctl looks for the daemon at $GPUMUX_SOCKET if that is set, else at the system's "
           "socket and then at the user's.\n\n"
           "Exit codes: 0 done, 1 wrong use or an error, 3 the daemon is down. run: the program's "
           "own, 125 if the daemon cannot serve the program and --require is given, 126 if the "
           "program cannot be executed, 127 if it is not found.",
};
static const struct argp status_argp = {
    .options = status_options,
    .parser = parse_key,
    .doc = "Shows the GPU, its memory and tiers, and each program with its state and why it waits.",
};

static const struct argp trim_argp = {
    .options = plain_options,
    .parser = parse_key,
    .doc =
        "Gives cached memory back at once, on the GPU and on the host, and waits until the system "
        "has it, for 4 s at most. Without it, memory goes back 2 to 4 s after its last use.",
};

static const struct argp log_argp = {
    .options = log_options,
    .parser = parse_key,
    .doc =
        "Shows the last decisions: each switch with who came, why, in whose place, and how long it "
        "took; each change of a level or of settings; each refusal of memory.",
};
static const struct argp set_argp = {
    .options = set_options,
    .parser = parse_key,
    .args_doc = "PID SETTING...\n--command=NAME SETTING...\n--user=USER SETTING...",
    .doc =
        "Changes settings of running programs.\v"
        "Settings: class=latency (before all others), interactive (level 1), batch (the last "
        "level) or auto (by what the program does); weight=N, the length of its turns in "
        "proportion to others of its level (normally 1); share=P%, the most GPU time that it "
        "gets; paused=yes or no; oversize=host or refuse, whether it may have more memory than the "
        "budget; cap=SIZE or none, the most GPU memory that it may occupy: what is above is read "
        "over the link.\n\n"
        "Root and the daemon's own user may set anything for any program. Others may set their "
        "own programs, within rules and options.",
};
static const struct argp pause_argp = {
    .options = set_options,
    .parser = parse_key,
    .args_doc = "PID\n--command=NAME\n--user=USER",
    .doc = "A paused program keeps everything and gets no GPU time until it is resumed; its memory "
           "may be moved out.",
};

static const struct argp run_argp = {
    .options = run_options,
    .parser = parse_key,
    .args_doc = "-- PROGRAM [ARGUMENT...]",
    .doc =
        "Starts a program that shares the GPU. If it cannot, it runs without gpumux, and one line "
        "says why.",
};
static const struct argp version_argp = {
    .options = plain_options, .parser = parse_key, .doc = "Shows the version of mux-ctl."};

static int show_version(const struct mux_options *options)
{
    (void)options;
    printf("mux-ctl %s (protocol %u)\n", GM_VERSION, GM_WIRE_VERSION);
    return mux_written("the version");
}

static const struct command {
    const char *name;
    const struct argp *argp;
    int (*run)(const struct mux_options *options);
    bool has_words;
} commands[] = {
    {"status", &status_argp, mux_status, false}, {"log", &log_argp, mux_log, false},
    {"set", &set_argp, mux_set, true},           {"pause", &pause_argp, mux_set, true},
    {"resume", &pause_argp, mux_set, true},      {"trim", &trim_argp, mux_trim, false},
    {"run", &run_argp, mux_run, true},           {"version", &version_argp, show_version, false},
};
#define COMMANDS "status, log, set, pause, resume, trim, run or version"

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

static int run(const struct command *command, struct line *line)
{
    const bool is_run = command->run == mux_run; /* what follows the program's name is its own */
    char name[64];
    line->options.name = command->name;
    if (!parse(command->argp, line->options.words, is_run ? ARGP_IN_ORDER : 0, line))
        return MUX_FAILED;
    if (line->is_help) {
        snprintf(name, sizeof name, "mux-ctl %s", command->name);
        return help(command->argp, name);
    }
    if (!command->has_words && line->options.words[0]) {
        mux_complain("%s: \"%.60s\" is one word too many", command->name, line->options.words[0]);
        return MUX_FAILED;
    }
    return command->run(&line->options);
}

int main(int argc, char **argv)
{
    struct line line = {.options.count = MUX_COUNT_UNSAID};

    gm_open_standard(MUX_FAILED);
    if (argc < 1 || !parse(&main_argp, argv, ARGP_IN_ORDER, &line))
        return MUX_FAILED;
    if (line.is_help)
        return help(&main_argp, "mux-ctl");
    if (line.is_version)
        return show_version(&line.options);
    const char *word = line.options.words[0];
    if (!word) {
        mux_complain("what to do? " COMMANDS ": mux-ctl --help says more");
        return MUX_FAILED;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(word, commands[i].name) == 0)
            return run(&commands[i], &line);
    mux_complain("unknown command \"%.60s\": " COMMANDS, word);
    return MUX_FAILED;
}

/* mux-ctl: reads the command line and calls the command. See ctl.h. */
#include "daemon/ctl/ctl.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/args.h"
#include "common/clock.h"
#include "common/nearest.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/standard.h"
#include "common/text.h"
#include "common/wire.h"
#include "daemon/ctl/commands.h"

enum {
    KEY_SOCKET = 0x1000,
    KEY_JSON,
    KEY_WATCH,
    KEY_VERSION,
    KEY_SORT,
    KEY_IDLE,
    KEY_LISTEN,
    KEY_UNIX,
    KEY_ONCE,
    KEY_DELAY,
    KEY_CLASS,
    KEY_CAP,
    KEY_WEIGHT,
    KEY_COMMAND,
    KEY_USER,
    KEY_REQUIRE,
    KEY_GROUP,
    KEY_NEED,
    KEY_SHOW,
    KEY_LEARN,
    KEY_KEEP,
    KEY_SECONDS,
    KEY_INSTALL,
    KEY_REMOVE,
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
    {commands, {name, key, argument, 0, help, (key) == 'h' ? -1 : 0}},
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};
#define OPTIONS (sizeof command_options / sizeof command_options[0])

const struct argp_option *mux_option(size_t command, size_t n)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (command_options[i].commands & 1u << command && n-- == 0)
            return &command_options[i].argp;
    return NULL;
}

static bool fail(struct line *line)
{
    bool is_first = !line->is_bad;
    line->is_bad = true;
    return is_first;
}

/* Say in one line which option argp did not take, and why. */
static void explain(struct line *line, const struct argp_state *state)
{
    char program[48], why[160];
    const char *name = line->options.name; /* of a command, when its options are read */
    snprintf(program, sizeof program, "mux-ctl%s%s", name ? " " : "", name ? name : "");
    gm_args_explain(state, program, why, sizeof why);
    if (fail(line))
        mux_complain("%s", why);
}

/* --NAME: its value is that of a setting. */
static void take_setting(struct line *line, const char *name, const char *value)
{
    struct gm_settings settings = {0};
    char word[96], why[192];
    snprintf(word, sizeof word, "%s=%.63s", name, value);
    if (gm_settings_take(&settings, word, why, sizeof why) && fail(line))
        mux_complain("--%s", why);
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
    case KEY_DELAY:
    case KEY_WATCH:
        if ((gm_parse_duration(argument, &line->options.watch_ns) ||
             line->options.watch_ns < 10 * GM_MS || line->options.watch_ns > 86400 * GM_S) &&
            fail(line))
            mux_complain("--%s: \"%.60s\" is not a time from 10ms to a day (for example 2s)",
                         key == KEY_DELAY ? "delay" : "watch", argument);
        return 0;
    case KEY_GROUP:
        if ((!*argument || strlen(argument) >= sizeof((struct gm_msg_hello){0}.group) ||
             !gm_text_is_legal(argument, strlen(argument) + 1)) &&
            fail(line))
            mux_complain("--group: \"%.60s\" is not a name of 1 to 63 bytes", argument);
        line->options.group = argument;
        return 0;
    case KEY_CLASS:
        take_setting(line, "class", argument);
        line->options.class = argument;
        return 0;
    case KEY_WEIGHT:
        take_setting(line, "weight", argument);
        line->options.weight = argument;
        return 0;
    case KEY_CAP:
        take_setting(line, "cap", argument);
        line->options.cap = argument;
        return 0;
    case KEY_SORT:
        if (!mux_sort_index(argument, &line->options.sort) && fail(line))
            mux_complain("--sort: \"%.60s\" is not " MUX_SORT_LIST, argument);
        return 0;
    case KEY_ONCE:
        line->options.is_once = true;
        return 0;
    case KEY_LISTEN:
        if ((gm_parse_number(argument, &number) || number == 0 || number > UINT16_MAX) &&
            fail(line))
            mux_complain("--listen: \"%.60s\" is not a port from 1 to 65535", argument);
        line->options.port = (uint16_t)number;
        return 0;
    case KEY_UNIX:
        if (!*argument && fail(line))
            mux_complain("--unix: \"\" is not a path");
        line->options.unix_path = argument;
        return 0;
    case KEY_IDLE:
        line->options.is_idle = true;
        return 0;
    case 'l':
        line->options.is_long = true;
        return 0;
    case 'q':
        line->options.is_quiet = true;
        return 0;
    case KEY_NEED:
        if ((gm_parse_size(argument, &number) || number == 0) && fail(line))
            mux_complain("--need: \"%.60s\" is not a size (for example 12G)", argument);
        line->options.need = argument;
        return 0;
    case 'v':
        line->options.is_verbose = true;
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
    case 'h':
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
    case KEY_INSTALL:
        line->options.is_installed = true;
        return 0;
    case KEY_REMOVE:
        line->options.is_removed = true;
        return 0;
    case KEY_LEARN:
        line->options.is_learned = true;
        return 0;
    case KEY_KEEP:
        line->options.kept = argument;
        return 0;
    case KEY_SECONDS:
        if ((gm_parse_number(argument, &number) || number == 0 || number > 86400) && fail(line))
            mux_complain("--seconds: \"%.60s\" is not a number from 1 to 86400", argument);
        line->options.seconds = (uint32_t)number;
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

int mux_version(const struct mux_options *options)
{
    (void)options;
    printf("mux-ctl %s (protocol %u)\n", GM_VERSION, GM_WIRE_VERSION);
    return mux_written("the version");
}

const struct mux_command mux_commands[] = {
#define MUX_COMMAND(name, run, has_words, words, does, more, examples)                             \
    {#name, run, has_words, words, does, more, examples},
#define MUX_OPTION(...)
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
    {0}};
#define COMMANDS (sizeof mux_commands / sizeof mux_commands[0] - 1)

/* The number of the command that is called so. If there is none: COMMANDS, after one line. */
static size_t find_command(const char *word)
{
    struct gm_nearest nearest;
    size_t n = 0;
    gm_nearest_begin(&nearest, word, strlen(word));
    for (; n < COMMANDS && strcmp(word, mux_commands[n].name) != 0; n++)
        gm_nearest_look(&nearest, mux_commands[n].name);
    if (n == COMMANDS && nearest.best)
        mux_complain("unknown command \"%.60s\": did you mean %s?", word, nearest.best);
    else if (n == COMMANDS)
        mux_complain("unknown command \"%.60s\": mux-ctl help lists them", word);
    return n;
}

/* Behind the options: what else is to be said, and examples. NULL: out of memory. It lasts. */
static const char *doc_of(const struct mux_command *command)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return NULL;
    fprintf(file, "%s\v%s%sExamples:\n", command->does, command->more,
            *command->more ? "\n\n" : "");
    for (const char *at = command->examples; *at;) {
        const int length = (int)strcspn(at, "\n");
        fprintf(file, "    %.*s\n", length, at);
        at += length + (at[length] == '\n');
    }
    return fclose(file) == 0 ? text : NULL;
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
                         .args_doc = *mux_commands[n].words ? mux_commands[n].words : NULL};
    return &argp;
}

/* Of the n-th command. */
static int help_of(size_t n)
{
    struct argp argp = *argp_of(n);
    char name[64];
    snprintf(name, sizeof name, "mux-ctl %s", mux_commands[n].name);
    argp.doc = doc_of(&mux_commands[n]);
    if (!argp.doc) {
        mux_complain("out of memory");
        return MUX_FAILED;
    }
    argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, name);
    free((char *)argp.doc);
    return mux_written("the help");
}

static int help(void)
{
    puts("Usage: mux-ctl COMMAND [OPTION...] [WORD...]\n"
         "Shows and steers gpumux, which lets many CUDA programs share GPUs.\n");
    for (size_t n = 0; n < COMMANDS; n++) {
        char text[512];
        const char *does = mux_commands[n].does;
        snprintf(text, sizeof text, "%-10s  %.*s", mux_commands[n].name, (int)strcspn(does, ".;:"),
                 does);
        mux_wrap(text, 2, 12);
    }
    puts("\nOf every command:\n"
         "  -h, --help         Show what it does, with examples, as mux-ctl help COMMAND\n"
         "      --socket=PATH  The daemon's socket\n\n"
         "mux-ctl looks for the daemon at $GPUMUX_SOCKET if that is set, else at the\n"
         "system's socket and then at the user's.\n\n"
         "Exit codes: 0 done, 1 wrong use or an error, 3 the daemon is down. run and\n"
         "profile: the program's own, 125 if the daemon cannot serve the program and\n"
         "--require is given, 126 if it cannot be executed, 127 if it is not found.");
    return mux_written("the help");
}

int mux_help(const struct mux_options *options)
{
    if (!options->words[0])
        return help();
    if (options->words[1]) {
        mux_complain("help: \"%.60s\" is one word too many", options->words[1]);
        return MUX_FAILED;
    }
    const size_t n = find_command(options->words[0]);
    return n < COMMANDS ? help_of(n) : MUX_FAILED;
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
    const struct mux_command *command = &mux_commands[n];
    const struct argp *argp = argp_of(n);
    /* What follows the program's name is its own. */
    const bool is_run = command->run == mux_run || command->run == mux_profile;
    line->options.name = command->name;
    if (!parse(argp, line->options.words, is_run ? ARGP_IN_ORDER : 0, line))
        return MUX_FAILED;
    if (line->is_help)
        return help_of(n);
    if (!command->has_words && line->options.words[0]) {
        mux_complain("%s: \"%.60s\" is one word too many", command->name, line->options.words[0]);
        return MUX_FAILED;
    }
    return command->run(&line->options);
}

static const struct argp_option main_options[] = {
    {"socket", KEY_SOCKET, "PATH", 0, "The daemon's socket", 0},
    {"help", 'h', NULL, 0, "Show this and stop", -1},
    {"version", KEY_VERSION, NULL, 0, "Show the version and stop", -1},
    {0}};
static const struct argp main_argp = {
    .options = main_options,
    .parser = parse_key,
};

int main(int argc, char **argv)
{
    struct line line = {.options.count = MUX_COUNT_UNSAID};
    gm_open_standard(MUX_FAILED);
    if (argc < 1 || !parse(&main_argp, argv, ARGP_IN_ORDER, &line))
        return MUX_FAILED;
    if (line.is_help)
        return help();
    if (line.is_version)
        return mux_version(&line.options);
    const char *word = line.options.words[0];
    if (!word) {
        mux_complain("what to do? mux-ctl help lists the commands");
        return MUX_FAILED;
    }
    const size_t n = find_command(word);
    return n < COMMANDS ? run(n, &line) : MUX_FAILED;
}

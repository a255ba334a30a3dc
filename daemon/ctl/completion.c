/*
 * mux-ctl completion: what bash, zsh and fish complete, from the tables of commands.def. Process
 * ids are asked of mux-ctl ps when they are wanted; what --command= and --user= take is not
 * completed. Calls say.c.
 */
#include "daemon/ctl/ctl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"

/* The shell stands still meanwhile, so a daemon that does not answer is not waited for. */
#define PIDS "(timeout 1 mux-ctl ps -q 2> /dev/null)"
#define SETTINGS "class= weight= share= paused= oversize= cap="

/* Each word that may follow a command: those in small letters at the beginning of its ways. */
static void put_words(const struct mux_command *command)
{
    const char *at = command->words;
    while (*at) {
        const size_t length = strcspn(at, " \n");
        if (islower((unsigned char)*at))
            printf(" %.*s", (int)length, at);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    if (strstr(command->words, "SETTING"))
        printf(" " SETTINGS);
    if (strcmp(command->words, "[COMMAND]") == 0)
        for (size_t i = 0; mux_commands[i].name; i++)
            printf(" %s", mux_commands[i].name);
}

static bool takes_pids(const struct mux_command *command)
{
    return strncmp(command->words, "PID", 3) == 0;
}

static bool takes_files(const struct mux_command *command)
{
    return strstr(command->words, " FILE") != NULL;
}

static bool starts_program(const struct mux_command *command)
{
    return strstr(command->words, "-- PROGRAM") != NULL;
}

static void put_options(size_t n)
{
    const struct argp_option *option;
    for (size_t i = 0; (option = mux_option(n, i)); i++)
        printf(" --%s%s", option->name, option->arg ? "=" : "");
}

static void put_commands(void)
{
    for (size_t i = 0; mux_commands[i].name; i++)
        printf("%s%s", i > 0 ? " " : "", mux_commands[i].name);
}

/* What a command does, up to the end of its first sentence, without what shells would read. */
static void put_does(const char *does)
{
    const size_t length = strcspn(does, ".;:");
    for (size_t i = 0; i < length; i++)
        if (does[i] != '\'' && does[i] != '\\')
            putchar(does[i]);
}

/* A part of a shell's `case` for each command: what bash and zsh have in common. */
static void put_cases(void)
{
    for (size_t n = 0; mux_commands[n].name; n++) {
        printf("    %s) known=\"", mux_commands[n].name);
        put_options(n);
        put_words(&mux_commands[n]);
        if (takes_pids(&mux_commands[n]))
            printf(" $" PIDS);
        printf("\" ;;\n");
    }
}

static void put_runners(void)
{
    bool is_first = true;
    for (size_t n = 0; mux_commands[n].name; n++) {
        if (!starts_program(&mux_commands[n]))
            continue;
        printf("%s%s", is_first ? "" : "|", mux_commands[n].name);
        is_first = false;
    }
}

static void bash(void)
{
    puts("# mux-ctl in bash\n"
         "_mux_ctl() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} known= at\n"
         "    COMPREPLY=()");
    printf("    case ${COMP_WORDS[1]} in ");
    put_runners();
    puts(")\n"
         "        for ((at = 2; at < COMP_CWORD; at++)); do\n"
         "            [[ ${COMP_WORDS[at]} == -- ]] || continue\n"
         "            ((COMP_CWORD > at + 1)) || COMPREPLY=($(compgen -c -- \"$current\"))\n"
         "            return\n"
         "        done ;;\n"
         "    esac");
    printf("    if ((COMP_CWORD == 1)); then\n        known=\"");
    put_commands();
    puts(" --help --version --socket=\"\n    else case ${COMP_WORDS[1]} in");
    put_cases();
    puts("    esac; fi\n"
         "    COMPREPLY=($(compgen -W \"$known\" -- \"$current\"))\n"
         "    [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace\n"
         "}\n"
         "complete -o default -F _mux_ctl mux-ctl");
}

static void zsh(void)
{
    puts("#compdef mux-ctl\n"
         "_mux_ctl() {\n"
         "    local known=\n"
         "    local -a does flags");
    printf("    does=(");
    for (size_t n = 0; mux_commands[n].name; n++) {
        printf("\n        '%s:", mux_commands[n].name);
        put_does(mux_commands[n].does);
        putchar('\'');
    }
    puts(")\n"
         "    if ((CURRENT == 2)); then\n"
         "        _describe command does\n"
         "        return\n"
         "    fi");
    printf("    case $words[2] in ");
    put_runners();
    puts(")\n"
         "        local at=$words[(i)--]\n"
         "        if ((at < CURRENT)); then\n"
         "            shift $at words\n"
         "            ((CURRENT -= at))\n"
         "            _normal\n"
         "            return\n"
         "        fi ;;\n"
         "    esac\n"
         "    case $words[2] in");
    put_cases();
    puts("    esac\n"
         "    known=(${=known})\n"
         "    flags=(${(M)known:#*=})\n"
         "    compadd -S '' -a -- flags\n"
         "    flags=(${known:#*=})\n"
         "    compadd -a -- flags");
    for (size_t n = 0; mux_commands[n].name; n++)
        if (takes_files(&mux_commands[n]))
            printf("    [[ $words[2] != %s ]] || _files\n", mux_commands[n].name);
    puts("}\n"
         "# read as a file of completions it is called for the first one, too\n"
         "if [[ $funcstack[1] == _mux-ctl ]]; then _mux_ctl; else compdef _mux_ctl mux-ctl; fi");
}

static void fish(void)
{
    puts("# mux-ctl in fish");
    for (size_t n = 0; mux_commands[n].name; n++) {
        const struct argp_option *option;
        const char *name = mux_commands[n].name;
        printf("complete -c mux-ctl -n __fish_use_subcommand -f -a %s -d '", name);
        put_does(mux_commands[n].does);
        printf("'\n");
        for (size_t i = 0; (option = mux_option(n, i)); i++) {
            printf("complete -c mux-ctl -n '__fish_seen_subcommand_from %s' -l %s", name,
                   option->name);
            if (option->key > 0 && option->key < 0x80)
                printf(" -s %c", option->key);
            printf("%s -d '", option->arg ? " -r" : "");
            put_does(option->doc);
            printf("'\n");
        }
        printf("complete -c mux-ctl -n '__fish_seen_subcommand_from %s'%s -a '", name,
               starts_program(&mux_commands[n]) || takes_files(&mux_commands[n]) ? "" : " -f");
        put_words(&mux_commands[n]);
        puts(takes_pids(&mux_commands[n])       ? " " PIDS "'"
             : starts_program(&mux_commands[n]) ? " (__fish_complete_subcommand)'"
                                                : "'");
    }
}

int mux_completion(const struct mux_options *options)
{
    static const struct {
        const char *name;
        void (*write)(void);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    const char *word = options->words[0];
    struct gm_nearest nearest;
    gm_nearest_begin(&nearest, word ? word : "", word ? strlen(word) : 0);
    for (size_t i = 0; word && !options->words[1] && i < sizeof shells / sizeof shells[0]; i++) {
        gm_nearest_look(&nearest, shells[i].name);
        if (strcmp(word, shells[i].name) != 0)
            continue;
        shells[i].write();
        return mux_written("the completions");
    }
    if (nearest.best)
        mux_complain("completion: \"%.60s\": did you mean %s?", word, nearest.best);
    else
        mux_complain("completion: say bash, zsh or fish");
    return MUX_FAILED;
}

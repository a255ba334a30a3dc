/*
 * mux-ctl completion: what bash, zsh and fish complete, from the tables of commands.def, and what
 * gpumuxd --help says of that. Process ids and names are asked of mux-ctl ps when they are wanted.
 * Files are offered only where a file is meant. Calls say.c and apps.c.
 */
#include "daemon/ctl/ctl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"

/* The shell stands still meanwhile, so a daemon that does not answer is not waited for. */
#define PIDS "(timeout 1 mux-ctl ps -q 2> /dev/null)"
/* Others give their programs names, and shells read what they are offered: plain names only. */
#define PROGRAMS                                                                                   \
    "(timeout 1 mux-ctl ps --json 2> /dev/null | grep -o "                                         \
    "\"\\\"name\\\":\\\"[A-Za-z0-9._-]*\\\"\" | cut "                                              \
    "-d\\\" -f4 | sort -u)"
#define USERS "(timeout 1 getent passwd | cut -d: -f1 | grep -x \"[A-Za-z0-9._-]*\")"

static const struct {
    const char *name, *values;
} settings[] = {
    {"class", NULL}, /* those of GM_CLASS_WORDS */
    {"weight", ""},  {"share", ""}, {"paused", "no yes evicted idle"}, {"oversize", "host refuse"},
    {"cap", "none"}};
#define SETTINGS (sizeof settings / sizeof settings[0])

/* `before` with each word. */
static void put_list(const char *before, const char *words)
{
    for (; *words; words += strcspn(words, " ") + (words[strcspn(words, " ")] == ' '))
        printf(" %s%.*s", before, (int)strcspn(words, " "), words);
}

static void put_classes(const char *before)
{
    for (uint32_t i = 0; i < GM_CLASSES; i++)
        put_list(before, gm_class_name(i));
}

/* What a shell asks for the values of an option; NULL: they are as they are. */
static const char *asked_for(const struct argp_option *option)
{
    return strcmp(option->name, "command") == 0 ? PROGRAMS
           : strcmp(option->name, "user") == 0  ? USERS
                                                : NULL;
}

/* The values of an option that has some. */
static void put_values(const struct argp_option *option)
{
    if (strcmp(option->name, "class") == 0)
        put_classes("");
    for (unsigned i = 0; strcmp(option->name, "sort") == 0 && mux_sort_name(i); i++)
        printf(" %s", mux_sort_name(i));
}

static bool is_file(const struct argp_option *option)
{
    static const char *const words[] = {"PATH", "FILE", "FOLDER"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(option->arg, words[i]) == 0)
            return true;
    return false;
}

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
    for (size_t i = 0; strstr(command->words, "SETTING") && i < SETTINGS; i++)
        printf(" %s=", settings[i].name);
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
    return strstr(command->words, " FILE") || strstr(command->words, "RECORDS");
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

/* The functions of bash and zsh that say what may follow an option or a setting: in `known`, or
 * `files`. 1: it takes nothing. */
static void put_takes(void)
{
    const struct argp_option *option, *seen[64];
    size_t n_seen = 0;
    puts("_mux_ctl_takes() {\n    case $1 in");
    for (size_t n = 0; mux_commands[n].name; n++) {
        for (size_t i = 0; (option = mux_option(n, i)); i++) {
            size_t k = 0;
            while (k < n_seen && strcmp(seen[k]->name, option->name) != 0)
                k++;
            if (!option->arg || k < n_seen || n_seen == sizeof seen / sizeof seen[0])
                continue;
            seen[n_seen++] = option;
            printf("    --%s", option->name);
            if (option->key > 0 && option->key < 0x80)
                printf(" | -%c", option->key);
            printf(") %s=\"", is_file(option) ? "files" : "known");
            if (asked_for(option))
                printf("$%s", asked_for(option));
            put_values(option);
            puts(is_file(option) ? "yes\" ;;" : "\" ;;");
        }
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        printf("    %s) known=\"", settings[i].name);
        if (settings[i].values)
            printf("%s", settings[i].values);
        else
            put_classes("");
        puts("\" ;;");
    }
    puts("    *) return 1 ;;\n"
         "    esac\n"
         "}\n"
         "_gpumuxd_takes() {\n"
         "    local is=\n"
         "    case $1 in --*[!a-z-]* | [!-]*) ;; --*) is=$(gpumuxd --help | sed -n \"s/^ *$1=\\([^ "
         "]*\\).*/\\1/p\") ;; esac\n"
         "    case $is in\n"
         "    '') return 1 ;;\n"
         "    PATH | FILE | DIR:*) files=yes ;;\n"
         "    LEVEL) known='error warn info debug' ;;\n"
         "    *) known=$(echo \"$is\" | tr '|' '\\n' | grep -x '[a-z-]*') ;;\n"
         "    esac\n"
         "}\n"
         "_gpumuxd_options() {\n"
         "    gpumuxd --help | sed -n 's/^ *\\(--[a-z-]*=\\{0,1\\}\\).*/\\1/p'\n"
         "}");
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
    puts("# mux-ctl and gpumuxd in bash");
    put_takes();
    /* COMP_WORDBREAKS has '=' unless somebody took it out. */
    puts("# Offers what the option or setting before takes. 1: there is none.\n"
         "_mux_ctl_value() {\n"
         "    local key= begin= before=${COMP_WORDS[COMP_CWORD-1]} known= files=\n"
         "    if [[ $current == = ]]; then key=$before current=\n"
         "    elif [[ $before == = ]]; then key=${COMP_WORDS[COMP_CWORD-2]}\n"
         "    elif [[ $current == *=* ]]; then key=${current%%=*} begin=${current%%=*}= "
         "current=${current#*=}\n"
         "    elif [[ $before == -* ]]; then key=$before\n"
         "    fi\n"
         "    [[ $key ]] && $1 \"$key\" || return 1\n"
         "    if [[ $files ]]; then compopt -o default; return 0; fi\n"
         "    COMPREPLY=($(compgen -P \"$begin\" -W \"$known\" -- \"$current\"))\n"
         "    return 0\n"
         "}\n"
         "_mux_ctl_offer() {\n"
         "    COMPREPLY=($(compgen -W \"$known\" -- \"$current\"))\n"
         "    [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace\n"
         "}\n"
         "_gpumuxd() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} known=\n"
         "    COMPREPLY=()\n"
         "    _mux_ctl_value _gpumuxd_takes && return\n"
         "    known=$(_gpumuxd_options)\n"
         "    _mux_ctl_offer\n"
         "}\n"
         "_mux_ctl() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} known= at\n"
         "    COMPREPLY=()");
    printf("    case ${COMP_WORDS[1]} in ");
    put_runners();
    puts(")\n"
         "        for ((at = 2; at < COMP_CWORD; at++)); do\n"
         "            [[ ${COMP_WORDS[at]} == -- ]] || continue\n"
         "            if ((COMP_CWORD > at + 1)); then compopt -o default; else "
         "COMPREPLY=($(compgen -c -- \"$current\")); fi\n"
         "            return\n"
         "        done ;;\n"
         "    esac\n"
         "    _mux_ctl_value _mux_ctl_takes && return");
    printf("    if ((COMP_CWORD == 1)); then\n        known=\"");
    put_commands();
    puts(" --help --version --socket=\"\n    else case ${COMP_WORDS[1]} in");
    put_cases();
    puts("    esac; fi\n"
         "    _mux_ctl_offer");
    for (size_t n = 0; mux_commands[n].name; n++)
        if (takes_files(&mux_commands[n]))
            printf("    [[ ${COMP_WORDS[1]} != %s || ${COMPREPLY[*]} ]] || compopt -o default\n",
                   mux_commands[n].name);
    puts("}\n"
         "complete -F _mux_ctl mux-ctl\n"
         "complete -F _gpumuxd gpumuxd");
}

static void zsh(void)
{
    puts("#compdef mux-ctl gpumuxd");
    put_takes();
    puts("# Offers what the option or setting before takes. 1: there is none.\n"
         "_mux_ctl_value() {\n"
         "    local key= known= files=\n"
         "    if [[ $words[CURRENT] == *=* ]]; then key=${words[CURRENT]%%=*}\n"
         "    elif [[ $words[CURRENT-1] == -* ]]; then key=$words[CURRENT-1]\n"
         "    fi\n"
         "    [[ -n $key ]] && $1 \"$key\" || return 1\n"
         "    [[ $words[CURRENT] != *=* ]] || compset -P 1 '*='\n"
         "    if [[ -n $files ]]; then _files; return 0; fi\n"
         "    known=(${=known})\n"
         "    compadd -a -- known\n"
         "    return 0\n"
         "}\n"
         "_mux_ctl_offer() {\n"
         "    local -a flags\n"
         "    known=(${=known})\n"
         "    flags=(${(M)known:#*=})\n"
         "    compadd -S '' -a -- flags\n"
         "    flags=(${known:#*=})\n"
         "    compadd -a -- flags\n"
         "}\n"
         "_gpumuxd() {\n"
         "    local known=\n"
         "    _mux_ctl_value _gpumuxd_takes && return\n"
         "    known=$(_gpumuxd_options)\n"
         "    _mux_ctl_offer\n"
         "}\n"
         "_mux_ctl() {\n"
         "    local known=\n"
         "    local -a does");
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
         "    _mux_ctl_value _mux_ctl_takes && return\n"
         "    case $words[2] in");
    put_cases();
    puts("    esac\n"
         "    _mux_ctl_offer");
    for (size_t n = 0; mux_commands[n].name; n++)
        if (takes_files(&mux_commands[n]))
            printf("    [[ $words[2] != %s ]] || _files\n", mux_commands[n].name);
    puts("}\n"
         "# read as a file of completions it is called for the first one, too\n"
         "if [[ $funcstack[1] != _mux-ctl ]]; then compdef _mux_ctl mux-ctl; compdef _gpumuxd "
         "gpumuxd\n"
         "elif [[ $service == gpumuxd ]]; then _gpumuxd; else _mux_ctl; fi");
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
            if (option->arg && is_file(option))
                printf(" -r -F");
            else if (option->arg) {
                printf(" -x -a '%s", asked_for(option) ? asked_for(option) : "");
                put_values(option);
                putchar('\'');
            }
            printf(" -d '");
            put_does(option->doc);
            printf("'\n");
        }
        printf("complete -c mux-ctl -n '__fish_seen_subcommand_from %s'%s -a '", name,
               starts_program(&mux_commands[n]) || takes_files(&mux_commands[n]) ? "" : " -f");
        put_words(&mux_commands[n]);
        for (size_t i = 0; strstr(mux_commands[n].words, "SETTING") && i < SETTINGS; i++) {
            char before[32];
            snprintf(before, sizeof before, "%s=", settings[i].name);
            if (settings[i].values)
                put_list(before, settings[i].values);
            else
                put_classes(before);
        }
        puts(takes_pids(&mux_commands[n])       ? " " PIDS "'"
             : starts_program(&mux_commands[n]) ? " (__fish_complete_subcommand)'"
                                                : "'");
    }
    puts("complete -c gpumuxd -f\n"
         "gpumuxd --help 2> /dev/null | string match -r '^ +--[a-z-]+=?\\S*' | string trim | while "
         "read -d = name is\n"
         "    set -l takes\n"
         "    switch \"$is\"\n"
         "        case ''\n"
         "        case PATH FILE 'DIR:*'\n"
         "            set takes -r -F\n"
         "        case LEVEL\n"
         "            set takes -x -a 'error warn info debug'\n"
         "        case '*'\n"
         "            set -l words (string split '|' -- $is | string match -r '^[a-z-]+$')\n"
         "            set takes -x -a \"$words\"\n"
         "    end\n"
         "    complete -c gpumuxd -l (string sub -s 3 -- $name) $takes\n"
         "end");
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

/*
 * Fills in a page of the manual, from standard input to standard output: run by the build. A page
 * is roff with three abbreviations in its lines of text, outside of examples:
 *
 *   `words`         bold, and nothing of the words is roff
 *   | head | text   an entry: .TP
 *   - text          an item: .IP with a bullet
 *
 * Long lines of text are broken. A line that is one of these words is replaced by the rows of a
 * table:
 *
 *   @options@   gpumuxd(8): all options of options.def; mux-ctl(1): those of every command
 *   @keys@      the options that may stand in the file
 *   @commands@  the commands of commands.def, each with its options
 *
 * @version@ and @date@ are replaced wherever they stand.
 *
 * Usage: gm_page PAGE DATE < docs/man/PAGE
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/sock.h"
#include "daemon/ctl/commands.h"
#include "daemon/service/options.h"

static const struct command {
    const char *name, *words, *does, *more, *examples;
} commands[] = {
#define MUX_COMMAND(name, run, has_words, words, does, more, examples)                             \
    {#name, words, does, more, examples},
#define MUX_OPTION(...)
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};

static const struct option {
    unsigned commands;
    const char *key; /* as it is written there: 'f' is a letter */
    const char *name, *argument, *help;
} options[] = {
#define MUX_COMMAND(...)
#define MUX_OPTION(commands, key, name, argument, help) {commands, #key, name, argument, help},
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};

#define WIDTH 80u

/* A byte of plain text as roff has it. Returns its length there. */
static size_t put_byte(char c)
{
    static const struct {
        char c;
        const char *roff;
    } special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                   {'`', "\\(ga"}, {'~', "\\(ti"}, {'^', "\\(ha"}};
    for (size_t k = 0; k < sizeof special / sizeof special[0]; k++) {
        if (special[k].c != c)
            continue;
        printf("%s", special[k].roff);
        return strlen(special[k].roff);
    }
    putchar(c);
    return 1;
}

/* One line, as it is. */
static void put_line(const char *text, size_t length)
{
    if (length > 0 && (*text == '.' || *text == '\''))
        printf("\\&"); /* at the start of a line it would be a request */
    for (size_t i = 0; i < length; i++)
        put_byte(text[i]);
    putchar('\n');
}

/*
 * `length` bytes as text of a page, in lines of at most WIDTH bytes, more or less: plain text, or
 * roff in which what stands between backquotes is plain text in bold.
 */
static void put_some(const char *text, size_t length, bool is_roff)
{
    size_t column = 0;
    bool is_bold = false;
    for (size_t i = 0; i < length; i++) {
        const char *end = memchr(text + i, ' ', length - i);
        const size_t word = end ? (size_t)(end - text) - i : length - i;
        if (column > 0 && text[i - 1] == ' ') {
            const bool is_next = column + 1 + word > WIDTH - 10;
            putchar(is_next ? '\n' : ' ');
            column = is_next ? 0 : column + 1;
        }
        if (column == 0 && (text[i] == '.' || text[i] == '\''))
            printf("\\&"); /* at the start of a line it would be a request */
        if (text[i] == ' ')
            continue;
        if (is_roff && text[i] == '`') {
            is_bold = !is_bold;
            printf("\\f%c", is_bold ? 'B' : 'R');
            column += 3;
        } else if (is_roff && !is_bold) {
            putchar(text[i]);
            column++;
        } else {
            column += put_byte(text[i]);
        }
    }
}

static void put(const char *text)
{
    put_some(text, strlen(text), false);
}

/* Paragraphs with an empty line between them. */
static void put_paragraphs(const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        printf(".PP\n");
        put_some(text, length, false);
        printf("\n");
        text += length + (end ? 2 : 0);
    }
}

/* Command lines, one below the other. */
static void put_examples(const char *lines)
{
    printf(".PP\n.RS\n.EX\n");
    while (*lines) {
        const size_t length = strcspn(lines, "\n");
        put_line(lines, length);
        lines += length + (lines[length] == '\n');
    }
    printf(".EE\n.RE\n");
}

/* An entry's head, such as --gpu-budget=SIZE: the argument in italics. */
static void head(const char *before, char letter, const char *name, const char *between,
                 const char *argument)
{
    printf(".TP\n\\fB");
    if (letter)
        printf("\\-%c\\fR, \\fB", letter);
    put(before);
    put(name);
    if (argument && *argument) {
        printf("%s", between);
        printf("\\fI");
        put(argument);
    }
    printf("\\fR\n");
}

static void daemon_option(bool is_key, const char *name, const char *argument,
                          enum gm_option_kind kind, enum gm_option_when when, const char *otherwise,
                          const char *help)
{
    const bool is_flag = kind == GM_KIND_FLAG;
    head(is_key ? "" : "--", 0, name, is_key ? " = " : "=",
         !is_flag ? argument
         : is_key ? "yes|no"
                  : "");
    put(help);
    printf(".\n");
    if (*otherwise || (is_flag && is_key)) {
        printf("Default: ");
        put(*otherwise ? otherwise : "no");
        printf(".\n");
    }
    if (is_key && when == GM_WHEN_LIVE)
        printf("A reload changes it.\n");
}

static void daemon_options(bool is_key)
{
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    if (!is_key || GM_PLACE_##place == GM_PLACE_BOTH)                                              \
        daemon_option(is_key, name, argument, GM_KIND_##kind, GM_WHEN_##when, otherwise, help);
#include "daemon/service/options.def"
#undef GM_OPTION
}

/* The options of the commands in the set, of no others. */
static void command_options(unsigned set, bool is_all)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const struct option *option = &options[i];
        if ((option->commands == MUX_ALL) != is_all || !(option->commands & set))
            continue;
        head("--", option->key[0] == '\'' ? option->key[1] : '\0', option->name, "=",
             option->argument);
        put(option->help);
        printf(".\n");
    }
}

static void each_command(void)
{
    for (unsigned i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        printf(".SS ");
        put(commands[i].name);
        const char *words = commands[i].words;
        do {
            size_t length = strcspn(words, "\n");
            printf("\n%s\\fBmux\\-ctl ", words == commands[i].words ? "" : ".br\n");
            put(commands[i].name);
            printf("\\fR [\\fIOPTION\\fR...]%s\\fI", length ? " " : "");
            put_some(words, length, false);
            printf("\\fR");
            words += length;
        } while (*words++);
        printf("\n");
        put_paragraphs(commands[i].does);
        command_options(1u << i, false);
        put_paragraphs(commands[i].more);
        put_examples(commands[i].examples);
    }
}

/* One line of the page's text, without its end. Returns how many backquotes are in it. */
static unsigned put_text(const char *line)
{
    unsigned quotes = 0;
    for (const char *c = line; *c; c++)
        quotes += *c == '`';
    const char *text = strncmp(line, "| ", 2) == 0 ? strstr(line + 2, " | ") : NULL;
    if (text) {
        printf(".TP\n");
        put_some(line + 2, (size_t)(text - line) - 2, true);
        printf("\n");
        line = text + 3;
    } else if (strncmp(line, "- ", 2) == 0) {
        printf(".IP \\(bu 2\n");
        line += 2;
    }
    put_some(line, strlen(line), true);
    printf("\n");
    return quotes;
}

/* One line of the page, with its words filled in. */
static void fill(const char *line, const char *date)
{
    while (*line) {
        if (strncmp(line, "@version@", 9) == 0) {
            put(GM_VERSION);
            line += 9;
        } else if (strncmp(line, "@date@", 6) == 0) {
            printf("%s", date);
            line += 6;
        } else {
            putchar(*line++);
        }
    }
}

int main(int argc, char **argv)
{
    char line[1024];
    if (argc != 3) {
        fprintf(stderr, "usage: gm_page PAGE DATE < FILE\n");
        return 2;
    }
    const bool is_daemon = strcmp(argv[1], "gpumuxd.8") == 0;
    bool is_example = false;
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "@options@\n") == 0 && is_daemon)
            daemon_options(false);
        else if (strcmp(line, "@options@\n") == 0)
            command_options(MUX_ALL, true);
        else if (strcmp(line, "@keys@\n") == 0)
            daemon_options(true);
        else if (strcmp(line, "@commands@\n") == 0)
            each_command();
        else if (*line == '.' || *line == '\'' || is_example)
            fill(line, argv[2]);
        else {
            line[strcspn(line, "\n")] = '\0';
            if (put_text(line) % 2 == 0)
                continue;
            fprintf(stderr, "%s: a backquote is not closed: %s\n", argv[1], line);
            return 1;
        }
        if (strncmp(line, ".EX", 3) == 0 || strncmp(line, ".EE", 3) == 0)
            is_example = line[2] == 'X';
    }
    return fflush(stdout) || ferror(stdout);
}

/* The name of an app: see appname.h. */
#include "common/appname.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

/*
 * How to find the script in an interpreter's command line: it is the first word that is neither an
 * option nor the value of one. Entries of a list are separated by blanks. An option in no list
 * takes no value.
 */
struct gm_interpreter {
    const char *files;    /* names of its executable, without a version */
    const char *named;    /* options whose value is the script */
    const char *code;     /* options with code: no script follows */
    const char *values;   /* options with a value: the rest of the word, or the next word */
    const char *apart;    /* options with a value that is always the next word */
    const char *attached; /* options with a value that is always the rest of the word */
    const char *signs;    /* what an option begins with; NULL: "-" */
    bool has_words;       /* "-cp" is one option, not "-c" and "-p" together */
    bool is_loader;       /* the rest is a whole command line */
};

static const struct gm_interpreter gm_interpreters[] = {
    {.files = "python pypy", /* first: gm_is_python */
     .named = "-m",
     .code = "-c",
     .values = "-W -X -Q --check-hash-based-pycs --jit"},
    {.files = "sh bash dash ksh zsh",
     .code = "-c -s",
     .values = "--rcfile --init-file",
     .apart = "-o -O",
     .signs = "-+"},
    {.files = "java",
     .named = "-jar -m --module",
     .values = "-cp -classpath --class-path -p --module-path --upgrade-module-path --add-modules "
               "--limit-modules --add-exports --add-opens --add-reads --patch-module "
               "--enable-native-access --source",
     .signs = "-@",
     .has_words = true},
    {.files = "perl", .code = "-e -E", .values = "-I", .attached = "-M -m -i -x -D -F -V -d"},
    {.files = "ruby",
     .code = "-e",
     .values = "-I -r -C -X -E --encoding --external-encoding --internal-encoding",
     .attached = "-x -i -F -K -T -W"},
    {.files = "node nodejs",
     .code = "-e -p -pe --eval --print",
     .values = "-r -C --require --import --loader --experimental-loader --conditions --env-file "
               "--input-type --icu-data-dir --openssl-config",
     .has_words = true},
    {.files = "R",
     .named = "-f --file",
     .code = "-e --args",
     .values = "-g --gui -d --debugger --encoding",
     .has_words = true},
    {.files = "julia",
     .named = "-m --module",
     .code = "-e -E --eval --print",
     .values = "-L -p -t -J -C -H --load --procs --threads --gcthreads --sysimage --cpu-target "
               "--home --machine-file --startup-file --history-file --color --depwarn",
     .attached = "-O -g"},
    {.files = "ld.so ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so",
     .values = "--library-path --inhibit-rpath --audit --preload --argv0 --glibc-hwcaps-prepend "
               "--glibc-hwcaps-mask",
     .has_words = true,
     .is_loader = true},
};

struct gm_word {
    const char *at;
    size_t length;
};

struct gm_words {
    const char *at, *end;
    char separator;
};

static bool gm_words_next(struct gm_words *words, struct gm_word *word)
{
    if (words->at >= words->end)
        return false;
    size_t left = (size_t)(words->end - words->at);
    const char *stop = memchr(words->at, words->separator, left);
    word->at = words->at;
    word->length = stop != NULL ? (size_t)(stop - words->at) : left;
    words->at += word->length + 1;
    return true;
}

static bool gm_word_is(struct gm_word word, const char *text, size_t length)
{
    return word.length == length && memcmp(word.at, text, length) == 0;
}

static bool gm_word_starts(struct gm_word word, const char *text)
{
    size_t length = strlen(text);
    return word.length >= length && memcmp(word.at, text, length) == 0;
}

/* `word` without its first `n` bytes. */
static struct gm_word gm_word_from(struct gm_word word, size_t n)
{
    return (struct gm_word){word.at + n, word.length - n};
}

/* The last part of a path. */
static struct gm_word gm_word_base(struct gm_word word)
{
    while (word.length > 0 && word.at[word.length - 1] == '/')
        word.length--;
    const char *slash = word.length > 0 ? memrchr(word.at, '/', word.length) : NULL;
    return slash != NULL ? gm_word_from(word, (size_t)(slash + 1 - word.at)) : word;
}

static bool gm_list_next(const char **list, struct gm_word *entry)
{
    if (*list == NULL || **list == '\0')
        return false;
    *entry = (struct gm_word){*list, strcspn(*list, " ")};
    *list += entry->length;
    *list += **list == ' ';
    return true;
}

static bool gm_list_has(const char *list, struct gm_word word)
{
    struct gm_word entry;
    while (gm_list_next(&list, &entry))
        if (gm_word_is(word, entry.at, entry.length))
            return true;
    return false;
}

/* Whether `word` is `file` with a version or without: "", "3", "3.12", "3.13t", "-3.9". */
static bool gm_word_is_version_of(struct gm_word word, struct gm_word file)
{
    if (word.length < file.length || memcmp(word.at, file.at, file.length) != 0)
        return false;
    word = gm_word_from(word, file.length);
    if (word.length > 1 && (word.at[0] == '-' || word.at[0] == '.'))
        word = gm_word_from(word, 1);
    return word.length == 0 || (word.at[0] >= '0' && word.at[0] <= '9');
}

static const struct gm_interpreter *gm_interpreter_of(struct gm_word word)
{
    for (size_t i = 0; i < sizeof(gm_interpreters) / sizeof(gm_interpreters[0]); i++) {
        const char *files = gm_interpreters[i].files;
        struct gm_word file;
        while (gm_list_next(&files, &file))
            if (gm_word_is_version_of(word, file))
                return &gm_interpreters[i];
    }
    return NULL;
}

enum gm_option { GM_OPTION_DONE, GM_OPTION_NAMES, GM_OPTION_ENDS };

/*
 * Take one option; `rest` is its value or more letters. DONE: go on with the next word, or with the
 * next letter if *is_flag. NAMES: *script is found. ENDS: there is no script.
 */
static enum gm_option gm_option_take(const struct gm_interpreter *row, struct gm_word option,
                                     struct gm_word rest, struct gm_words *words,
                                     struct gm_word *script, bool *is_flag)
{
    struct gm_word value;
    *is_flag = false;
    if (gm_list_has(row->code, option))
        return GM_OPTION_ENDS;
    if (gm_list_has(row->named, option)) {
        *script = rest;
        if (rest.length == 0 && !gm_words_next(words, script))
            return GM_OPTION_ENDS;
        return GM_OPTION_NAMES;
    }
    if (gm_list_has(row->apart, option)) {
        *is_flag = true;
        return gm_words_next(words, &value) ? GM_OPTION_DONE : GM_OPTION_ENDS;
    }
    if (gm_list_has(row->values, option))
        return rest.length > 0 || gm_words_next(words, &value) ? GM_OPTION_DONE : GM_OPTION_ENDS;
    *is_flag = !gm_list_has(row->attached, option);
    return GM_OPTION_DONE;
}

/* Take a word of options: "-u", "-um", "--file=x", "-jar". */
static enum gm_option gm_options_take(const struct gm_interpreter *row, struct gm_word word,
                                      struct gm_words *words, struct gm_word *script)
{
    enum gm_option found = GM_OPTION_DONE;
    bool is_flag = true;
    if (row->has_words || gm_word_starts(word, "--")) {
        const char *sign = memchr(word.at, '=', word.length);
        size_t length = sign != NULL ? (size_t)(sign - word.at) : word.length;
        struct gm_word rest = sign != NULL ? gm_word_from(word, length + 1) : (struct gm_word){0};
        return gm_option_take(row, (struct gm_word){word.at, length}, rest, words, script,
                              &is_flag);
    }
    for (size_t i = 1; i < word.length && found == GM_OPTION_DONE && is_flag; i++) {
        const char letter[] = {'-', word.at[i]};
        found = gm_option_take(row, (struct gm_word){letter, sizeof(letter)},
                               gm_word_from(word, i + 1), words, script, &is_flag);
    }
    return found;
}

/* Find the script. False: it runs code of the command line or its input. */
static bool gm_script_find(const struct gm_interpreter *row, struct gm_words *words,
                           struct gm_word *script)
{
    const char *signs = row->signs != NULL ? row->signs : "-";
    while (gm_words_next(words, script)) {
        if (gm_word_is(*script, "-", 1))
            return false;
        if (gm_word_is(*script, "--", 2))
            return gm_words_next(words, script);
        if (script->length == 0 || strchr(signs, script->at[0]) == NULL)
            return true;
        enum gm_option found = gm_options_take(row, *script, words, script);
        if (found != GM_OPTION_DONE)
            return found == GM_OPTION_NAMES;
    }
    return false;
}

/* Whether the path has a name: it is not "." or an open file. */
static bool gm_script_has_name(struct gm_word script)
{
    struct gm_word base = gm_word_base(script);
    return base.length > 0 && !gm_word_is(base, ".", 1) && !gm_word_is(base, "..", 2) &&
           !gm_word_starts(script, "/dev/") && !gm_word_starts(script, "/proc/");
}

/* Whether the program wrote a title over its command line (setproctitle). */
static bool gm_word_is_title(struct gm_word first, const char *exe)
{
    struct gm_word base = gm_word_base(first);
    struct gm_word file = gm_word_base((struct gm_word){exe, strlen(exe)});
    return memchr(first.at, ' ', first.length) != NULL && first.at[0] != '/' &&
           !gm_word_is(base, file.at, file.length);
}

/* Write the legal characters that fit; '?' for illegal bytes. */
static void gm_name_set(char name[GM_APPNAME_SIZE], struct gm_word word)
{
    size_t length = 0;
    for (size_t i = 0; i < word.length;) {
        size_t n = gm_text_step(word.at + i, word.length - i);
        size_t taken = n == 0 ? 1 : n;
        if (length + taken >= GM_APPNAME_SIZE)
            break;
        if (n == 0)
            name[length] = '?';
        else
            memcpy(name + length, word.at + i, n);
        length += taken;
        i += taken;
    }
    name[length] = '\0';
}

void gm_appname(const char *line, size_t length, const char *exe, char name[GM_APPNAME_SIZE])
{
    struct gm_words words = {line, line + length, '\0'};
    struct gm_word script, first = {0};
    const struct gm_interpreter *row;

    if (exe == NULL)
        exe = "";
    gm_words_next(&words, &first);
    if (first.length > 0 && gm_word_is_title(first, exe)) {
        words = (struct gm_words){first.at, first.at + first.length, ' '};
        gm_words_next(&words, &first);
        for (; first.length > 0 && first.at[first.length - 1] == ':'; first.length--)
            words.at = words.end; /* "server: worker 3": the rest is no command line */
    }
    do {
        if (first.length > 0 && first.at[0] == '-')
            first = gm_word_from(first, 1); /* a login shell */
        first = gm_word_base(first);
        row = gm_interpreter_of(first);
        if (row != NULL && gm_script_find(row, &words, &script) && gm_script_has_name(script))
            first = row->is_loader ? script : gm_word_base(script);
        else
            row = NULL;
    } while (row != NULL && row->is_loader);
    if (first.length == 0)
        first = gm_word_base((struct gm_word){exe, strlen(exe)});
    gm_name_set(name, first);
}

static bool gm_is_python(struct gm_word file)
{
    return gm_interpreter_of(gm_word_base(file)) == &gm_interpreters[0];
}

/*
 * Whether a Python program made the process with its module multiprocessing, by "spawn" or
 * "forkserver". Then the command line is Python's own, and the script is the parent's.
 */
static bool gm_is_spawned(const char *line, size_t length)
{
    struct gm_words words = {line, line + length, '\0'};
    struct gm_word word;
    if (!gm_words_next(&words, &word) || !gm_is_python(word))
        return false;
    while (gm_words_next(&words, &word))
        if (gm_word_is(word, "-c", 2))
            return gm_words_next(&words, &word) && gm_word_starts(word, "from multiprocessing.");
    return false;
}

/* Read a file of /proc/PID. Returns its length, 0 if there is none. */
static size_t gm_proc_read(int pid, const char *file, char *buffer, size_t size)
{
    char path[64];
    size_t length = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    while (length < size) {
        ssize_t n = read(fd, buffer + length, size - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        length += (size_t)n;
    }
    close(fd);
    return length;
}

/* The command line and the executed file of a process. Returns the length of the first. */
static size_t gm_process_read(int pid, char *line, size_t size, char exe[PATH_MAX])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    ssize_t n = readlink(path, exe, PATH_MAX - 1);
    exe[n > 0 ? n : 0] = '\0';
    size_t length = gm_proc_read(pid, "cmdline", line, size);
    if (length == size) /* drop a word that was cut */
        while (length > 0 && line[length - 1] != '\0')
            length--;
    return length;
}

static int gm_parent_of(int pid)
{
    char text[512];
    int parent = 0;
    text[gm_proc_read(pid, "stat", text, sizeof(text) - 1)] = '\0';
    const char *behind = strrchr(text, ')'); /* the command may hold anything */
    return behind != NULL && sscanf(behind, ") %*c %d", &parent) == 1 ? parent : 0;
}

#define GM_GENERATIONS 8 /* of spawned processes that spawn others */

void gm_appname_own(char *buffer, size_t size, char name[GM_APPNAME_SIZE])
{
    size -= PATH_MAX; /* stacks may be small */
    char *const exe = buffer + size;
    size_t length = gm_process_read(getpid(), buffer, size, exe);
    bool is_spawned = gm_is_spawned(buffer, length);
    if (length == 0) /* no /proc, or no file descriptor left */
        length = (size_t)snprintf(buffer, size, "%s", program_invocation_short_name);
    gm_appname(buffer, length < size ? length : size, exe, name);
    int pid = getppid();
    for (int i = 0; i < GM_GENERATIONS && is_spawned && pid > 0; i++, pid = gm_parent_of(pid)) {
        length = gm_process_read(pid, buffer, size, exe);
        is_spawned = gm_is_spawned(buffer, length);
        if (!is_spawned && gm_is_python((struct gm_word){exe, strlen(exe)}))
            gm_appname(buffer, length, exe, name);
    }
}

uint64_t gm_appname_family(char *buffer, size_t size, const char *name)
{
    size -= PATH_MAX;
    char *const exe = buffer + size, its[GM_APPNAME_SIZE];
    struct stat space = {0};
    uint32_t family = (uint32_t)getpid();
    int pid = getppid();
    for (int i = 0; i < GM_GENERATIONS && pid > 0; i++, pid = gm_parent_of(pid)) {
        const size_t length = gm_process_read(pid, buffer, size, exe);
        gm_appname(buffer, length, exe, its);
        if (length > 0 && strcmp(its, name) == 0)
            family = (uint32_t)pid;
    }
    if (stat("/proc/self/ns/pid", &space) != 0)
        space.st_ino = 0;
    return (uint64_t)space.st_ino << 32 | family;
}

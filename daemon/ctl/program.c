/*
 * A program before it is started: whether the library can be preloaded into it. Called by run.c.
 *
 * It follows scripts to their interpreters and `env` to its command, as the kernel and env do, and
 * looks at the file that is executed in the end. What that program starts itself is not known here.
 */
#include "daemon/ctl/ctl.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STEPS_MAX 8u     /* the kernel follows 5 scripts */
#define HEAD_SIZE 256    /* of a script's first line: BINPRM_BUF_SIZE of the kernel */
#define SEGMENTS_MAX 512 /* program headers; linkers write some 15 */

/* A command line, which each step rewrites. Its words live until the program is executed. */
struct words {
    const char *at[1024]; /* up to NULL */
    size_t n;
    bool is_cut;      /* there were more */
    const char *path; /* $PATH */
};

static void add(struct words *words, const char *word)
{
    if (word && words->n + 1 < sizeof words->at / sizeof words->at[0])
        words->at[words->n++] = word;
    else
        words->is_cut = true;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool is_executable(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0;
}

/* The file that execvp would execute. False: there is none. */
static bool find_file(const struct words *words, const char *name, char path[PATH_MAX])
{
    const char *folder = words->path ? words->path : "/bin:/usr/bin";
    if (strchr(name, '/'))
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && is_executable(path);
    for (;;) {
        const int length = (int)strcspn(folder, ":");
        if (snprintf(path, PATH_MAX, "%.*s%s%s", length, folder, length ? "/" : "", name) <
                PATH_MAX &&
            is_executable(path))
            return true;
        if (folder[length] == '\0')
            return false;
        folder += length + 1;
    }
}

static bool read_at(int fd, void *bytes, size_t size, uint64_t at)
{
    return at <= INT64_MAX && pread(fd, bytes, size, (off_t)at) == (ssize_t)size;
}

/* The dynamic linker that an executable names; "" if it names none. False: it is no executable of
 * this machine's kind, or broken. */
static bool read_linker(int fd, char linker[PATH_MAX])
{
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    linker[0] = '\0';
    if (!read_at(fd, &head, sizeof head, 0) || head.e_phentsize != sizeof segment ||
        head.e_phnum > SEGMENTS_MAX)
        return false;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        if (!read_at(fd, &segment, sizeof segment, head.e_phoff + i * sizeof segment))
            return false;
        if (segment.p_type != PT_INTERP)
            continue;
        const size_t size = segment.p_filesz;
        if (size == 0 || size >= PATH_MAX || !read_at(fd, linker, size, segment.p_offset))
            return false;
        linker[size] = '\0';
        return true;
    }
    return true;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Whether the kernel starts the file with more rights than this process has. The dynamic linker
 * then ignores LD_PRELOAD. */
static const char *gains_rights(int fd, const struct stat *file)
{
    struct statvfs volume;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
        (fstatvfs(fd, &volume) == 0 && (volume.f_flag & ST_NOSUID)))
        return NULL;
    if ((file->st_mode & S_ISUID) && file->st_uid != getuid())
        return "is setuid";
    if ((file->st_mode & S_ISGID) && (file->st_mode & S_IXGRP) && file->st_gid != getgid())
        return "is setgid";
    if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
        return "has file capabilities";
    return NULL;
}

static void look_at_elf(const char *path, int fd, const unsigned char *ident,
                        struct mux_program *program)
{
    static const uint16_t own_machine =
#if defined(__x86_64__)
        EM_X86_64;
#elif defined(__aarch64__)
        EM_AARCH64;
#else
#error "which machine?"
#endif
    char linker[PATH_MAX], own[PATH_MAX] = "";
    uint16_t machine;
    struct stat file;

    memcpy(&machine, ident + offsetof(ElfW(Ehdr), e_machine), sizeof machine);
    if (ident[EI_CLASS] != ELFCLASS64 || machine != own_machine) {
        program->is_harmed = true; /* its linker would write an error */
        snprintf(program->why, sizeof program->why, "is built for another kind of machine");
        return;
    }
    if (!read_linker(fd, linker)) {
        snprintf(program->why, sizeof program->why, "is no whole executable");
        return;
    }
    const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (self >= 0) {
        read_linker(self, own);
        close(self);
    }
    if (linker[0] == '\0') {
        if (own[0] == '\0' || !is_same_file(path, own)) /* the linker itself preloads, too */
            snprintf(program->why, sizeof program->why, "is a static program");
        return;
    }
    if (own[0] && strcmp(base_of(linker), base_of(own)) != 0 && !is_same_file(linker, own)) {
        program->is_harmed = true; /* the library needs what another C library lacks */
        snprintf(program->why, sizeof program->why, "uses another C library, by %.200s",
                 base_of(linker));
        return;
    }
    const char *rights = fstat(fd, &file) == 0 ? gains_rights(fd, &file) : NULL;
    if (rights)
        snprintf(program->why, sizeof program->why, "%s", rights);
}

/* ---- scripts and env ------------------------------------------------------------------------- */

/* Put `n` words before those from number `from` on. */
static void put_before(struct words *words, size_t from, const char *const *first, size_t n)
{
    struct words next = {.path = words->path, .is_cut = words->is_cut};
    for (size_t i = 0; i < n; i++)
        add(&next, first[i]);
    for (size_t i = from; i < words->n; i++)
        add(&next, words->at[i]);
    *words = next;
}

/* The command line that the first line of the script `path` makes: "#!INTERPRETER [ARGUMENT]". */
static void follow_script(struct words *words, const char *path, const char *line)
{
    const char *name = line + 2 + strspn(line + 2, " \t");
    const size_t length = strcspn(name, " \t\n");
    const char *argument = name + length + strspn(name + length, " \t");
    size_t rest = strcspn(argument, "\n");
    while (rest > 0 && strchr(" \t", argument[rest - 1]))
        rest--;
    const char *first[3] = {strndup(name, length)};
    size_t n = 1;
    if (rest > 0)
        first[n++] = strndup(argument, rest);
    first[n++] = strdup(path);
    put_before(words, 1, first, n);
}

/* The words of `env -S`, which are separated by blanks. Quotes and variables are left as they are.
 */
static void split(struct words *words, size_t from, const char *text)
{
    const char *first[64] = {"env"};
    size_t n = 1;
    for (;;) {
        text += strspn(text, " \t\n");
        const size_t length = strcspn(text, " \t\n");
        if (length == 0 || n == sizeof first / sizeof first[0])
            break;
        first[n++] = strndup(text, length);
        text += length;
    }
    put_before(words, from, first, n);
}

/* One assignment of env's command line. */
static void assign(struct words *words, const char *word, bool *is_cleared)
{
    if (strncmp(word, "PATH=", 5) == 0)
        words->path = word + 5;
    if (strncmp(word, "LD_PRELOAD=", 11) == 0)
        *is_cleared = strstr(word, MUX_SHIM) == NULL;
}

/* The command that env executes. False: none. *is_cleared: it does not get our LD_PRELOAD. */
static bool follow_env(struct words *words, bool *is_cleared)
{
    static const struct option long_options[] = {{"ignore-environment", no_argument, NULL, 'i'},
                                                 {"null", no_argument, NULL, '0'},
                                                 {"unset", required_argument, NULL, 'u'},
                                                 {"chdir", required_argument, NULL, 'C'},
                                                 {"argv0", required_argument, NULL, 'a'},
                                                 {"split-string", required_argument, NULL, 'S'},
                                                 {"block-signal", optional_argument, NULL, 'b'},
                                                 {"default-signal", optional_argument, NULL, 'b'},
                                                 {"ignore-signal", optional_argument, NULL, 'b'},
                                                 {"list-signal-handling", no_argument, NULL, 'b'},
                                                 {"debug", no_argument, NULL, 'v'},
                                                 {0}};
    for (unsigned splits = 0; splits < STEPS_MAX; splits++) {
        bool is_split = false;
        int letter;
        optind = 0; /* start again */
        opterr = 0;
        while (!is_split && (letter = getopt_long((int)words->n, (char **)(uintptr_t)words->at,
                                                  "+i0u:C:a:S:v", long_options, NULL)) != -1) {
            if (letter == 'i' || (letter == 'u' && strcmp(optarg, "LD_PRELOAD") == 0))
                *is_cleared = true;
            if (letter == '?')
                return false;
            is_split = letter == 'S';
        }
        if (is_split) {
            split(words, (size_t)optind, optarg);
            continue;
        }
        size_t i = (size_t)optind;
        if (i < words->n && strcmp(words->at[i], "-") == 0) {
            *is_cleared = true;
            i++;
        }
        for (; i < words->n && strchr(words->at[i], '='); i++)
            assign(words, words->at[i], is_cleared);
        put_before(words, i, NULL, 0);
        return words->n > 0;
    }
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* One step: look at the file of the first word. True: *words is what it executes. */
static bool look(struct words *words, struct mux_program *program)
{
    char path[PATH_MAX], head[HEAD_SIZE + 1] = "";
    bool is_cleared = false, is_more = false;

    if (!find_file(words, words->at[0], path))
        return false; /* execvp says so */
    snprintf(program->name, sizeof program->name, "%.63s", base_of(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        program->is_unknown = true;
        snprintf(program->why, sizeof program->why, "cannot be looked at: %s", strerror(errno));
        return false;
    }
    const ssize_t length = pread(fd, head, HEAD_SIZE, 0);
    if (length >= (ssize_t)sizeof(ElfW(Ehdr)) && memcmp(head, ELFMAG, SELFMAG) == 0) {
        look_at_elf(path, fd, (const unsigned char *)head, program);
        if (program->why[0] == '\0' && strcmp(base_of(words->at[0]), "env") == 0) {
            is_more = follow_env(words, &is_cleared);
            if (!is_more && words->is_cut) {
                program->is_unknown = true;
                snprintf(program->why, sizeof program->why, "has too many words to look at");
            }
            if (is_more && is_cleared) {
                snprintf(program->name, sizeof program->name, "%.63s", base_of(words->at[0]));
                snprintf(program->why, sizeof program->why, "is started by env without LD_PRELOAD");
            }
        }
    } else if (length >= 2 && head[0] == '#' && head[1] == '!') {
        follow_script(words, path, head);
        is_more = words->n > 0 && words->at[0][0] != '\0';
    } else { /* execvp has the shell try it */
        const char *const first[] = {"/bin/sh", strdup(path)};
        put_before(words, 1, first, 2);
        is_more = true;
    }
    close(fd);
    return is_more && program->why[0] == '\0';
}

void mux_look(char **argv, struct mux_program *program)
{
    struct words words = {.path = getenv("PATH")};
    *program = (struct mux_program){0};
    for (; *argv; argv++)
        add(&words, *argv);
    for (unsigned i = 0; i < STEPS_MAX && words.n > 0 && look(&words, program); i++)
        continue;
}

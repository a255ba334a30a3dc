#include "shim/profiler/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/profiler/say.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define FILES_MOST 1000u /* of one process */

static FILE *file;
static pid_t owner; /* of the file: a forked child has one of its own */
static bool has_failed;
static uint64_t *hashes; /* of the kernels, by their index */
static uint32_t n_hashes;

/* The forked child gets the lock free, and the file with nothing in it that waits. */
static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void give_lock(void)
{
    pthread_mutex_unlock(&lock);
}

static void handle_forks(void)
{
    pthread_atfork(take_lock, give_lock, give_lock);
}

/* A file that was not there: none is written over, and no link followed. */
static FILE *make_file(char *path, size_t size)
{
    const char *folder = getenv("GPUMUX_PROFILE_RECORDS");
    FILE *made = NULL;
    errno = EEXIST;
    for (uint32_t i = 0; made == NULL && errno == EEXIST && i < FILES_MOST; i++) {
        char number[16] = "";
        if (i > 0)
            snprintf(number, sizeof(number), "-%u", i);
        snprintf(path, size, "%s/%d%s.records", folder != NULL ? folder : ".", (int)owner, number);
        made = fopen(path, "wxe");
    }
    return made;
}

/* In the lock. False: nothing can be written. */
static bool is_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char path[4096];
    if (file != NULL && owner == getpid())
        return true;
    if (has_failed && owner == getpid())
        return false;
    owner = getpid();
    n_hashes = 0;
    pthread_once(&once, handle_forks);
    if (file != NULL)
        fclose(file); /* the parent's, in which nothing waits */
    file = make_file(path, sizeof(path));
    has_failed = file == NULL;
    if (has_failed)
        gm_say("%s: %s", path, strerror(errno));
    else
        fprintf(file, "gpumux-records 1\n");
    return !has_failed;
}

/* In the lock: a line that is there when this returns. */
static void __attribute__((format(printf, 1, 2))) put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fflush(file);
}

void gm_writer_alloc(uint64_t from, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    if (bytes > 0 && is_open())
        put("alloc %" PRIx64 " %" PRIu64 "\n", from, bytes);
    pthread_mutex_unlock(&lock);
}

void gm_writer_free(uint64_t from)
{
    pthread_mutex_lock(&lock);
    if (is_open())
        put("free %" PRIx64 "\n", from);
    pthread_mutex_unlock(&lock);
}

/* The index of the kernel, whose line is written with its first launch. False: no memory. */
static bool index_of(const struct gm_written_launch *launch, uint32_t *index)
{
    for (*index = 0; *index < n_hashes; (*index)++)
        if (hashes[*index] == launch->hash)
            return true;
    uint64_t *more = reallocarray(hashes, n_hashes + 1, sizeof(*hashes));
    if (more == NULL)
        return false;
    hashes = more;
    hashes[n_hashes++] = launch->hash;
    fprintf(file, "kernel %u %016" PRIx64 " %u ", *index, launch->hash, launch->registers);
    for (const char *c = launch->name; *c != '\0'; c++)
        fputc(*c > ' ' && *c <= '~' ? *c : '_', file);
    fputc('\n', file);
    return true;
}

void gm_writer_launch(const struct gm_written_launch *launch)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t index;
    pthread_mutex_lock(&lock);
    if (is_open() && index_of(launch, &index)) {
        fprintf(file, "launch %u", index);
        for (int i = 0; i < 6; i++)
            fprintf(file, " %u", launch->dimension[i]);
        fputc(' ', file);
        for (uint32_t i = 0; i < launch->bytes; i++) {
            fputc(digits[launch->arguments[i] >> 4], file);
            fputc(digits[launch->arguments[i] & 15], file);
        }
        fputs(launch->bytes == 0 ? "-\n" : "\n", file);
        for (uint32_t i = 0; i < launch->n; i++)
            fprintf(file, "touch %" PRIx64 " %" PRIu64 "\n", launch->pages[i].from,
                    launch->pages[i].to - launch->pages[i].from);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}

static int compare(const void *a, const void *b)
{
    const struct gm_pages *left = a, *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

uint32_t gm_writer_join(struct gm_pages *pages, uint32_t n)
{
    uint32_t kept = 0;
    if (n == 0)
        return 0;
    qsort(pages, n, sizeof(*pages), compare);
    for (uint32_t i = 1; i < n; i++) {
        if (pages[i].from > pages[kept].to)
            pages[++kept] = pages[i];
        else if (pages[i].to > pages[kept].to)
            pages[kept].to = pages[i].to;
    }
    return kept + 1;
}

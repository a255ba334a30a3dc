/*
 * Log lines. A line is built on the stack and leaves in one write, so that lines of several threads
 * never mix. No lock, no allocation, no time zone data: a line may be written from any thread and
 * in a forked child. errno is kept.
 */
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"

#define GM_LOG_LINE 1000u /* bytes of a line, its newline included */

/* Set by gm_log_open before threads start; fd and level may change later. */
static atomic_int gm_log_fd = -1;
static atomic_int gm_log_level = GM_LOG_INFO;
static atomic_bool gm_log_is_journal;
static char gm_log_who[32];

/* Whether `fd` is the stream that the service manager named: $JOURNAL_STREAM is "device:inode". */
static bool gm_log_fd_is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char text[64];

    if (stream == NULL || fd < 0 || fstat(fd, &st) != 0)
        return false;
    snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(stream, text) == 0;
}

void gm_log_open(int fd, enum gm_log_level level, const char *who)
{
    atomic_store(&gm_log_fd, -1);
    snprintf(gm_log_who, sizeof(gm_log_who), "%s", who);
    atomic_store(&gm_log_level, (int)level);
    atomic_store(&gm_log_is_journal, gm_log_fd_is_journal(fd));
    atomic_store(&gm_log_fd, fd);
}

/*
 * "2025-11-20T16:34:12.345Z ", always UTC: computed here because gmtime_r takes the time zone lock,
 * which a forked child may never get. Days to date as in the proleptic Gregorian calendar, with
 * years that start in March, so that the leap day is the last.
 */
static size_t gm_log_stamp(char *text, size_t size)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seconds = (uint64_t)now.tv_sec % 86400u;
    uint64_t days = (uint64_t)now.tv_sec / 86400u + 719468u; /* since 0000-03-01 */
    uint64_t era = days / 146097u;                           /* of 400 years */
    uint64_t day = days % 146097u;
    uint64_t year = (day - day / 1460u + day / 36524u - day / 146096u) / 365u;
    day -= 365u * year + year / 4u - year / 100u;
    uint64_t month = (5u * day + 2u) / 153u; /* 0 is March */
    day -= (153u * month + 2u) / 5u;
    year += era * 400u + (month >= 10u);
    month = month < 10u ? month + 3u : month - 9u;
    int n = snprintf(text, size, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ ", (unsigned)year,
                     (unsigned)month, (unsigned)day + 1u, (unsigned)(seconds / 3600u),
                     (unsigned)(seconds / 60u % 60u), (unsigned)(seconds % 60u),
                     (unsigned)(now.tv_nsec / 1000000));
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

static const char *gm_log_word(enum gm_log_level level)
{
    switch (level) {
    case GM_LOG_ERROR:
        return "error: ";
    case GM_LOG_WARN:
        return "warning: ";
    case GM_LOG_DEBUG:
        return "debug: ";
    case GM_LOG_INFO:
        break;
    }
    return "";
}

void gm_log(enum gm_log_level level, const char *format, ...)
{
    int fd = atomic_load_explicit(&gm_log_fd, memory_order_acquire);
    if (fd < 0 || (int)level > atomic_load_explicit(&gm_log_level, memory_order_relaxed))
        return;

    int saved = errno;
    char line[GM_LOG_LINE + 1]; /* one more for the NUL of the longest line */
    size_t head;
    if (atomic_load_explicit(&gm_log_is_journal, memory_order_relaxed)) {
        head = (size_t)snprintf(line, sizeof(line), "<%d>", (int)level);
    } else {
        head = gm_log_stamp(line, sizeof(line));
        head += (size_t)snprintf(line + head, sizeof(line) - head, "%s: %s", gm_log_who,
                                 gm_log_word(level));
    }

    va_list args;
    va_start(args, format);
    errno = saved; /* for %m */
    int n = vsnprintf(line + head, GM_LOG_LINE - head, format, args);
    va_end(args);
    if (n < 0)
        line[head] = '\0';
    gm_text_clean(line + head, GM_LOG_LINE - head);
    size_t length = head + strlen(line + head);
    line[length++] = '\n';
    while (write(fd, line, length) < 0 && errno == EINTR)
        continue;
    errno = saved;
}

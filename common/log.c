/*
 * Log lines: see log.h. A line is built on the stack and written at once, so lines of threads do
 * not mix. No allocation, no time zone data, and no lock unless repetition is limited or a thread
 * writes, which is not so in the shim: so a forked child can log, too. errno is kept.
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
#include <unistd.h>

#include "common/clock.h"
#include "common/locks.h"
#include "common/text.h"
#include "common/writer.h"

#define GM_LOG_LINE 1000u /* bytes of a line, its newline included */
/* A line is in a file of a disk that works after 20 us. One that hangs costs this once. */
#define GM_LOG_PATIENCE (20 * GM_MS)
#define GM_LOG_LAST GM_S /* for lines that wait when the process ends */

/* Set by gm_log_open before threads start; fd and level may change later. */
static atomic_int gm_log_fd = -1;
static atomic_int gm_log_level = GM_LOG_INFO;
static atomic_bool gm_log_is_journal;
static char gm_log_who[32];
static _Atomic(struct gm_writer *) gm_log_writer; /* NULL: callers write themselves */
static uint64_t gm_log_patience;                  /* ns that a caller waits for its line */

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

void gm_log_from(enum gm_log_level level)
{
    atomic_store(&gm_log_level, (int)level);
}

/*
 * "2025-11-20T16:34:12.345Z ", in UTC. gmtime_r takes the time zone lock, which a forked child may
 * never get. Years start in March here, so that the leap day is the last.
 */
static size_t gm_log_stamp(char *text, size_t size)
{
    const uint64_t now = gm_wall_time();
    uint64_t seconds = now / GM_S % 86400u;
    uint64_t days = now / GM_S / 86400u + 719468u; /* since 0000-03-01 */
    uint64_t era = days / 146097u;                 /* of 400 years */
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
                     (unsigned)(now % GM_S / GM_MS));
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

/* What comes before the text. Returns its length. */
static size_t gm_log_head(char line[GM_LOG_LINE + 1], enum gm_log_level level)
{
    if (atomic_load_explicit(&gm_log_is_journal, memory_order_relaxed))
        return (size_t)snprintf(line, GM_LOG_LINE, "<%d>", (int)level);
    const size_t length = gm_log_stamp(line, GM_LOG_LINE);
    line[length] = '\0';
    return gm_text_add(line, GM_LOG_LINE, "%s: %s", gm_log_who, gm_log_word(level));
}

/* End a line with its text. Returns its length. */
static size_t gm_log_end(char line[GM_LOG_LINE + 1], size_t head)
{
    gm_text_clean(line + head, GM_LOG_LINE - head);
    size_t length = head + strlen(line + head);
    line[length++] = '\n';
    return length;
}

static size_t gm_log_notice(char *line, size_t size, uint64_t lost)
{
    char whole[GM_LOG_LINE + 1];
    const size_t head = gm_log_head(whole, GM_LOG_WARN);
    gm_text_add(whole, GM_LOG_LINE, "%llu lines of the log are lost: they could not be written",
                (unsigned long long)lost);
    const size_t length = gm_log_end(whole, head);
    memcpy(line, whole, length < size ? length : size);
    return length < size ? length : size;
}

static void gm_log_write(int fd, char line[GM_LOG_LINE + 1], size_t head)
{
    struct gm_writer *writer = atomic_load_explicit(&gm_log_writer, memory_order_acquire);
    const size_t length = gm_log_end(line, head);
    if (writer != NULL) {
        gm_writer_put(writer, line, length, gm_log_patience);
        return;
    }
    while (write(fd, line, length) < 0 && errno == EINTR)
        continue;
}

/* When the process ends. */
static void gm_log_at_exit(void)
{
    struct gm_writer *writer = atomic_load(&gm_log_writer);
    gm_log_release(true);
    if (writer != NULL)
        gm_writer_flush(writer, GM_LOG_LAST);
}

void gm_log_apart(void)
{
    struct stat st;
    const int fd = atomic_load(&gm_log_fd);
    if (fd < 0)
        return;
    /* Who reads a file finds a line in it as soon as what it tells has happened. */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        gm_log_patience = GM_LOG_PATIENCE;
    atomic_store(&gm_log_writer, gm_writer_open(fd, GM_LOG_WAITING, gm_log_notice, "gpumux-log"));
    atexit(gm_log_at_exit);
}

/* ---- repetition ----
 *
 * One slot for each kind of line that was written in the last second. If there are more kinds than
 * slots, the others share the last slot, so inventing kinds does not help to flood the log.
 */

#define GM_LOG_KINDS 128u /* twice the 60 programs that were seen to come within a second */
#define GM_LOG_EVERY GM_S

struct gm_log_kind {
    uint64_t hash;    /* 0: unused */
    uint64_t written; /* gm_now() at the last line written */
    unsigned held;    /* lines held back since; the last one is: */
    enum gm_log_level level;
    char text[512];
};

static struct gm_lock gm_log_lock = GM_LOCK_INITIALIZER(GM_LOCK_LOG);
static struct gm_log_kind *gm_log_kinds; /* NULL: no limit */
static atomic_uint gm_log_holding;       /* kinds with lines that are held back */

static uint64_t gm_log_hash(enum gm_log_level level, const char *kind)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ (unsigned)level; /* FNV-1a */
    for (; *kind; kind++)
        hash = (hash ^ (unsigned char)*kind) * 0x100000001b3ull;
    return hash ? hash : 1;
}

static struct gm_log_kind *gm_log_find(uint64_t hash, uint64_t now)
{
    struct gm_log_kind *found = NULL;
    for (unsigned i = 0; i < GM_LOG_KINDS - 1; i++) {
        struct gm_log_kind *kind = &gm_log_kinds[i];
        if (kind->hash == hash)
            return kind;
        if (!found && kind->held == 0 && (kind->hash == 0 || now - kind->written >= GM_LOG_EVERY))
            found = kind;
    }
    if (!found)
        return &gm_log_kinds[GM_LOG_KINDS - 1];
    *found = (struct gm_log_kind){.hash = hash};
    return found;
}

/* Write the last line of a kind. Under the lock. */
static void gm_log_let_go(struct gm_log_kind *kind, uint64_t now)
{
    char line[GM_LOG_LINE + 1];
    int fd = atomic_load_explicit(&gm_log_fd, memory_order_acquire);
    const size_t head = gm_log_head(line, kind->level);
    gm_text_add(line, GM_LOG_LINE, "%s", kind->text);
    if (kind->held > 1)
        gm_text_add(line, GM_LOG_LINE, " (and %u more like it)", kind->held - 1);
    if (fd >= 0)
        gm_log_write(fd, line, head);
    kind->held = 0;
    kind->written = now;
    atomic_fetch_sub(&gm_log_holding, 1);
}

/* Whether this line of kind `of` is held back. */
static bool gm_log_hold(enum gm_log_level level, const char *of, const char *text)
{
    bool is_held = false;
    gm_lock(&gm_log_lock);
    uint64_t now = gm_now();
    struct gm_log_kind *kind = gm_log_find(gm_log_hash(level, of), now);
    if (kind->written != 0 && (kind->held > 0 || now - kind->written < GM_LOG_EVERY)) {
        is_held = true;
        if (kind->held++ == 0)
            atomic_fetch_add(&gm_log_holding, 1);
        kind->level = level;
        snprintf(kind->text, sizeof(kind->text), "%s", text);
    } else {
        kind->written = now;
    }
    gm_unlock(&gm_log_lock);
    return is_held;
}

bool gm_log_is_holding(void)
{
    return atomic_load(&gm_log_holding) > 0;
}

void gm_log_release(bool is_all)
{
    if (!gm_log_is_holding())
        return;
    int saved = errno;
    gm_lock(&gm_log_lock);
    uint64_t now = gm_now();
    for (unsigned i = 0; i < GM_LOG_KINDS; i++) {
        struct gm_log_kind *kind = &gm_log_kinds[i];
        if (kind->held > 0 && (is_all || now - kind->written >= GM_LOG_EVERY))
            gm_log_let_go(kind, now);
    }
    gm_unlock(&gm_log_lock);
    errno = saved;
}

void gm_log_limit(void)
{
    gm_log_kinds = calloc(GM_LOG_KINDS, sizeof(*gm_log_kinds));
    if (gm_log_kinds != NULL)
        atexit(gm_log_at_exit);
}

/* `kind` NULL: the text itself. */
static void gm_log_list(enum gm_log_level level, const char *kind, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void gm_log_list(enum gm_log_level level, const char *kind, const char *format, va_list args)
{
    int fd = atomic_load_explicit(&gm_log_fd, memory_order_acquire);
    if (fd < 0 || (int)level > atomic_load_explicit(&gm_log_level, memory_order_relaxed))
        return;

    int saved = errno;
    char line[GM_LOG_LINE + 1]; /* the only one: stacks may be small */
    const size_t head = gm_log_head(line, level);
    char *text = line + head;
    errno = saved; /* for %m */
    if (vsnprintf(text, GM_LOG_LINE - head, format, args) < 0)
        text[0] = '\0';
    if (gm_log_kinds == NULL || level == GM_LOG_DEBUG ||
        !gm_log_hold(level, kind != NULL ? kind : text, text))
        gm_log_write(fd, line, head);
    errno = saved;
}

void gm_log(enum gm_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gm_log_list(level, NULL, format, args);
    va_end(args);
}

void gm_log_like(enum gm_log_level level, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gm_log_list(level, kind, format, args);
    va_end(args);
}

/* The recording: see record.h. */
#include "daemon/views/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "common/writer.h"

#define FLUSH_MS 1000u
#define BUFFER (64u << 10)
/* More than a minute of a busy scheduler: a disk that is slower than that for so long is full soon.
 */
#define WAITING (4u << 20)
#define PATIENCE (2 * GM_S) /* for the disk, when the daemon ends */

struct gm_record {
    struct gm_writer *writer;
    bool is_over; /* the recording has ended */
    char path[PATH_MAX];
    uint64_t now;   /* times never decrease */
    uint64_t bytes; /* in the file: whole lines */
    uint64_t most;
    uv_timer_t timer;
    size_t length;
    char buffer[BUFFER];
};

#define BEGIN GM_TRACE_MAGIC " "

/* Whether the file is a trace, or empty. */
static bool is_trace(int fd)
{
    char begin[sizeof BEGIN - 1];
    ssize_t n = pread(fd, begin, sizeof begin, 0);
    return n == 0 || (n == sizeof begin && memcmp(begin, BEGIN, sizeof begin) == 0);
}

/* Whether it has more than the first line. */
static bool has_entries(int fd)
{
    char begin[4096];
    ssize_t n = pread(fd, begin, sizeof begin, 0);
    const char *end = n > 0 ? memchr(begin, '\n', (size_t)n) : NULL;
    return n == (ssize_t)sizeof begin || (end && end + 1 < begin + n);
}

static bool open_trace(const char *path, int *fd)
{
    struct stat found;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return *fd >= 0 ? fstat(*fd, &found) == 0 && S_ISREG(found.st_mode) && is_trace(*fd)
                    : errno == ENOENT;
}

/* What is to be done with what is at the path: nothing, as there is none; or that. */
enum found { FOUND_NONE, FOUND_EMPTY, FOUND_TRACE };

/* An enum found, or -errno. */
static int look_at(const char *path, char *why, size_t size)
{
    char old[PATH_MAX + 8];
    struct stat found;
    int error = 0, fd = -1;

    if (lstat(path, &found)) {
        if (errno == ENOENT)
            return FOUND_NONE; /* if the folder is missing, open will fail */
        error = -errno;
        snprintf(why, size, "%s cannot be recorded to: %s", path, strerror(-error));
        return error;
    }
    if (!S_ISREG(found.st_mode)) {
        snprintf(why, size, "%s cannot be recorded to: it is there and not a regular file", path);
        return -EEXIST;
    }
    const bool is_ours = open_trace(path, &fd);
    if (fd < 0) {
        error = -errno;
        snprintf(why, size, "%s cannot be recorded to: %s", path, strerror(-error));
        return error;
    }
    const bool is_worth = has_entries(fd);
    close(fd);
    if (!is_ours) {
        snprintf(why, size,
                 "%s cannot be recorded to: it is there and no trace of gpumuxd; remove it, or "
                 "choose another --record",
                 path);
        return -EEXIST;
    }
    if (!is_worth) /* from a start that failed: keep FILE.old instead */
        return FOUND_EMPTY;
    snprintf(old, sizeof old, "%s.old", path);
    const bool is_old_ours = open_trace(old, &fd);
    if (fd >= 0)
        close(fd);
    if (is_old_ours)
        return FOUND_TRACE;
    snprintf(why, size,
             "the trace %s cannot be kept as %s: that is there and no trace of gpumuxd; remove "
             "it, or choose another --record",
             path, old);
    return -EEXIST;
}

int gm_record_try(const char *path, char *why, size_t why_size)
{
    const int found = look_at(path, why, why_size);
    return found < 0 ? found : 0;
}

/* Rename an older trace at the path. */
static int step_aside(const char *path, char *why, size_t size)
{
    char old[PATH_MAX + 8];
    const int found = look_at(path, why, size);
    int error = found < 0 ? found : 0;
    if (found == FOUND_EMPTY && unlink(path)) {
        error = -errno;
        snprintf(why, size, "%s cannot be recorded to: %s", path, strerror(-error));
    }
    snprintf(old, sizeof old, "%s.old", path);
    if (found == FOUND_TRACE && rename(path, old)) {
        error = -errno;
        snprintf(why, size, "the trace %s cannot be kept as %s: %s", path, old, strerror(-error));
    }
    return error;
}

int gm_record_open(struct gm_record **out, uv_loop_t *loop, const char *path, uint64_t most,
                   char *why, size_t why_size)
{
    struct gm_record *record = calloc(1, sizeof *record);
    if (!record) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    int error = step_aside(path, why, why_size);
    if (error)
        goto free_record;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        error = -errno;
        snprintf(why, why_size, "%s cannot be recorded to: %s", path, strerror(-error));
        goto free_record;
    }
    record->writer = gm_writer_open(fd, WAITING, NULL, "gpumux-record");
    if (!record->writer) {
        error = -ENOMEM;
        snprintf(why, why_size, "out of memory or threads");
        goto close_file;
    }
    snprintf(record->path, sizeof record->path, "%s", path);
    record->most = most;
    uv_timer_init(loop, &record->timer);
    record->timer.data = record;
    *out = record;
    return 0;

close_file:
    close(fd);
free_record:
    free(record);
    return error;
}

/* The file keeps its whole lines. */
static void end(struct gm_record *record, int error)
{
    gm_log(GM_LOG_ERROR, "recording to %s ends here: %s", record->path,
           error == -ETIMEDOUT ? "the disk is too slow" : strerror(-error));
    record->is_over = true;
    record->length = 0;
}

/* Hand over the lines in memory. */
static void flush(struct gm_record *record)
{
    if (record->is_over)
        return;
    if (!gm_writer_put(record->writer, record->buffer, record->length, 0)) {
        const int error = gm_writer_error(record->writer);
        end(record, error ? error : -ETIMEDOUT);
    }
    record->bytes += record->length;
    record->length = 0;
}

static void on_timer(uv_timer_t *timer)
{
    flush(timer->data);
}

static void end_full(struct gm_record *record)
{
    char size[32];
    flush(record);
    if (record->is_over)
        return;
    gm_log(GM_LOG_WARN,
           "recording to %s ends here: it is as large as --record-size allows (%s); what is "
           "recorded can be replayed",
           record->path, gm_format_size(record->most, size, sizeof size));
    record->is_over = true;
}

static void put(struct gm_record *record, const char *line, size_t length)
{
    if (record->bytes + record->length + length > record->most) {
        end_full(record);
        return;
    }
    if (record->length + length > sizeof record->buffer)
        flush(record);
    if (record->is_over)
        return;
    if (record->length == 0)
        uv_timer_start(&record->timer, on_timer, FLUSH_MS, 0);
    memcpy(record->buffer + record->length, line, length);
    record->length += length;
}

void gm_record_config(struct gm_record *record, const struct gm_sched_config *config)
{
    char line[GM_TRACE_LINE_MAX];
    if (record && !record->is_over)
        put(record, line, gm_trace_config(line, sizeof line, config));
}

/* Like the scheduler, take a time that goes back for the latest one. */
static uint64_t clamp(struct gm_record *record, uint64_t now)
{
    record->now = now > record->now ? now : record->now;
    return record->now;
}

void gm_record_event(struct gm_record *record, uint64_t now, const struct gm_sched_event *event)
{
    char line[GM_TRACE_LINE_MAX];
    if (record && !record->is_over)
        put(record, line, gm_trace_event(line, sizeof line, clamp(record, now), event));
}

void gm_record_policy(struct gm_record *record, uint64_t now, uint32_t app,
                      const struct gm_sched_policy *policy)
{
    char line[GM_TRACE_LINE_MAX];
    if (record && !record->is_over)
        put(record, line, gm_trace_policy(line, sizeof line, clamp(record, now), app, policy));
}

void gm_record_view(struct gm_record *record, uint64_t now, const struct gm_trace_view *view)
{
    char line[GM_TRACE_LINE_MAX];
    if (record && !record->is_over)
        put(record, line, gm_trace_view(line, sizeof line, clamp(record, now), view));
}

static void free_record(uv_handle_t *timer)
{
    free(timer->data);
}

void gm_record_close(struct gm_record *record)
{
    if (!record)
        return;
    flush(record);
    const int error = gm_writer_close(record->writer, PATIENCE);
    if (error && !record->is_over)
        end(record, error);
    uv_timer_stop(&record->timer);
    uv_close((uv_handle_t *)&record->timer, free_record);
}

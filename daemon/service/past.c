/* Past runs: see past.h. */
#include "daemon/service/past.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/settings.h"
#include "common/sums.h"
#include "common/text.h"

#define HEADER "# gpumux history 1: what programs needed; `mux-ctl forget` deletes lines\n"
#define LINE_MOST 256u /* bytes of a line with its newline */
#define FILE_MOST ((size_t)LINE_MOST * (GM_PAST_MOST + 1))
#define MIB ((uint64_t)1 << 20)
#define MIB_MOST (UINT64_MAX / MIB)
#define TOOK_MOST UINT32_MAX /* ms: 49 days */

struct entry {
    uid_t uid;
    uint32_t runs;
    char last[11]; /* a date */
    struct gm_past_run run;
    char command[GM_COMMAND_MAX + 1];
};

/* What a thread writes. */
struct writing {
    uv_work_t work;
    char *text;
    size_t length;
    char path[PATH_MAX];
    int error;
    bool is_busy;
    uv_sem_t is_done; /* the thread is, whether or not the loop knows */
};

struct gm_past {
    uv_loop_t *loop;
    uv_timer_t timer;
    char path[PATH_MAX - 16]; /* "": none */
    bool is_changed;          /* since it was last written */
    bool is_told;             /* the log has that it cannot be written */
    struct writing writing;
    uint32_t n;
    struct entry entries[GM_PAST_MOST]; /* the one that ran last is last */
};

/* ---- entries ---- */

static uint32_t find(const struct gm_past *past, uid_t uid, const char *command)
{
    uint32_t i = 0;
    while (i < past->n &&
           (past->entries[i].uid != uid || strcmp(past->entries[i].command, command) != 0))
        i++;
    return i;
}

static void take_out(struct gm_past *past, uint32_t i)
{
    past->n--;
    memmove(&past->entries[i], &past->entries[i + 1], (past->n - i) * sizeof past->entries[0]);
}

/* Make room for one more of this user: the oldest of its own, or of all. */
static void make_room(struct gm_past *past, uid_t uid)
{
    uint32_t of_user = 0, oldest = past->n;
    for (uint32_t i = past->n; i-- > 0;) {
        if (past->entries[i].uid != uid)
            continue;
        of_user++;
        oldest = i;
    }
    if (of_user >= GM_PAST_USER)
        take_out(past, oldest);
    else if (past->n == GM_PAST_MOST)
        take_out(past, 0);
}

/* ---- reading ---- */

/* "12288M" behind `name`. */
static bool take_size(const char **at, const char *name, uint64_t *bytes)
{
    const size_t length = strlen(name);
    char *end;
    if (strncmp(*at, name, length) != 0 || (*at)[length] < '0' || (*at)[length] > '9')
        return false;
    errno = 0;
    const unsigned long long mib = strtoull(*at + length, &end, 10);
    if (errno != 0 || mib > MIB_MOST || strncmp(end, "M ", 2) != 0)
        return false;
    *bytes = mib * MIB;
    *at = end + 2;
    return true;
}

static bool take_number(const char **at, const char *name, const char *unit, uint64_t most,
                        uint64_t *number)
{
    const size_t length = strlen(name);
    char *end;
    if (strncmp(*at, name, length) != 0 || (*at)[length] < '0' || (*at)[length] > '9')
        return false;
    errno = 0;
    const unsigned long long value = strtoull(*at + length, &end, 10);
    if (errno != 0 || value > most || strncmp(end, unit, strlen(unit)) != 0 ||
        end[strlen(unit)] != ' ')
        return false;
    *number = value;
    *at = end + strlen(unit) + 1;
    return true;
}

static bool is_date(const char *text)
{
    static const char looks[] = "0000-00-00";
    for (size_t i = 0; i < sizeof looks - 1; i++)
        if (looks[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != looks[i])
            return false;
    return true;
}

static bool take_line(struct gm_past *past, const char *at)
{
    struct entry entry = {0};
    uint64_t uid, runs, percent;
    if (!take_number(&at, "uid=", "", UINT32_MAX, &uid) ||
        !take_number(&at, "runs=", "", UINT32_MAX, &runs) || strncmp(at, "last=", 5) != 0 ||
        !is_date(at + 5) || at[15] != ' ')
        return false;
    memcpy(entry.last, at + 5, 10);
    at += 16;
    if (!take_size(&at, "most=", &entry.run.most) ||
        !take_size(&at, "needed=", &entry.run.needed) ||
        !take_number(&at, "time=", "%", 100, &percent))
        return false;
    if (strncmp(at, "took=", 5) == 0 && /* not in lines of an older daemon */
        !take_number(&at, "took=", "ms", TOOK_MOST, &entry.run.took_ms))
        return false;
    if (strncmp(at, "command=", 8) != 0)
        return false;
    at += 8;
    const size_t length = strlen(at);
    if (length == 0 || length > GM_COMMAND_MAX)
        return false;
    memcpy(entry.command, at, length);
    entry.uid = (uid_t)uid;
    entry.runs = (uint32_t)runs;
    entry.run.time = (uint32_t)percent * (GM_BIND_WHOLE / 100);
    if (!gm_text_is_legal(entry.command, sizeof entry.command) || past->n == GM_PAST_MOST ||
        find(past, entry.uid, entry.command) < past->n)
        return false;
    past->entries[past->n++] = entry;
    return true;
}

/* Take the text of a file. Returns the number of the first line that is damaged; 0: none. */
static unsigned take_text(struct gm_past *past, char *text, size_t length)
{
    unsigned number = 1;
    char *rest = text + strlen(HEADER);
    if (length < strlen(HEADER) || memcmp(text, HEADER, strlen(HEADER)) != 0)
        return 1;
    while (*rest != '\0') {
        char *end = strchr(rest, '\n');
        number++;
        if (!end || (size_t)(end - rest) >= LINE_MOST)
            return number;
        *end = '\0';
        if (!take_line(past, rest))
            return number;
        rest = end + 1;
    }
    return rest == text + length ? 0 : number + 1; /* a NUL ends it early */
}

/* The text of the file, which the caller frees; NULL with 0: there is none, else -errno; -EPERM:
 * others than root and the daemon's user may write it, and would decide who gets which GPU. */
static char *read_file(const char *path, size_t *length, int *error)
{
    struct stat found;
    char *text = NULL;
    *error = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0) {
        *error = errno == ENOENT ? 0 : -errno;
        return NULL;
    }
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
        *error = -EINVAL;
    else if ((found.st_uid != 0 && found.st_uid != geteuid()) ||
             (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        *error = -EPERM;
    else if ((text = malloc(FILE_MOST + 1)) == NULL)
        *error = -ENOMEM;
    *length = 0;
    while (*error == 0 && *length < FILE_MOST) {
        const ssize_t n = read(fd, text + *length, FILE_MOST - *length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            *error = -errno;
        if (n <= 0)
            break;
        *length += (size_t)n;
    }
    close(fd);
    if (*error == 0)
        text[*length] = '\0';
    else
        free(text);
    return *error == 0 ? text : NULL;
}

static void load(struct gm_past *past)
{
    char damaged[PATH_MAX];
    size_t length;
    int error;
    char *text = read_file(past->path, &length, &error);
    if (error) {
        gm_log(GM_LOG_WARN,
               "the history %s cannot be read, and is left as it is: %s; what programs need is "
               "remembered until the daemon ends",
               past->path, error == -EPERM ? "others may write it" : strerror(-error));
        past->path[0] = '\0';
        return;
    }
    const unsigned line = text && length > 0 ? take_text(past, text, length) : 0;
    free(text);
    if (line == 0)
        return;
    past->n = 0;
    snprintf(damaged, sizeof damaged, "%s.damaged", past->path);
    const bool is_renamed = rename(past->path, damaged) == 0;
    gm_log(GM_LOG_WARN, "line %u of the history %s is damaged: %s%s; a new one begins", line,
           past->path, is_renamed ? "renamed to " : "it cannot be renamed",
           is_renamed ? damaged : "");
}

/* ---- writing ---- */

/* The file's text; NULL: out of memory. */
static char *format(const struct gm_past *past, size_t *length)
{
    char *text = malloc(FILE_MOST + 1);
    if (!text)
        return NULL;
    size_t at = (size_t)snprintf(text, FILE_MOST + 1, "%s", HEADER);
    for (uint32_t i = 0; i < past->n; i++) {
        const struct entry *entry = &past->entries[i];
        at += gm_text_add(text + at, LINE_MOST,
                          "uid=%u runs=%" PRIu32 " last=%s most=%" PRIu64 "M needed=%" PRIu64
                          "M time=%" PRIu32 "%% took=%" PRIu64 "ms command=%s\n",
                          entry->uid, entry->runs, entry->last, entry->run.most / MIB,
                          entry->run.needed / MIB, entry->run.time / (GM_BIND_WHOLE / 100),
                          entry->run.took_ms, entry->command);
    }
    *length = at;
    return text;
}

/* 0 or -errno. The old file stays until the new one is whole. */
static int write_file(const char *path, const char *text, size_t length)
{
    char fresh[PATH_MAX];
    size_t done = 0;
    snprintf(fresh, sizeof fresh, "%s.new", path);
    unlink(fresh);
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : 0;
    while (error == 0 && done < length) {
        const ssize_t n = write(fd, text + done, length - done);
        if (n < 0 && errno != EINTR)
            error = -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    if (error == 0 && fsync(fd) != 0)
        error = -errno;
    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = -errno;
    if (error == 0 && rename(fresh, path) != 0)
        error = -errno;
    if (error && fd >= 0)
        unlink(fresh);
    return error;
}

static void tell(struct gm_past *past, int error)
{
    if (error && !past->is_told)
        gm_log(GM_LOG_WARN, "the history %s cannot be written: %s; it is tried again", past->path,
               strerror(-error));
    past->is_told = error != 0;
    past->is_changed = past->is_changed || error != 0;
}

static void on_work(uv_work_t *work)
{
    struct writing *writing = work->data;
    writing->error = write_file(writing->path, writing->text, writing->length);
    uv_sem_post(&writing->is_done);
}

static void on_written(uv_work_t *work, int status)
{
    struct writing *writing = work->data;
    struct gm_past *past = (struct gm_past *)((char *)writing - offsetof(struct gm_past, writing));
    free(writing->text);
    writing->is_busy = false;
    uv_sem_trywait(&writing->is_done);
    tell(past, status != 0 ? -ECANCELED : writing->error);
    if (!past->is_changed)
        uv_timer_stop(&past->timer);
}

/* Comes again until all is written. */
static void on_time(uv_timer_t *timer)
{
    struct gm_past *past = timer->data;
    struct writing *writing = &past->writing;
    if (writing->is_busy) /* the disk is slow */
        return;
    writing->text = format(past, &writing->length);
    if (!writing->text)
        return;
    snprintf(writing->path, sizeof writing->path, "%s", past->path);
    writing->work.data = writing;
    if (uv_queue_work(past->loop, &writing->work, on_work, on_written) != 0) {
        free(writing->text);
        return;
    }
    writing->is_busy = true;
    past->is_changed = false;
}

static void change(struct gm_past *past)
{
    past->is_changed = true;
    if (past->path[0] != '\0' && !uv_is_active((uv_handle_t *)&past->timer))
        uv_timer_start(&past->timer, on_time, GM_PAST_WRITE_MS, GM_PAST_WRITE_MS);
}

/* ---- what others ask ---- */

struct gm_past *gm_past_open(uv_loop_t *loop, const char *path)
{
    struct gm_past *past = calloc(1, sizeof *past);
    if (!past)
        return NULL;
    past->loop = loop;
    if (uv_sem_init(&past->writing.is_done, 0) != 0) {
        free(past);
        return NULL;
    }
    uv_timer_init(loop, &past->timer);
    past->timer.data = past;
    if (strlen(path) < sizeof past->path)
        snprintf(past->path, sizeof past->path, "%s", path);
    if (past->path[0] != '\0')
        load(past);
    return past;
}

/* More counts at once, less by a quarter. */
static uint64_t follow(uint64_t before, uint64_t now)
{
    return now >= before ? now : before - (before - now) / 4;
}

static void stamp(struct entry *entry)
{
    const time_t now = time(NULL);
    struct tm date;
    char text[64];
    gmtime_r(&now, &date);
    snprintf(text, sizeof text, "%04d-%02d-%02d", date.tm_year + 1900, date.tm_mon + 1,
             date.tm_mday);
    memcpy(entry->last, text, 10);
}

void gm_past_note(struct gm_past *past, uid_t uid, const char *command,
                  const struct gm_past_run *run)
{
    struct entry entry = {.uid = uid};
    snprintf(entry.command, sizeof entry.command, "%s", command);
    gm_text_clean(entry.command, sizeof entry.command); /* it may have been cut */
    const uint32_t i = find(past, uid, entry.command);
    if (entry.command[0] == '\0')
        return;
    if (i < past->n) {
        entry = past->entries[i];
        take_out(past, i);
    } else {
        make_room(past, uid);
    }
    entry.runs += entry.runs < UINT32_MAX;
    entry.run.most = follow(entry.run.most, gm_more(run->most, MIB - 1) & ~(MIB - 1));
    entry.run.needed = follow(entry.run.needed, gm_more(run->needed, MIB - 1) & ~(MIB - 1));
    entry.run.time = (uint32_t)follow(entry.run.time, run->time);
    entry.run.took_ms = follow(entry.run.took_ms, gm_least(run->took_ms, TOOK_MOST));
    stamp(&entry);
    past->entries[past->n++] = entry;
    change(past);
}

enum gm_need_from gm_past_find(const struct gm_past *past, uid_t uid, const char *command,
                               struct gm_past_run *run)
{
    const uint32_t i = find(past, uid, command);
    uint64_t n = 0;
    *run = (struct gm_past_run){.time = GM_BIND_WHOLE};
    if (i < past->n) {
        *run = past->entries[i].run;
        return GM_NEED_REMEMBERED;
    }
    uint64_t needed = 0;
    for (uint32_t k = 0; k < past->n; k++) {
        if (past->entries[k].uid != uid)
            continue;
        needed += past->entries[k].run.needed / MIB; /* no sum of so many is too large */
        n++;
    }
    if (n == 0)
        return GM_NEED_UNKNOWN;
    run->most = run->needed = needed / n * MIB;
    return GM_NEED_MEAN;
}

uint32_t gm_past_forget(struct gm_past *past, bool of_all, uid_t uid, const char *pattern)
{
    uint32_t n = 0;
    for (uint32_t i = past->n; i-- > 0;) {
        const struct entry *entry = &past->entries[i];
        if ((!of_all && entry->uid != uid) ||
            (pattern && !gm_command_matches(pattern, entry->command)))
            continue;
        take_out(past, i);
        n++;
    }
    if (n > 0)
        change(past);
    return n;
}

void gm_past_close(struct gm_past *past)
{
    size_t length;
    if (!past)
        return;
    if (past->writing.is_busy) /* a thread still writes an older text: the newer comes after it */
        uv_sem_wait(&past->writing.is_done);
    char *text = past->is_changed && past->path[0] != '\0' ? format(past, &length) : NULL;
    if (text)
        tell(past, write_file(past->path, text, length));
    free(text);
    uv_close((uv_handle_t *)&past->timer, NULL);
}

void gm_past_free(struct gm_past *past)
{
    if (past)
        uv_sem_destroy(&past->writing.is_done);
    free(past);
}

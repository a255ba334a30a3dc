/*
 * Writers: see writer.h. There are two buffers: one is filled while the thread writes the other.
 */
#include "common/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/locks.h"
#include "common/threads.h"

/* One write(2) has so much, so that a pipe takes lines whole. */
#define WRITER_PIECE 4096u

struct gm_writer {
    int fd;
    size_t room;
    gm_writer_notice *notice;
    struct gm_lock lock;
    pthread_cond_t filled, emptied;
    char *filling, *writing;
    size_t length;   /* of what is in `filling` */
    bool is_writing; /* what is in `writing` */
    uint64_t lost;   /* lines, of which nothing was said yet */
};

static uint64_t count_lines(const char *bytes, size_t length)
{
    uint64_t n = 0;
    for (size_t i = 0; i < length; i++)
        n += bytes[i] == '\n';
    return n;
}

/* How much of it goes into one write: whole lines where one is no longer than that. */
static size_t next_piece(const char *bytes, size_t length)
{
    const size_t most = length < WRITER_PIECE ? length : WRITER_PIECE;
    const char *end = memrchr(bytes, '\n', most);
    return end ? (size_t)(end - bytes) + 1 : most;
}

/* Without the lock. Returns how much was written, and in *error why no more. */
static size_t write_out(int fd, const char *bytes, size_t length, int *error)
{
    size_t done = 0;
    while (done < length) {
        const char *at = bytes + done;
        ssize_t n = write(fd, at, next_piece(at, length - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            *error = n < 0 ? -errno : -EIO;
            break;
        }
        done += (size_t)n;
    }
    return done;
}

/* Say that so many lines are lost. Under the lock, which it gives up while it writes. */
static void write_notice(struct gm_writer *writer, uint64_t lost)
{
    char line[GM_WRITER_NOTICE];
    int error = 0;
    gm_unlock(&writer->lock);
    write_out(writer->fd, line, writer->notice(line, sizeof line, lost), &error);
    gm_lock(&writer->lock);
    if (error == 0)
        writer->lost -= lost;
}

/* Under the lock, which it gives up while it writes. */
static void write_all(struct gm_writer *writer)
{
    char *const full = writer->filling;
    const size_t length = writer->length;
    const uint64_t lost = writer->lost; /* behind these: there was no room for more */
    int error = 0;
    writer->filling = writer->writing;
    writer->writing = full;
    writer->length = 0;
    writer->is_writing = true;
    gm_unlock(&writer->lock);
    const size_t done = write_out(writer->fd, full, length, &error);
    gm_lock(&writer->lock);
    writer->lost += count_lines(full + done, length - done);
    if (error == 0 && lost > 0)
        write_notice(writer, lost);
    writer->is_writing = false;
    pthread_cond_broadcast(&writer->emptied);
}

static void *run(void *argument)
{
    struct gm_writer *writer = argument;
    gm_lock(&writer->lock);
    for (;;) {
        while (writer->length == 0)
            gm_lock_wait(&writer->filled, &writer->lock);
        write_all(writer);
    }
    return NULL;
}

struct gm_writer *gm_writer_open(int fd, size_t room, gm_writer_notice *notice, const char *name)
{
    struct gm_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    *writer = (struct gm_writer){.fd = fd, .room = room, .notice = notice};
    writer->filling = malloc(room);
    writer->writing = malloc(room);
    gm_lock_init(&writer->lock, GM_LOCK_WRITER);
    pthread_cond_init(&writer->filled, NULL);
    pthread_cond_init(&writer->emptied, NULL);
    if (writer->filling && writer->writing && gm_thread_start_on(run, writer, name) == 0)
        return writer;
    gm_lock_destroy(&writer->lock);
    pthread_cond_destroy(&writer->filled);
    pthread_cond_destroy(&writer->emptied);
    free(writer->filling);
    free(writer->writing);
    free(writer);
    return NULL;
}

static bool is_empty(const struct gm_writer *writer)
{
    return writer->length == 0 && !writer->is_writing;
}

/* Under the lock. */
static bool wait_until_empty(struct gm_writer *writer, uint64_t patience_ns)
{
    const struct timespec until = gm_timespec(gm_now() + patience_ns);
    while (!is_empty(writer) && gm_lock_wait_until(&writer->emptied, &writer->lock, &until) == 0)
        continue;
    return is_empty(writer);
}

bool gm_writer_put(struct gm_writer *writer, const char *lines, size_t length, uint64_t patience_ns)
{
    gm_lock(&writer->lock);
    const bool is_taken = length <= writer->room - writer->length;
    if (is_taken) {
        const bool is_first = is_empty(writer);
        memcpy(writer->filling + writer->length, lines, length);
        writer->length += length;
        pthread_cond_signal(&writer->filled);
        if (is_first && patience_ns > 0)
            wait_until_empty(writer, patience_ns);
    } else {
        writer->lost += count_lines(lines, length);
    }
    gm_unlock(&writer->lock);
    return is_taken;
}

bool gm_writer_flush(struct gm_writer *writer, uint64_t patience_ns)
{
    gm_lock(&writer->lock);
    const bool is_written = wait_until_empty(writer, patience_ns);
    gm_unlock(&writer->lock);
    return is_written;
}

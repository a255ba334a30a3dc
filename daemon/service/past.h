/*
 * What earlier runs of programs needed, by user and command: so a program that starts again is
 * bound by what it will need (placing.c).
 *
 * Kept in a text file that a person can read, one line a command, the newest last:
 *
 *   uid=1000 runs=3 last=2026-11-26 most=9216M needed=9216M time=87% took=945ms command=a.py
 *
 * A file that is damaged, or of another version, is renamed to FILE.damaged, and a new one begins.
 * It has GM_PAST_MOST lines at most, GM_PAST_USER of one user; who comes beyond that takes the
 * place of what was not run for longest. It is written by a thread, so that nobody waits for the
 * disk, GM_PAST_WRITE_MS after a change, again and again until it can be, and when the daemon ends.
 * Without a file it is kept in memory.
 *
 * Owns struct gm_past. Called by session.c and placing.c; calls common/. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_PAST_H
#define GM_DAEMON_SERVICE_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/core/bind.h"

#define GM_PAST_MOST 512u
#define GM_PAST_USER 128u
#define GM_PAST_WRITE_MS 2000u

struct gm_past;

/* On one GPU. */
struct gm_past_run {
    uint64_t most;    /* bytes that it had at any time */
    uint64_t needed;  /* ... that it needed there for its turns */
    uint32_t time;    /* thousandths of the GPU's time that it wanted */
    uint64_t took_ms; /* how long it was there without waiting; 0: not known */
};

/* `path` "": in memory only. A file that cannot be used is no error: the log says so. NULL: out of
 * memory. */
struct gm_past *gm_past_open(uv_loop_t *loop, const char *path);

/* A run has ended. Of what differs from the runs before, more counts at once, less by a quarter
 * each time. */
void gm_past_note(struct gm_past *past, uid_t uid, const char *command,
                  const struct gm_past_run *run);

/* What such a run will need: REMEMBERED, or the MEAN of the user's, or UNKNOWN with *run 0 but for
 * the time, which is all. */
enum gm_need_from gm_past_find(const struct gm_past *past, uid_t uid, const char *command,
                               struct gm_past_run *run);

/* Forget commands that match `pattern` (NULL: all), of `uid` or of all users. Returns how many. */
uint32_t gm_past_forget(struct gm_past *past, bool of_all, uid_t uid, const char *pattern);

/* Write what is not written, and close the handles. The loop must run to its end before
 * gm_past_free. NULL: nothing. */
void gm_past_close(struct gm_past *past);
void gm_past_free(struct gm_past *past);

#endif

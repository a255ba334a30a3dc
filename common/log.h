/*
 * Log lines of the daemon and the shim. The daemon logs to standard error, by a thread of its own
 * (gm_log_apart); the shim only to the file that GPUMUX_LOG names (shim/entry/start.c). A line
 * starts with the journal's prefix ("<6>") if standard error is a journal stream, else with the
 * time. Owns the process's log; any thread may call. Calls common/ only.
 */
#ifndef GM_COMMON_LOG_H
#define GM_COMMON_LOG_H

#include <stdbool.h>

enum gm_log_level { GM_LOG_ERROR = 3, GM_LOG_WARN = 4, GM_LOG_INFO = 6, GM_LOG_DEBUG = 7 };

/* Set the file (-1: none) and the least urgent level that is written. */
void gm_log_open(int fd, enum gm_log_level level, const char *who);

/* Write lines of this level and all more urgent ones from now on. */
void gm_log_from(enum gm_log_level level);

/*
 * From now on a thread writes the lines, so that nobody waits for the file: it may be a terminal
 * that is stopped, or a pipe that nobody reads. Up to GM_LOG_WAITING bytes wait; what is more is
 * dropped, and the next line that can be written says how many were. When the process ends, they
 * have a second. Call it once, after gm_log_open. Without it, and if no thread can be had, callers
 * write themselves.
 */
#define GM_LOG_WAITING (256u << 10)
void gm_log_apart(void);

/*
 * From now on write one line per second of each kind. Others are held back; after a second the last
 * of them is written, with their number. Lines are of one kind if they have the same level and the
 * same text, or the same `kind` of gm_log_like. Debug lines are not limited. The caller must call
 * gm_log_release regularly. Call it once.
 */
void gm_log_limit(void);

/* Whether lines are held back. */
bool gm_log_is_holding(void);

/* Write lines that were held back for a second, or all of them. */
void gm_log_release(bool is_all);

/* Write one line, cut at 1000 bytes, with one write(2). Control characters become '?'. */
void gm_log(enum gm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a line of this `kind`, whatever its text. */
void gm_log_like(enum gm_log_level level, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

/*
 * Log lines of the daemon and mux-ctl: one line each on standard error, with the priority prefix
 * that the journal understands ("<6>") when standard error is a journal stream, else a plain time
 * stamp. The shim logs only when GPUMUX_LOG names a file (shim/entry/start.c) and never to the
 * program's streams.
 */
#ifndef GM_COMMON_LOG_H
#define GM_COMMON_LOG_H

#include <stdbool.h>

enum gm_log_level { GM_LOG_ERROR = 3, GM_LOG_WARN = 4, GM_LOG_INFO = 6, GM_LOG_DEBUG = 7 };

/* Set where lines go (a file descriptor, -1 for nowhere) and the least urgent level shown. */
void gm_log_open(int fd, enum gm_log_level level, const char *who);

/*
 * Limit repetition from now on: of lines of one kind, one is written a second. What comes more
 * often is held back; after a second the last such line is written, with the number of the others.
 * Lines of one kind have the same level and text, or were given the same kind by gm_log_like.
 * Debug lines are not limited. Somebody must call gm_log_release then. For the daemon; once.
 */
void gm_log_limit(void);

/* Whether lines are held back. */
bool gm_log_is_holding(void);

/* Write what was held back for a second, or all of it. Any thread. */
void gm_log_release(bool is_all);

/* One line, cut at 1000 bytes; control characters become '?'. Thread-safe, one write(2) a line. */
void gm_log(enum gm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a line that counts as repeated when another had this level and `kind`, though their
 * texts differ. */
void gm_log_like(enum gm_log_level level, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

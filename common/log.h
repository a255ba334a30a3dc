/*
 * Log lines of the daemon and mux-ctl: one line each on standard error, with the priority prefix that
 * the journal understands ("<6>") when standard error is a journal stream, else a plain time stamp.
 * The shim logs only when GPUMUX_LOG names a file (shim/boot.c) and never to the program's streams.
 */
#ifndef GM_COMMON_LOG_H
#define GM_COMMON_LOG_H

enum gm_log_level { GM_LOG_ERROR = 3, GM_LOG_WARN = 4, GM_LOG_INFO = 6, GM_LOG_DEBUG = 7 };

/* Set where lines go (a file descriptor, -1 for nowhere) and the least urgent level shown. */
void gm_log_open(int fd, enum gm_log_level level, const char *who);

/* One line, cut at 1000 bytes; control characters become '?'. Thread-safe, one write(2) a line. */
void gm_log(enum gm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

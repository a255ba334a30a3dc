/*
 * What the system says of another process (/proc/PID/stat). Owns nothing. Called by places.c, and
 * by the engine through its outlet.
 */
#ifndef GM_DAEMON_SERVICE_PROCESS_H
#define GM_DAEMON_SERVICE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* The process that started this one. 0: it is gone, or cannot be looked at. */
pid_t gm_process_parent(pid_t pid);

/* Whether it stands still: Ctrl-Z, SIGSTOP, or a debugger. False also if it cannot be looked at. */
bool gm_process_is_stopped(pid_t pid);

#endif

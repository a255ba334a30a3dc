/*
 * Room for the daemon's files in a program that is at its own limit of open files (RLIMIT_NOFILE).
 *
 * A frame comes as a file descriptor, which is open until it is imported. Where few numbers seem to
 * be left, the soft limit is raised for as long as a message is taken, as far as the hard limit
 * allows; other threads may see that. If there is no number left nevertheless, the kernel drops the
 * fd on the way: then the daemon is told that the frame could not be mapped, says so in its status,
 * and sends it again later.
 *
 * The link thread alone calls these, but for gm_files_lift.
 */
#ifndef GM_SHIM_FILES_H
#define GM_SHIM_FILES_H

#include <stdbool.h>

#include "common/wire.h"

/* Move `fd` up, out of the way of programs that close all low fds or count on their numbers.
 * Returns the number that it has now. Any thread. */
int gm_files_lift(int fd);

/* Before a message is taken, and after all it brought is closed. `any_fd` is an open one. */
void gm_files_widen(int any_fd);
void gm_files_restore(void);

/*
 * The fds of `message`, which did not decode because of them (GM_WIRE_BAD_FDS), were lost. If it
 * can be answered without them: its batch, and true.
 */
bool gm_files_lost(const void *bytes, size_t length, uint64_t *batch);

#endif

/*
 * Room for the daemon's files in a program that is at its own limit of open files (RLIMIT_NOFILE).
 *
 * A frame comes as a file descriptor, which is open until it is imported. The shim takes
 * GM_WIRE_FDS numbers for that at its start, as duplicates of an empty file. They are closed right
 * before a message that brings fds is taken, and taken again after it. So there is room though the
 * program has taken every other number, and its limit is never changed. Importing and mapping need
 * no number of their own (driver 580, H100: all succeed with no number left).
 *
 * Another thread may open a file in between and get such a number, or the program closes them
 * (closefrom). If there is no room then, the kernel drops fds on the way: the daemon is told that
 * the frames could not be mapped, says so in its status, and sends them again later.
 *
 * The link thread alone calls these, and boot before it, but for gm_files_lift.
 */
#ifndef GM_SHIM_FILES_H
#define GM_SHIM_FILES_H

#include <stdbool.h>

#include "common/wire.h"

/* Move `fd` up, out of the way of programs that close all low fds or count on their numbers.
 * Returns the number that it has now. Any thread. */
int gm_files_lift(int fd);

/* Take the numbers that are missing, as far as there are any. */
void gm_files_reserve(void);

/* Before the next message is taken from `socket`: if it brings fds, make room for them. */
void gm_files_make_room(int socket);

/* Give all numbers back. Also for the forked child. */
void gm_files_give_back(void);

/*
 * The fds of `message`, which did not decode because of them (GM_WIRE_BAD_FDS), were lost. If it
 * can be answered without them: its batch, and true.
 */
bool gm_files_lost(const void *bytes, size_t length, uint64_t *batch);

#endif

/*
 * File descriptor numbers for the daemon's files, in a program at its limit (RLIMIT_NOFILE).
 *
 * A frame arrives as a file descriptor that stays open until it is imported. At its start the shim
 * takes GM_WIRE_FDS numbers as duplicates of an empty file. It closes them right before it receives
 * a message with fds, and takes them again afterwards. So there is room even if the program has
 * taken every other number, and its limit is never changed. Importing and mapping need no number
 * of their own (driver 580, H100: both succeed with no number left). With these numbers a program
 * at its limit comes back to the next daemon, too.
 *
 * Another thread may take such a number in between, or the program may close them (closefrom). Then
 * the kernel drops fds on the way. The shim tells the daemon that these frames could not be mapped;
 * the daemon says so in its status and sends them again later.
 *
 * Owns these numbers. Callers: the link thread and boot; gm_files_lift: any thread. Calls the log.
 */
#ifndef GM_SHIM_FILES_H
#define GM_SHIM_FILES_H

#include <stdbool.h>

#include "common/wire.h"

/* Make the kernel's table of files large enough for the high numbers. Whoever makes it grow in a
 * process that has threads waits for all processors: 22 ms each time (H200). So at load. */
void gm_files_widen(void);

/* Move `fd` to a high number, because programs close all low fds or expect certain numbers. Returns
 * the new number. Any thread. */
int gm_files_lift(int fd);

/* Take the missing numbers, as far as they are free. */
void gm_files_reserve(void);

/* Before the next message is received from `socket`: if it has fds, make room for them. */
void gm_files_make_room(int socket);

/* Before this program connects again: make room for that. */
void gm_files_lend(void);

/* Give all numbers back. Also for the forked child. */
void gm_files_give_back(void);

/* The message `bytes` lost fds. True: it can be answered without them; *batch is its batch. */
bool gm_files_lost(const void *bytes, size_t length, uint64_t *batch);

#endif

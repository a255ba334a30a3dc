/*
 * Open files. Each app, each connection and each frame needs one or more, and a process may have
 * only so many. Some are kept for control, so that mux-ctl is answered however many programs there
 * are: for its connections, and for the memory that carries an answer.
 *
 * The kernel gives the lowest number that is free. So the numbers from the limit less those that
 * are kept stay free if whoever opens a file for a program closes it again when it got one of them.
 * Nothing needs to be counted.
 *
 * One limit for the process; any thread. Before gm_files_init nothing is kept.
 */
#ifndef GM_DAEMON_MEMORY_FILES_H
#define GM_DAEMON_MEMORY_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* 64 connections that are no program's (see session.h), 16 more that are accepted before those
 * that make room for them are closed, 16 for answers. */
#define GM_FILES_KEPT 96u

/* At most `limit` files; a quarter of them is kept, but no more than GM_FILES_KEPT. */
void gm_files_init(uint64_t limit);

/* How many there may be, and how many of them are kept. UINT32_MAX, GM_FILES_KEPT before init. */
uint32_t gm_files_limit(void);
uint32_t gm_files_kept(void);

/* This new file is one of those that are kept: close it, unless it is for control. */
bool gm_files_is_kept(int fd);

/* How many can be opened for programs now. Exact while others open and close none. */
uint32_t gm_files_left(void);

#endif

/*
 * The numbers of open files. Each app, connection and frame needs one or more, and a process has a
 * limited number. Some are kept for mux-ctl, so that it is answered however many programs there
 * are: for its connections, and for the memory that carries an answer.
 *
 * The kernel gives the lowest free number. So the highest ones stay free if whoever opens a file
 * for a program closes it again when its number is one of them. Nothing needs to be counted.
 *
 * Owns the limit, set once by main. Any thread may ask. Before gm_files_init nothing is kept.
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

/*
 * The limit of open files. Each app, connection and frame needs one or more. Some numbers are
 * reserved for mux-ctl, so that it is always answered: for its connections, and for the memory that
 * carries an answer.
 *
 * The kernel gives the lowest free number. So whoever opens a file for a program closes it again if
 * its number is one of the highest, which are reserved. Nothing needs to be counted.
 *
 * Owns the limit, set once by main. Called by service, the engine and frames, from any thread.
 * Calls nothing of the daemon. Before gm_files_init nothing is reserved.
 */
#ifndef GM_DAEMON_MEMORY_FILES_H
#define GM_DAEMON_MEMORY_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* 64 connections that are no program's (see session.h), 16 more that are accepted before those
 * that make room for them are closed, 16 for answers. */
#define GM_FILES_RESERVED 96u

/* At most `limit` files; a quarter of them is reserved, but no more than GM_FILES_RESERVED. */
void gm_files_init(uint64_t limit);

/* The limit, and how many of it are reserved. UINT32_MAX and GM_FILES_RESERVED before init. */
uint32_t gm_files_limit(void);
uint32_t gm_files_reserved(void);

/* How many are open now; 0: nobody can tell. */
uint32_t gm_files_count(void);

/* A frame takes so many: its own, and what the driver opens for it. */
void gm_files_frame_takes(uint32_t n);

/* From now on the rest is divided, so that neither takes the other's: a third is for programs'
 * connections, and the others are for frames. Returns how many there are for programs. */
uint32_t gm_files_divide(void);

/* How many frames there can be at once; UINT32_MAX before that. */
uint32_t gm_files_for_frames(void);

/* Each slab of pinned memory will have a file: `n` at most, of all GPUs. They are for nothing else
 * from now on, here and at the keeper, which holds each file of memory, too, and `kept` in all.
 * False: that would be more than a quarter of what is left, and none is to have one. */
bool gm_files_hold_slabs(uint32_t n, uint32_t kept);
/* One has its file, or has it no more. */
void gm_files_add_slab(void);
void gm_files_drop_slab(void);

/* A frame has a file. False: it may not. */
bool gm_files_add_frame(void);
/* ... that is open already. */
void gm_files_adopt_frame(void);
void gm_files_drop_frame(void);

/* How many more frames there can be. */
uint32_t gm_files_left_for_frames(void);

/* Whether this new file is one of those reserved: close it, unless it is for control. */
bool gm_files_is_reserved(int fd);

/* How many can be opened for programs now. Exact while no other thread opens or closes files. */
uint32_t gm_files_left(void);

#endif

/*
 * Records: what a program's launches touched, as the profiler's library wrote it. Text, a line for
 * each fact, in the order in which it happened:
 *
 *   gpumux-records 1
 *   kernel INDEX HASH REGISTERS NAME
 *   alloc FROM BYTES
 *   free FROM
 *   launch INDEX GX GY GZ BX BY BZ ARGUMENTS
 *   touch PAGE COUNT
 *
 * INDEX counts from 0; HASH, REGISTERS and NAME are as in common/profile.h. FROM, PAGE and
 * ARGUMENTS are hexadecimal; PAGE is an address divided by 4096, COUNT pages from it were touched
 * by the launch before. ARGUMENTS are the bytes as the kernel sees them, "-" if there are none.
 * Pages that lie in no allocation are left out: variables, stacks and code are not what moves.
 *
 * A program that was killed leaves a file without its last lines: the rest counts. Any other line
 * that is wrong ends the reading with a reason.
 *
 * Owns what gm_records_read fills in. Calls the C library only.
 */
#ifndef GM_DAEMON_PROFILE_RECORDS_H
#define GM_DAEMON_PROFILE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/templates.h"

#define GM_RECORDS_VERSION 1u
#define GM_PAGE_SHIFT 12u
#define GM_PAGE_BYTES (1u << GM_PAGE_SHIFT)

struct gm_span {
    uint64_t from, to; /* without `to` */
};

/* An argument that was an address in an allocation. */
struct gm_pointer {
    uint32_t offset;
    uint64_t value;
    struct gm_span alloc;
};

/* Pages that were touched, of one allocation. */
struct gm_run {
    struct gm_span at, alloc;
};

struct gm_launch {
    uint32_t kernel; /* index */
    struct gm_arguments arguments;
    uint32_t n_pointers, n_runs;
    struct gm_pointer *pointers; /* ascending by offset */
    struct gm_run *runs;         /* ascending, apart from each other */
};

struct gm_recorded_kernel {
    uint64_t hash;
    uint32_t registers;
    char *name;
};

struct gm_records {
    uint32_t n_kernels, n_launches;
    struct gm_recorded_kernel *kernels;
    struct gm_launch *launches; /* as they happened */
};

/* Add what `file` has to *records, which begins as {0}: kernels of another file with the same hash
 * are the same. False, with one line in `why`: it is wrong from there on. */
bool gm_records_read(FILE *file, struct gm_records *records, char *why, size_t why_size);

void gm_records_free(struct gm_records *records);

#endif
